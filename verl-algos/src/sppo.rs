//! SPPO: self-play preference optimisation.
//!
//! An answer's advantage is its reward less the soft mean of its group, and
//! the log-ratio of the whole answer is regressed on it:
//!
//! ```text
//! A_i = r_i - (1 / b) log mean_j(exp(b r_j))       b = 0: the plain mean
//! L_i = (sum_t(log pi_t - log pi_old_t) - eta A_i)^2
//! ```
//!
//! Every token of the answer carries `L_i`: meant for `loss_agg_mode:
//! seq-mean-token-mean`, which makes of it the mean over answers.
//!
//! # Paper
//! arXiv:2405.00675, algorithm 1, where a preference model's win rates stand in
//! place of rewards.
//!
//! # Differences from verl
//! verl's recipe takes the soft mean over the whole batch, so that an answer
//! is compared with answers to other prompts; `softmean_over: batch` does so.
//!
//! # Metrics
//! `actor/ppo_kl`, the mean of `-(log pi - log pi_old)` over the policy's
//! tokens.

use crate::options::require;
use crate::ratio::{log_ratio_n, ppo_kl};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{
    AdvantageEstimator, Advantages, LossInput, LossOutput, PolicyLoss, Requirements,
};
use verl_core::types::{Batch, Column, Trajectory};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoftMeanConfig {
    /// Sharpness of the soft mean; 0 is the plain mean.
    pub softmean_beta: f64,
    /// Which answers the soft mean runs over.
    pub softmean_over: SoftMeanOver,
}

/// Which answers a soft mean runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoftMeanOver {
    /// The answers to the same prompt.
    Group,
    /// All of the batch.
    Batch,
}

impl Default for SoftMeanConfig {
    fn default() -> Self {
        SoftMeanConfig {
            softmean_beta: 1.0,
            softmean_over: SoftMeanOver::Group,
        }
    }
}

impl SoftMeanConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<SoftMeanBaseline> {
        let beta = self.softmean_beta;
        require("softmean_beta", beta, beta.is_finite(), "a number")?;
        Ok(SoftMeanBaseline {
            beta,
            over: self.softmean_over,
        })
    }
}

/// The estimator: reward less soft mean.
///
/// # Example
/// ```
/// use verl_algos::sppo::SoftMeanConfig;
///
/// let plain = SoftMeanConfig { softmean_beta: 0.0, ..Default::default() }.build()?;
/// assert_eq!(plain.soft_mean(&[0.0, 1.0]), 0.5);
/// // log((1 + e) / 2)
/// let soft = SoftMeanConfig::default().build()?;
/// assert!((soft.soft_mean(&[0.0, 1.0]) - 0.62011).abs() < 1e-5);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftMeanBaseline {
    /// Sharpness of the soft mean.
    pub beta: f64,
    /// Which answers it runs over.
    pub over: SoftMeanOver,
}

impl SoftMeanBaseline {
    /// `(1 / beta) log mean(exp(beta r))`.
    pub fn soft_mean(&self, rewards: &[f32]) -> f64 {
        let n = rewards.len().max(1) as f64;
        let rewards = rewards.iter().copied().map(f64::from);
        if self.beta == 0.0 {
            return rewards.sum::<f64>() / n;
        }
        let scaled = rewards.map(|r| self.beta * r);
        let largest = scaled.clone().fold(f64::NEG_INFINITY, f64::max);
        let mean = scaled.map(|x| (x - largest).exp()).sum::<f64>() / n;
        (largest + mean.ln()) / self.beta
    }
}

impl AdvantageEstimator for SoftMeanBaseline {
    fn name(&self) -> &str {
        "sppo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        let smallest = match self.over {
            SoftMeanOver::Group => 2,
            SoftMeanOver::Batch => 1,
        };
        Requirements::default().min_group_size(smallest)
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let rewards_of = |trajectories: &[Trajectory]| -> Vec<f32> {
            trajectories.iter().map(|t| t.total_reward()).collect()
        };
        let groups: Vec<Vec<f32>> = batch
            .groups()
            .iter()
            .map(|g| rewards_of(g.trajectories()))
            .collect();
        let of_batch = self.soft_mean(&groups.concat());
        let less_mean = |rewards: &Vec<f32>| -> Vec<f32> {
            let mean = match self.over {
                SoftMeanOver::Group => self.soft_mean(rewards),
                SoftMeanOver::Batch => of_batch,
            };
            rewards
                .iter()
                .map(|r| (f64::from(*r) - mean) as f32)
                .collect()
        };
        let advantages_s: Vec<f32> = groups.iter().flat_map(less_mean).collect();
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SppoConfig {
    /// Scale of the advantage that the log-ratio is regressed on.
    pub sppo_eta: f32,
}

impl Default for SppoConfig {
    fn default() -> Self {
        SppoConfig { sppo_eta: 1.0 }
    }
}

impl SppoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] when the scale is not positive.
    pub fn build(&self) -> Result<SppoLoss> {
        let eta = self.sppo_eta;
        require("sppo_eta", eta, eta.is_finite() && eta > 0.0, "positive")?;
        Ok(SppoLoss { eta })
    }
}

/// The loss.
///
/// # Example
/// Two tokens moved by 0.25 each, where an advantage of 1 asked for 1:
/// ```
/// use burn::tensor::Device;
/// use verl_algos::probe::{Answer, probe};
/// use verl_algos::sppo::SppoConfig;
///
/// let answer = Answer {
///     advantage: 1.0,
///     log_probs: vec![-1.0, -1.0],
///     old_log_probs: vec![-1.25, -1.25],
///     ..Answer::default()
/// };
/// let loss = SppoConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!(probed.loss_n, [0.25, 0.25]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SppoLoss {
    /// Scale of the advantage.
    pub eta: f32,
}

const NAME: &str = "SPPO loss";

impl PolicyLoss for SppoLoss {
    fn name(&self) -> &str {
        "sppo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = log_ratio_n(input, NAME)?;
        let of_answer = input.sequence_sum_s(log_ratio.clone());
        let target = input.sequence_sum_s(advantages) / input.lengths_s();
        let loss_s = (of_answer - target.mul_scalar(self.eta)).square();
        Ok(LossOutput {
            loss_n: input.spread_n(loss_s),
            metrics_n: vec![ppo_kl(&log_ratio)],
        })
    }
}
