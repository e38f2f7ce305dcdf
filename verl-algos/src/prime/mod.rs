//! PRIME: process rewards from an implicit reward model.
//!
//! A language model `phi` trained on outcomes alone ([`ImplicitRewardLoss`])
//! yields a reward for every token ([`ImplicitReward`]), and those enter the
//! advantage beside the outcome, each less what the other answers of the group
//! have:
//!
//! ```text
//! r_t = beta (log pi_phi - log pi_ref)          m_j = mean of r over answer j
//! A_t,i = c_dpo sum_{s >= t} gamma^(s - t) (r_s,i - mean(m_j, j != i))
//!       + c_gt (o_i - mean(o_j, j != i))
//! ```
//!
//! whitened over the policy tokens of the batch; `o` is the answer's score.
//! `t` runs over the policy's own tokens. A KL in the reward does not enter.
//!
//! # Paper
//! "Process Reinforcement through Implicit Rewards", arXiv:2502.01456, eq. 5.
//!
//! # Differences from the paper
//! Advantages are whitened, as its code does.
//!
//! # Differences from verl
//! - verl's recipe multiplies each token's reward by `n / (n - 1)`, which is no
//!   leave-one-out baseline: `process_baseline: recipe`.
//! - Answers without tokens have no mean reward and count for no one's
//!   baseline; in verl it is NaN.
//! - An answer alone in its group has nothing to be compared with and enters
//!   the whitening with 0.

mod loss;
mod model;
mod reward;

pub use loss::{ImplicitRewardLoss, ImplicitRewardLossConfig};
pub use model::{RewardModelConfig, UpdateOrder};
pub use reward::{ImplicitReward, ImplicitRewardConfig, PrimeNorm};

use crate::options::require;
use crate::tokens::whiten;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::math::masked_sum;
use verl_core::types::{Batch, Column, Group, Trajectory};
use verl_core::{Error, Result};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrimeConfig {
    /// Weight of the process rewards.
    pub reward_dpo_coef: f32,
    /// Weight of the outcome.
    pub reward_gt_coef: f32,
    /// Discount of future process rewards.
    pub gamma: f32,
    /// What a process reward is compared with.
    pub process_baseline: ProcessBaseline,
}

/// Baselines of process rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessBaseline {
    /// `r - mean(m_j, j != i)`, the paper's.
    LeaveOneOut,
    /// `(n r - sum(m)) / (n - 1)`, that of verl's recipe.
    Recipe,
}

impl Default for PrimeConfig {
    fn default() -> Self {
        PrimeConfig {
            reward_dpo_coef: 5.0,
            reward_gt_coef: 5.0,
            gamma: 1.0,
            process_baseline: ProcessBaseline::LeaveOneOut,
        }
    }
}

