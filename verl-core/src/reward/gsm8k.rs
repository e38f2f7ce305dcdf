//! GSM8K: the number behind `####`.

use super::number::Number;
use super::text::after_thinking;
use super::{Cause, RewardError, RewardFn, RewardInput, Score};
use serde::{Deserialize, Serialize};

/// Where the answer may stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gsm8kMethod {
    /// Behind `####` only.
    #[default]
    Strict,
    /// Behind `####`, or else the last number of the text.
    Flexible,
}

/// Options of [`Gsm8kReward`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gsm8kOptions {
    /// Where the answer may stand.
    pub method: Gsm8kMethod,
    /// Compare as verl does: strings, within the last 300 characters.
    pub verl_compatible: bool,
    /// Score of a right answer.
    pub score: f32,
    /// Score of an answer that is there and wrong.
    pub format_score: f32,
}

impl Default for Gsm8kOptions {
    fn default() -> Self {
        Gsm8kOptions {
            method: Gsm8kMethod::Strict,
            verl_compatible: false,
            score: 1.0,
            format_score: 0.0,
        }
    }
}

/// Scores the final number of a solution against the ground truth.
///
/// Numbers are compared by value: `$18`, `18.00`, `18.` and `+18` are 18,
/// `70,000` is 70000, and `−5` is -5. Several numbers offered at once
/// (`18 or 20`) are no answer.
///
/// # Differences from verl
/// verl compares strings within the last 300 characters; set
/// [`Gsm8kOptions::verl_compatible`] for its verdicts.
///
/// # Example
/// ```
/// use verl_core::reward::{Gsm8kReward, RewardFn, RewardInput};
/// let row = serde_json::Map::new();
/// let score = |response| Gsm8kReward::default().score(&RewardInput::new("q", response, &row).with_answer("-18"));
/// assert_eq!(score("so it falls\n#### -18")?.value, 1.0);
/// assert_eq!(score("so it rises\n#### 18")?.value, 0.0);
/// # Ok::<(), verl_core::reward::RewardError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gsm8kReward {
    options: Gsm8kOptions,
}

impl Gsm8kReward {
    /// A scorer with these options.
    pub fn new(options: Gsm8kOptions) -> Self {
        Gsm8kReward { options }
    }

    /// The verdict on a text.
    pub fn judge(&self, text: &str, truth: &str) -> Cause {
        if text.trim().is_empty() {
            return Cause::Empty;
        }
        match self.options.verl_compatible {
            true => self.judge_like_verl(text, truth),
            false => self.judge_by_value(text, truth),
        }
    }

    fn judge_by_value(&self, text: &str, truth: &str) -> Cause {
        let visible = after_thinking(text);
        let marked = last_marked(visible);
        let region = match (marked, self.options.method) {
            (Some(region), _) => region,
            (None, Gsm8kMethod::Strict) => return Cause::NoAnswer,
            (None, Gsm8kMethod::Flexible) => visible,
        };
        let number = match marked {
            Some(region) => Number::stated(region),
            None => Number::last(region),
        };
        match (number, Number::parse(truth)) {
            (Some(got), Some(want)) if got == want => Cause::Correct,
            (Some(_), _) => Cause::Wrong,
            (None, _) => Cause::NoAnswer,
        }
    }

    fn judge_like_verl(&self, text: &str, truth: &str) -> Cause {
        let start = text.char_indices().rev().nth(299).map_or(0, |(i, _)| i);
        let window = &text[start..];
        let found = match self.options.method {
            Gsm8kMethod::Strict => verl_strict(window),
            Gsm8kMethod::Flexible => verl_flexible(window),
        };
        match found {
            Some(found) if found == truth => Cause::Correct,
            Some(_) => Cause::Wrong,
            None => Cause::NoAnswer,
        }
    }
}

/// The text behind the last `####` that is followed by anything.
fn last_marked(text: &str) -> Option<&str> {
    let mut end = text.len();
    while let Some(at) = text[..end].rfind("####") {
        let region = &text[at + 4..end];
        if !region.trim().is_empty() {
            return Some(region);
        }
        end = at;
    }
    None
}

/// `#### (\-?[0-9\.\,]+)`, the last match, without commas and dollar signs.
fn verl_strict(window: &str) -> Option<String> {
    let mut found = None;
    for (at, mark) in window.match_indices("#### ") {
        let rest = &window[at + mark.len()..];
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..]
            .find(|c: char| !is_number_char(c))
            .unwrap_or(rest.len() - sign);
        if digits > 0 {
            found = Some(rest[..sign + digits].replace([',', '$'], ""));
        }
    }
    found
}

/// `(\-?[0-9\.\,]+)`, the last match that is not empty or a single dot.
fn verl_flexible(window: &str) -> Option<String> {
    let mut runs: Vec<&str> = Vec::new();
    let mut rest = window;
    while let Some(at) = rest.find(is_number_char) {
        let length = rest[at..]
            .find(|c: char| !is_number_char(c))
            .unwrap_or(rest.len() - at);
        let start = at - usize::from(rest[..at].ends_with('-'));
        runs.push(&rest[start..at + length]);
        rest = &rest[at + length..];
    }
    let last = runs.iter().rev().find(|run| !matches!(**run, "" | "."));
    last.or(runs.first()).map(|run| run.to_string())
}

fn is_number_char(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == ','
}

impl RewardFn for Gsm8kReward {
    fn name(&self) -> &str {
        "gsm8k"
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        let truth = input.answer.ok_or_else(|| RewardError::NoGroundTruth {
            reward: "gsm8k".into(),
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
