//! The optimizer that a configuration names.

use verl_backends::optim::{
    Adafactor, AdafactorConfig, AdamW, AdamW8bit, AdamW8bitConfig, AdamWConfig, Lion, LionConfig,
    Muon, MuonConfig,
};
use verl_core::config::{OptimConfig, OptimizerKind};
use verl_core::optimizer::Optimizer;

/// An optimizer without history.
pub(crate) fn build(optim: &OptimConfig) -> Box<dyn Optimizer> {
    let weight_decay = optim.weight_decay;
    let adamw = AdamWConfig {
        betas: optim.betas.into(),
        eps: optim.eps,
        weight_decay,
    };
    match optim.name {
        OptimizerKind::AdamW => Box::new(AdamW::new(adamw)),
        OptimizerKind::AdamW8bit => Box::new(AdamW8bit::new(AdamW8bitConfig {
            adamw,
            ..AdamW8bitConfig::default()
        })),
        OptimizerKind::Adafactor => Box::new(Adafactor::new(AdafactorConfig {
            decay_exponent: optim.adafactor.decay_exponent,
            clip_threshold: optim.adafactor.clip_threshold,
            eps: optim.adafactor.eps,
            weight_decay,
        })),
        OptimizerKind::Lion => Box::new(Lion::new(LionConfig {
            betas: optim.lion.betas.into(),
            weight_decay,
        })),
        OptimizerKind::Muon => Box::new(Muon::new(MuonConfig {
            momentum: optim.muon.momentum,
            steps: optim.muon.steps,
            adamw,
        })),
    }
}
