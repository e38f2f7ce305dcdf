//! Groups of trajectories, and batches of groups.

use super::{Column, GroupId, Trajectory};
use crate::{Error, Result};

/// The answers to one prompt occurrence.
#[derive(Debug, Clone)]
pub struct Group {
    id: GroupId,
    trajectories: Vec<Trajectory>,
    baseline: Option<f32>,
}

impl Group {
    /// Collects the answers of one group.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none, or one belongs to another group.
    pub fn new(id: GroupId, trajectories: Vec<Trajectory>) -> Result<Self> {
        if trajectories.is_empty() {
            return Err(Error::invalid(format!(
                "group {} has no trajectories",
                id.0
            )));
        }
        match trajectories.iter().find(|t| t.group() != id) {
            Some(stray) => Err(Error::invalid(format!(
                "{} was put into group {}",
                stray.place(),
                id.0
            ))),
            None => Ok(Group {
                id,
                trajectories,
                baseline: None,
            }),
        }
    }

    /// The prompt occurrence.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The answers.
    pub fn trajectories(&self) -> &[Trajectory] {
        &self.trajectories
    }

    /// The answers, mutable.
    pub fn trajectories_mut(&mut self) -> &mut [Trajectory] {
        &mut self.trajectories
    }

    /// Reward of one greedy answer to the prompt, where the run samples it.
    pub fn baseline(&self) -> Option<f32> {
        self.baseline
    }

    /// Sets [`Group::baseline`].
    ///
    /// # Errors
    /// [`Error::NotFinite`] when it is NaN or infinite.
    pub fn set_baseline(&mut self, reward: f32) -> Result<()> {
        if !reward.is_finite() {
            return Err(Error::NotFinite {
                what: "baseline".into(),
                value: reward,
                place: format!("group {}", self.id.0),
            });
        }
        self.baseline = Some(reward);
        Ok(())
    }

    /// Whether all answers earned exactly the same reward: a group that
    /// teaches a group-relative algorithm nothing.
    pub fn is_uniform(&self) -> bool {
        let first = self.trajectories[0].total_reward();
        self.trajectories.iter().all(|t| t.total_reward() == first)
    }
}

/// The trajectories of one training step (or one mini-batch of it).
#[derive(Debug, Clone, Default)]
pub struct Batch {
    groups: Vec<Group>,
}

impl Batch {
    /// Collects groups.
    pub fn new(groups: Vec<Group>) -> Self {
        Batch { groups }
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The groups, mutable.
    pub fn groups_mut(&mut self) -> &mut [Group] {
        &mut self.groups
    }

    /// The groups, taken out.
    pub fn into_groups(self) -> Vec<Group> {
        self.groups
    }

    /// All trajectories, group after group.
    pub fn trajectories(&self) -> impl Iterator<Item = &Trajectory> {
        self.groups.iter().flat_map(|g| g.trajectories())
    }

    /// All trajectories, mutable, in the same order.
    pub fn trajectories_mut(&mut self) -> impl Iterator<Item = &mut Trajectory> {
        self.groups.iter_mut().flat_map(|g| g.trajectories_mut())
    }

    /// Number of trajectories.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|g| g.trajectories.len()).sum()
    }

    /// Whether there is no trajectory.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Stores one column for every trajectory, in batch order.
    ///
    /// # Errors
    /// [`Error::Length`] when there are more or fewer rows than trajectories,
    /// and what [`Trajectory::set`] finds.
    pub fn set_column(&mut self, column: Column, rows: Vec<Vec<f32>>) -> Result<()> {
        let (expected, got) = (self.len(), rows.len());
        if expected != got {
            return Err(Error::Length {
                what: format!("rows of {}", column.name()),
                expected,
                got,
            });
        }
        self.trajectories_mut()
            .zip(rows)
            .try_for_each(|(t, row)| t.set(column, row))
    }
}
