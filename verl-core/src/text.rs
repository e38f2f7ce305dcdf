//! Text in and out of token ids: what the trainer needs of a tokenizer.

use crate::Result;
use crate::types::TokenId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// Whatever else the chat template reads (`tool_calls`, `name`,
    /// `reasoning_content`, ...).
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Message {
    /// A message of `role` with `content` and nothing else.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message {
            role: role.into(),
            content: content.into(),
            extra: serde_json::Map::new(),
        }
    }
}

/// How to render a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatOptions {
    /// Ends the rendering with the cue that lets the assistant speak.
    pub add_generation_prompt: bool,
    /// Tool schemas shown to the model (JSON, as in OpenAI's API).
    pub tools: Vec<serde_json::Value>,
    /// The thinking switch of templates that have one (`enable_thinking`).
    pub enable_thinking: Option<bool>,
    /// Further variables for the template.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        ChatOptions {
            add_generation_prompt: true,
            tools: Vec::new(),
            enable_thinking: None,
            extra: Default::default(),
        }
    }
}

/// Text to ids and back, and the model's chat format.
///
/// Implemented in `verl-backends` over Hugging Face tokenizers; implement it
/// for anything that maps text to ids.
pub trait Tokenizer: fmt::Debug + Send + Sync {
    /// Ids of plain text. Control strings inside the text stay text: no
    /// special token is ever produced from data.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>>;

    /// Text of ids. Special tokens are left out when `skip_special`.
    fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String>;

    /// Ids of a conversation in the model's chat format, BOS never doubled,
    /// control strings inside contents handled as data.
    ///
    /// # Errors
    /// When the tokenizer has no chat template, or the template refuses the
    /// conversation.
    fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<TokenId>>;

    /// Number of ids the tokenizer knows: ids at or above it are padding of
    /// the model's vocabulary and are never sampled.
    fn vocab_size(&self) -> usize;

    /// Ids that end an answer.
    fn stop_ids(&self) -> &[TokenId];
}

const _: fn(&dyn Tokenizer) = |_| {};
