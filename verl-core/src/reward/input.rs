//! What a scorer sees.

use serde_json::{Map, Value};
use std::sync::Arc;

/// One answer to be scored, borrowed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RewardInput<'a> {
    /// The question, as plain text (not the rendered chat).
    pub prompt: &'a str,
    /// The decoded answer, special tokens left out.
    pub response: &'a str,
    /// The ground truth, where the row has one.
    pub answer: Option<&'a str>,
    /// The whole data row.
    pub row: &'a Map<String, Value>,
    /// Tokens the policy produced.
    pub response_tokens: usize,
    /// Whether the answer was cut off at the token limit.
    pub truncated: bool,
}

impl<'a> RewardInput<'a> {
    /// An answer to `prompt` without a ground truth and of unknown length.
    pub fn new(prompt: &'a str, response: &'a str, row: &'a Map<String, Value>) -> Self {
        RewardInput {
            prompt,
            response,
            answer: None,
            row,
            response_tokens: 0,
            truncated: false,
        }
    }

    /// Sets the ground truth.
    pub fn with_answer(mut self, answer: &'a str) -> Self {
        self.answer = Some(answer);
        self
    }

    /// Sets the number of tokens, and whether the limit cut the answer.
    pub fn with_tokens(mut self, response_tokens: usize, truncated: bool) -> Self {
        self.response_tokens = response_tokens;
        self.truncated = truncated;
        self
    }
}

/// One answer to be scored, owned, so that it can move to another thread. The
/// parts that the answers of a group share are shared here too.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OwnedInput {
    /// See [`RewardInput::prompt`].
    pub prompt: Arc<str>,
    /// See [`RewardInput::response`].
    pub response: String,
    /// See [`RewardInput::answer`].
    pub answer: Option<Arc<str>>,
    /// See [`RewardInput::row`].
    pub row: Arc<Map<String, Value>>,
    /// See [`RewardInput::response_tokens`].
    pub response_tokens: usize,
    /// See [`RewardInput::truncated`].
    pub truncated: bool,
}

impl OwnedInput {
    /// An answer to `prompt` without a ground truth and of unknown length.
    pub fn new(
        prompt: impl Into<Arc<str>>,
        response: impl Into<String>,
        row: impl Into<Arc<Map<String, Value>>>,
    ) -> Self {
        OwnedInput {
            prompt: prompt.into(),
            response: response.into(),
            answer: None,
            row: row.into(),
            response_tokens: 0,
            truncated: false,
        }
    }

    /// Sets the ground truth.
    pub fn with_answer(mut self, answer: impl Into<Arc<str>>) -> Self {
        self.answer = Some(answer.into());
        self
    }

    /// Sets the number of tokens, and whether the limit cut the answer.
    pub fn with_tokens(mut self, response_tokens: usize, truncated: bool) -> Self {
        self.response_tokens = response_tokens;
        self.truncated = truncated;
        self
    }

    /// The borrowed form that scorers take.
    pub fn as_input(&self) -> RewardInput<'_> {
        RewardInput {
            prompt: &self.prompt,
            response: &self.response,
            answer: self.answer.as_deref(),
            row: &self.row,
            response_tokens: self.response_tokens,
            truncated: self.truncated,
        }
    }
}
