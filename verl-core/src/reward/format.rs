//! A reward for answers that keep to the format asked for.

use super::{Cause, RewardError, RewardFn, RewardInput, Score};
use serde::{Deserialize, Serialize};

/// Options of [`FormatReward`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FormatOptions {
    /// Texts that must all appear, in this order, without overlap.
    pub markers: Vec<String>,
    /// Whether something other than white space must follow the last marker.
    pub content_after: bool,
    /// Reward of an answer in the format.
    pub reward: f32,
    /// Reward of any other answer.
    pub otherwise: f32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            markers: vec!["####".into()],
            content_after: true,
            reward: 1.0,
            otherwise: 0.0,
        }
    }
}

/// Rewards the presence of required markers, whatever the answer says.
///
/// Useful with a small weight while a model learns the format of a task whose
/// correct answers it cannot express yet.
#[derive(Debug, Clone, Default)]
pub struct FormatReward {
    options: FormatOptions,
}

impl FormatReward {
    /// A format reward with these options.
    ///
    /// # Errors
    /// [`crate::Error::Config`] when there is no marker, or an empty one.
    pub fn new(options: FormatOptions) -> crate::Result<Self> {
        if options.markers.is_empty() || options.markers.iter().any(String::is_empty) {
            let message = "every answer holds an empty marker; name at least one non-empty text";
            return Err(crate::Error::config("reward.markers", message));
        }
        Ok(FormatReward { options })
    }

    fn holds(&self, response: &str) -> bool {
        let mut rest = response;
        for marker in &self.options.markers {
            match rest.split_once(marker.as_str()) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        !self.options.content_after || !rest.trim().is_empty()
    }
}

impl RewardFn for FormatReward {
    fn name(&self) -> &str {
        "format"
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        Ok(match self.holds(input.response) {
            true => Score::new(self.options.reward).with_cause(Cause::Correct),
            false => Score::new(self.options.otherwise).with_cause(Cause::Wrong),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_in_order_with_content_behind() {
        let markers = |m: &[&str]| FormatOptions {
            markers: m.iter().map(|s| s.to_string()).collect(),
            ..Default::default()
        };
        let marker = FormatReward::default();
        assert!(marker.holds("9 * 2 = 18\n#### 18"));
        assert!(!marker.holds("18") && !marker.holds("#### \n"));
        let think = FormatReward::new(markers(&["<think>", "</think>"])).unwrap();
        assert!(think.holds("<think>x</think> 18"));
        assert!(!think.holds("</think><think> 18"));
        assert!(FormatReward::new(markers(&[])).is_err());
        assert!(FormatReward::new(markers(&["a", ""])).is_err());
    }
}
