//! What reinforcement learning on language models is: the data types, the
//! traits that algorithms, models, rollout engines and rewards implement, the
//! maths they share, and the trainer that drives them.
//!
//! This crate holds no model and no device code. `verl-algos` and
//! `verl-backends` implement its traits; most users depend on the facade crate
//! `verl`, which re-exports all three.

pub mod algorithm;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod error;
pub mod math;
pub mod optimizer;
pub mod policy;
pub mod registry;
pub mod reward;
pub mod rollout;
pub mod text;
pub mod tracking;
pub mod trainer;
pub mod types;

pub use error::{Error, Result};
