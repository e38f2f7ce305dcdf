//! Generalised advantage estimation (arXiv:1506.02438, eq. 16).
//!
//! ```text
//! delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lambda A_{t+1}
//! R_t = A_t + V_t
//! ```
//!
//! `t` runs over the policy's own tokens: what the environment wrote in
//! between is stepped over, and the value after the last token is 0. The
//! advantages are then whitened over all policy tokens of the batch.

use crate::tokens::{pick, spread, whiten};
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{AdvantageEstimator, Advantages};
use verl_core::types::{Batch, Column, Trajectory};
use verl_core::{Error, Result};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GaeConfig {
    /// Discount of future rewards.
    pub gamma: f32,
    /// Weight of longer looks ahead.
    pub lam: f32,
    /// Whether advantages are whitened over the batch.
    pub whiten_advantages: bool,
}

impl Default for GaeConfig {
    fn default() -> Self {
        GaeConfig {
            gamma: 1.0,
            lam: 1.0,
            whiten_advantages: true,
        }
    }
}

impl GaeConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<Gae> {
        for (key, value) in [("gamma", self.gamma), ("lam", self.lam)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::config(
                    format!("algorithm.{key}"),
                    format!("{value} is out of range; it must be in [0, 1]"),
                ));
            }
        }
        Ok(Gae {
            gamma: self.gamma,
            lam: self.lam,
            whiten: self.whiten_advantages,
        })
    }
}

/// The estimator.
///
/// # Example
/// One answer of two tokens, reward 1 at its end, no value predicted:
/// ```
/// use verl_algos::Gae;
/// let (advantages, returns) = Gae { gamma: 1.0, lam: 0.9, whiten: false }.recursion(&[0.0, 1.0], &[0.0, 0.0]);
/// assert_eq!(advantages, [0.9, 1.0]);
/// assert_eq!(returns, [0.9, 1.0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gae {
    /// Discount of future rewards.
    pub gamma: f32,
    /// Weight of longer looks ahead.
    pub lam: f32,
    /// Whether advantages are whitened over the batch.
    pub whiten: bool,
}

impl Gae {
    /// Advantages and returns of one row of policy tokens.
    pub fn recursion(&self, rewards: &[f32], values: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut advantages, mut returns) = (vec![0.0; rewards.len()], vec![0.0; rewards.len()]);
        let (mut next_value, mut next_advantage) = (0f32, 0f32);
        for t in (0..rewards.len()).rev() {
            let delta = rewards[t] + self.gamma * next_value - values[t];
            next_advantage = delta + self.gamma * self.lam * next_advantage;
            next_value = values[t];
            (advantages[t], returns[t]) = (next_advantage, next_advantage + values[t]);
        }
        (advantages, returns)
    }

    fn row(&self, t: &Trajectory) -> Result<(Vec<f32>, Vec<f32>)> {
        let (rewards, values) = (
            t.get(Column::TokenRewards, "GAE")?,
            t.get(Column::Values, "GAE")?,
        );
        let (advantages, returns) = self.recursion(&pick(t, rewards), &pick(t, values));
        Ok((spread(t, &advantages), spread(t, &returns)))
    }
}

impl AdvantageEstimator for Gae {
    fn name(&self) -> &str {
        "gae"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards, Column::Values]
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let rows: Vec<(Vec<f32>, Vec<f32>)> = batch
            .trajectories()
            .map(|t| self.row(t))
            .collect::<Result<_>>()?;
        let (mut advantages, returns): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        if self.whiten {
            whiten(batch, &mut advantages);
        }
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
