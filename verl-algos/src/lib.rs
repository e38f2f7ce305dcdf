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
pub mod dapo;
pub mod dpo;
pub mod dppo;
pub mod dro;
mod gae;
pub mod gdpo;
pub mod gmpo;
pub mod gpg;
mod group;
pub mod grpo;
pub mod grpo_passk;
pub mod gspo;
pub mod kl_cov;
pub mod opo;
pub mod optimal_token_baseline;
mod options;
pub mod orpo;
mod pairs;
pub mod pf_ppo;
pub mod policy_gradient;
pub mod positive_lm;
pub mod ppo;
mod preset;
mod presets;
pub mod prime;
pub mod probe;
mod ratio;
pub mod reinforce_plus_plus;
pub mod reinforce_plus_plus_baseline;
pub mod remax;
pub mod reward;
pub mod rloo;
pub mod rollout_correction;
pub mod sapo;
pub mod simpo;
pub mod spin;
pub mod sppo;
#[cfg(test)]
mod tests;
mod tokens;
mod value;
pub mod vapo;

pub use catalogue::Catalogue;
pub use clip::{ClipConfig, ClippedLoss};
pub use common::{KlControlConfig, KlControlType, KlRewardConfig, TermsConfig};
pub use gae::{Gae, GaeConfig};
pub use preset::Preset;
pub use value::{ClippedValueLoss, ValueConfig};
