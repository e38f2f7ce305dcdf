//! The per-token columns of a step's batch, in the order they build on one
//! another.

use super::Trainer;
use super::step::Clock;
use super::update::{Averages, Model};
use crate::Result;
use crate::algorithm::apply_kl_in_reward;
use crate::policy::{ScoreOptions, SequenceRef, TokenScores};
use crate::rollout::sample_seed;
use crate::tracking::Metrics;
use crate::types::{Batch, Column, Trajectory};

/// Keeps the algorithm's random choices apart from the sampler's.
const HOOK_STREAM: u64 = 1 << 62;

impl Trainer {
    /// Log-probs, values, token rewards and advantages.
    pub(super) fn fill_columns(
        &mut self,
        batch: &mut Batch,
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Result<()> {
        self.score_with_policy(batch, metrics)?;
        clock.lap("old_log_prob", metrics);
        if let Some(reference) = &self.reference {
            // Until the first update both are the same weights, and the old
            // log-probs are theirs unless the sampler's were taken unseen.
            let unseen = self.parts.algorithm.requirements().rollout_log_probs_as_old;
            let same = !unseen && reference.version == self.parts.policy.weights().version;
            let rows = match same {
                true => column(batch, Column::OldLogProbs)?,
                false => log_probs(
                    reference
                        .model
                        .log_probs(&sequences(batch), self.options())?,
                ),
            };
            batch.set_column(Column::RefLogProbs, rows)?;
            clock.lap("ref", metrics);
        }
        if let Some(critic) = &self.parts.critic {
            let values = critic.values(&sequences(batch))?;
            batch.set_column(Column::Values, values)?;
            clock.lap("values", metrics);
        }
        if let (Some(kl), Some(controller)) = (self.parts.algorithm.kl_in_reward(), &mut self.kl) {
            let current = apply_kl_in_reward(batch, kl.estimator, controller.coef())?;
            metrics.set("actor/reward_kl_penalty", current);
            metrics.set("actor/reward_kl_penalty_coeff", controller.coef());
            controller.update(current, batch.len());
        }
        for hook in self.parts.algorithm.hooks() {
            metrics.extend(hook.before_advantages(batch)?);
        }
        self.score_with_reward_model(batch, metrics, clock)?;
        let estimator = self.parts.algorithm.estimator();
        estimator.estimate(batch)?.store(batch)?;
        clock.lap("adv", metrics);
        Ok(())
    }

    /// Lets the algorithm change what the updates see.
    pub(super) fn finish_batch(&self, batch: &mut Batch, metrics: &mut Metrics) -> Result<()> {
        for (i, hook) in self.parts.algorithm.hooks().iter().enumerate() {
            let seed = sample_seed(self.settings.seed, HOOK_STREAM, self.step, i as u64);
            metrics.extend(hook.before_updates(batch, seed)?);
        }
        Ok(())
    }

    pub(super) fn options(&self) -> ScoreOptions {
        ScoreOptions {
            temperature: self.settings.sampling.temperature,
            ..ScoreOptions::default()
        }
    }

    /// Scores the batch with the reward model and trains it.
    fn score_with_reward_model(
        &mut self,
        batch: &mut Batch,
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Result<()> {
        let update_first = match self.parts.algorithm.reward_model() {
            Some(model) => model.update_first,
            None => return Ok(()),
        };
        if update_first {
            self.update_reward_model(batch, metrics)?;
        }
        let options = self.options();
        let trained = self.parts.algorithm.reward_model();
        if let (Some(online), Some(model)) = (trained, &self.parts.reward_model) {
            let scores = model.log_probs(&sequences(batch), options)?;
            online.rewards.score(batch, &log_probs(scores))?;
        }
        if !update_first {
            self.update_reward_model(batch, metrics)?;
        }
        clock.lap("reward_model", metrics);
        Ok(())
    }

    fn update_reward_model(&mut self, batch: &Batch, metrics: &mut Metrics) -> Result<()> {
        let mut averages = Averages::default();
        self.update(Model::Reward, batch.groups(), &mut averages)?;
        averages.write(metrics);
        Ok(())
    }
}

pub(super) fn sequences(batch: &Batch) -> Vec<SequenceRef<'_>> {
    batch.trajectories().map(SequenceRef::from).collect()
}

/// A copy of a column that all answers have.
pub(super) fn column(batch: &Batch, column: Column) -> Result<Vec<Vec<f32>>> {
    let row = |t: &Trajectory| Ok(t.get(column, "the trainer")?.to_vec());
    batch.trajectories().map(row).collect()
}

pub(super) fn log_probs(scores: Vec<TokenScores>) -> Vec<Vec<f32>> {
    scores.into_iter().map(|s| s.log_probs).collect()
}
