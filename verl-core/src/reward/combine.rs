//! Several rewards as one.

use super::{RewardError, RewardFn, RewardInput, Score};
use std::sync::Arc;

/// The weighted sum of several rewards; each appears, unweighted, among the
/// parts of the score under its own name.
///
/// The cause is that of the first member, which is meant to be the one that
/// judges correctness. When a member cannot score the answer, the sum cannot
/// either.
///
/// See the [module](super) for an example.
#[derive(Debug, Clone)]
pub struct WeightedSum {
    name: String,
    members: Vec<(f32, Arc<dyn RewardFn>)>,
}

impl WeightedSum {
    /// An empty sum, worth 0.
    pub fn new(name: impl Into<String>) -> Self {
        WeightedSum {
            name: name.into(),
            members: Vec::new(),
        }
    }

    /// Adds a member.
    pub fn with(mut self, weight: f32, reward: Arc<dyn RewardFn>) -> Self {
        self.members.push((weight, reward));
        self
    }
}

impl RewardFn for WeightedSum {
    fn name(&self) -> &str {
        &self.name
    }

    fn score(&self, input: &RewardInput<'_>) -> Result<Score, RewardError> {
        let mut total = Score::new(0.0);
        for (i, (weight, reward)) in self.members.iter().enumerate() {
            let score = reward.score(input)?;
            if i == 0 {
                total.cause = score.cause;
            }
            total.value += weight * score.value;
            total.parts.push((reward.name().to_string(), score.value));
            let nested = score.parts.into_iter();
            total
                .parts
                .extend(nested.map(|(part, v)| (format!("{}/{part}", reward.name()), v)));
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::{Cause, reward_fn};
    use serde_json::Map;

    #[test]
    fn parts_stay_unweighted_and_nest() {
        let inner = WeightedSum::new("inner").with(2.0, Arc::new(reward_fn("a", |_| true)));
        let outer = WeightedSum::new("outer")
            .with(0.5, Arc::new(inner))
            .with(-1.0, Arc::new(reward_fn("b", |_| 0.25f32)));
        let row = Map::new();
        let score = outer.score(&RewardInput::new("q", "r", &row)).unwrap();
        assert_eq!(score.value, 0.5 * 2.0 - 0.25);
        assert_eq!(score.cause, Some(Cause::Correct));
        let names: Vec<_> = score.parts.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        assert_eq!(names, [("inner", 2.0), ("inner/a", 1.0), ("b", 0.25)]);
    }

    #[test]
    fn a_member_that_fails_fails_the_sum() {
        let down = reward_fn("down", |_| Err::<f32, _>("service unavailable"));
        let sum = WeightedSum::new("sum")
            .with(1.0, Arc::new(reward_fn("ok", |_| 1.0f32)))
            .with(1.0, Arc::new(down));
        let row = Map::new();
        let error = sum.score(&RewardInput::new("q", "r", &row)).unwrap_err();
        assert_eq!(error.to_string(), "service unavailable");
    }
}
