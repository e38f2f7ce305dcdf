//! Optimizers on burn tensors.

mod adamw;

pub use adamw::{AdamW, AdamWConfig};
