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

use crate::tokens::whiten;
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
        let mask = vec![true; rewards.len()];
        decoupled(self.gamma, [self.lam; 2], &mask, rewards, values)
    }
}

/// Advantages with one lambda and returns with another, of a row whose policy
/// tokens the mask marks; 0 at the others, whose numbers are not read.
pub(crate) fn decoupled(
    gamma: f32,
    [policy, critic]: [f32; 2],
    mask: &[bool],
    rewards: &[f32],
    values: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let (mut advantages, mut returns) = (vec![0.0; mask.len()], vec![0.0; mask.len()]);
    let (policy, critic) = (gamma * policy, gamma * critic);
    let (mut next_value, mut advantage, mut lead) = (0f32, 0f32, 0f32);
    let tokens = mask.iter().zip(rewards).zip(values);
    let results = advantages.iter_mut().zip(&mut returns);
    for (((live, reward), value), result) in tokens.zip(results).rev() {
        if *live {
            let delta = reward + gamma * next_value - value;
            advantage = delta + policy * advantage;
            lead = delta + critic * lead;
            next_value = *value;
            (*result.0, *result.1) = (advantage, lead + value);
        }
    }
    (advantages, returns)
}

/// The same for a trajectory.
pub(crate) fn trajectory(
    t: &Trajectory,
    gamma: f32,
    lambdas: [f32; 2],
    requester: &'static str,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let rewards = t.get(Column::TokenRewards, requester)?;
    let values = t.get(Column::Values, requester)?;
    let mask = t.response_mask();
    Ok(decoupled(gamma, lambdas, mask, rewards, values))
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
            .map(|t| trajectory(t, self.gamma, [self.lam; 2], "GAE"))
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
