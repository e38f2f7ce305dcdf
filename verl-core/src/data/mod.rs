//! Prompts from files: rows, templates, limits and order.

mod jsonl;
mod limit;
mod loader;
mod row;

pub use jsonl::{JsonlRow, read_jsonl};
pub use limit::{LimitReport, PromptLimit};
pub use loader::{LoaderState, PromptLoader};
pub use row::{PromptFormat, PromptRow, Rows};
