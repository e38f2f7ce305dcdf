//! A prompt, ready to be sampled from.

use crate::types::TokenId;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A rendered and tokenised prompt, and what a reward needs to know of it.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The ids sent to the model.
    pub ids: Arc<[TokenId]>,
    /// The question as text, for rewards and logs.
    pub text: Arc<str>,
    /// The ground truth, where there is one.
    pub answer: Option<Arc<str>>,
    /// The data row it was made of.
    pub row: Arc<Map<String, Value>>,
}
