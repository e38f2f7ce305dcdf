//! Options, in verl's spelling.

use super::weights::{WeightLevel, Weights};
use super::{RolloutCorrection, rejection};
use serde::{Deserialize, Serialize};
use verl_core::{Error, Result};

/// The section `algorithm.rollout_correction`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutCorrectionConfig {
    /// What importance weights are taken of; no weights unless set.
    pub rollout_is: Option<WeightLevel>,
    /// Where weights are cut; 2 unless set. `lower_upper`, such as `0.5_5`,
    /// makes weights outside both bounds 0.
    pub rollout_is_threshold: Option<Threshold>,
    /// Divide the weights by their mean over the batch.
    pub rollout_is_batch_normalize: bool,
    /// Criteria of rejection, comma-separated: `token_k1`, `token_k2`,
    /// `token_k3`, `seq_sum_k1` to `k3`, `seq_mean_k1` to `k3`, `seq_max_k2`,
    /// `seq_max_k3`. What stays meets all.
    pub rollout_rs: Option<String>,
    /// One threshold for all criteria, or one for each, comma-separated: for
    /// `k1` the bounds of the ratio as `lower_upper`, or the upper one alone
    /// (the lower is its inverse); for the others the largest divergence.
    pub rollout_rs_threshold: Option<Threshold>,
    /// Reject answers with a token whose ratio is below this.
    pub rollout_token_veto_threshold: Option<f64>,
    /// Use the sampler's log-probs as the old ones.
    pub bypass_mode: bool,
    /// The loss of bypass mode; `ppo_clip` unless set.
    pub loss_type: Option<BypassLossType>,
}

/// A number, or several in one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Threshold {
    /// `2.0`.
    Number(f64),
    /// `0.5_2.0`, or a list of such.
    Text(String),
}

impl Threshold {
    fn text(&self) -> String {
        match self {
            Threshold::Number(number) => number.to_string(),
            Threshold::Text(text) => text.clone(),
        }
    }
}

/// The loss of bypass mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BypassLossType {
    /// The algorithm's own, whose ratio then corrects for the sampler.
    PpoClip,
    /// The plain policy gradient with importance weights.
    Reinforce,
}

impl RolloutCorrectionConfig {
    /// The correction.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range, cannot be
    /// read or has no effect.
    pub fn build(&self) -> Result<RolloutCorrection> {
        let given = [
            (
                self.rollout_is.is_none() && self.rollout_is_threshold.is_some(),
                "rollout_is_threshold",
                "has no effect without rollout_is",
            ),
            (
                self.rollout_is.is_none() && self.rollout_is_batch_normalize,
                "rollout_is_batch_normalize",
                "has no effect without rollout_is",
            ),
            (
                self.rollout_rs.is_none() && self.rollout_rs_threshold.is_some(),
                "rollout_rs_threshold",
                "has no effect without rollout_rs",
            ),
            (
                self.rollout_rs.is_some() && self.rollout_rs_threshold.is_none(),
                "rollout_rs_threshold",
                "rollout_rs needs it; see the criteria for its form",
            ),
            (
                !self.bypass_mode && self.loss_type.is_some(),
                "loss_type",
                "has no effect without bypass_mode: true",
            ),
        ];
        if let Some((_, key, message)) = given.into_iter().find(|(wrong, ..)| *wrong) {
            return refuse(key, message.into());
        }
        let bypass = self
            .bypass_mode
            .then(|| self.loss_type.unwrap_or(BypassLossType::PpoClip));
        if bypass == Some(BypassLossType::PpoClip) && self.rollout_is.is_some() {
            let message = "has no effect in bypass mode with loss_type: ppo_clip, whose ratio \
                           corrects already; drop it or choose loss_type: reinforce";
            return refuse("rollout_is", message.into());
        }
        let veto = self.rollout_token_veto_threshold;
        if let Some(least) = veto.filter(|least| !(*least > 0.0 && *least < 1.0)) {
            let message = format!("{least} is out of range; it must be between 0 and 1");
            return refuse("rollout_token_veto_threshold", message);
        }
        Ok(RolloutCorrection {
            weights: self.weights()?,
            criteria: match (&self.rollout_rs, &self.rollout_rs_threshold) {
                (Some(names), Some(threshold)) => rejection::criteria(names, &threshold.text())?,
                _ => Vec::new(),
            },
            veto: veto.map(f64::ln),
            bypass,
        })
    }

    fn weights(&self) -> Result<Option<Weights>> {
        let Some(level) = self.rollout_is else {
            return Ok(None);
        };
        let threshold = self.rollout_is_threshold.as_ref();
        let (lower, upper) = match threshold {
            None => (None, 2.0),
            Some(threshold) => bounds("rollout_is_threshold", &threshold.text())?,
        };
        Ok(Some(Weights {
            level,
            upper,
            lower,
            normalize: self.rollout_is_batch_normalize,
        }))
    }
}

/// Reads `upper` or `lower_upper`, positive numbers in order.
pub(super) fn bounds(key: &str, text: &str) -> Result<(Option<f64>, f64)> {
    let number = |part: &str| {
        part.trim()
            .parse::<f64>()
            .ok()
            .filter(|x| x.is_finite() && *x > 0.0)
    };
    let read = match text.split_once('_') {
        None => number(text).map(|upper| (None, upper)),
        Some((lower, upper)) => number(lower)
            .zip(number(upper))
            .filter(|(lower, upper)| lower <= upper)
            .map(|(lower, upper)| (Some(lower), upper)),
    };
    match read {
        Some(bounds) => Ok(bounds),
        None => refuse(
            key,
            format!("`{text}` is neither a positive number nor two, as in 0.5_2.0"),
        ),
    }
}

pub(super) fn refuse<T>(key: &str, message: String) -> Result<T> {
    Err(Error::config(
        format!("algorithm.rollout_correction.{key}"),
        message,
    ))
}
