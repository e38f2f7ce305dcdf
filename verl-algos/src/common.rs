//! Options that most algorithms share, in verl's spelling.

use serde::{Deserialize, Serialize};
use verl_core::algorithm::{KlInReward, KlLoss, PolicyTerms};
use verl_core::math::{KlControl, KlEstimator, LossAggregation};
use verl_core::{Error, Result};

/// The terms of the policy objective besides the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TermsConfig {
    /// `token-mean`, `seq-mean-token-sum`, `seq-mean-token-mean` or
    /// `seq-mean-token-sum-norm`.
    pub loss_agg_mode: String,
    /// The constant length of `seq-mean-token-sum-norm`.
    pub loss_scale_factor: Option<f32>,
    /// Weight of the entropy bonus.
    pub entropy_coeff: f32,
    /// Adds KL(policy, reference) to the loss. When not set, a non-zero
    /// `kl_loss_coef` turns it on.
    pub use_kl_loss: Option<bool>,
    /// Weight of that KL; 0.001 when it is turned on without a weight.
    pub kl_loss_coef: Option<f32>,
    /// Its estimator.
    pub kl_loss_type: KlEstimator,
}

impl Default for TermsConfig {
    fn default() -> Self {
        TermsConfig {
            loss_agg_mode: "token-mean".into(),
            loss_scale_factor: None,
            entropy_coeff: 0.0,
            use_kl_loss: None,
            kl_loss_coef: None,
            kl_loss_type: KlEstimator::K3,
        }
    }
}

impl TermsConfig {
    /// The typed terms.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is unknown, out of range or
    /// contradicts another.
    pub fn build(&self) -> Result<PolicyTerms> {
        if !self.entropy_coeff.is_finite() {
            return Err(Error::config("algorithm.entropy_coeff", "must be finite"));
        }
        let aggregation = aggregation(
            "algorithm.loss_agg_mode",
            &self.loss_agg_mode,
            self.loss_scale_factor,
        )?;
        Ok(PolicyTerms {
            aggregation,
            entropy_coeff: self.entropy_coeff,
            kl_loss: self.kl_loss()?,
        })
    }

    fn kl_loss(&self) -> Result<Option<KlLoss>> {
        let coef = match (self.use_kl_loss, self.kl_loss_coef) {
            (None, None) | (Some(false), None) => 0.0,
            (Some(true), None) => 0.001,
            (Some(false), Some(c)) if c != 0.0 => {
                let message =
                    format!("{c} has no effect while use_kl_loss is false; drop one of the two");
                return Err(Error::config("algorithm.kl_loss_coef", message));
            }
            (_, Some(c)) => c,
        };
        if !(coef.is_finite() && coef >= 0.0) {
            return Err(Error::config(
                "algorithm.kl_loss_coef",
                format!("{coef} must be 0 or positive"),
            ));
        }
        Ok((coef > 0.0).then_some(KlLoss {
            coef,
            estimator: self.kl_loss_type,
        }))
    }
}

/// Reads an aggregation mode by verl's name.
pub(crate) fn aggregation(key: &str, mode: &str, scale: Option<f32>) -> Result<LossAggregation> {
    let plain = match mode {
        "token-mean" => LossAggregation::TokenMean,
        "seq-mean-token-sum" => LossAggregation::SeqMeanTokenSum,
        "seq-mean-token-mean" => LossAggregation::SeqMeanTokenMean,
        "seq-mean-token-sum-norm" => {
            return match scale {
                Some(length) if length.is_finite() && length > 0.0 => {
                    Ok(LossAggregation::SeqMeanTokenSumNorm(length))
                }
                _ => Err(Error::config(
                    "algorithm.loss_scale_factor",
                    "seq-mean-token-sum-norm divides by it; set it, e.g. to the longest response length",
                )),
            };
        }
        other => {
            let known =
                "token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm";
            return Err(Error::config(
                key,
                format!("`{other}` is not an aggregation; known: {known}"),
            ));
        }
    };
    match scale {
        None => Ok(plain),
        Some(_) => {
            let message =
                format!("has no effect with {mode}; drop it or choose seq-mean-token-sum-norm");
            Err(Error::config("algorithm.loss_scale_factor", message))
        }
    }
}

/// KL in the reward.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KlRewardConfig {
    /// Subtracts KL(policy, reference) from the token rewards.
    pub use_kl_in_reward: bool,
    /// Its estimator; k1 unless set.
    pub kl_penalty: Option<KlEstimator>,
    /// Its coefficient: `{type: fixed, kl_coef}` or
    /// `{type: adaptive, kl_coef, target_kl, horizon}`; fixed at 0.001 unless
    /// set.
    pub kl_ctrl: Option<KlControl>,
}

impl KlRewardConfig {
    /// The typed setting.
    ///
    /// # Errors
    /// [`Error::Config`] when an option is given that has no effect, or a
    /// controller's numbers are out of range.
    pub fn build(&self) -> Result<Option<KlInReward>> {
        if !self.use_kl_in_reward {
            let given = [
                ("kl_penalty", self.kl_penalty.is_some()),
                ("kl_ctrl", self.kl_ctrl.is_some()),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(Error::config(
                    format!("algorithm.{key}"),
                    "has no effect without use_kl_in_reward: true",
                )),
                None => Ok(None),
            };
        }
        let control = self.kl_ctrl.unwrap_or(KlControl::Fixed { kl_coef: 0.001 });
        if let KlControl::Adaptive {
            target_kl, horizon, ..
        } = control
        {
            if !(target_kl > 0.0 && horizon > 0.0) {
                return Err(Error::config(
                    "algorithm.kl_ctrl",
                    "target_kl and horizon must be positive",
                ));
            }
        }
        Ok(Some(KlInReward {
            estimator: self.kl_penalty.unwrap_or(KlEstimator::K1),
            control,
        }))
    }
}
