//! Weights on disk: Hugging Face folders with safetensors, and GGUF files.

mod bitsandbytes;
mod dequant;
mod gguf;
mod load;
mod packed;
mod parameters;
mod safetensors;
mod save;

pub use load::load_model;
pub(crate) use load::{load_weights, read_tensors};
pub use save::save_pretrained;
pub(crate) use save::write_tensors;
