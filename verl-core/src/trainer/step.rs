//! One training step.

use super::Trainer;
use super::answers::Answers;
use super::rollout::Plan;
use super::statistics::batch_metrics;
use super::update::{Averages, Model};
use crate::Result;
use crate::reward::Outcome;
use crate::tracking::{Completion, Metrics, Split};
use std::time::{Duration, Instant};

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

    /// Adds the time since the last lap to a phase.
    pub(super) fn lap(&mut self, phase: &str, metrics: &mut Metrics) {
        let name = format!("timing_s/{phase}");
        let earlier = metrics.get(&name).unwrap_or(0.0);
        metrics.set(name, earlier + self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }

    /// Counts some of a phase's time to another one.
    pub(super) fn shift(from: &str, to: &str, time: Duration, metrics: &mut Metrics) {
        for (phase, seconds) in [(from, -time.as_secs_f64()), (to, time.as_secs_f64())] {
            let name = format!("timing_s/{phase}");
            let earlier = metrics.get(&name).unwrap_or(0.0);
            metrics.set(name, (earlier + seconds).max(0.0));
        }
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
        let collected = self.collect(&mut metrics, &mut clock)?;
        let mut batch = collected.batch;
        self.fill_columns(&mut batch, &mut metrics, &mut clock)?;
        batch_metrics(&batch, &mut metrics);
        self.finish_batch(&mut batch, &mut metrics)?;

        let batch_groups = batch.into_groups();
        let mut averages = Averages::default();
        if self.parts.critic.is_some() {
            self.update_critic(&batch_groups, &mut averages)?;
            clock.lap("update_critic", &mut metrics);
        }
        if step > self.critic_warmup() {
            self.update(Model::Policy, &batch_groups, &mut averages)?;
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
        self.totals.tokens_generated += collected.tokens_generated;
        self.totals.unscored += collected.unscored;
        Ok(metrics)
    }

    pub(super) fn log_completions(
        &mut self,
        split: Split,
        plan: &Plan<'_>,
        answers: &Answers,
    ) -> Result<()> {
        // Spread over the step, so that several prompts are seen.
        let total = answers.outcomes.len();
        let shown = self.settings.log_completions.min(total);
        let stride = total / shown.max(1);
        let step = if split == Split::Train {
            self.step + 1
        } else {
            self.step
        };
        let completions: Vec<Completion> = (0..shown)
            .map(|i| completion(step, split, plan, answers, i * stride))
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
    at: usize,
) -> Completion {
    let (prompt, rollout) = (plan.prompts[at / plan.samples], &answers.rollouts[at]);
    let (score, cause) = match &answers.outcomes[at] {
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
