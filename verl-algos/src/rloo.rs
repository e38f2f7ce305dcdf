//! RLOO: REINFORCE with a leave-one-out baseline.
//!
//! Each answer is compared with the mean of the others: with rewards
//! `r_1..r_n` of one prompt,
//!
//! ```text
//! A_i = r_i - mean(r_j, j != i) = n / (n - 1) (r_i - mean(r))
//! ```
//!
//! for every token of answer `i`. Unlike the group's mean, a baseline that does
//! not contain `r_i` leaves the policy gradient unbiased.
//!
//! # Paper
//! "Back to Basics", arXiv:2402.14740; the baseline is of Kool et al., 2019.
//!
//! # Differences from verl
//! An answer alone in its group has nothing to be compared with and gets 0, as
//! in verl's `rloo_vectorized`; `singleton_groups: raw` gives it its reward, as
//! verl's `rloo` does. The two are otherwise the same.

use crate::group::{by_rewards, centred};
use crate::grpo::Singleton;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RlooConfig {
    /// What an answer alone in its group gets.
    pub singleton_groups: Singleton,
}

impl Default for RlooConfig {
    fn default() -> Self {
        RlooConfig {
            singleton_groups: Singleton::Zero,
        }
    }
}

impl RlooConfig {
    /// The estimator.
    ///
    /// # Errors
    /// None: every value is in range.
    pub fn build(&self) -> Result<RlooAdvantage> {
        Ok(RlooAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// The others of the first answer have a mean of 3, those of the last 1.5:
/// ```
/// use verl_algos::rloo::RlooConfig;
/// let estimator = RlooConfig::default().build()?;
/// assert_eq!(estimator.group(&[1.0, 2.0, 4.0]), [-2.0, -0.5, 2.5]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RlooAdvantage(pub RlooConfig);

impl RlooAdvantage {
    /// Advantages of one group, given its rewards.
    pub fn group(&self, rewards: &[f32]) -> Vec<f32> {
        let mut advantages = centred(rewards, self.0.singleton_groups);
        if let n @ 2.. = rewards.len() {
            let scale = n as f32 / (n - 1) as f32;
            advantages.iter_mut().for_each(|a| *a *= scale);
        }
        advantages
    }
}

impl AdvantageEstimator for RlooAdvantage {
    fn name(&self) -> &str {
        "rloo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let advantages_s = by_rewards(batch, |rewards| self.group(rewards));
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
