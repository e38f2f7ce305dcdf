//! The native generator: continuous batching over a preallocated KV cache.

mod cache;
#[cfg(feature = "flex")]
mod host;
mod native;
mod plain;
mod row;
mod sampler;
mod wave;

pub use native::{GeneratorOptions, NativeGenerator};
pub use sampler::{Draw, Sampler};
