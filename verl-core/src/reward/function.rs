//! Closures as rewards.

use super::{RewardError, RewardFn, RewardInput, Score};
use std::fmt;

/// What a reward closure may return: a number, a `bool`, a [`Score`], or a
/// `Result` of one of them.
#[diagnostic::on_unimplemented(
    message = "a reward closure cannot return `{Self}`",
    note = "return f32, f64, bool, Score, or a Result of one of them with RewardError"
)]
pub trait IntoScore {
    /// The score, or why there is none.
    fn into_score(self) -> Result<Score, RewardError>;
}

macro_rules! plain_scores {
    ($($plain:ty),*) => {$(
        impl IntoScore for $plain {
            fn into_score(self) -> Result<Score, RewardError> {
                Ok(self.into())
            }
        }
    )*};
}
plain_scores!(f32, f64, bool, Score);

impl<T: Into<Score>, E: Into<RewardError>> IntoScore for Result<T, E> {
    fn into_score(self) -> Result<Score, RewardError> {
        self.map(Into::into).map_err(Into::into)
    }
}

impl From<String> for RewardError {
    fn from(message: String) -> Self {
        RewardError::Failed(message)
    }
}

impl From<&str> for RewardError {
    fn from(message: &str) -> Self {
        RewardError::failed(message)
    }
}

/// A closure with a name: what [`reward_fn`] returns.
#[derive(Clone)]
pub struct FnReward<F> {
    name: String,
    function: F,
}

/// Makes a reward of a closure.
///
/// # Example
/// ```
/// use verl_core::reward::{RewardFn, RewardInput, reward_fn};
///
/// // A number, a bool, a Score or a Result of one of them.
/// let polite = reward_fn("polite", |input| input.response.contains("please"));
/// let field = reward_fn("field", |input| {
///     let wanted = input.row.get("wanted").and_then(|v| v.as_str());
///     let wanted = wanted.ok_or("the row has no field `wanted`")?;
///     Ok::<_, &str>(input.response.contains(wanted))
/// });
///
/// let row = serde_json::Map::new();
/// let input = RewardInput::new("Ask nicely.", "Come in, please.", &row);
/// assert_eq!(polite.score(&input)?.value, 1.0);
/// assert_eq!(field.score(&input).unwrap_err().to_string(), "the row has no field `wanted`");
/// # Ok::<(), verl_core::reward::RewardError>(())
/// ```
pub fn reward_fn<F, S>(name: impl Into<String>, function: F) -> FnReward<F>
where
    F: for<'a> Fn(&RewardInput<'a>) -> S + Send + Sync,
    S: IntoScore,
{
    FnReward {
        name: name.into(),
        function,
    }
}

impl<F, S> RewardFn for FnReward<F>
where
    F: for<'a> Fn(&RewardInput<'a>) -> S + Send + Sync,
    S: IntoScore,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        (self.function)(input).into_score()
    }
}

impl<F> fmt::Debug for FnReward<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnReward")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
