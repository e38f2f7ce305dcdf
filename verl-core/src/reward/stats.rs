//! Counts of how scoring went: no zero without a cause.

use super::{Cause, Outcome};
use crate::{Error, Result};

/// What became of the answers of a step (or of a run, when added up).
///
/// `scored + failed + timed_out + panicked` is the number of answers; the
/// causes are counted among the scored ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScoringStats {
    /// Answers that have a score.
    pub scored: usize,
    /// Answers whose scorer returned an error.
    pub failed: usize,
    /// Answers whose scorer missed the deadline.
    pub timed_out: usize,
    /// Answers whose scorer panicked.
    pub panicked: usize,
    /// Scored answers that are the ground truth.
    pub correct: usize,
    /// Scored answers that are not.
    pub wrong: usize,
    /// Scored answers in which the scorer found nothing to judge.
    pub no_answer: usize,
    /// Scored answers without any text.
    pub empty: usize,
    /// Scored answers that offered several answers at once.
    pub ambiguous: usize,
}

impl ScoringStats {
    /// Counts a batch.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut stats = ScoringStats::default();
        for outcome in outcomes {
            stats.count(outcome);
        }
        stats
    }

    /// Counts one answer.
    pub fn count(&mut self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Scored(score) => {
                self.scored += 1;
                match score.cause {
                    Some(Cause::Correct) => &mut self.correct,
                    Some(Cause::Wrong) => &mut self.wrong,
                    Some(Cause::NoAnswer) => &mut self.no_answer,
                    Some(Cause::Empty) => &mut self.empty,
                    Some(Cause::Ambiguous) => &mut self.ambiguous,
                    None => return,
                }
            }
            Outcome::Failed(_) => &mut self.failed,
            Outcome::TimedOut => &mut self.timed_out,
            Outcome::Panicked(_) => &mut self.panicked,
        };
        *counter += 1;
    }

    /// Adds the counts of another batch.
    pub fn add(&mut self, other: &ScoringStats) {
        self.scored += other.scored;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.panicked += other.panicked;
        self.correct += other.correct;
        self.wrong += other.wrong;
        self.no_answer += other.no_answer;
        self.empty += other.empty;
        self.ambiguous += other.ambiguous;
    }

    /// Number of answers.
    pub fn total(&self) -> usize {
        self.scored + self.unscored()
    }

    /// Number of answers without a score.
    pub fn unscored(&self) -> usize {
        self.failed + self.timed_out + self.panicked
    }

    /// Fraction of answers without a score; 0 of no answers.
    pub fn failure_fraction(&self) -> f64 {
        self.unscored() as f64 / self.total().max(1) as f64
    }

    /// Stops a run whose scorer is broken.
    ///
    /// # Errors
    /// [`Error::Aborted`] when more than `max_fraction` of the answers have no
    /// score; the message holds the first failure among `outcomes`.
    pub fn check(&self, max_fraction: f64, outcomes: &[Outcome]) -> Result<()> {
        if self.failure_fraction() <= max_fraction {
            return Ok(());
        }
        let first = outcomes.iter().find_map(Outcome::failure);
        Err(Error::Aborted(format!(
            "{} of {} answers could not be scored ({} errors, {} time-outs, {} panics), more than \
             the allowed fraction {max_fraction}; the first: {}",
            self.unscored(),
            self.total(),
            self.failed,
            self.timed_out,
            self.panicked,
            first.as_deref().unwrap_or("in an earlier batch"),
        )))
    }

    /// The counts as metrics, named `reward/...`.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("reward/scored", self.scored as f64),
            ("reward/failed", self.failed as f64),
            ("reward/timed_out", self.timed_out as f64),
            ("reward/panicked", self.panicked as f64),
            ("reward/correct", self.correct as f64),
            ("reward/wrong", self.wrong as f64),
            ("reward/no_answer", self.no_answer as f64),
            ("reward/empty", self.empty as f64),
            ("reward/ambiguous", self.ambiguous as f64),
            ("reward/failure_fraction", self.failure_fraction()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::Score;

    #[test]
    fn every_outcome_and_cause_is_counted_once() {
        let causes = [
            Cause::Correct,
            Cause::Wrong,
            Cause::NoAnswer,
            Cause::Empty,
            Cause::Ambiguous,
        ];
        let scored = causes.map(|c| Outcome::Scored(Score::new(0.0).with_cause(c)));
        let mut outcomes = scored.to_vec();
        outcomes.push(Outcome::Failed("service down".into()));
        outcomes.push(Outcome::TimedOut);
        outcomes.push(Outcome::Panicked("index out of bounds".into()));
        let stats = ScoringStats::of(&outcomes);
        assert_eq!((stats.total(), stats.scored, stats.unscored()), (8, 5, 3));
        let each = [stats.correct, stats.wrong, stats.no_answer, stats.empty];
        assert_eq!((each, stats.ambiguous), ([1; 4], 1));
        assert_eq!(stats.failure_fraction(), 3.0 / 8.0);
        let mut twice = stats;
        twice.add(&stats);
        assert_eq!(twice.total(), 16);
        assert!(stats.check(0.5, &outcomes).is_ok());
        let error = stats.check(0.1, &outcomes).unwrap_err().to_string();
        assert!(
            error.contains("3 of 8 answers") && error.contains("service down"),
            "{error}"
        );
    }
}
