//! One sampled answer and everything known about it.

use super::{Column, TokenId};
use crate::math::{live, masked_sum};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Identifies one occurrence of a prompt in one step: two equal prompt texts
/// drawn twice have two ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupId(pub u64);

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// A stop id or a stop string.
    Stop,
    /// The token limit.
    Length,
    /// The engine gave up on it.
    Aborted,
}

/// The required parts of a [`Trajectory`].
#[derive(Debug, Clone)]
pub struct TrajectoryParts {
    /// The prompt occurrence it answers.
    pub group: GroupId,
    /// Its number within the group.
    pub sample: usize,
    /// Prompt ids, shared by the group.
    pub prompt: Arc<[TokenId]>,
    /// Response ids: what the policy wrote and, in multi-turn episodes, what
    /// the environment answered.
    pub response: Vec<TokenId>,
    /// For each response token, whether the policy produced it.
    pub response_mask: Vec<bool>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Version of the weights that sampled it.
    pub weight_version: u64,
}

/// One sampled answer, its reward, and the per-token columns known so far.
///
/// # Example
/// ```
/// use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};
///
/// let mut t = Trajectory::new(TrajectoryParts {
///     group: GroupId(0),
///     sample: 0,
///     prompt: vec![1, 2, 3].into(),
///     response: vec![7, 8],
///     response_mask: vec![true, true],
///     finish: FinishReason::Stop,
///     weight_version: 0,
/// })?;
/// t.set(Column::OldLogProbs, vec![-0.5, -1.0])?;
/// assert_eq!(t.get(Column::OldLogProbs, "doctest")?, &[-0.5, -1.0]);
/// let missing = t.get(Column::Values, "doctest").unwrap_err();
/// assert!(missing.to_string().contains("give the run a critic"));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Trajectory {
    parts: TrajectoryParts,
    score: Option<f32>,
    pub(super) sub_scores: Vec<(Arc<str>, f32)>,
    columns: [Option<Vec<f32>>; Column::COUNT],
}

impl Trajectory {
    /// Checks and wraps the parts.
    ///
    /// # Errors
    /// [`Error::Length`] when mask and response differ in length,
    /// [`Error::Invalid`] when the prompt is empty.
    pub fn new(parts: TrajectoryParts) -> Result<Self> {
        if parts.prompt.is_empty() {
            return Err(Error::invalid(format!(
                "group {}: the prompt is empty; the first response token has nothing to be predicted from",
                parts.group.0
            )));
        }
        let (expected, got) = (parts.response.len(), parts.response_mask.len());
        if expected != got {
            let what = format!(
                "response mask of group {}, sample {}",
                parts.group.0, parts.sample
            );
            return Err(Error::Length {
                what,
                expected,
                got,
            });
        }
        Ok(Trajectory {
            parts,
            score: None,
            sub_scores: Vec::new(),
            columns: Default::default(),
        })
    }

    /// The prompt occurrence it answers.
    pub fn group(&self) -> GroupId {
        self.parts.group
    }

    /// Its number within the group.
    pub fn sample(&self) -> usize {
        self.parts.sample
    }

    /// Prompt ids.
    pub fn prompt(&self) -> &[TokenId] {
        &self.parts.prompt
    }

    /// The prompt as the group shares it.
    pub fn shared_prompt(&self) -> &Arc<[TokenId]> {
        &self.parts.prompt
    }

    /// Response ids.
    pub fn response(&self) -> &[TokenId] {
        &self.parts.response
    }

    /// For each response token, whether the policy produced it.
    pub fn response_mask(&self) -> &[bool] {
        &self.parts.response_mask
    }

    /// Number of response tokens the policy produced.
    pub fn policy_tokens(&self) -> usize {
        live(&self.parts.response_mask)
    }

    /// Prompt and response tokens together.
    pub fn total_tokens(&self) -> usize {
        self.parts.prompt.len() + self.parts.response.len()
    }

    /// Why it ended.
    pub fn finish(&self) -> FinishReason {
        self.parts.finish
    }

    /// Version of the weights that sampled it.
    pub fn weight_version(&self) -> u64 {
        self.parts.weight_version
    }

    /// The sequence score, once scored. `None` also after a failed scoring
    /// until the trainer fills in the configured substitute.
    pub fn score(&self) -> Option<f32> {
        self.score
    }

    /// Sets the sequence score and writes it as a token reward on the last
    /// policy token. An answer without policy tokens keeps its score, and no
    /// token gets a reward.
    ///
    /// # Errors
    /// [`Error::NotFinite`] when the score is NaN or infinite.
    pub fn set_score(&mut self, score: f32) -> Result<()> {
        if !score.is_finite() {
            return Err(Error::NotFinite {
                what: "score".into(),
                value: score,
                place: self.place(),
            });
        }
        self.score = Some(score);
        let mut rewards = vec![0.0; self.response().len()];
        if let Some(last) = self.response_mask().iter().rposition(|m| *m) {
            rewards[last] = score;
        }
        self.columns[Column::TokenRewards as usize] = Some(rewards);
        Ok(())
    }

