//! ReMax: the reward of a greedy answer as baseline.
//!
//! Beside the sampled answers, each prompt is answered once greedily, and the
//! reward of that answer is what the sampled ones are compared with:
//!
//! ```text
//! G_t = r_t + G_{t+1}        A_t = G_t - r(greedy answer)
//! ```
//!
//! `t` runs over the policy's own tokens. One sampled answer per prompt is
//! enough. There are no options.
//!
//! # Paper
//! "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for
//! Aligning Large Language Models", arXiv:2310.10505.
//!
//! # Differences from verl
//! Advantages are 0 at tokens the policy did not produce; in verl the return
//! stays there while the baseline does not.

use crate::tokens::returns;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column, Group};
use verl_core::{Error, Result};

/// The estimator.
///
/// # Example
/// The sampled answer earned 1, the greedy one 0.25:
/// ```
/// use verl_algos::remax::RemaxAdvantage;
/// use verl_core::algorithm::AdvantageEstimator;
/// use verl_core::types::{Batch, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};
///
/// let mut t = Trajectory::new(TrajectoryParts {
///     group: GroupId(0),
///     sample: 0,
///     prompt: vec![1].into(),
///     response: vec![7, 8],
///     response_mask: vec![true, true],
///     finish: FinishReason::Stop,
///     weight_version: 0,
/// })?;
/// t.set_score(1.0)?;
/// let mut group = Group::new(GroupId(0), vec![t])?;
/// let missing = RemaxAdvantage.estimate(&Batch::new(vec![group.clone()])).unwrap_err();
/// assert!(missing.to_string().contains("sample one at temperature 0"));
///
/// group.set_baseline(0.25)?;
/// let estimate = RemaxAdvantage.estimate(&Batch::new(vec![group]))?;
/// assert_eq!(estimate.advantages, [[0.75, 0.75]]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RemaxAdvantage;

const NAME: &str = "remax";

impl AdvantageEstimator for RemaxAdvantage {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        Requirements::default().greedy_baseline(true)
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let baseline = |group: &Group| {
            let baseline = group.baseline().ok_or(Error::MissingBaseline {
                requester: NAME,
                group: group.id().0,
            })?;
            Ok(vec![baseline; group.trajectories().len()])
        };
        let baselines = batch.groups().iter().map(baseline);
        let baselines_s = baselines.collect::<Result<Vec<_>>>()?.concat();
        let returns = returns(batch, 1.0, NAME)?;
        let mut advantages = returns.clone();
        for ((t, row), baseline) in batch.trajectories().zip(&mut advantages).zip(baselines_s) {
            t.policy_positions().for_each(|i| row[i] -= baseline);
        }
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
