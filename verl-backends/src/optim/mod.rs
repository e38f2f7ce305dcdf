//! Optimizers on burn tensors.

mod adafactor;
mod adamw;
mod adamw_8bit;
mod blocks;
mod dynamic_map;
mod flat;
mod lion;
mod muon;
mod saved;

pub use adafactor::{Adafactor, AdafactorConfig};
pub use adamw::{AdamW, AdamWConfig};
pub use adamw_8bit::{AdamW8bit, AdamW8bitConfig};
#[cfg(feature = "flex")]
pub(crate) use blocks::{BLOCK, WORDS};
#[cfg(feature = "flex")]
pub(crate) use dynamic_map::DynamicMap;
pub use lion::{Lion, LionConfig};
pub use muon::{Muon, MuonConfig, orthogonalise};
