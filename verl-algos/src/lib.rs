//! Reinforcement-learning algorithms for verl, one file each.
//!
//! A [`Catalogue`] holds them by name: estimators, losses, and the presets
//! that combine them. Those of your own crate take the same road.

mod builtin;
mod catalogue;
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
mod preset;
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

pub use catalogue::Catalogue;
pub use clip::{ClipConfig, ClippedLoss};
pub use common::{KlControlConfig, KlControlType, KlRewardConfig, TermsConfig};
pub use gae::{Gae, GaeConfig};
pub use preset::Preset;
pub use value::{ClippedValueLoss, ValueConfig};
