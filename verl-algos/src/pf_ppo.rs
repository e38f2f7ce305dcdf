//! PF-PPO: PPO on a batch filtered by reward.
//!
//! A reward model is more to be trusted at the ends of its scale than in the
//! middle. Before the update the batch is drawn anew, with replacement, with a
//! weight for each answer that depends on its score `s`:
//!
//! ```text
//! pow          |s|^weight_pow
//! max_min      1 for the highest and the lowest score of the batch, 0 else
//! max_random   0.4 for the highest score, 0.1 else
//! ```
//!
//! plus 1e-8. It follows the estimator: advantages, and what they were
//! whitened with, are those of the batch before.
//!
//! # Paper
//! "Policy Filtration for RLHF to Mitigate Noise in Reward Models",
//! arXiv:2409.06957. Its "best-worst" and "best-random" filters are `max_min`
//! and `max_random`, there within each prompt's answers; `pow` is verl's.
//!
//! # Differences from verl
//! `pow` takes the magnitude of the score there, too: answers with a strongly
//! negative score are drawn as often as those with a strongly positive one.
//! Use it with scores around 0.

use crate::options::require;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{BatchHook, Figures};
use verl_core::types::Batch;

/// Options of the filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PfPpoConfig {
    /// How a score becomes a weight.
    pub reweight_method: ReweightMethod,
    /// The power of `pow`.
    pub weight_pow: f32,
}

/// From scores to weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReweightMethod {
    /// A power of the score's magnitude.
    Pow,
    /// The best and the worst.
    MaxMin,
    /// The best, and some of the others.
    MaxRandom,
}

impl Default for PfPpoConfig {
    fn default() -> Self {
        PfPpoConfig {
            reweight_method: ReweightMethod::Pow,
            weight_pow: 2.0,
        }
    }
}

impl PfPpoConfig {
    /// The filter.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) when `weight_pow` is out of
    /// range.
    pub fn build(&self) -> Result<RewardFilter> {
        let ok = self.weight_pow.is_finite() && self.weight_pow >= 0.0;
        require("pf_ppo.weight_pow", self.weight_pow, ok, "0 or positive")?;
        Ok(RewardFilter(self.clone()))
    }
}

/// The filter.
///
/// # Example
/// ```
/// use verl_algos::pf_ppo::{PfPpoConfig, ReweightMethod};
/// let scores = [-1.0, 0.5, 2.0];
/// let weights = PfPpoConfig::default().build()?.weights(&scores);
/// assert_eq!(weights, [1.0, 0.25, 4.0]);
/// let config = PfPpoConfig { reweight_method: ReweightMethod::MaxMin, ..Default::default() };
/// assert_eq!(config.build()?.weights(&scores), [1.0, 1e-8, 1.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RewardFilter(pub PfPpoConfig);

impl RewardFilter {
    /// Sampling weight of each answer, given the scores of the batch.
    pub fn weights(&self, scores_s: &[f32]) -> Vec<f32> {
        let highest = scores_s.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let lowest = scores_s.iter().copied().fold(f32::INFINITY, f32::min);
        let weight = |s: f32| match self.0.reweight_method {
            ReweightMethod::Pow => s.abs().powf(self.0.weight_pow),
            ReweightMethod::MaxMin if s == highest || s == lowest => 1.0,
            ReweightMethod::MaxMin => 0.0,
            ReweightMethod::MaxRandom if s == highest => 0.4,
            ReweightMethod::MaxRandom => 0.1,
        };
        scores_s.iter().map(|s| weight(*s) + 1e-8).collect()
    }

    /// Draws a batch as large as `batch` from it, by its scores (0 where there
    /// is none). The same seed draws the same batch.
    ///
    /// # Errors
    /// When a weight overflows.
    pub fn resample(&self, batch: &Batch, seed: u64) -> Result<Batch> {
        let scores = batch.trajectories().map(|t| t.score().unwrap_or(0.0));
        let scores_s: Vec<f32> = scores.collect();
        batch.resample(&self.weights(&scores_s), seed)
    }
}

impl BatchHook for RewardFilter {
    fn before_updates(&self, batch: &mut Batch, seed: u64) -> Result<Figures> {
        *batch = self.resample(batch, seed)?;
        Ok(Figures::new())
    }
}
