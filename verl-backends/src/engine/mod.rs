//! The training engine: log-probs, values and gradients of packed batches.
//!
//! - Tokens are packed without padding, and answers that share a prompt share
//!   its tokens, forward and backward (`pack`).
//! - The head works on chunks of tokens; logits `[tokens, vocab]` never exist,
//!   and its gradient is written down rather than recorded (`head`).
//! - The trunk records one stretch of layers at a time; the stretches before it
//!   are recomputed from their stored inputs (`trunk`).

mod causal;
mod critic;
mod grads;
mod head;
mod pack;
mod state;
mod trunk;

pub use causal::CausalPolicy;
pub use critic::ValueCritic;
pub use grads::Gradients;
pub use state::{EngineOptions, Schedule};
