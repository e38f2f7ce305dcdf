//! DAPO's handling of groups that teach nothing and of truncated answers.
//!
//! - Dynamic sampling ([`FilterGroupsConfig`]): groups whose answers are all
//!   equally good have no advantage; they are dropped, and more prompts are
//!   sampled in their place.
//! - Overlong filtering ([`mask_truncated`]): an answer that was cut off may
//!   have been on the right way; it is taken out of the loss.
//!
//! # Paper
//! arXiv:2503.14476, sections 3.2 and 3.4.
//!
//! # Differences from verl
//! A group is dropped when the values of its metric are equal. verl asks
//! whether their deviation is above 0, which the rounding of three values of
//! 0.1 is.

use serde::{Deserialize, Serialize};
use verl_core::algorithm::{BatchHook, Figures, GroupFilter};
use verl_core::types::{Batch, Column, FinishReason, Group, Trajectory};
use verl_core::{Error, Result};

/// Options of dynamic sampling, in verl's spelling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterGroupsConfig {
    /// Whether groups are dropped.
    pub enable: bool,
    /// What must differ within a group: `score`, the answer's score before any
    /// KL penalty; `seq_reward`, the sum of its token rewards; or the name of a
    /// sub-score, such as `acc`.
    pub metric: String,
    /// Batches of prompts to sample at most until a step is full; the step then
    /// trains on the groups it has. 0 sets no limit: once every answer is
    /// right, the step never ends.
    pub max_num_gen_batches: usize,
    /// Keep groups by the mean of the metric instead, bounds included: PRIME's
    /// filter by accuracy.
    pub mean_within: Option<(f32, f32)>,
}

impl Default for FilterGroupsConfig {
    fn default() -> Self {
        FilterGroupsConfig {
            enable: false,
            metric: "score".into(),
            max_num_gen_batches: 10,
            mean_within: None,
        }
    }
}

impl FilterGroupsConfig {
    /// The filter, where it is enabled.
    ///
    /// # Errors
    /// [`Error::Config`] when the metric has no name, or the bounds of its mean
    /// are not in order.
    pub fn build(&self) -> Result<Option<Box<dyn GroupFilter>>> {
        if let Some((low, high)) = self.mean_within
            && (low.is_nan() || high.is_nan() || low > high)
        {
            let message = format!("[{low}, {high}] are no bounds; give the lower one first");
            return Err(Error::config(
                "algorithm.filter_groups.mean_within",
                message,
            ));
        }
        let metric = match self.metric.as_str() {
            "" => {
                return Err(Error::config(
                    "algorithm.filter_groups.metric",
                    "is empty; give `score`, `seq_reward` or the name of a sub-score",
                ));
            }
            "score" => Metric::Score,
            "seq_reward" => Metric::SeqReward,
            part => Metric::Part(part.into()),
        };
        Ok(self.enable.then(|| match self.mean_within {
            None => Box::new(MetricVaries(metric)) as Box<dyn GroupFilter>,
            Some(bounds) => Box::new(MeanWithin { metric, bounds }),
        }))
    }
}

/// A number of each answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    /// The score, before any KL penalty.
    Score,
    /// The sum of the token rewards.
    SeqReward,
    /// A named sub-score.
    Part(String),
}

impl Metric {
    fn values(&self, group: &Group) -> Result<Vec<f32>> {
        group.trajectories().iter().map(|t| self.of(t)).collect()
    }

    fn of(&self, t: &Trajectory) -> Result<f32> {
        match self {
            Metric::Score => t.score().ok_or(Error::MissingColumn {
                column: "score",
                requester: NAME,
                remedy: Column::TokenRewards.remedy(),
            }),
            Metric::SeqReward => Ok(t.total_reward()),
            Metric::Part(name) => t.part(name, NAME),
        }
    }
}

const NAME: &str = "filter_groups";

/// Keeps groups in which a metric differs, and those of a single answer.
///
/// # Example
/// ```
/// use verl_algos::dapo::{Metric, MetricVaries};
/// use verl_core::algorithm::{BatchHook, Figures, GroupFilter};
/// use verl_core::types::{FinishReason, Group, GroupId, Trajectory, TrajectoryParts};
///
/// let group = |scores: [f32; 3]| {
///     let answer = |(sample, score)| {
///         let mut t = Trajectory::new(TrajectoryParts {
///             group: GroupId(0),
///             sample,
///             prompt: vec![1].into(),
///             response: vec![7],
///             response_mask: vec![true],
///             finish: FinishReason::Stop,
///             weight_version: 0,
///         })?;
///         t.set_score(score).map(|()| t)
///     };
///     let answers = scores.into_iter().enumerate().map(answer);
///     Group::new(GroupId(0), answers.collect::<Result<_, _>>()?)
/// };
/// let filter = MetricVaries(Metric::Score);
/// assert!(filter.keeps(&group([1.0, 0.0, 1.0])?)?);
/// assert!(!filter.keeps(&group([0.1, 0.1, 0.1])?)?);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricVaries(pub Metric);

