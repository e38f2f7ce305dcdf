//! OPO: the baseline of least variance, under exact on-policy training.
//!
//! If the norm of an answer's gradient grows with its length `l`, the baseline
//! that leaves the policy gradient the least variance is the length-weighted
//! mean of the group's rewards:
//!
//! ```text
//! A_i = r_i - sum(l_j r_j) / sum(l_j)
//! ```
//!
//! for every token of answer `i`; `l` counts the policy's tokens.
//!
//! # Paper
//! "On-Policy RL with Optimal Reward Baseline", arXiv:2505.23585. The paper
//! samples anew for each update and uses neither KL nor entropy terms.
//!
//! # Differences from verl
//! - An answer alone in its group has nothing to be compared with and gets 0;
//!   `singleton_groups: raw` gives it its reward, as verl does.
//! - Rewards at tokens the policy did not produce are not counted.

use crate::group::{less, lone_baseline, rewards};
use crate::grpo::Singleton;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column, Group};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpoConfig {
    /// What an answer alone in its group gets.
    pub singleton_groups: Singleton,
}

impl Default for OpoConfig {
    fn default() -> Self {
        OpoConfig {
            singleton_groups: Singleton::Zero,
        }
    }
}

impl OpoConfig {
    /// The estimator.
    ///
    /// # Errors
    /// None: every value is in range.
    pub fn build(&self) -> Result<OpoAdvantage> {
        Ok(OpoAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// The answer of three tokens counts three times: the baseline is
/// `(1 * 0 + 3 * 4) / 4`.
/// ```
/// use verl_algos::opo::OpoConfig;
/// let estimator = OpoConfig::default().build()?;
/// assert_eq!(estimator.group(&[0.0, 4.0], &[1, 3]), [-3.0, 1.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OpoAdvantage(pub OpoConfig);

impl OpoAdvantage {
    /// Advantages of one group, given the rewards and lengths of its answers.
    pub fn group(&self, rewards: &[f32], lengths: &[usize]) -> Vec<f32> {
        let total = lengths.iter().sum::<usize>().max(1);
        let weighted = rewards.iter().zip(lengths);
        let weighted = weighted.map(|(r, l)| f64::from(*r) * *l as f64);
        let baseline = match rewards {
            [alone] => lone_baseline(*alone, self.0.singleton_groups),
            _ => weighted.sum::<f64>() / total as f64,
        };
        less(rewards, baseline)
    }
}

impl AdvantageEstimator for OpoAdvantage {
    fn name(&self) -> &str {
        "opo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let advantages = |group: &Group| {
            let answers = group.trajectories().iter();
            let lengths: Vec<usize> = answers.map(|t| t.policy_tokens()).collect();
            self.group(&rewards(group), &lengths)
        };
        let advantages_s: Vec<f32> = batch.groups().iter().flat_map(advantages).collect();
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
