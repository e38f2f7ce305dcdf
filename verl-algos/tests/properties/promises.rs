//! The policy losses of this crate, and what each promises.

use verl_algos::ClippedLoss;
use verl_algos::cispo::CispoConfig;
use verl_algos::clip_cov::ClipCovConfig;
use verl_algos::dpo::{DpoConfig, DpoLossType};
use verl_algos::dppo::{Divergence, DppoConfig};
use verl_algos::dro::DroConfig;
use verl_algos::gmpo::GmpoConfig;
use verl_algos::gspo::GspoConfig;
use verl_algos::kl_cov::KlCovConfig;
use verl_algos::orpo::OrpoConfig;
use verl_algos::policy_gradient::PolicyGradientLoss;
use verl_algos::positive_lm::PositiveLmConfig;
use verl_algos::rollout_correction::{
    BypassLossType, Corrected, RolloutCorrectionConfig, Threshold, WeightLevel,
};
use verl_algos::sapo::SapoConfig;
use verl_algos::simpo::{SimpoConfig, SimpoLossType};
use verl_algos::spin::SpinConfig;
use verl_algos::sppo::SppoConfig;
use verl_core::algorithm::PolicyLoss;

/// Into what a mini-batch may be split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Split {
    Answers,
    Groups,
    /// Into nothing: the loss reads statistics of a micro-batch.
    Never,
}

/// What a loss promises.
pub(crate) struct Promise {
    pub(crate) loss: Box<dyn PolicyLoss>,
    pub(crate) split: Split,
    /// Whether its gradient at the old policy is the plain one, `-A`.
    pub(crate) plain: bool,
    /// Whether its gradient is that of its value: it stops none.
    pub(crate) true_gradient: bool,
}

impl Promise {
    fn new(loss: impl PolicyLoss + 'static) -> Self {
        Promise {
            loss: Box::new(loss),
            split: Split::Answers,
            plain: false,
            true_gradient: false,
        }
    }

    fn split(self, split: Split) -> Self {
        Promise { split, ..self }
    }

    fn plain(self) -> Self {
        Promise {
            plain: true,
            ..self
        }
    }

    fn true_gradient(self) -> Self {
        Promise {
            true_gradient: true,
            ..self
        }
    }
}

/// Bypass mode with weights and rejection.
fn bypass(loss_type: BypassLossType) -> Box<dyn PolicyLoss> {
    let config = RolloutCorrectionConfig {
        rollout_is: (loss_type == BypassLossType::Reinforce).then_some(WeightLevel::Sequence),
        rollout_rs: Some("token_k2".into()),
        rollout_rs_threshold: Some(Threshold::Number(2.0)),
        bypass_mode: true,
        loss_type: Some(loss_type),
        ..Default::default()
    };
    config
        .build()
        .unwrap()
        .wrap(Box::new(ClippedLoss::default()))
}

/// Every policy loss.
pub(crate) fn promises() -> Vec<Promise> {
    let dpo = |loss_type| {
        let config = DpoConfig {
            loss_type,
            ..Default::default()
        };
        Promise::new(config.build().unwrap())
    };
    let simpo = |loss_type| {
        let config = SimpoConfig {
            loss_type,
            ..Default::default()
        };
        Promise::new(config.build().unwrap())
    };
    let dppo = |divergence| {
        let config = DppoConfig::new(divergence);
        Promise::new(config.build(divergence).unwrap())
    };
    let pairs = [
        dpo(DpoLossType::Sigmoid),
        dpo(DpoLossType::Robust),
        dpo(DpoLossType::Hinge),
        dpo(DpoLossType::Ipo),
        simpo(SimpoLossType::Simpo),
        simpo(SimpoLossType::Cpo),
        Promise::new(OrpoConfig::default().build().unwrap()),
        Promise::new(SpinConfig::default().build().unwrap()),
    ];
    let gspo = GspoConfig {
        clip_ratio_low: 0.2,
        clip_ratio_high: 0.2,
    };
    let kl_cov = KlCovConfig {
        kl_cov_ratio: 0.3,
        ..Default::default()
    };
    let clip_cov = ClipCovConfig {
        clip_cov_ratio: 0.3,
        clip_cov_lb: 0.0,
        ..Default::default()
    };
    let positive = PositiveLmConfig::default().build(Box::new(ClippedLoss::default()));
    let boxed = |loss| Promise {
        loss,
        ..Promise::new(PolicyGradientLoss)
    };
    let single = [
        Promise::new(ClippedLoss::default()).plain().true_gradient(),
        Promise::new(PolicyGradientLoss).plain().true_gradient(),
        Promise::new(gspo.build().unwrap()).plain().true_gradient(),
        Promise::new(CispoConfig::default().build().unwrap()).plain(),
        Promise::new(SapoConfig::default().build().unwrap())
            .plain()
            .true_gradient(),
        Promise::new(GmpoConfig::default().build().unwrap()).true_gradient(),
        dppo(Divergence::Tv).plain(),
        dppo(Divergence::Kl).plain(),
        Promise::new(DroConfig::default().build().unwrap())
            .plain()
            .true_gradient(),
        Promise::new(SppoConfig::default().build().unwrap()).true_gradient(),
        Promise::new(positive.unwrap()).true_gradient(),
        Promise::new(Corrected::new(Box::new(ClippedLoss::default()))).true_gradient(),
        Promise::new(kl_cov.build().unwrap())
            .split(Split::Never)
            .plain(),
        Promise::new(clip_cov.build().unwrap()).split(Split::Never),
        boxed(bypass(BypassLossType::PpoClip)).plain(),
        boxed(bypass(BypassLossType::Reinforce)).plain(),
    ];
    let pairs = pairs.map(|promise| promise.split(Split::Groups).true_gradient());
    single.into_iter().chain(pairs).collect()
}
