//! What the catalogue holds from the start.

use crate::Catalogue;
use crate::cispo::CispoConfig;
use crate::clip::ClipConfig;
use crate::clip_cov::ClipCovConfig;
use crate::dpo::DpoConfig;
use crate::dppo::{Divergence, DppoConfig};
use crate::dro::DroConfig;
use crate::gae::GaeConfig;
use crate::gdpo::GdpoConfig;
use crate::gmpo::GmpoConfig;
use crate::gpg::GpgConfig;
use crate::grpo::GrpoConfig;
use crate::grpo_passk::GrpoPasskConfig;
use crate::gspo::GspoConfig;
use crate::kl_cov::KlCovConfig;
use crate::opo::OpoConfig;
use crate::optimal_token_baseline::OptimalTokenBaselineConfig;
use crate::orpo::OrpoConfig;
use crate::policy_gradient::PolicyGradientLoss;
use crate::prime::PrimeConfig;
use crate::reinforce_plus_plus::ReinforcePlusPlusConfig;
use crate::reinforce_plus_plus_baseline::ReinforcePlusPlusBaselineConfig;
use crate::remax::RemaxAdvantage;
use crate::reward::RewardAdvantage;
use crate::rloo::RlooConfig;
use crate::sapo::SapoConfig;
use crate::simpo::SimpoConfig;
use crate::spin::SpinConfig;
use crate::sppo::{SoftMeanConfig, SppoConfig};
use crate::vapo::VapoConfig;
use verl_core::Result;

/// A factory of the part that an options struct builds.
macro_rules! part {
    ($options:expr) => {
        |reader| Ok(Box::new(reader.take($options)?.build()?))
    };
}

impl Catalogue {
    pub(crate) fn add_builtin(&mut self) -> Result<()> {
        self.add_estimators()?;
        self.add_losses()?;
        let mut presets = crate::presets::all().into_iter();
        presets.try_for_each(|preset| self.preset(preset))
    }

    fn add_estimators(&mut self) -> Result<()> {
        self.estimator("gae", part!(GaeConfig::default()))?;
        self.estimator("grpo", |reader| {
            reader.alias("norm_adv_by_std_in_grpo", "norm_adv_by_std")?;
            Ok(Box::new(reader.take(GrpoConfig::default())?.build()?))
        })?;
        self.estimator("grpo_passk", |reader| {
            reader.alias("norm_adv_by_std_in_grpo", "norm_adv_by_std")?;
            Ok(Box::new(reader.take(GrpoPasskConfig::default())?.build()?))
        })?;
        self.estimator("gdpo", |reader| {
            reader.alias("norm_adv_by_std_in_grpo", "norm_adv_by_std")?;
            Ok(Box::new(reader.take(GdpoConfig::default())?.build()?))
        })?;
        self.estimator("rloo", part!(RlooConfig::default()))?;
        self.estimator("opo", part!(OpoConfig::default()))?;
        self.estimator("gpg", part!(GpgConfig::default()))?;
        self.estimator("reward", |_| Ok(Box::new(RewardAdvantage)))?;
        self.estimator("remax", |_| Ok(Box::new(RemaxAdvantage)))?;
        self.estimator(
            "reinforce_plus_plus",
            part!(ReinforcePlusPlusConfig::default()),
        )?;
        self.estimator(
            "reinforce_plus_plus_baseline",
            part!(ReinforcePlusPlusBaselineConfig::default()),
        )?;
        self.estimator(
            "optimal_token_baseline",
            part!(OptimalTokenBaselineConfig::default()),
        )?;
        self.estimator("vapo", part!(VapoConfig::default()))?;
        self.estimator("prime", part!(PrimeConfig::default()))?;
        self.estimator("sppo", part!(SoftMeanConfig::default()))
    }

    fn add_losses(&mut self) -> Result<()> {
        self.loss("clipped", part!(ClipConfig::default()))?;
        self.loss("policy_gradient", |_| Ok(Box::new(PolicyGradientLoss)))?;
        self.loss("gspo", part!(GspoConfig::default()))?;
        self.loss("gmpo", part!(GmpoConfig::default()))?;
        self.loss("cispo", part!(CispoConfig::default()))?;
        self.loss("sapo", part!(SapoConfig::default()))?;
        self.loss("clip_cov", part!(ClipCovConfig::default()))?;
        self.loss("kl_cov", part!(KlCovConfig::default()))?;
        for (name, divergence) in [("dppo_tv", Divergence::Tv), ("dppo_kl", Divergence::Kl)] {
            self.loss(name, move |reader| {
                let config = reader.take(DppoConfig::new(divergence))?;
                Ok(Box::new(config.build(divergence)?))
            })?;
        }
        self.loss("dro", part!(DroConfig::default()))?;
        self.loss("dpo", part!(DpoConfig::default()))?;
        self.loss("spin", part!(SpinConfig::default()))?;
        self.loss("orpo", part!(OrpoConfig::default()))?;
        self.loss("simpo", part!(SimpoConfig::default()))?;
        self.loss("sppo", part!(SppoConfig::default()))
    }
}
