//! The trainer: prompts, rollouts, scores, advantages, updates, evaluation,
//! checkpoints.
//!
//! It uses nothing but the public traits of this crate, and a loop of your own
//! can do what it does with the same calls.

mod answers;
mod builder;
mod collect;
mod columns;
mod evaluate;
mod fit;
mod micro_batch;
mod old_log_probs;
mod prompt;
mod resume;
mod rollout;
mod scored;
mod settings;
mod statistics;
mod step;
mod stop;
mod update;

pub use builder::{Parts, Trainer};
pub use fit::FitReport;
pub use micro_batch::{micro_batches, whole_group_batches};
pub use prompt::Prompt;
pub use settings::{CheckpointSettings, EvalSettings, TrainSettings};
pub use stop::StopHandle;
