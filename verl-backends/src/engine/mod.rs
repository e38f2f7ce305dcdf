//! The training engine: log-probs, values and gradients of packed batches.
//!
//! - Tokens are packed without padding, and answers that share a prompt share
//!   its tokens, forward and backward (`pack`).
//! - Logits `[tokens, vocab]` never exist: the head works on a part at a time,
//!   and its gradient is written down rather than recorded (`head`).
//! - The trunk keeps what the backward pass needs of one stretch of layers at a
//!   time; the stretches before it run again from their stored inputs (`pass`).
//! - On the CPU device both run on kernels of their own (`crate::host`), and on
//!   burn's operations elsewhere (`recorded`, `head::plain`).

mod causal;
mod critic;
mod grads;
mod head;
mod pack;
mod pass;
mod recorded;
mod state;

pub use causal::CausalPolicy;
pub use critic::ValueCritic;
pub use grads::Gradients;
pub use state::{EngineOptions, Schedule};
