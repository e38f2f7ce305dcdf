//! Named sub-scores of a trajectory: what its reward is made of.

use super::Trajectory;
use crate::{Error, Result};
use std::sync::Arc;

impl Trajectory {
    /// The named sub-scores of its reward, unweighted, in the reward's order.
    /// Empty where the reward names none.
    pub fn parts(&self) -> &[(Arc<str>, f32)] {
        &self.sub_scores
    }

    /// One sub-score.
    ///
    /// # Errors
    /// [`Error::MissingPart`], naming `requester` and the names there are.
    pub fn part(&self, name: &str, requester: &'static str) -> Result<f32> {
        let found = self.sub_scores.iter().find(|(n, _)| &**n == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<&str> = self.sub_scores.iter().map(|(n, _)| &**n).collect();
            Error::MissingPart {
                part: name.into(),
                requester,
                place: self.place(),
                known: match known.is_empty() {
                    true => "none".into(),
                    false => known.join(", "),
                },
            }
        })
    }

    /// Sets the sub-scores.
    ///
    /// # Errors
    /// [`Error::NotFinite`] when one is NaN or infinite.
    pub fn set_parts(&mut self, parts: Vec<(Arc<str>, f32)>) -> Result<()> {
        match parts.iter().find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(Error::NotFinite {
                what: format!("sub-score `{name}`"),
                value: *value,
                place: self.place(),
            }),
            None => {
                self.sub_scores = parts;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FinishReason, GroupId, TrajectoryParts};

    #[test]
    fn sub_scores_are_found_by_name() {
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(3),
            sample: 1,
            prompt: vec![1].into(),
            response: vec![5],
            response_mask: vec![true],
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap();
        let message = |t: &Trajectory| t.part("style", "gdpo").unwrap_err().to_string();
        assert_eq!(
            message(&t),
            "gdpo reads the sub-score `style` of group 3, sample 1, which has none; let the \
             reward return it with `Score::with_part`"
        );
        t.set_parts(vec![("right".into(), 1.0), ("short".into(), 0.5)])
            .unwrap();
        assert_eq!(t.part("short", "gdpo").unwrap(), 0.5);
        assert!(message(&t).contains("which has right, short;"));
        let bad = t.set_parts(vec![("right".into(), f32::NAN)]).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "sub-score `right` is NaN at group 3, sample 1"
        );
    }
}
