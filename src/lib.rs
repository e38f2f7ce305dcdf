//! verl for Rust: post-train language models with reinforcement learning.
//!
//! Three levels of use, each built on the next:
//!
//! | level | looks like |
//! |---|---|
//! | run | [`Run::from_yaml("run.yaml", &[])`](Run::from_yaml), then [`Run::fit`] |
//! | compose | [`Trainer::new`] with [`Parts`] of your own |
//! | primitives | [`Policy`], [`RolloutEngine`], [`AdvantageEstimator`], ... in a loop of your own |
//!
//! The crates underneath: [`core`] (types, traits, trainer),
//! [`algos`] (one algorithm, one file) and
//! [`backends`] (models, training engine, generator).

pub use verl_algos as algos;
pub use verl_backends as backends;
pub use verl_core as core;

mod device;
mod lora;
mod optimizer;
mod run;

pub use device::device;
pub use run::{Run, RunBuilder};
pub use verl_core::algorithm::{AdvantageEstimator, Algorithm, PolicyLoss};
pub use verl_core::policy::{Critic, Policy};
pub use verl_core::reward::{RewardFn, reward_fn};
pub use verl_core::rollout::RolloutEngine;
pub use verl_core::trainer::{Parts, TrainSettings, Trainer};
pub use verl_core::{Error, Result};

/// The README's examples, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the models' guide, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/models.md")]
struct Models;
