//! Reinforcement-learning algorithms for verl, one file each.
//!
//! A [`Catalogue`] holds them by name: estimators, losses, and the presets
//! that combine them. Those of your own crate take the same road.

mod catalogue;
mod clip;
mod common;
mod gae;
pub mod grpo;
pub mod ppo;
mod preset;
#[cfg(test)]
mod tests;
mod value;

pub use catalogue::Catalogue;
pub use clip::{ClipConfig, ClippedLoss};
pub use common::{KlControlConfig, KlControlType, KlRewardConfig, TermsConfig};
pub use gae::{Gae, GaeConfig};
pub use preset::Preset;
pub use value::{ClippedValueLoss, ValueConfig};
