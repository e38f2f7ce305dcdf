//! Weights on disk: Hugging Face folders with safetensors, and GGUF files.

mod load;
mod safetensors;
mod save;

pub use load::load_model;
pub use save::save_pretrained;
