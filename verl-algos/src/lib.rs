//! Reinforcement-learning algorithms for verl, one file each.
//!
//! [`register_builtin`] puts them into a registry by name. An algorithm of
//! your own takes the same road from your own crate: implement
//! [`Algorithm`](verl_core::algorithm::Algorithm) and register it.

pub mod cispo;
mod clip;
pub mod clip_cov;
mod common;
mod covariance;
pub mod dpo;
pub mod dppo;
pub mod dro;
mod gae;
pub mod gmpo;
pub mod grpo;
pub mod gspo;
pub mod kl_cov;
mod options;
pub mod orpo;
mod pairs;
pub mod policy_gradient;
pub mod positive_lm;
pub mod ppo;
pub mod probe;
mod ratio;
pub mod rollout_correction;
pub mod sapo;
pub mod simpo;
pub mod spin;
pub mod sppo;
#[cfg(test)]
mod tests;
mod value;

pub use clip::{ClipConfig, ClippedLoss};
pub use common::{KlControlConfig, KlControlType, KlRewardConfig, TermsConfig};
pub use gae::Gae;
pub use grpo::{Grpo, GrpoConfig};
pub use ppo::{Ppo, PpoConfig};
pub use value::ClippedValueLoss;

use verl_core::Result;
use verl_core::registry::AlgorithmRegistry;

/// Registers every algorithm of this crate.
///
/// # Errors
/// When one of the names is taken.
pub fn register_builtin(registry: &mut AlgorithmRegistry) -> Result<()> {
    registry.register("grpo", |settings| {
        Ok(Box::new(Grpo::from_settings(settings)?))
    })?;
    registry.register("ppo", |settings| {
        Ok(Box::new(Ppo::from_settings(settings)?))
    })
}

/// A registry that holds every algorithm of this crate.
pub fn builtin() -> AlgorithmRegistry {
    let mut registry = AlgorithmRegistry::new("algorithm");
    // Names are distinct, as the tests of this crate check.
    let _ = register_builtin(&mut registry);
    registry
}
