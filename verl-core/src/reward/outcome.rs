//! What became of an answer handed to a scorer.

use super::Score;

/// What became of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has a score.
    Scored(Score),
    /// The scorer returned an error.
    Failed(String),
    /// The scorer missed the deadline.
    TimedOut,
    /// The scorer panicked.
    Panicked(String),
}

impl Outcome {
    /// The score's value, or a substitute where there is none.
    pub fn value_or(&self, substitute: f32) -> f32 {
        match self {
            Outcome::Scored(score) => score.value,
            _ => substitute,
        }
    }

    /// Why there is no score; `None` when there is one.
    pub fn failure(&self) -> Option<String> {
        match self {
            Outcome::Scored(_) => None,
            Outcome::Failed(message) => Some(message.clone()),
            Outcome::TimedOut => Some("the scorer missed its deadline".into()),
            Outcome::Panicked(message) => Some(format!("the scorer panicked: {message}")),
        }
    }
}
