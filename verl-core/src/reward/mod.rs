//! Rewards: what an answer is worth, and why.
//!
//! A [`RewardFn`] looks at one answer and returns a [`Score`]. The
//! [`ScoringPool`] runs it over a batch on its own threads with a deadline per
//! answer, so that one answer can neither hang nor crash a run, and every
//! answer that could not be scored is counted by [`ScoringStats`] rather than
//! turned into a silent zero.
//!
//! Write your own as a closure, and combine rewards with [`WeightedSum`]:
//!
//! ```
//! use verl_core::reward::{RewardFn, RewardInput, WeightedSum, reward_fn};
//! use std::sync::Arc;
//!
//! let short = reward_fn("short", |input| if input.response.len() < 40 { 1.0 } else { 0.0 });
//! let right = reward_fn("right", |input| Some(input.response.trim()) == input.answer);
//! let both = WeightedSum::new("both").with(1.0, Arc::new(right)).with(0.1, Arc::new(short));
//! let row = serde_json::Map::new();
//! let input = RewardInput::new("What is 9 * 2?", "18", &row).with_answer("18");
//! let score = both.score(&input)?;
//! assert!((score.value - 1.1).abs() < 1e-6);
//! assert_eq!(score.parts[0], ("right".to_string(), 1.0));
//! # Ok::<(), verl_core::reward::RewardError>(())
//! ```

mod builtin;
mod combine;
mod exact;
mod format;
mod function;
mod gsm8k;
mod input;
mod math;
mod number;
mod outcome;
mod overlong;
mod pool;
mod stats;
mod text;

pub use builtin::{RewardRegistry, registry};
pub use combine::WeightedSum;
pub use exact::ExactReward;
pub use format::{FormatOptions, FormatReward};
pub use function::{FnReward, IntoScore, reward_fn};
pub use gsm8k::{Gsm8kMethod, Gsm8kOptions, Gsm8kReward};
pub use input::{OwnedInput, RewardInput};
pub use math::{MathMethod, MathOptions, MathReward};
pub use outcome::Outcome;
pub use overlong::{OverlongOptions, OverlongPenalty};
pub use pool::ScoringPool;
pub use stats::ScoringStats;

use std::fmt;

/// What an answer is worth.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// The reward.
    pub value: f32,
    /// Named sub-scores, for the metrics; unweighted.
    pub parts: Vec<(String, f32)>,
    /// Why the scorer chose this value, where it says so.
    pub cause: Option<Cause>,
}

impl Score {
    /// A score without parts or cause.
    pub fn new(value: f32) -> Self {
        Score {
            value,
            parts: Vec::new(),
            cause: None,
        }
    }

    /// Adds the cause.
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Adds a named sub-score.
    pub fn with_part(mut self, name: impl Into<String>, value: f32) -> Self {
        self.parts.push((name.into(), value));
        self
    }
}

impl From<f32> for Score {
    fn from(value: f32) -> Self {
        Score::new(value)
    }
}

impl From<f64> for Score {
    fn from(value: f64) -> Self {
        Score::new(value as f32)
    }
}

impl From<bool> for Score {
    /// 1 with [`Cause::Correct`], or 0 with [`Cause::Wrong`].
    fn from(correct: bool) -> Self {
        match correct {
            true => Score::new(1.0).with_cause(Cause::Correct),
            false => Score::new(0.0).with_cause(Cause::Wrong),
        }
    }
}

/// Why a scorer gave the value it gave. Each is counted by [`ScoringStats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The answer agrees with the ground truth.
    Correct,
    /// There is an answer, and it is not the ground truth.
    Wrong,
    /// The text holds no answer the scorer can find.
    NoAnswer,
    /// The response is empty.
    Empty,
    /// Several answers were offered at once, or so many in a row that the text
    /// is a list of guesses.
    Ambiguous,
}

/// An answer that could not be scored: a fault of the scorer or of the data,
/// not of the answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardError {
    /// The scorer compares with a ground truth and the row has none.
    #[error(
        "{reward}: the row has no ground truth; set `data.answer_key` to the field that holds it"
    )]
    NoGroundTruth {
        /// The scorer.
        reward: String,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl RewardError {
    /// A [`RewardError::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        RewardError::Failed(message.into())
    }
}

/// A scorer of answers.
///
/// Scoring runs on several threads at once and must not depend on order.
/// Return an error when the answer cannot be judged (a service is down, the
/// data row lacks a field): failures are counted and, above a set fraction,
/// stop the run. A bad answer is not an error: it is a low score.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reward",
    note = "wrap a closure with `verl_core::reward::reward_fn(\"name\", |input| ...)`"
)]
pub trait RewardFn: fmt::Debug + Send + Sync {
    /// The name under which its sub-score is shown.
    fn name(&self) -> &str;

    /// Judges one answer.
    ///
    /// # Errors
    /// When the answer cannot be judged; see the trait.
    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError>;
}

const _: fn(&dyn RewardFn) = |_| {};

#[cfg(test)]
mod golden_tests;
