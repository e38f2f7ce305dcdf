//! GRPO: group relative policy optimisation.
//!
//! Several answers are sampled for each prompt, and each is judged by its
//! group: with rewards `r_1..r_g` of one prompt,
//!
//! ```text
//! A_i = (r_i - mean(r)) / (std(r) + epsilon)
//! ```
//!
//! for every token of answer `i`, in PPO's clipped surrogate
//! ([`ClippedLoss`](crate::ClippedLoss)). There is no critic.
//!
//! # Paper
//! DeepSeekMath, arXiv:2402.03300, section 4.1, eq. 3. With
//! `norm_adv_by_std: false` and `loss_agg_mode: seq-mean-token-sum-norm` it is
//! Dr. GRPO, arXiv:2503.20783, section 3.2.
//!
//! # Differences from the paper
//! - KL(policy, reference) is in the loss only when `kl_loss_coef` is set (the
//!   paper has 0.04), so that no reference policy is needed.
//! - The loss is bounded at negative advantages (dual clip); a `clip_ratio_c`
//!   beyond any ratio gives the paper's form.
//!
//! # Differences from verl
//! - Equal rewards give exactly 0. verl divides the rounding error of the mean
//!   by `epsilon`: eight rewards of 0.3 become 0.029.
//! - An answer alone in its group has nothing to be compared with and gets 0;
//!   `singleton_groups: raw` gives it its reward, as verl does.
//! - `loss_agg_mode` is `seq-mean-token-mean` unless set, as in the paper
//!   (verl: `token-mean`).
//! - Rewards at tokens the policy did not produce are not counted.
//!
//! # Metrics
//! `actor/pg_loss`, and those of [`ClippedLoss`](crate::ClippedLoss).

use serde::{Deserialize, Serialize};
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::math::mean_and_std;
use verl_core::types::{Batch, Column};
use verl_core::{Error, Result};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrpoConfig {
    /// Divide by the group's standard deviation; `false` is Dr. GRPO's form.
    /// Also known as `norm_adv_by_std_in_grpo`.
    pub norm_adv_by_std: bool,
    /// Added to the deviation.
    pub epsilon: f64,
    /// What an answer alone in its group gets.
    pub singleton_groups: Singleton,
}

/// Advantage of an answer that is alone in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Singleton {
    /// 0.
    Zero,
    /// Its reward.
    Raw,
}

impl Singleton {
    /// A comparison within groups needs two answers, unless one alone counts.
    pub(crate) fn requirements(self) -> Requirements {
        Requirements::default().min_group_size(match self {
            Singleton::Zero => 2,
            Singleton::Raw => 1,
        })
    }
}

impl Default for GrpoConfig {
    fn default() -> Self {
        GrpoConfig {
            norm_adv_by_std: true,
            epsilon: 1e-6,
            singleton_groups: Singleton::Zero,
        }
    }
}

impl GrpoConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(self) -> Result<GroupRelative> {
        match self.epsilon.is_finite() && self.epsilon >= 0.0 {
            true => Ok(GroupRelative(self)),
            false => Err(Error::config(
                "algorithm.epsilon",
                format!("{} must be 0 or positive", self.epsilon),
            )),
        }
    }
}

/// The estimator.
///
/// # Example
/// Two answers are one standard deviation of `sqrt(2)` apart from each other:
/// ```
/// use verl_algos::grpo::{GroupRelative, GrpoConfig};
/// let estimator = GroupRelative(GrpoConfig { epsilon: 0.0, ..Default::default() });
/// assert_eq!(estimator.group(&[1.0, 3.0]), [-0.70710677, 0.70710677]);
/// assert_eq!(estimator.group(&[0.3; 8]), [0.0; 8]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRelative(pub GrpoConfig);

impl GroupRelative {
    /// Advantages of one group, given its rewards.
    pub fn group(&self, rewards: &[f32]) -> Vec<f32> {
        let raw = rewards.len() == 1 && self.0.singleton_groups == Singleton::Raw;
        let (mean, std) = match raw {
            true => (0.0, 1.0),
            false => mean_and_std(rewards.iter().copied()),
        };
        // A spread of exactly 0: with `epsilon` 0 the division would be 0 / 0.
        if std == 0.0 {
            return vec![0.0; rewards.len()];
        }
        let scale = match self.0.norm_adv_by_std {
            true => std + self.0.epsilon,
            false => 1.0,
        };
        let advantage = |r: &f32| ((f64::from(*r) - mean) / scale) as f32;
        rewards.iter().map(advantage).collect()
    }
}

impl AdvantageEstimator for GroupRelative {
    fn name(&self) -> &str {
        "grpo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let mut advantages_s = Vec::with_capacity(batch.len());
        for group in batch.groups() {
            let rewards: Vec<f32> = group
                .trajectories()
                .iter()
                .map(|t| t.total_reward())
                .collect();
            advantages_s.extend(self.group(&rewards));
        }
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
