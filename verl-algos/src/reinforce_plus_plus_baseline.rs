//! REINFORCE++-baseline: the group's mean as baseline, the batch's deviation
//! as scale.
//!
//! ```text
//! B_i = r_i - mean(r of the group)
//! A_i = (B_i - mean(B)) / std(B)
//! ```
//!
//! for every token of answer `i`; the second line's mean and deviation are
//! those of all policy tokens of the batch. Where GRPO divides by the group's
//! own deviation, and so makes much of small differences, the batch's is
//! common to all.
//!
//! # Paper
//! "REINFORCE++", arXiv:2501.03262.
//!
//! # Differences from verl
//! - An answer alone in its group has nothing to be compared with and enters
//!   the whitening with 0; `singleton_groups: raw` enters its reward, as verl
//!   does.
//! - Rewards at tokens the policy did not produce are not counted.

use crate::group::{by_rewards, centred};
use crate::grpo::Singleton;
use crate::tokens::whiten;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReinforcePlusPlusBaselineConfig {
    /// What an answer alone in its group enters the whitening with.
    pub singleton_groups: Singleton,
}

impl Default for ReinforcePlusPlusBaselineConfig {
    fn default() -> Self {
        ReinforcePlusPlusBaselineConfig {
            singleton_groups: Singleton::Zero,
        }
    }
}

impl ReinforcePlusPlusBaselineConfig {
    /// The estimator.
    ///
    /// # Errors
    /// None: every value is in range.
    pub fn build(&self) -> Result<ReinforcePlusPlusBaselineAdvantage> {
        Ok(ReinforcePlusPlusBaselineAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// One group of two one-token answers, with rewards 1 and 3, is centred to -1
/// and 1, whose deviation is `sqrt(2)`:
/// ```
/// use verl_algos::reinforce_plus_plus_baseline::ReinforcePlusPlusBaselineConfig;
/// use verl_core::algorithm::AdvantageEstimator;
/// use verl_core::types::{Batch, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};
///
/// let answer = |(sample, reward)| {
///     let mut t = Trajectory::new(TrajectoryParts {
///         group: GroupId(0),
///         sample,
///         prompt: vec![1].into(),
///         response: vec![7],
///         response_mask: vec![true],
///         finish: FinishReason::Stop,
///         weight_version: 0,
///     })?;
///     t.set_score(reward).map(|()| t)
/// };
/// let answers = [1.0, 3.0].into_iter().enumerate().map(answer).collect::<Result<_, _>>()?;
/// let batch = Batch::new(vec![Group::new(GroupId(0), answers)?]);
/// let estimate = ReinforcePlusPlusBaselineConfig::default().build()?.estimate(&batch)?;
/// assert_eq!(estimate.advantages, [[-0.70710677], [0.70710677]]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReinforcePlusPlusBaselineAdvantage(pub ReinforcePlusPlusBaselineConfig);

impl AdvantageEstimator for ReinforcePlusPlusBaselineAdvantage {
    fn name(&self) -> &str {
        "reinforce_plus_plus_baseline"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let centred_s = by_rewards(batch, |r| centred(r, self.0.singleton_groups));
        let mut estimate = Advantages::per_sequence(batch, &centred_s);
        whiten(batch, &mut estimate.advantages);
        Ok(estimate)
    }
}
