//! Numerics that algorithms share, each written once.

mod aggregation;
mod kl;

pub use aggregation::{Denominators, LossAggregation};
pub use kl::{KlControl, KlController, KlEstimator};