    /// Takes tokens out of the loss: those where `keep` is false no longer
    /// count as the policy's. Columns stay as they are.
    ///
    /// # Errors
    /// [`Error::Length`] when `keep` is not as long as the response.
    pub fn restrict_mask(&mut self, keep: &[bool]) -> Result<()> {
        if keep.len() != self.response().len() {
            return Err(Error::Length {
                what: format!("mask of {}", self.place()),
                expected: self.response().len(),
                got: keep.len(),
            });
        }
        let mask = self.parts.response_mask.iter_mut().zip(keep);
        mask.for_each(|(live, keep)| *live &= keep);
        Ok(())
    }

    /// Stores a column.
    ///
    /// # Errors
    /// [`Error::Length`] when it is not as long as the response;
    /// [`Error::NotFinite`] when the value of a policy token is not finite
    /// (values at other tokens are never read).
    pub fn set(&mut self, column: Column, values: Vec<f32>) -> Result<()> {
        if values.len() != self.response().len() {
            return Err(Error::Length {
                what: format!("{} of {}", column.name(), self.place()),
                expected: self.response().len(),
                got: values.len(),
            });
        }
        let bad = (0..values.len()).find(|&i| self.response_mask()[i] && !values[i].is_finite());
        if let Some(i) = bad {
            return Err(Error::NotFinite {
                what: column.name().into(),
                value: values[i],
                place: format!("{}, response token {i}", self.place()),
            });
        }
        self.columns[column as usize] = Some(values);
        Ok(())
    }

    /// Reads a column.
    ///
    /// # Errors
    /// [`Error::MissingColumn`], naming `requester` and the remedy.
    pub fn get(&self, column: Column, requester: &'static str) -> Result<&[f32]> {
        self.columns[column as usize]
            .as_deref()
            .ok_or(Error::MissingColumn {
                column: column.name(),
                requester,
                remedy: column.remedy(),
            })
    }

    /// Whether a column has been computed.
    pub fn has(&self, column: Column) -> bool {
        self.columns[column as usize].is_some()
    }

    /// Positions of the policy's tokens within the response.
    pub fn policy_positions(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.response_mask()
            .iter()
            .enumerate()
            .filter_map(|(i, live)| live.then_some(i))
    }

    /// Takes the whole answer out of the loss: none of its tokens counts as
    /// the policy's any more. Its score and its columns stay as they are.
    pub fn mask_out(&mut self) {
        self.parts.response_mask.fill(false);
    }

    /// Sum of the token rewards over the policy's tokens (0 before scoring).
    pub fn total_reward(&self) -> f32 {
        match &self.columns[Column::TokenRewards as usize] {
            Some(rewards) => masked_sum(rewards, self.response_mask()) as f32,
            None => 0.0,
        }
    }

    /// Where the trajectory stands, for messages.
    pub fn place(&self) -> String {
        format!("group {}, sample {}", self.parts.group.0, self.parts.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trajectory(mask: &[bool]) -> Trajectory {
        Trajectory::new(TrajectoryParts {
            group: GroupId(3),
            sample: 1,
            prompt: vec![1].into(),
            response: vec![5; mask.len()],
            response_mask: mask.to_vec(),
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap()
    }

    #[test]
    fn score_lands_on_the_last_policy_token() {
        let mut t = trajectory(&[true, true, false]);
        t.set_score(2.0).unwrap();
        assert_eq!(
            t.get(Column::TokenRewards, "test").unwrap(),
            &[0.0, 2.0, 0.0]
        );
        assert_eq!(t.total_reward(), 2.0);
    }

    #[test]
    fn an_empty_response_keeps_its_score_and_rewards_no_token() {
        let mut t = trajectory(&[]);
        t.set_score(1.0).unwrap();
        assert_eq!(t.score(), Some(1.0));
        assert!(t.get(Column::TokenRewards, "test").unwrap().is_empty());
        assert_eq!(t.total_reward(), 0.0);
    }

    #[test]
    fn poison_is_refused_on_policy_tokens_only() {
        let mut t = trajectory(&[true, false]);
        t.set(Column::OldLogProbs, vec![-1.0, f32::NAN]).unwrap();
        let err = t
            .set(Column::OldLogProbs, vec![f32::NAN, 0.0])
            .unwrap_err()
            .to_string();
        assert_eq!(
            err,
            "old_log_probs is NaN at group 3, sample 1, response token 0"
        );
    }

    #[test]
    fn masking_keeps_score_and_columns() {
        let mut t = trajectory(&[true, true, false]);
        t.set_score(2.0).unwrap();
        t.set(Column::Advantages, vec![1.0, 2.0, f32::NAN]).unwrap();
        t.restrict_mask(&[true, false, true]).unwrap();
        assert_eq!(t.response_mask(), [true, false, false]);
        t.mask_out();
        assert_eq!((t.policy_tokens(), t.score()), (0, Some(2.0)));
        assert_eq!(t.get(Column::Advantages, "test").unwrap()[..2], [1.0, 2.0]);
        let err = t.restrict_mask(&[true]).unwrap_err().to_string();
        assert_eq!(err, "mask of group 3, sample 1: expected 3 values, got 1");
    }

    #[test]
    fn lengths_are_checked() {
        let err = trajectory(&[true])
            .set(Column::Values, vec![])
            .unwrap_err()
            .to_string();
        assert_eq!(err, "values of group 3, sample 1: expected 1 values, got 0");
    }
}
