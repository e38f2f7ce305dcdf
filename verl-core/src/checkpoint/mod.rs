//! Checkpoints that a crash, a kill or a full disk cannot turn into rubble.
//!
//! A checkpoint is a folder `step_00000042`. It is written under a temporary
//! name, every file is flushed to the disk, a manifest with sizes and
//! checksums is written last, and then the folder is renamed. Older ones go
//! only after that. What is resumed from has been verified against its
//! manifest first.
//!
//! What a checkpoint holds is up to the closure that writes it; the trainer
//! puts models, optimizers, its own position and the configuration there.

mod manifest;
mod store;

pub use manifest::{FORMAT_VERSION, Fault};
pub use store::{Checkpoint, CheckpointStore, Skipped};

#[cfg(test)]
mod tests;
