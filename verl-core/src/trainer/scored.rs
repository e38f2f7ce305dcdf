//! What outcomes of scoring are worth.

use crate::reward::Outcome;
use std::sync::Arc;

/// The reward of an answer, and its named sub-scores.
#[derive(Debug, PartialEq)]
pub(super) struct Scored {
    pub(super) reward: f32,
    pub(super) parts: Vec<(Arc<str>, f32)>,
}

/// Rewards and sub-scores of a batch. An answer that could not be scored has
/// the failure score, also in every part that others have.
pub(super) fn scored(outcomes: &[Outcome], failure_score: f32) -> Vec<Scored> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for (name, _) in outcomes.iter().flat_map(parts) {
        if !names.iter().any(|known| **known == **name) {
            names.push(name.as_str().into());
        }
    }
    let score = |outcome: &Outcome| match outcome {
        Outcome::Scored(score) => Scored {
            reward: score.value,
            parts: names
                .iter()
                .filter_map(|name| {
                    let (_, value) = score.parts.iter().find(|(n, _)| **n == **name)?;
                    Some((name.clone(), *value))
                })
                .collect(),
        },
        _ => Scored {
            reward: failure_score,
            parts: names.iter().map(|n| (n.clone(), failure_score)).collect(),
        },
    };
    outcomes.iter().map(score).collect()
}

fn parts(outcome: &Outcome) -> &[(String, f32)] {
    match outcome {
        Outcome::Scored(score) => &score.parts,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::Score;

    #[test]
    fn failures_have_the_failure_score_in_every_part() {
        let right = Score::new(1.25).with_part("right", 1.0);
        let both = right.clone().with_part("short", 0.5);
        let outcomes = [
            Outcome::Scored(right),
            Outcome::TimedOut,
            Outcome::Scored(both),
        ];
        let expected = [
            (1.25, vec![("right", 1.0)]),
            (-1.0, vec![("right", -1.0), ("short", -1.0)]),
            (1.25, vec![("right", 1.0), ("short", 0.5)]),
        ];
        for (scored, (reward, parts)) in scored(&outcomes, -1.0).iter().zip(expected) {
            assert_eq!(scored.reward, reward);
            let got: Vec<(&str, f32)> = scored.parts.iter().map(|(n, v)| (&**n, *v)).collect();
            assert_eq!(got, parts);
        }
    }
}
