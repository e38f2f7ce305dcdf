//! Weights on disk: Hugging Face folders with safetensors, and GGUF files.

mod bitsandbytes;
mod dequant;
mod gguf;
mod load;
mod packed;
mod parameters;
mod peft;
mod safetensors;
mod save;

pub use load::{load_model, load_quantised};
pub(crate) use load::{load_weights, read_state};
pub(crate) use peft::load_trained;
pub use peft::{adapter_config, load_adapter, save_adapter};
pub use save::save_pretrained;
pub(crate) use save::write_state;
