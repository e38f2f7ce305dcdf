//! The whole answer, compared as text.

use super::{Cause, RewardError, RewardFn, RewardInput, Score};

/// 1 when the answer, white space around it aside, is the ground truth.
///
/// # Example
/// ```
/// use verl_core::reward::{ExactReward, RewardFn, RewardInput};
/// let row = serde_json::Map::new();
/// let score = |response| ExactReward.score(&RewardInput::new("2+2=", response, &row).with_answer("4"));
/// assert_eq!(score(" 4\n")?.value, 1.0);
/// assert_eq!(score("44")?.value, 0.0);
/// # Ok::<(), verl_core::reward::RewardError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ExactReward;

impl RewardFn for ExactReward {
    fn name(&self) -> &str {
        "exact"
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        let truth = input.answer.ok_or_else(|| RewardError::NoGroundTruth {
            reward: "exact".into(),
        })?;
        match input.response.trim() {
            "" => Ok(Score::new(0.0).with_cause(Cause::Empty)),
            response => Ok(Score::from(response == truth.trim())),
        }
    }
}
