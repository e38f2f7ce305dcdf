//! Boxed mathematics: the answer in `\boxed{}`, compared by meaning.

mod compare;
mod complex;
mod evaluate;
mod extract;
mod number;
mod token;
mod verl;

use super::{Cause, RewardError, RewardFn, RewardInput, Score};
use serde::{Deserialize, Serialize};

/// Where the answer may stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathMethod {
    /// In the last `\boxed{}` or `\fbox{}` only.
    Strict,
    /// There, or behind a later `Answer:`; without either, in the last formula.
    #[default]
    Flexible,
}

/// Options of [`MathReward`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MathOptions {
    /// Where the answer may stand.
    pub method: MathMethod,
    /// Compare as verl's `math_reward` does: strings, after a few replacements.
    /// `method` has no effect then.
    pub verl_compatible: bool,
    /// Score of a right answer.
    pub score: f32,
    /// Score of an answer that is there and wrong.
    pub format_score: f32,
}

impl Default for MathOptions {
    fn default() -> Self {
        MathOptions {
            method: MathMethod::default(),
            verl_compatible: false,
            score: 1.0,
            format_score: 0.0,
        }
    }
}

/// Scores the boxed answer of a solution against the ground truth.
///
/// Answers are equal when they mean the same: `\frac12`, `1/2` and `0.5`;
/// `x^2-1` and `(x-1)(x+1)`; `\{1,2\}` and `\{2,1\}`. Expressions are compared
/// by their values at a few fixed points, in floating point, to eleven digits;
/// plain numbers exactly. Units may be left out, but not exchanged.
///
/// # Differences from verl
/// verl compares strings; set [`MathOptions::verl_compatible`] for its
/// verdicts.
///
/// # Example
/// ```
/// use verl_core::reward::{MathReward, RewardFn, RewardInput};
/// let row = serde_json::Map::new();
/// let score = |response| MathReward::default().score(&RewardInput::new("q", response, &row).with_answer("\\frac{2}{5}"));
/// assert_eq!(score("so it is \\boxed{0.4}")?.value, 1.0);
/// assert_eq!(score("so it is \\boxed{\\frac{2}{7}}")?.value, 0.0);
/// # Ok::<(), verl_core::reward::RewardError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MathReward {
    options: MathOptions,
}

impl MathReward {
    /// A scorer with these options.
    pub fn new(options: MathOptions) -> Self {
        MathReward { options }
    }

    /// The verdict on a text.
    pub fn judge(&self, text: &str, truth: &str) -> Cause {
        if text.trim().is_empty() {
            return Cause::Empty;
        }
        if self.options.verl_compatible {
            return verl::judge(text, truth);
        }
        let answer = match self.options.method {
            MathMethod::Strict => extract::boxed(text),
            MathMethod::Flexible => extract::stated(text),
        };
        match answer {
            Some(answer) if compare::equal(answer, truth) => Cause::Correct,
            Some(answer) if !answer.trim().is_empty() => Cause::Wrong,
            _ => Cause::NoAnswer,
        }
    }
}

impl RewardFn for MathReward {
    fn name(&self) -> &str {
        "math"
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        let truth = input.answer.ok_or_else(|| RewardError::NoGroundTruth {
            reward: "math".into(),
        })?;
        let cause = self.judge(input.response, truth);
        let value = match cause {
            Cause::Correct => self.options.score,
            Cause::Wrong => self.options.format_score,
            _ => 0.0,
        };
        Ok(Score::new(value).with_cause(cause))
    }
}

#[cfg(test)]
mod tests;
