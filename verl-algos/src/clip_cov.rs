//! Clip-Cov: the clipped surrogate without the gradient of a few tokens that
//! would lower the entropy most.
//!
//! ```text
//! cov  = (A - mean(A)) (log pi - mean(log pi))
//! L    = 0                            for a few tokens with lb < cov < ub
//! L    = max(-A r, -A clip(r, 1 - low, 1 + high))         for the others
//! ```
//!
//! Of `n` tokens at most `max(1, clip_cov_ratio n)` are taken, at random among
//! those that the surrogate does not clip anyway.
//!
//! # Paper
//! The entropy mechanism of reinforcement learning for reasoning language
//! models, arXiv:2505.22617, section 4.2, with its ratio and bounds.
//!
//! # Differences from verl
//! - The choice depends on nothing but the tokens' places (group, sample,
//!   position) and the weights' version, so that a run can be repeated.
//! - The log-ratio is cut to [-20, 20].
//!
//! As in verl, means and `n` are those of a micro-batch: of all losses here,
//! only this and KL-Cov depend on how a mini-batch is split.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl       -(log pi - log pi_old)
//! actor/pg_clipfrac  1 where the loss was set to 0
//! ```

use crate::covariance::{count, covariances};
use crate::options::require;
use crate::ratio::{cut, log_ratio_n, on_host, ppo_kl};
use burn::tensor::{Bool, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::{Column, Trajectory};

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClipCovConfig {
    /// How far the ratio may fall.
    pub clip_ratio_low: f32,
    /// How far it may rise.
    pub clip_ratio_high: f32,
    /// Largest share of tokens without a gradient.
    pub clip_cov_ratio: f64,
    /// Tokens with a smaller covariance keep theirs.
    pub clip_cov_lb: f64,
    /// Tokens with a larger one too.
    pub clip_cov_ub: f64,
}

impl Default for ClipCovConfig {
    fn default() -> Self {
        ClipCovConfig {
            clip_ratio_low: 0.2,
            clip_ratio_high: 0.2,
            clip_cov_ratio: 0.0002,
            clip_cov_lb: 1.0,
            clip_cov_ub: 5.0,
        }
    }
}

impl ClipCovConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<ClipCovLoss> {
        let (low, high) = (self.clip_ratio_low, self.clip_ratio_high);
        let (share, bounds) = (self.clip_cov_ratio, (self.clip_cov_lb, self.clip_cov_ub));
        require(
            "clip_ratio_low",
            low,
            (0.0..=1.0).contains(&low),
            "in [0, 1]",
        )?;
        require("clip_ratio_high", high, high >= 0.0, "0 or positive")?;
        let in_range = share > 0.0 && share <= 1.0;
        require("clip_cov_ratio", share, in_range, "above 0 and at most 1")?;
        require(
            "clip_cov_ub",
            bounds.1,
            bounds.0 < bounds.1,
            "above clip_cov_lb",
        )?;
        Ok(ClipCovLoss {
            low,
            high,
            share,
            bounds,
        })
    }
}

/// The loss.
///
/// # Example
/// The covariances are 1.5, -0.5, -0.5 and 1.5. One of the two likely tokens
/// with the high advantage is chosen.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::clip_cov::ClipCovConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answers = [(1.0, vec![-1.0, -3.0]), (-1.0, vec![-1.0, -4.0])].map(
///     |(advantage, log_probs)| Answer {
///         advantage,
///         old_log_probs: log_probs.clone(),
///         log_probs,
///         ..Answer::default()
///     },
/// );
/// let loss = ClipCovConfig::default().build()?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// let zero = |i: usize| probed.loss_n[i] == 0.0 && probed.gradient_n[i] == 0.0;
/// assert!(zero(0) != zero(3) && !zero(1) && !zero(2));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipCovLoss {
    /// Lower range.
    pub low: f32,
    /// Upper range.
    pub high: f32,
    /// Largest share of tokens without a gradient.
    pub share: f64,
    /// Between which covariances they are taken.
    pub bounds: (f64, f64),
}

const NAME: &str = "Clip-Cov loss";

impl ClipCovLoss {
    /// The tokens that may be chosen, by their number in the packed tensors.
    ///
    /// # Errors
    /// [`verl_core::Error::MissingColumn`].
    pub fn candidates(&self, input: &LossInput<'_>) -> Result<Vec<usize>> {
        let (_, plain, clipped) = self.terms(input)?;
        let (plain, clipped) = (on_host(&plain), on_host(&clipped));
        let covariances = covariances(input, NAME)?.into_iter().enumerate();
        let within = |(i, cov): &(usize, f64)| {
            *cov > self.bounds.0 && *cov < self.bounds.1 && clipped[*i] <= plain[*i]
        };
        Ok(covariances.filter(within).map(|(i, _)| i).collect())
    }

    /// The loss in which the given packed tokens are set to 0.
    ///
    /// # Errors
    /// [`verl_core::Error::MissingColumn`].
    pub fn without(&self, input: &LossInput<'_>, chosen: &[usize]) -> Result<LossOutput> {
        let (log_ratio, plain, clipped) = self.terms(input)?;
        let mut mask = vec![false; input.tokens()];
        chosen.iter().for_each(|i| mask[*i] = true);
        let data = TensorData::new(mask, [input.tokens()]);
        let mask = Tensor::<1, Bool>::from_data(data, &input.log_probs_n.device().inner());
        Ok(LossOutput {
            loss_n: plain.max_pair(clipped).mask_fill(mask.clone(), 0.0),
            metrics_n: vec![ppo_kl(&log_ratio), ("actor/pg_clipfrac", mask.float())],
        })
    }

    fn terms(&self, input: &LossInput<'_>) -> Result<(Tensor<1>, Tensor<1>, Tensor<1>)> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = cut(log_ratio_n(input, NAME)?);
        let ratio = log_ratio.clone().exp();
        let clipped = ratio.clone().clamp(1.0 - self.low, 1.0 + self.high);
        let loss = |ratio: Tensor<1>| (ratio * advantages.clone()).neg();
        Ok((log_ratio, loss(ratio), loss(clipped)))
    }
}

impl PolicyLoss for ClipCovLoss {
    fn name(&self) -> &str {
        "clip_cov"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let mut chosen = self.candidates(input)?;
        let most = count(self.share, input.tokens());
        if chosen.len() > most {
            let draws: Vec<u64> = input.trajectories.iter().flat_map(|t| draws(t)).collect();
            chosen.sort_by_key(|i| draws[*i]);
            chosen.truncate(most);
        }
        self.without(input, &chosen)
    }
}

/// A random number for each policy token, which only its place decides.
fn draws(t: &Trajectory) -> impl Iterator<Item = u64> + '_ {
    let answer = [t.weight_version(), t.group().0, t.sample() as u64];
    let seed = answer.into_iter().fold(0, mixed);
    t.policy_positions().map(move |i| mixed(seed, i as u64))
}

/// One step of the generator SplitMix64.
fn mixed(state: u64, value: u64) -> u64 {
    let mut z = (state ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