impl PrimeConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<PrimeAdvantage> {
        for (key, value) in [
            ("reward_dpo_coef", self.reward_dpo_coef),
            ("reward_gt_coef", self.reward_gt_coef),
        ] {
            let ok = value.is_finite() && value >= 0.0;
            require(key, value, ok, "0 or positive")?;
        }
        let ok = (0.0..=1.0).contains(&self.gamma);
        require("gamma", self.gamma, ok, "in [0, 1]")?;
        Ok(PrimeAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// Process rewards of 1 and 3 per token, less the other answer's mean:
/// ```
/// use verl_algos::prime::{PrimeConfig, ProcessBaseline};
/// let estimator = PrimeConfig::default().build()?;
/// assert_eq!(estimator.process(&[1.0, 1.0], &[1.0, 3.0], 0), [-2.0, -2.0]);
/// let recipe = PrimeConfig { process_baseline: ProcessBaseline::Recipe, ..Default::default() };
/// assert_eq!(recipe.build()?.process(&[1.0, 1.0], &[1.0, 3.0], 0), [-2.0, -2.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PrimeAdvantage(pub PrimeConfig);

const NAME: &str = "prime";

/// The score that process rewards add up to.
fn outcome(t: &Trajectory, requester: &'static str) -> Result<f32> {
    t.score().ok_or(Error::MissingColumn {
        column: "score",
        requester,
        remedy: Column::TokenRewards.remedy(),
    })
}

/// Mean of the others; `None` where there are none.
fn mean_of_others(values: &[f64], own: usize) -> Option<f64> {
    let others = values.len().checked_sub(1).filter(|n| *n > 0)?;
    Some((values.iter().sum::<f64>() - values[own]) / others as f64)
}

impl PrimeAdvantage {
    /// Process rewards of an answer less their baseline, given the mean
    /// rewards of the group's answers and which of them is its own.
    pub fn process(&self, rewards: &[f32], means: &[f64], own: usize) -> Vec<f32> {
        let compared = self.compared(means, own);
        rewards.iter().map(|r| compared.less(*r)).collect()
    }

    fn compared(&self, means: &[f64], own: usize) -> Compared {
        let n = means.len() as f64;
        let (scale, baseline) = match (mean_of_others(means, own), self.0.process_baseline) {
            (None, _) => (0.0, 0.0),
            (Some(others), ProcessBaseline::LeaveOneOut) => (1.0, others),
            (Some(_), ProcessBaseline::Recipe) => {
                (n / (n - 1.0), means.iter().sum::<f64>() / (n - 1.0))
            }
        };
        Compared { scale, baseline }
    }

    /// Advantages before whitening.
    fn group(&self, group: &Group) -> Result<Vec<Vec<f32>>> {
        let answers = group.trajectories();
        let outcomes = answers.iter().map(|t| Ok(outcome(t, NAME)?.into()));
        let outcomes = outcomes.collect::<Result<Vec<f64>>>()?;
        let rewards = answers.iter().map(|t| t.get(Column::ImplicitRewards, NAME));
        let rewards = rewards.collect::<Result<Vec<_>>>()?;
        let (mut means, mut places) = (Vec::new(), Vec::new());
        for (t, row) in answers.iter().zip(&rewards) {
            places.push(means.len());
            if t.policy_tokens() > 0 {
                let sum = masked_sum(row, t.response_mask());
                means.push(sum / t.policy_tokens() as f64);
            }
        }
        let row = |(i, t): (usize, &Trajectory)| {
            if t.policy_tokens() == 0 {
                return vec![0.0; rewards[i].len()];
            }
            let lead = mean_of_others(&outcomes, i).map_or(0.0, |others| outcomes[i] - others);
            let compared = self.compared(&means, places[i]);
            self.row(rewards[i], t.response_mask(), compared, lead as f32)
        };
        Ok(answers.iter().enumerate().map(row).collect())
    }

    /// Both kinds of reward to go, at the policy's tokens.
    fn row(&self, rewards: &[f32], mask: &[bool], compared: Compared, lead: f32) -> Vec<f32> {
        let mut row = vec![0.0; mask.len()];
        let (mut ahead, gamma) = (0f64, f64::from(self.0.gamma));
        let outcome = self.0.reward_gt_coef * lead;
        for ((live, reward), result) in mask.iter().zip(rewards).zip(&mut row).rev() {
            if *live {
                ahead = f64::from(compared.less(*reward)) + gamma * ahead;
                *result = self.0.reward_dpo_coef * ahead as f32 + outcome;
            }
        }
        row
    }
}

/// What becomes of a process reward when it is compared with its group's.
#[derive(Debug, Clone, Copy)]
struct Compared {
    scale: f64,
    baseline: f64,
}

impl Compared {
    fn less(&self, reward: f32) -> f32 {
        (f64::from(reward) * self.scale - self.baseline) as f32
    }
}

impl AdvantageEstimator for PrimeAdvantage {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards, Column::ImplicitRewards]
    }

    fn requirements(&self) -> Requirements {
        Requirements::default().min_group_size(2)
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let groups = batch.groups().iter().map(|group| self.group(group));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let returns: Vec<Vec<f32>> = groups.into_iter().flatten().collect();
        let mut advantages = returns.clone();
        whiten(batch, &mut advantages);
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
