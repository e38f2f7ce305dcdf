//! One decoder for the Llama family, driven by Hugging Face's `config.json`.
//!
//! Tokens are packed: hidden states are `[tokens, hidden]` with the sequences
//! one after another and no padding, and only attention arranges them per
//! sequence (see [`Layout`]). A model is a list of layers between an embedding
//! and a head, so that an engine can walk it layer by layer.

mod attention;
mod coding;
mod config;
mod forward;
mod layout;
mod linear;
mod lora;
mod moe;
mod params;
mod rope;

pub use coding::Coding;
pub use config::{HeadKind, ModelConfig, MoeConfig, QuantScheme, RopeConfig, RopeScaling};
pub(crate) use forward::id_tensor;
pub use forward::{Observe, rms_norm};
pub use layout::{AttentionUnit, Layout, Rows, Segment};
pub use linear::{Adapter, Drop, Linear, Weight};
pub use lora::{LoraConfig, Merged, Targets};
pub use params::{Head, Layer, Mlp, Model, ParamMut, Visit, VisitLinear};
pub use rope::RopeTable;
pub use verl_core::config::Kernels;
