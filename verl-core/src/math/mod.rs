//! Numerics that algorithms share, each written once.

mod aggregation;
mod kl;
mod masked;
mod partition;
mod schedule;

pub use aggregation::{Denominators, LossAggregation};
pub use kl::{KlControl, KlController, KlEstimator};
pub use masked::{live, masked_sum, mean_and_std, runs, whiten};
pub use partition::karmarkar_karp;
pub use schedule::{LrSchedule, ScheduleKind};
