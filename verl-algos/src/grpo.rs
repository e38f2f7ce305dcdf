//! GRPO: group relative policy optimisation (arXiv:2402.03300, section 4.1).
//!
//! Several answers are sampled for each prompt, and each is judged by its
//! group: with rewards `r_1..r_g` of one prompt,
//!
//! ```text
//! A_i = (r_i - mean(r)) / (std(r) + eps)
//! ```
//!
//! for every token of answer `i`, in PPO's clipped surrogate. No critic.
//!
//! # Differences from the paper
//! - KL(policy, reference) is in the loss only when `kl_loss_coef` is set (the
//!   paper has 0.04), so that no reference policy is needed.
//!
//! # Differences from verl
//! - Equal rewards give exactly 0. verl divides the rounding error of the mean
//!   by `eps`: eight rewards of 0.3 become 0.029.
//! - An answer alone in its group has nothing to be compared with and gets 0;
//!   `singleton_groups: raw` gives it its reward, as verl does.

use crate::clip::{ClipConfig, ClippedLoss};
use crate::common::{KlRewardConfig, TermsConfig};
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{
    AdvantageEstimator, Advantages, Algorithm, KlInReward, PolicyLoss, PolicyTerms, Requirements,
    ValueLoss,
};
use verl_core::math::{LossAggregation, mean_and_std};
use verl_core::registry::Settings;
use verl_core::types::{Batch, Column};
use verl_core::{Error, Result};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrpoConfig {
    /// Divide by the group's standard deviation; `false` is Dr. GRPO's form.
    pub norm_adv_by_std_in_grpo: bool,
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

impl Default for GrpoConfig {
    fn default() -> Self {
        GrpoConfig {
            norm_adv_by_std_in_grpo: true,
            epsilon: 1e-6,
            singleton_groups: Singleton::Zero,
        }
    }
}

/// The estimator.
///
/// # Example
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
        if let ([reward], Singleton::Raw) = (rewards, self.0.singleton_groups) {
            let scale = if self.0.norm_adv_by_std_in_grpo {
                1.0 + self.0.epsilon
            } else {
                1.0
            };
            return vec![(f64::from(*reward) / scale) as f32];
        }
        let (mean, std) = mean_and_std(rewards.iter().copied());
        if std == 0.0 {
            return vec![0.0; rewards.len()];
        }
        let scale = if self.0.norm_adv_by_std_in_grpo {
            std + self.0.epsilon
        } else {
            1.0
        };
        rewards
            .iter()
            .map(|r| ((f64::from(*r) - mean) / scale) as f32)
            .collect()
    }
}

impl AdvantageEstimator for GroupRelative {
    fn name(&self) -> &str {
        "grpo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
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

/// The algorithm.
#[derive(Debug, Clone)]
pub struct Grpo {
    estimator: GroupRelative,
    loss: ClippedLoss,
    terms: PolicyTerms,
    kl_in_reward: Option<KlInReward>,
}

impl Grpo {
    /// Reads the options of a configuration's `algorithm` section.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is unknown or out of range.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let mut reader = settings.reader("algorithm", "grpo");
        let config = reader.take(GrpoConfig::default())?;
        let clip = reader.take(ClipConfig::default())?;
        let paper = TermsConfig {
            loss_agg_mode: "seq-mean-token-mean".into(),
            ..Default::default()
        };
        let terms = reader.take(paper)?;
        let kl_reward = reader.take(KlRewardConfig::default())?;
        reader.finish()?;
        if !(config.epsilon.is_finite() && config.epsilon >= 0.0) {
            return Err(Error::config("algorithm.epsilon", "must be 0 or positive"));
        }
        Ok(Grpo {
            estimator: GroupRelative(config),
            loss: clip.build()?,
            terms: terms.build()?,
            kl_in_reward: kl_reward.build()?,
        })
    }
}

impl Default for Grpo {
    fn default() -> Self {
        Grpo {
            estimator: GroupRelative(GrpoConfig::default()),
            loss: ClippedLoss {
                low: 0.2,
                high: 0.2,
                c: 3.0,
            },
            terms: PolicyTerms {
                aggregation: LossAggregation::SeqMeanTokenMean,
                entropy_coeff: 0.0,
                kl_loss: None,
            },
            kl_in_reward: None,
        }
    }
}

impl Algorithm for Grpo {
    fn name(&self) -> &str {
        "grpo"
    }

    fn requirements(&self) -> Requirements {
        let smallest = match self.estimator.0.singleton_groups {
            Singleton::Zero => 2,
            Singleton::Raw => 1,
        };
        let kl = self.terms.kl_loss.is_some() || self.kl_in_reward.is_some();
        Requirements::default()
            .reference(kl)
            .min_group_size(smallest)
    }

    fn estimator(&self) -> &dyn AdvantageEstimator {
        &self.estimator
    }

    fn policy_loss(&self) -> &dyn PolicyLoss {
        &self.loss
    }

    fn policy_terms(&self) -> PolicyTerms {
        self.terms
    }

    fn value_loss(&self) -> Option<(&dyn ValueLoss, LossAggregation)> {
        None
    }

    fn kl_in_reward(&self) -> Option<KlInReward> {
        self.kl_in_reward
    }
}
