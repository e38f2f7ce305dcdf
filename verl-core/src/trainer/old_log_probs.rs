//! The log-probs under the policy that the update starts from.
//!
//! The sampler has them already. Where its log-probs agree with the trainer's,
//! which one answer in sixteen shows, they are taken over; otherwise all answers
//! are scored.

use super::Trainer;
use super::columns::{column, log_probs, sequences};
use super::statistics::{Gap, rollout_gap};
use crate::Result;
use crate::policy::{ScoreOptions, SequenceRef, TokenScores};
use crate::tracking::Metrics;
use crate::types::{Batch, Column, Trajectory};

/// One answer in so many is scored to compare sampler and trainer.
const SAMPLE: usize = 16;

impl Trainer {
    /// Fills the old log-probs, and the sum of squared probabilities where the
    /// algorithm wants it.
    pub(super) fn score_with_policy(&self, batch: &mut Batch, metrics: &mut Metrics) -> Result<()> {
        let needs = self.parts.algorithm.requirements();
        let reuse = needs.rollout_log_probs_as_old
            || (!needs.sum_pi_squared && self.sampler_agrees(batch, metrics)?);
        if reuse {
            let sampled = column(batch, Column::RolloutLogProbs)?;
            batch.set_column(Column::OldLogProbs, sampled)?;
            if !needs.sum_pi_squared {
                return Ok(());
            }
        }
        let options = ScoreOptions {
            entropy: true,
            sum_pi_squared: needs.sum_pi_squared,
            ..self.options()
        };
        let scores = self.parts.policy.log_probs(&sequences(batch), options)?;
        metrics.set("actor/entropy", mean_entropy(batch.trajectories(), &scores));
        if needs.sum_pi_squared {
            let rows = scores.iter().map(|s| s.sum_pi_squared.clone()).collect();
            batch.set_column(Column::SumPiSquared, rows)?;
        }
        if !reuse {
            let gap = rollout_gap(batch.trajectories(), &scores);
            gap.write(metrics);
            batch.set_column(Column::OldLogProbs, log_probs(scores))?;
        }
        Ok(())
    }

    /// Whether the sampler's log-probs are those of the trainer, as far as a
    /// sample shows.
    fn sampler_agrees(&self, batch: &Batch, metrics: &mut Metrics) -> Result<bool> {
        let Some(bound) = self.settings.reuse_log_probs else {
            return Ok(false);
        };
        let sample: Vec<&Trajectory> = batch.trajectories().step_by(SAMPLE).collect();
        if sample.iter().any(|t| !t.has(Column::RolloutLogProbs)) {
            return Ok(false);
        }
        let sequences: Vec<SequenceRef<'_>> =
            sample.iter().map(|t| SequenceRef::from(*t)).collect();
        let options = ScoreOptions {
            entropy: true,
            ..self.options()
        };
        let scores = self.parts.policy.log_probs(&sequences, options)?;
        let gap: Gap = rollout_gap(sample.iter().copied(), &scores);
        let agrees = gap.largest_log <= f64::from(bound);
        if agrees {
            metrics.set("actor/entropy", mean_entropy(sample.into_iter(), &scores));
            gap.write(metrics);
        }
        Ok(agrees)
    }
}

/// Mean over the policy's tokens.
fn mean_entropy<'a>(
    trajectories: impl Iterator<Item = &'a Trajectory>,
    scores: &[TokenScores],
) -> f64 {
    let (mut sum, mut count) = (0f64, 0usize);
    for (t, s) in trajectories.zip(scores) {
        for i in t.policy_positions() {
            sum += f64::from(s.entropy[i]);
            count += 1;
        }
    }
    sum / count.max(1) as f64
}
