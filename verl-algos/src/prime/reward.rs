//! The process rewards of a trained reward model.
//!
//! ```text
//! q_t = log pi_phi - log pi_ref
//! r_t = beta q_t                                lambda = 0
//! r_t = beta q_t + lambda r_{t+1}               lambda > 0
//! ```
//!
//! `t` runs over the policy's own tokens. The last one has no process reward:
//! the outcome is judged there. With `prime_use_gt` the recursion starts, at
//! the last token, from the outcome less `beta q` of all earlier tokens.
//! `batch_norm` divides by the largest `|r_t + r_{t+1} + ..|` of the batch plus
//! 1e-6.

use super::outcome;
use crate::options::require;
use crate::tokens::{pick, spread};
use serde::{Deserialize, Serialize};
use verl_core::algorithm::ProcessRewards;
use verl_core::types::{Batch, Column};
use verl_core::{Error, Result};

/// Options of the process rewards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImplicitRewardConfig {
    /// Factor of the log-ratio.
    pub beta_train: f32,
    /// How the rewards are scaled.
    pub prime_norm: PrimeNorm,
    /// How much of the next token's reward a token has, too.
    pub lambda: f32,
    /// Whether the recursion starts from the outcome; needs a `lambda`.
    pub prime_use_gt: bool,
}

/// Scales of process rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrimeNorm {
    /// As they are.
    None,
    /// The largest sum of rewards to go of the batch is about 1.
    BatchNorm,
}

impl Default for ImplicitRewardConfig {
    fn default() -> Self {
        ImplicitRewardConfig {
            beta_train: 0.05,
            prime_norm: PrimeNorm::BatchNorm,
            lambda: 0.0,
            prime_use_gt: false,
        }
    }
}

impl ImplicitRewardConfig {
    /// The process rewards.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range or has no
    /// effect.
    pub fn build(&self) -> Result<ImplicitReward> {
        let ok = self.beta_train.is_finite() && self.beta_train > 0.0;
        require("beta_train", self.beta_train, ok, "positive")?;
        let ok = (0.0..=1.0).contains(&self.lambda);
        require("lambda", self.lambda, ok, "in [0, 1]")?;
        match self.prime_use_gt && self.lambda == 0.0 {
            true => Err(Error::config(
                "algorithm.prime_use_gt",
                "has no effect without a lambda above 0",
            )),
            false => Ok(ImplicitReward(self.clone())),
        }
    }
}

/// The process rewards.
///
/// # Example
/// The last token is left to the outcome:
/// ```
/// use verl_algos::prime::{ImplicitRewardConfig, PrimeNorm};
/// let config = ImplicitRewardConfig {
///     beta_train: 0.5,
///     prime_norm: PrimeNorm::None,
///     ..Default::default()
/// };
/// assert_eq!(config.build()?.row(&[1.0, -2.0, 4.0], 1.0), [0.5, -1.0, 0.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ImplicitReward(pub ImplicitRewardConfig);

const NAME: &str = "implicit reward";

impl ImplicitReward {
    /// Rewards of one answer's policy tokens, not normalised, given `q` and
    /// the outcome.
    pub fn row(&self, q: &[f32], outcome: f32) -> Vec<f32> {
        let ImplicitRewardConfig {
            beta_train, lambda, ..
        } = self.0;
        let (beta, lambda) = (f64::from(beta_train), f64::from(lambda));
        let mut terms: Vec<f64> = q.iter().map(|q| beta * f64::from(*q)).collect();
        if let Some((last, earlier)) = terms.split_last_mut()
            && self.0.prime_use_gt
        {
            *last = f64::from(outcome) - earlier.iter().sum::<f64>();
        }
        let mut next = 0.0;
        for term in terms.iter_mut().rev() {
            next = *term + lambda * next;
            *term = next;
        }
        if let Some(last) = terms.last_mut() {
            *last = 0.0;
        }
        terms.into_iter().map(|r| r as f32).collect()
    }
}

impl ProcessRewards for ImplicitReward {
    fn score(&self, batch: &mut Batch, log_probs: &[Vec<f32>]) -> Result<()> {
        let (expected, got) = (batch.len(), log_probs.len());
        if expected != got {
            let what = "rows of reward-model log-probs".into();
            return Err(Error::Length {
                what,
                expected,
                got,
            });
        }
        let mut rows = Vec::with_capacity(expected);
        for (t, log_probs) in batch.trajectories().zip(log_probs) {
            let reference = t.get(Column::RefLogProbs, NAME)?;
            if log_probs.len() != reference.len() {
                return Err(Error::Length {
                    what: format!("reward-model log-probs of {}", t.place()),
                    expected: reference.len(),
                    got: log_probs.len(),
                });
            }
            let pairs = pick(t, log_probs).into_iter().zip(pick(t, reference));
            let q: Vec<f32> = pairs
                .map(|(log_prob, reference)| log_prob - reference)
                .collect();
            rows.push(self.row(&q, outcome(t, NAME)?));
        }
        if self.0.prime_norm == PrimeNorm::BatchNorm {
            let scale = rows
                .iter()
                .map(|row| largest_to_go(row))
                .fold(0.0, f32::max)
                + 1e-6;
            rows.iter_mut().flatten().for_each(|r| *r /= scale);
        }
        let rows = batch
            .trajectories()
            .zip(&rows)
            .map(|(t, row)| spread(t, row));
        let rows = rows.collect();
        batch.set_column(Column::ImplicitRewards, rows)
    }
}

fn largest_to_go(rewards: &[f32]) -> f32 {
    let to_go = rewards.iter().rev().scan(0.0, |sum, r| {
        *sum += r;
        Some(f32::abs(*sum))
    });
    to_go.fold(0.0, f32::max)
}
