//! DAPO's soft punishment of answers that come close to the length limit.

use super::{RewardError, RewardFn, RewardInput, Score};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Options of [`OverlongPenalty`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongOptions {
    /// Longest response, in tokens.
    #[serde(alias = "max_resp_len")]
    pub max_response_length: usize,
    /// Length of the ramp before the limit, in tokens.
    #[serde(alias = "overlong_buffer_len")]
    pub buffer_length: usize,
    /// Penalty at the limit.
    #[serde(default = "one")]
    pub penalty_factor: f32,
    /// Lets the ramp go on beyond the limit, as verl does, where the paper
    /// stops at `-penalty_factor`. Lengths beyond the limit do not occur when
    /// the generator enforces the same limit.
    #[serde(default)]
    pub uncapped: bool,
}

fn one() -> f32 {
    1.0
}

/// A linear penalty on the last `buffer_length` tokens before the limit.
///
/// ```text
/// start = max_response_length - buffer_length
/// penalty(len) = 0                                           len <= start
///              = -factor * (len - start) / buffer_length     start < len <= max
///              = -factor                                     max < len
/// ```
///
/// # Paper
/// DAPO, <https://arxiv.org/abs/2503.14476>, equation 13 (soft overlong
/// punishment), where the factor is 1.
///
/// # Differences from verl
/// verl does not cap the penalty beyond the limit; see
/// [`OverlongOptions::uncapped`].
///
/// # Example
/// ```
/// use verl_core::reward::{OverlongOptions, OverlongPenalty};
///
/// let penalty = OverlongPenalty::new(OverlongOptions {
///     max_response_length: 10, buffer_length: 4, penalty_factor: 1.0, uncapped: false,
/// })?;
/// assert_eq!([6, 7, 8, 10, 12].map(|n| penalty.of(n)), [0.0, -0.25, -0.5, -1.0, -1.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OverlongPenalty {
    options: OverlongOptions,
}

impl OverlongPenalty {
    /// A penalty with these options.
    ///
    /// # Errors
    /// [`Error::Config`] when the ramp is empty or longer than a response, or
    /// the factor is negative or not finite.
    pub fn new(options: OverlongOptions) -> Result<Self> {
        let (max, buffer) = (options.max_response_length, options.buffer_length);
        if buffer == 0 || buffer > max {
            let message =
                format!("must lie between 1 and the longest response ({max} tokens), got {buffer}");
            return Err(Error::config("reward.buffer_length", message));
        }
        let factor = options.penalty_factor;
        if !factor.is_finite() || factor < 0.0 {
            let message = format!("must be a finite number of at least 0, got {factor}");
            return Err(Error::config("reward.penalty_factor", message));
        }
        Ok(OverlongPenalty { options })
    }

    /// The penalty, 0 or below, of a response of `tokens` tokens.
    pub fn of(&self, tokens: usize) -> f32 {
        let OverlongOptions {
            max_response_length,
            buffer_length,
            penalty_factor,
            uncapped,
        } = self.options;
        let over = tokens.saturating_sub(max_response_length - buffer_length);
        let over = if uncapped {
            over
        } else {
            over.min(buffer_length)
        };
        if over == 0 {
            return 0.0;
        }
        -(over as f32) / buffer_length as f32 * penalty_factor
    }
}

impl RewardFn for OverlongPenalty {
    fn name(&self) -> &str {
        "overlong"
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        Ok(Score::new(self.of(input.response_tokens)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(max: usize, buffer: usize) -> OverlongOptions {
        OverlongOptions {
            max_response_length: max,
            buffer_length: buffer,
            penalty_factor: 1.0,
            uncapped: false,
        }
    }

    #[test]
    fn bad_options_are_refused() {
        assert!(OverlongPenalty::new(options(10, 0)).is_err());
        let error = OverlongPenalty::new(options(10, 11))
            .unwrap_err()
            .to_string();
        assert!(error.contains("between 1 and the longest response (10 tokens), got 11"));
        let mut negative = options(10, 4);
        negative.penalty_factor = -1.0;
        assert!(OverlongPenalty::new(negative).is_err());
    }

    #[test]
    fn an_empty_response_has_no_penalty() {
        assert_eq!(OverlongPenalty::new(options(4, 4)).unwrap().of(0), 0.0);
    }
}
