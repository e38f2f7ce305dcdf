//! One training step.

use super::rollout::{Answers, Plan, groups, sample};
use super::scored::scored;
use super::statistics::{batch_metrics, rollout_gap};
use super::update::Averages;
use super::{Prompt, Trainer};
use crate::Result;
use crate::algorithm::apply_kl_in_reward;
use crate::policy::{ScoreOptions, SequenceRef, TokenScores};
use crate::reward::Outcome;
use crate::tracking::{Completion, Metrics, Split};
use crate::types::{Batch, Column};
use std::time::Instant;

/// Wall-clock seconds of each phase, written as `timing_s/PHASE`.
pub(super) struct Clock {
    last: Instant,
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Clock {
            last: Instant::now(),
            started: Instant::now(),
        }
    }

    pub(super) fn lap(&mut self, phase: &str, metrics: &mut Metrics) {
        metrics.set(
            format!("timing_s/{phase}"),
            self.last.elapsed().as_secs_f64(),
        );
        self.last = Instant::now();
    }

    pub(super) fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

impl Trainer {
    /// Runs the next step and returns its metrics.
    pub(super) fn train_step(&mut self) -> Result<Metrics> {
        let step = self.step + 1;
        let mut metrics = Metrics::new(step);
        let mut clock = Clock::start();
        let picks = self.loader.next_batch();
        let prompts: Vec<Prompt> = picks
            .iter()
            .map(|i| self.parts.prompts[*i].clone())
            .collect();
        let plan = Plan::training(
            prompts.iter().collect(),
            self.settings.samples_per_prompt,
            &self.settings.sampling,
            step,
        );
        let parts = &mut self.parts;
        parts.engine.sync_weights(&parts.policy.weights())?;
        let answers = sample(
            &mut *parts.engine,
            &*parts.tokenizer,
            &plan,
            self.settings.seed,
        )?;
        clock.lap("gen", &mut metrics);
        let (outcomes, stats) = self.score(&plan, &answers)?;
        let scores = scored(&outcomes, self.settings.failure_score);
        stats
            .metrics()
            .into_iter()
            .for_each(|(name, value)| metrics.set(name, value));
        let mut batch = Batch::new(groups(&plan, &answers, &scores)?);
        clock.lap("reward", &mut metrics);

        self.fill_columns(&mut batch, &mut metrics, &mut clock)?;
        batch_metrics(&batch, &mut metrics);
        self.log_completions(Split::Train, &plan, &answers, &outcomes)?;

        let batch_groups = batch.into_groups();
        let mut averages = Averages::default();
        if self.parts.critic.is_some() {
            self.update_critic(&batch_groups, &mut averages)?;
            clock.lap("update_critic", &mut metrics);
        }
        if step > self.settings.critic_warmup {
            self.update_policy(&batch_groups, &mut averages)?;
        }
        clock.lap("update_actor", &mut metrics);
        averages.write(&mut metrics);
        metrics.set("actor/skipped_updates", self.skipped.1 as f64);
        let tokens: usize = batch_groups
            .iter()
            .flat_map(|g| g.trajectories())
            .map(|t| t.total_tokens())
            .sum();
        metrics.set("timing_s/step", clock.total());
        metrics.set("perf/total_num_tokens", tokens as f64);
        metrics.set("perf/throughput", tokens as f64 / clock.total().max(1e-9));
        metrics.set("training/epoch", self.loader.state().epoch as f64);
        self.step = step;
        self.totals.tokens_generated += answers
            .rollouts
            .iter()
            .map(|r| r.tokens.len() as u64)
            .sum::<u64>();
        self.totals.unscored += stats.unscored() as u64;
        Ok(metrics)
    }

    /// Log-probs, values, token rewards and advantages.
    fn fill_columns(
        &mut self,
        batch: &mut Batch,
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Result<()> {
        let options = ScoreOptions {
            temperature: self.settings.sampling.temperature,
            entropy: true,
        };
        let (scores, reference, values) = {
            let sequences: Vec<SequenceRef<'_>> =
                batch.trajectories().map(SequenceRef::from).collect();
            let scores = self.parts.policy.log_probs(&sequences, options)?;
            clock.lap("old_log_prob", metrics);
            let plain = ScoreOptions {
                entropy: false,
                ..options
            };
            let reference = self
                .reference
                .as_ref()
                .map(|r| r.log_probs(&sequences, plain))
                .transpose()?;
            if reference.is_some() {
                clock.lap("ref", metrics);
            }
            let values = self
                .parts
                .critic
                .as_ref()
                .map(|c| c.values(&sequences))
                .transpose()?;
            if values.is_some() {
                clock.lap("values", metrics);
            }
            (scores, reference, values)
        };
        let (log_probs, entropies) = unzip(scores);
        let (sum, count) = entropies
            .iter()
            .flatten()
            .fold((0f64, 0usize), |(s, n), e| (s + f64::from(*e), n + 1));
        metrics.set("actor/entropy", sum / count.max(1) as f64);
        batch.set_column(Column::OldLogProbs, log_probs)?;
        rollout_gap(batch, metrics);
        if let Some(reference) = reference {
            batch.set_column(Column::RefLogProbs, unzip(reference).0)?;
        }
        if let Some(values) = values {
            batch.set_column(Column::Values, values)?;
        }
        if let (Some(kl), Some(controller)) = (self.parts.algorithm.kl_in_reward(), &mut self.kl) {
            let current = apply_kl_in_reward(batch, kl.estimator, controller.coef())?;
            metrics.set("actor/reward_kl_penalty", current);
            metrics.set("actor/reward_kl_penalty_coeff", controller.coef());
            controller.update(current, batch.len());
        }
        self.parts
            .algorithm
            .estimator()
            .estimate(batch)?
            .store(batch)?;
        clock.lap("adv", metrics);
        Ok(())
    }

    pub(super) fn log_completions(
        &mut self,
        split: Split,
        plan: &Plan<'_>,
        answers: &Answers,
        outcomes: &[Outcome],
    ) -> Result<()> {
        // Spread over the step, so that several prompts are seen.
        let shown = self.settings.log_completions.min(outcomes.len());
        let stride = outcomes.len() / shown.max(1);
        let step = if split == Split::Train {
            self.step + 1
        } else {
            self.step
        };
        let completions: Vec<Completion> = (0..shown)
            .map(|i| completion(step, split, plan, answers, outcomes, i * stride))
            .collect();
        self.parts
            .trackers
            .iter_mut()
            .try_for_each(|t| t.log_completions(&completions))
    }
}

fn completion(
    step: u64,
    split: Split,
    plan: &Plan<'_>,
    answers: &Answers,
    outcomes: &[Outcome],
    at: usize,
) -> Completion {
    let (prompt, rollout) = (plan.prompts[at / plan.samples], &answers.rollouts[at]);
    let (score, cause) = match &outcomes[at] {
        Outcome::Scored(score) => (
            Some(f64::from(score.value)),
            score.cause.map(|c| format!("{c:?}")),
        ),
        unscored => (None, unscored.failure()),
    };
    Completion {
        step,
        split,
        prompt: prompt.text.to_string(),
        response: answers.texts[at].clone(),
        reference: prompt.answer.as_deref().map(String::from),
        score,
        cause,
        finish: format!("{:?}", rollout.finish).to_lowercase(),
        tokens: rollout.tokens.len(),
    }
}

fn unzip(scores: Vec<TokenScores>) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    scores.into_iter().map(|s| (s.log_probs, s.entropy)).unzip()
}
