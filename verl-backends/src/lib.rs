//! What runs it: model architectures, weights, the training engine, the
//! native generator, tokenizers and chat templates, on any `burn` device.

pub use burn;

pub mod engine;
pub mod generate;
#[cfg(feature = "flex")]
mod host;
pub mod model;
pub mod optim;
pub mod quant;
pub mod text;
pub mod weights;
