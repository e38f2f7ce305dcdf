//! Options that most algorithms share, in verl's spelling.

use serde::{Deserialize, Serialize};
use verl_core::algorithm::{KlInReward, KlLoss, PolicyTerms};
use verl_core::math::{KlControl, KlEstimator, LossAggregation};
use verl_core::{Error, Result};

/// The terms of the policy objective besides the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TermsConfig {
    /// `token-mean`, `token-sum`, `seq-mean-token-sum`, `seq-mean-token-mean`
    /// or `seq-mean-token-sum-norm`.
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
        let aggregation = aggregation("", &self.loss_agg_mode, self.loss_scale_factor)?;
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

/// Reads the options `{prefix}loss_agg_mode` and `{prefix}loss_scale_factor`.
pub(crate) fn aggregation(prefix: &str, mode: &str, scale: Option<f32>) -> Result<LossAggregation> {
    let of_scale =
        |message: String| Error::config(format!("algorithm.{prefix}loss_scale_factor"), message);
    let plain = match (mode, scale) {
        ("token-mean", _) => LossAggregation::TokenMean,
        ("token-sum", _) => LossAggregation::TokenSum,
        ("seq-mean-token-sum", _) => LossAggregation::SeqMeanTokenSum,
        ("seq-mean-token-mean", _) => LossAggregation::SeqMeanTokenMean,
        ("seq-mean-token-sum-norm", Some(length)) if length.is_finite() && length > 0.0 => {
            return Ok(LossAggregation::SeqMeanTokenSumNorm(length));
        }
        ("seq-mean-token-sum-norm", _) => {
            let message = "seq-mean-token-sum-norm divides by it; set it to a positive number, \
                           e.g. the longest response length";
            return Err(of_scale(message.into()));
        }
        (other, _) => {
            let known = "token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean, \
                         seq-mean-token-sum-norm";
            return Err(Error::config(
                format!("algorithm.{prefix}loss_agg_mode"),
                format!("`{other}` is not an aggregation; known: {known}"),
            ));
        }
    };
    match scale {
        None => Ok(plain),
        Some(_) => Err(of_scale(format!(
            "has no effect with {mode}; drop it or choose seq-mean-token-sum-norm"
        ))),
    }
}

/// KL in the reward.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KlRewardConfig {
    /// Subtracts KL(policy, reference) from the token rewards.
    pub use_kl_in_reward: bool,
    /// Its estimator; k1 unless set.
    pub kl_penalty: Option<KlEstimator>,
    /// Its coefficient; fixed at 0.001 unless set.
    pub kl_ctrl: Option<KlControlConfig>,
}

/// Where the coefficient of the KL in the reward comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KlControlConfig {
    /// `fixed` or `adaptive`.
    pub r#type: KlControlType,
    /// The coefficient, or the first one.
    pub kl_coef: f64,
    /// The KL to hold, adaptive only; 0.1 unless set.
    pub target_kl: Option<f64>,
    /// Sequences over which a deviation of 20 % is corrected, adaptive only;
    /// 10 000 unless set.
    pub horizon: Option<f64>,
}

/// Kind of a [`KlControlConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlControlType {
    /// A constant.
    Fixed,
    /// Proportional control towards `target_kl`.
    Adaptive,
}

impl Default for KlControlConfig {
    fn default() -> Self {
        KlControlConfig {
            r#type: KlControlType::Fixed,
            kl_coef: 0.001,
            target_kl: None,
            horizon: None,
        }
    }
}

impl KlControlConfig {
    /// The typed control.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range or has no
    /// effect.
    pub fn build(&self) -> Result<KlControl> {
        let fail = |key: &str, message: String| {
            Err(Error::config(format!("algorithm.kl_ctrl.{key}"), message))
        };
        let kl_coef = self.kl_coef;
        if !(kl_coef.is_finite() && kl_coef >= 0.0) {
            return fail("kl_coef", format!("{kl_coef} must be 0 or positive"));
        }
        let adaptive = [("target_kl", self.target_kl), ("horizon", self.horizon)];
        match self.r#type {
            KlControlType::Fixed => match adaptive.iter().find(|(_, value)| value.is_some()) {
                Some((key, _)) => fail(key, "has no effect without type: adaptive".into()),
                None => Ok(KlControl::Fixed { kl_coef }),
            },
            KlControlType::Adaptive => {
                for (key, value) in adaptive {
                    if let Some(value) = value.filter(|v| !(v.is_finite() && *v > 0.0)) {
                        return fail(key, format!("{value} must be positive"));
                    }
                }
                Ok(KlControl::Adaptive {
                    kl_coef,
                    target_kl: self.target_kl.unwrap_or(0.1),
                    horizon: self.horizon.unwrap_or(10_000.0),
                })
            }
        }
    }
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
        Ok(Some(KlInReward {
            estimator: self.kl_penalty.unwrap_or(KlEstimator::K1),
            control: self.kl_ctrl.unwrap_or_default().build()?,
        }))
    }
}