impl GroupFilter for MetricVaries {
    fn keeps(&self, group: &Group) -> Result<bool> {
        let values = self.0.values(group)?;
        Ok(values.len() == 1 || values.iter().any(|v| *v != values[0]))
    }
}

/// Keeps groups that are neither too easy nor too hard: the mean of a metric
/// lies within bounds (PRIME, arXiv:2502.01456: 0.2 and 0.8).
#[derive(Debug, Clone, PartialEq)]
pub struct MeanWithin {
    /// The metric.
    pub metric: Metric,
    /// Lowest and highest mean.
    pub bounds: (f32, f32),
}

impl GroupFilter for MeanWithin {
    fn keeps(&self, group: &Group) -> Result<bool> {
        let values = self.metric.values(group)?;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
        let (low, high) = self.bounds;
        Ok((low..=high).contains(&(mean as f32)))
    }
}

/// Overlong filtering as part of an algorithm; see [`mask_truncated`]. Logs
/// `dapo/overlong_filtered`, the number of answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverlongFilter;

impl BatchHook for OverlongFilter {
    fn before_updates(&self, batch: &mut Batch, _seed: u64) -> Result<Figures> {
        let filtered = mask_truncated(batch) as f64;
        Ok(vec![("dapo/overlong_filtered".into(), filtered)])
    }
}

/// Takes answers that ran into the token limit out of the loss, and returns
/// how many there were. To be called once advantages are there: a truncated
/// answer still counts for what the others of its group are compared with.
pub fn mask_truncated(batch: &mut Batch) -> usize {
    let truncated = |t: &&mut Trajectory| t.finish() == FinishReason::Length;
    let truncated = batch.trajectories_mut().filter(truncated);
    truncated.map(Trajectory::mask_out).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use verl_core::types::{GroupId, TrajectoryParts};

    fn answer(sample: usize, finish: FinishReason) -> Trajectory {
        Trajectory::new(TrajectoryParts {
            group: GroupId(0),
            sample,
            prompt: vec![1].into(),
            response: vec![7, 8],
            response_mask: vec![true, true],
            finish,
            weight_version: 0,
        })
        .unwrap()
    }

    #[test]
    fn truncated_answers_leave_the_loss() {
        let answers = vec![
            answer(0, FinishReason::Stop),
            answer(1, FinishReason::Length),
        ];
        let mut batch = Batch::new(vec![Group::new(GroupId(0), answers).unwrap()]);
        assert_eq!(mask_truncated(&mut batch), 1);
        let tokens: Vec<usize> = batch.trajectories().map(|t| t.policy_tokens()).collect();
        assert_eq!(tokens, [2, 0]);
    }

    #[test]
    fn groups_in_between_are_kept() {
        let config = FilterGroupsConfig {
            enable: true,
            mean_within: Some((0.2, 0.8)),
            ..Default::default()
        };
        let filter = config.build().unwrap().unwrap();
        let keeps = |scores: &[f32]| {
            let answers = scores.iter().enumerate().map(|(i, score)| {
                let mut t = answer(i, FinishReason::Stop);
                t.set_score(*score).unwrap();
                t
            });
            let group = Group::new(GroupId(0), answers.collect()).unwrap();
            filter.keeps(&group).unwrap()
        };
        assert!(keeps(&[1.0, 0.0, 0.0, 0.0]) && keeps(&[1.0, 1.0, 1.0, 0.0]));
        assert!(!keeps(&[0.0, 0.0]) && !keeps(&[1.0, 1.0]));
        let swapped = FilterGroupsConfig {
            mean_within: Some((0.8, 0.2)),
            ..Default::default()
        };
        let message = swapped.build().unwrap_err().to_string();
        assert!(message.contains("mean_within: [0.8, 0.2] are no bounds"));
    }

    #[test]
    fn a_metric_that_nobody_has_is_named() {
        let config = FilterGroupsConfig {
            enable: true,
            metric: "acc".into(),
            ..Default::default()
        };
        let filter = config.build().unwrap().unwrap();
        let group = Group::new(GroupId(0), vec![answer(0, FinishReason::Stop)]).unwrap();
        assert_eq!(
            filter.keeps(&group).unwrap_err().to_string(),
            "filter_groups reads the sub-score `acc` of group 0, sample 0, which has none; let \
             the reward return it with `Score::with_part`"
        );
    }
}
