//! Answers to held-out prompts.

use super::rollout::Plan;
use super::step::Clock;
use super::{Prompt, Trainer};
use crate::Result;
use crate::reward::ScoringStats;
use crate::tracking::{Metrics, Split};

impl Trainer {
    /// Answers the held-out prompts with the current policy.
    ///
    /// Logs `val-core/NAME/reward/mean@N` and, where the reward tells right
    /// from wrong, `val-core/NAME/acc/mean@N`. Empty without held-out prompts.
    ///
    /// # Errors
    /// When sampling fails or too many answers cannot be scored.
    pub fn evaluate(&mut self) -> Result<Metrics> {
        let mut metrics = Metrics::new(self.step);
        if self.parts.eval_prompts.is_empty() {
            return Ok(metrics);
        }
        let mut clock = Clock::start();
        let prompts: Vec<Prompt> = self.parts.eval_prompts.clone();
        let (n, name) = (self.settings.eval.samples, self.settings.eval.name.clone());
        let plan = Plan::evaluation(prompts.iter().collect(), n, &self.settings.eval.sampling);
        let answers = self.answer(&plan)?;
        let stats = ScoringStats::of(&answers.outcomes);
        let rewards: Vec<f32> = answers
            .outcomes
            .iter()
            .map(|o| o.value_or(self.settings.failure_score))
            .collect();
        let total = rewards.len() as f64;
        let mean = rewards.iter().map(|r| f64::from(*r)).sum::<f64>() / total;
        metrics.set(format!("val-core/{name}/reward/mean@{n}"), mean);
        if stats.correct + stats.wrong + stats.no_answer > 0 {
            metrics.set(
                format!("val-core/{name}/acc/mean@{n}"),
                stats.correct as f64 / total,
            );
        }
        let length = answers
            .rollouts
            .iter()
            .map(|r| r.tokens.len())
            .sum::<usize>() as f64
            / total;
        metrics.set(format!("val-aux/{name}/response_length/mean"), length);
        clock.lap("testing", &mut metrics);
        self.log_completions(Split::Val, &plan, &answers)?;
        Ok(metrics)
    }
}
