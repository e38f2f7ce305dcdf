//! GPG: group policy gradient.
//!
//! The policy gradient on the group's centred rewards, without surrogate,
//! critic or reference; answers of groups that teach nothing are made up for
//! by the others:
//!
//! ```text
//! A_i = alpha (r_i - mean(r)) / f_norm
//! alpha = answers of the batch / answers of groups whose rewards differ
//! ```
//!
//! # Paper
//! "GPG: A Simple and Strong Reinforcement Learning Baseline for Model
//! Reasoning", arXiv:2504.02546.
//!
//! # Differences from verl
//! - verl's alpha counts rewards that are not 0, whatever their group:
//!   `alpha_counts: nonzero_rewards`.
//! - An answer alone in its group has nothing to be compared with and gets 0;
//!   `singleton_groups: raw` gives it its reward, as verl does.
//! - Rewards at tokens the policy did not produce are not counted.

use crate::group::{by_rewards, centred, rewards};
use crate::grpo::Singleton;
use crate::options::require;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpgConfig {
    /// Divides the advantages.
    pub f_norm: f32,
    /// Which answers alpha is the inverse share of.
    pub alpha_counts: AlphaCounts,
    /// What an answer alone in its group gets.
    pub singleton_groups: Singleton,
}

/// Answers that count as informative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlphaCounts {
    /// Those of groups whose advantages are not all 0.
    InformativeGroups,
    /// Those with a reward other than 0.
    NonzeroRewards,
}

impl Default for GpgConfig {
    fn default() -> Self {
        GpgConfig {
            f_norm: 1.0,
            alpha_counts: AlphaCounts::InformativeGroups,
            singleton_groups: Singleton::Zero,
        }
    }
}

impl GpgConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) when `f_norm` is out of range.
    pub fn build(&self) -> Result<GpgAdvantage> {
        let ok = self.f_norm.is_finite() && self.f_norm > 0.0;
        require("f_norm", self.f_norm, ok, "positive")?;
        Ok(GpgAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// One of two groups is informative, so that alpha is 2:
/// ```
/// use verl_algos::gpg::GpgConfig;
/// let estimator = GpgConfig::default().build()?;
/// let (informative, uniform) = ([0.0, 1.0], [1.0, 1.0]);
/// let alpha = estimator.alpha(&[&informative, &uniform]);
/// assert_eq!(alpha, 2.0);
/// assert_eq!(estimator.group(&informative, alpha), [-1.0, 1.0]);
/// assert_eq!(estimator.group(&uniform, alpha), [0.0, 0.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GpgAdvantage(pub GpgConfig);

impl GpgAdvantage {
    /// Answers of the batch for each informative one, given the rewards of its
    /// groups; all of them where none is.
    pub fn alpha(&self, groups: &[&[f32]]) -> f32 {
        let count = |rewards: &&[f32]| match self.0.alpha_counts {
            AlphaCounts::NonzeroRewards => rewards.iter().filter(|r| **r != 0.0).count(),
            AlphaCounts::InformativeGroups => {
                let mut advantages = centred(rewards, self.0.singleton_groups).into_iter();
                rewards.len() * usize::from(advantages.any(|a| a != 0.0))
            }
        };
        let all: usize = groups.iter().map(|rewards| rewards.len()).sum();
        let informative: usize = groups.iter().map(count).sum();
        all as f32 / informative.max(1) as f32
    }

    /// Advantages of one group, given its rewards and alpha.
    pub fn group(&self, rewards: &[f32], alpha: f32) -> Vec<f32> {
        let scaled = |a: f32| alpha * a / self.0.f_norm;
        let advantages = centred(rewards, self.0.singleton_groups);
        advantages.into_iter().map(scaled).collect()
    }
}

impl AdvantageEstimator for GpgAdvantage {
    fn name(&self) -> &str {
        "gpg"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let groups: Vec<Vec<f32>> = batch.groups().iter().map(rewards).collect();
        let alpha = self.alpha(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let advantages_s = by_rewards(batch, |rewards| self.group(rewards, alpha));
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
