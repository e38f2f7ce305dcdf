//! GDPO: group-wise normalisation of each reward on its own.
//!
//! GRPO on a sum of rewards lets the one with the widest spread drown the
//! others. Here each named part `k` of the reward is first normalised within
//! its group, and only then weighted and summed:
//!
//! ```text
//! A_k,i = (r_k,i - mean(r_k)) / (std(r_k) + epsilon)        within the group
//! A_i = whiten(sum_k w_k A_k,i)                             over the batch
//! ```
//!
//! for every token of answer `i`. Parts are what the reward function returns
//! with `Score::with_part`; a weighted sum of rewards names each of its terms.
//! A KL in the reward does not reach them.
//!
//! # Paper
//! "GDPO: Group reward-Decoupled Normalization Policy Optimization",
//! arXiv:2601.05242.
//!
//! # Differences from verl
//! - `norm_adv_by_std: false` has its effect; verl's trainer drops it.
//! - Without `gdpo_reward_keys` the total reward is the only part.
//! - Equal parts give exactly 0, and an answer alone in its group enters the
//!   whitening with 0 (`singleton_groups: raw`: with its parts).

use crate::grpo::{GroupRelative, GrpoConfig, Singleton};
use crate::options::require;
use crate::tokens::whiten;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::types::{Batch, Column, Group, Trajectory};
use verl_core::{Error, Result};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GdpoConfig {
    /// Names of the parts; the total reward where there are none.
    pub gdpo_reward_keys: Vec<String>,
    /// Weight of each part, in the order of the names; 1 each unless set.
    pub gdpo_reward_weights: Option<Vec<f32>>,
    /// Divide by the group's standard deviation.
    /// Also known as `norm_adv_by_std_in_grpo`.
    pub norm_adv_by_std: bool,
    /// Added to the deviation.
    pub epsilon: f64,
    /// What an answer alone in its group enters the whitening with.
    pub singleton_groups: Singleton,
}

impl Default for GdpoConfig {
    fn default() -> Self {
        let GrpoConfig {
            norm_adv_by_std,
            epsilon,
            singleton_groups,
        } = GrpoConfig::default();
        GdpoConfig {
            gdpo_reward_keys: Vec::new(),
            gdpo_reward_weights: None,
            norm_adv_by_std,
            epsilon,
            singleton_groups,
        }
    }
}

impl GdpoConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`] when there are not as many weights as names, one is
    /// not finite, a name stands twice, or `epsilon` is out of range.
    pub fn build(&self) -> Result<GdpoAdvantage> {
        let ok = self.epsilon.is_finite() && self.epsilon >= 0.0;
        require("epsilon", self.epsilon, ok, "0 or positive")?;
        let keys = &self.gdpo_reward_keys;
        if let Some(i) = (1..keys.len()).find(|i| keys[..*i].contains(&keys[*i])) {
            let message = format!("`{}` stands there twice", keys[i]);
            return Err(Error::config("algorithm.gdpo_reward_keys", message));
        }
        let weights = self
            .gdpo_reward_weights
            .clone()
            .unwrap_or_else(|| vec![1.0; keys.len()]);
        if weights.len() != keys.len() {
            let message = format!(
                "has {} weights for {} names in gdpo_reward_keys; give one for each",
                weights.len(),
                keys.len()
            );
            return Err(Error::config("algorithm.gdpo_reward_weights", message));
        }
        for weight in &weights {
            require("gdpo_reward_weights", weight, weight.is_finite(), "finite")?;
        }
        Ok(GdpoAdvantage {
            parts: keys.iter().cloned().zip(weights).collect(),
            within: GroupRelative(GrpoConfig {
                norm_adv_by_std: self.norm_adv_by_std,
                epsilon: self.epsilon,
                singleton_groups: self.singleton_groups,
            }),
        })
    }
}

/// The estimator.
///
/// # Example
/// The second answer is the right one, the first the short one. Each is one
/// deviation of `sqrt(2)` ahead, but only a fourth of the second counts:
/// ```
/// use verl_algos::gdpo::GdpoConfig;
/// let config = GdpoConfig {
///     gdpo_reward_keys: vec!["right".into(), "short".into()],
///     gdpo_reward_weights: Some(vec![1.0, 0.25]),
///     epsilon: 0.0,
///     ..Default::default()
/// };
/// let estimator = config.build()?;
/// let lead = 0.75 * 0.70710677;
/// assert_eq!(estimator.sum(&[&[0.0, 1.0], &[90.0, 20.0]]), [-lead, lead]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GdpoAdvantage {
    /// Names and weights.
    pub parts: Vec<(String, f32)>,
    /// What each part is normalised with.
    pub within: GroupRelative,
}

const NAME: &str = "gdpo";

impl GdpoAdvantage {
    /// Weighted sum of the normalised parts of one group, given each part's
    /// values, before whitening.
    pub fn sum(&self, parts: &[&[f32]]) -> Vec<f32> {
        let mut sum = vec![0.0; parts.first().map_or(0, |part| part.len())];
        for (k, part) in parts.iter().enumerate() {
            let weight = self.parts.get(k).map_or(1.0, |(_, weight)| *weight);
            let advantages = self.within.group(part).into_iter();
            sum.iter_mut()
                .zip(advantages)
                .for_each(|(sum, a)| *sum += weight * a);
        }
        sum
    }

    fn group(&self, group: &Group) -> Result<Vec<f32>> {
        let answers = group.trajectories();
        let part = |(name, _): &(String, f32)| -> Result<Vec<f32>> {
            answers.iter().map(|t| t.part(name, NAME)).collect()
        };
        let parts = match self.parts.is_empty() {
            true => vec![answers.iter().map(Trajectory::total_reward).collect()],
            false => self.parts.iter().map(part).collect::<Result<Vec<_>>>()?,
        };
        Ok(self.sum(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }
}

impl AdvantageEstimator for GdpoAdvantage {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.within.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let groups = batch.groups().iter().map(|group| self.group(group));
        let sums_s = groups.collect::<Result<Vec<_>>>()?.concat();
        let mut estimate = Advantages::per_sequence(batch, &sums_s);
        whiten(batch, &mut estimate.advantages);
        Ok(estimate)
    }
}
