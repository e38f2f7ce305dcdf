//! Reinforcement-learning algorithms for verl, one file each.
//!
//! [`register_builtin`] puts them into a registry by name. An algorithm of
//! your own takes the same road from your own crate: implement
//! [`Algorithm`](verl_core::algorithm::Algorithm) and register it.

mod clip;
mod common;
pub mod dapo;
mod gae;
pub mod gdpo;
pub mod gpg;
mod group;
pub mod grpo;
pub mod grpo_passk;
pub mod opo;
pub mod optimal_token_baseline;
mod options;
pub mod pf_ppo;
pub mod ppo;
pub mod prime;
pub mod reinforce_plus_plus;
pub mod reinforce_plus_plus_baseline;
pub mod remax;
pub mod rloo;
#[cfg(test)]
mod tests;
mod tokens;
mod value;
pub mod vapo;

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
