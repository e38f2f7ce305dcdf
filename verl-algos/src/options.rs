//! Checking options.

use std::fmt::Display;
use verl_core::{Error, Result};

/// Refuses an option of the `algorithm` section whose value is not `ok`.
pub(crate) fn require(key: &str, value: impl Display, ok: bool, want: &str) -> Result<()> {
    match ok {
        true => Ok(()),
        false => Err(Error::config(
            format!("algorithm.{key}"),
            format!("{value} is out of range; it must be {want}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::cispo::CispoConfig;
    use crate::clip_cov::ClipCovConfig;
    use crate::dpo::{DpoConfig, DpoLossType};
    use crate::dppo::{Divergence, DppoConfig};
    use crate::dro::DroConfig;
    use crate::gmpo::GmpoConfig;
    use crate::gspo::GspoConfig;
    use crate::kl_cov::KlCovConfig;
    use crate::orpo::OrpoConfig;
    use crate::policy_gradient::PolicyGradientLoss;
    use crate::positive_lm::PositiveLmConfig;
    use crate::sapo::SapoConfig;
    use crate::simpo::{SimpoConfig, SimpoLossType};
    use crate::sppo::{SoftMeanConfig, SppoConfig};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use verl_core::Result;

    /// What is said of a config with one option changed.
    fn said<C: Serialize + DeserializeOwned, L: std::fmt::Debug>(
        config: C,
        key: &str,
        value: Value,
        build: impl Fn(&C) -> Result<L>,
    ) -> String {
        build(&config).unwrap();
        let mut options = serde_json::to_value(&config).unwrap();
        assert!(options.get(key).is_some(), "no option {key}");
        options[key] = value;
        let config = serde_json::from_value(options).unwrap();
        let message = build(&config).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("algorithm.{key}: ")),
            "{message}"
        );
        message
    }

    /// Builds the default config with one option changed, which is refused.
    macro_rules! refused {
        ($config:ty, $($key:literal: $value:expr),+) => {
            $(said(<$config>::default(), $key, json!($value), <$config>::build);)+
        };
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        refused!(GspoConfig, "clip_ratio_low": 1.5, "clip_ratio_high": -0.1);
        refused!(CispoConfig, "clip_ratio_low": -1, "clip_ratio_high": -1);
        refused!(SapoConfig, "tau_pos": 0, "tau_neg": -1);
        refused!(GmpoConfig, "clip_ratio_low": -1, "clip_ratio_high": -1);
        refused!(DroConfig, "dro_beta": 0);
        refused!(
            ClipCovConfig, "clip_ratio_low": 2, "clip_ratio_high": -1, "clip_cov_ratio": 0,
            "clip_cov_ub": 1
        );
        refused!(KlCovConfig, "kl_cov_ratio": 1.5, "ppo_kl_coef": -1);
        refused!(SppoConfig, "sppo_eta": 0);
        let endless = SoftMeanConfig {
            softmean_beta: f64::INFINITY,
            ..Default::default()
        };
        assert!(endless.build().is_err());
        refused!(DpoConfig, "beta": 0, "label_smoothing": 0.5);
        refused!(OrpoConfig, "beta": 0);
        refused!(SimpoConfig, "beta": 0, "gamma": -1, "cpo_alpha": -1);
        let dppo = |config: &DppoConfig| config.build(Divergence::Kl);
        for (key, value) in [
            ("clip_ratio_low", -1.0),
            ("clip_ratio_high", -1.0),
            ("clip_ratio_c", 0.5),
        ] {
            said(DppoConfig::new(Divergence::Kl), key, json!(value), dppo);
        }
        let positive = |config: &PositiveLmConfig| config.build(Box::new(PolicyGradientLoss));
        said(
            PositiveLmConfig::default(),
            "positive_lm_coef",
            json!(-1),
            positive,
        );
    }

    #[test]
    fn messages_say_what_would_do() {
        let message = said(
            SapoConfig::default(),
            "tau_pos",
            json!(0),
            SapoConfig::build,
        );
        assert_eq!(
            message,
            "algorithm.tau_pos: 0 is out of range; it must be positive"
        );
    }

    #[test]
    fn options_without_an_effect_are_refused() {
        let hinge = DpoConfig {
            loss_type: DpoLossType::Hinge,
            ..Default::default()
        };
        said(hinge, "label_smoothing", json!(0.1), DpoConfig::build);
        let cpo = SimpoConfig {
            loss_type: SimpoLossType::Cpo,
            ..Default::default()
        };
        said(cpo, "gamma", json!(1), SimpoConfig::build);
    }
}
