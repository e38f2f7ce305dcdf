//! PPO: proximal policy optimisation with a critic, as it is used on language
//! models.
//!
//! Advantages are GAE's ([`Gae`]) on the critic's values, whitened over the
//! batch; the policy's loss ([`ClippedLoss`]) and the critic's
//! ([`ClippedValueLoss`]) are clipped:
//!
//! ```text
//! J = mean(max(-A r, -A clip(r, 1 - low, 1 + high)))          r = pi / pi_old
//! V = mean(max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2)) / 2
//! ```
//!
//! KL(policy, reference) may be subtracted from the token rewards
//! (`use_kl_in_reward`, with a fixed or adaptive coefficient) or added to the
//! loss (`kl_loss_coef`).
//!
//! # Paper
//! arXiv:1707.06347, eq. 7; on language models arXiv:2203.02155, eq. 2;
//! adaptive KL arXiv:1909.08593, section 2.2.
//!
//! # Differences from the paper
//! - No KL term unless it is asked for, so that no reference policy is needed.
//! - The loss is bounded at negative advantages (dual clip); a `clip_ratio_c`
//!   beyond any ratio gives the paper's form.
//! - `whiten_advantages: false` leaves the advantages as GAE gives them.
//!
//! # Differences from verl
//! - Values and rewards at tokens that the policy did not produce never enter,
//!   and advantages there are 0.
//! - A batch with a single policy token has advantage 0 instead of failing.
//! - The KL that the adaptive controller steers is the mean over sequences
//!   with a policy token; verl counts the others as 0.
//!
//! # Metrics
//! `actor/pg_loss`, `critic/vf_loss`, and those of the two losses.

use crate::clip::{ClipConfig, ClippedLoss};
use crate::common::{KlRewardConfig, TermsConfig, aggregation};
use crate::gae::Gae;
use crate::value::ClippedValueLoss;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{
    AdvantageEstimator, Algorithm, KlInReward, PolicyLoss, PolicyTerms, Requirements, ValueLoss,
};
use verl_core::math::LossAggregation;
use verl_core::registry::Settings;
use verl_core::{Error, Result};

/// Options of estimator and value loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PpoConfig {
    /// Discount of future rewards.
    pub gamma: f32,
    /// Weight of longer looks ahead.
    pub lam: f32,
    /// Whether advantages are whitened over the batch.
    pub whiten_advantages: bool,
    /// How far a value may move before its loss is clipped.
    pub cliprange_value: f32,
    /// How the per-token value losses become one number, as `loss_agg_mode`.
    pub value_loss_agg_mode: String,
    /// The constant length of the value loss's `seq-mean-token-sum-norm`.
    pub value_loss_scale_factor: Option<f32>,
}

impl Default for PpoConfig {
    fn default() -> Self {
        PpoConfig {
            gamma: 1.0,
            lam: 1.0,
            whiten_advantages: true,
            cliprange_value: 0.5,
            value_loss_agg_mode: "token-mean".into(),
            value_loss_scale_factor: None,
        }
    }
}

/// The algorithm.
///
/// # Example
/// ```
/// use serde_json::json;
/// use verl_algos::Ppo;
/// use verl_core::algorithm::Algorithm;
/// use verl_core::registry::Settings;
///
/// let options = json!({"lam": 0.95, "kl_loss_coef": 0.01});
/// let ppo = Ppo::from_settings(&Settings(options.as_object().unwrap().clone()))?;
/// assert!(ppo.requirements().critic && ppo.requirements().reference);
///
/// let options = json!({"lam": 1.5});
/// let error = Ppo::from_settings(&Settings(options.as_object().unwrap().clone())).unwrap_err();
/// assert_eq!(error.to_string(), "algorithm.lam: 1.5 is out of range; it must be in [0, 1]");
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Ppo {
    estimator: Gae,
    loss: ClippedLoss,
    value_loss: ClippedValueLoss,
    value_aggregation: LossAggregation,
    terms: PolicyTerms,
    kl_in_reward: Option<KlInReward>,
}

impl Ppo {
    /// Reads the options of a configuration's `algorithm` section.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is unknown or out of range.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let mut reader = settings.reader("algorithm", "ppo");
        let config = reader.take(PpoConfig::default())?;
        let clip = reader.take(ClipConfig::default())?;
        let terms = reader.take(TermsConfig::default())?;
        let kl_reward = reader.take(KlRewardConfig::default())?;
        reader.finish()?;
        Self::new(config, &clip, &terms, &kl_reward)
    }

    /// Puts the algorithm together.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range.
    pub fn new(
        config: PpoConfig,
        clip: &ClipConfig,
        terms: &TermsConfig,
        kl_reward: &KlRewardConfig,
    ) -> Result<Self> {
        for (key, value) in [("gamma", config.gamma), ("lam", config.lam)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::config(
                    format!("algorithm.{key}"),
                    format!("{value} is out of range; it must be in [0, 1]"),
                ));
            }
        }
        if config.cliprange_value.is_nan() || config.cliprange_value <= 0.0 {
            return Err(Error::config(
                "algorithm.cliprange_value",
                format!("{} must be positive", config.cliprange_value),
            ));
        }
        Ok(Ppo {
            estimator: Gae {
                gamma: config.gamma,
                lam: config.lam,
                whiten: config.whiten_advantages,
            },
            loss: clip.build()?,
            value_loss: ClippedValueLoss {
                range: config.cliprange_value,
            },
            value_aggregation: aggregation(
                "value_",
                &config.value_loss_agg_mode,
                config.value_loss_scale_factor,
            )?,
            terms: terms.build()?,
            kl_in_reward: kl_reward.build()?,
        })
    }
}

impl Default for Ppo {
    fn default() -> Self {
        Ppo {
            estimator: Gae {
                gamma: 1.0,
                lam: 1.0,
                whiten: true,
            },
            loss: ClippedLoss::default(),
            value_loss: ClippedValueLoss { range: 0.5 },
            value_aggregation: LossAggregation::TokenMean,
            terms: PolicyTerms {
                aggregation: LossAggregation::TokenMean,
                entropy_coeff: 0.0,
                kl_loss: None,
            },
            kl_in_reward: None,
        }
    }
}

impl Algorithm for Ppo {
    fn name(&self) -> &str {
        "ppo"
    }

    fn requirements(&self) -> Requirements {
        let kl = self.terms.kl_loss.is_some() || self.kl_in_reward.is_some();
        Requirements::default().critic(true).reference(kl)
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
        Some((&self.value_loss, self.value_aggregation))
    }

    fn kl_in_reward(&self) -> Option<KlInReward> {
        self.kl_in_reward
    }
}
