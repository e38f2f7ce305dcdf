//! The numbers of a run, all units spelt out.

use super::{micro_batches, whole_group_batches};
use crate::rollout::SamplingParams;
use crate::types::Trajectory;
use crate::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// How a run goes.
#[derive(Debug, Clone)]
pub struct TrainSettings {
    /// Name of the model, for the records.
    pub model_name: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps to run, counted from the start of the run, not from a resume.
    pub total_steps: u64,
    /// Prompts per step.
    pub prompts_per_step: usize,
    /// Answers per prompt.
    pub samples_per_prompt: usize,
    /// Prompts per optimizer update; `None` takes all of the step's. The last
    /// mini-batch may be smaller and is averaged over its own size.
    pub mini_batch_prompts: Option<usize>,
    /// Most tokens (prompts included) in one forward-backward pass.
    pub micro_batch_tokens: usize,
    /// Most answers in one forward-backward pass; `None` leaves it to the
    /// token budget.
    pub micro_batch_samples: Option<usize>,
    /// Passes over each step's answers.
    pub epochs: usize,
    /// The critic's passes over each step's answers.
    pub critic_epochs: usize,
    /// First steps in which only the critic is trained; `None` leaves it to
    /// the algorithm.
    pub critic_warmup: Option<u64>,
    /// Whether prompts are drawn in a new random order each epoch.
    pub shuffle: bool,
    /// How training answers are drawn.
    pub sampling: SamplingParams,
    /// Largest difference at which the sampler's log-probs are taken as the old
    /// ones. It is looked for in one answer of sixteen, which are scored; where
    /// it is larger, or `None`, all answers are scored.
    pub reuse_log_probs: Option<f32>,
    /// Skipped (non-finite) updates in a row after which the run stops.
    pub max_skipped_updates: u64,
    /// Threads that score answers.
    pub reward_workers: usize,
    /// Deadline for scoring one answer.
    pub reward_timeout: Duration,
    /// Share of a step's answers that may fail to be scored.
    pub max_failure_fraction: f64,
    /// Score of an answer that could not be scored.
    pub failure_score: f32,
    /// Answers written to the trackers per step.
    pub log_completions: usize,
    /// Evaluation.
    pub eval: EvalSettings,
    /// Checkpoints; `None` writes none.
    pub checkpoints: Option<CheckpointSettings>,
}

/// When and how held-out prompts are answered.
#[derive(Debug, Clone)]
pub struct EvalSettings {
    /// Every so many steps; 0 only after the last.
    pub every: u64,
    /// Also before the first step.
    pub before: bool,
    /// Answers per prompt.
    pub samples: usize,
    /// How answers are drawn.
    pub sampling: SamplingParams,
    /// Name of the set in metric names.
    pub name: String,
}

/// When and where checkpoints are written.
#[derive(Debug, Clone)]
pub struct CheckpointSettings {
    /// Their folder.
    pub dir: PathBuf,
    /// Every so many steps; 0 only after the last.
    pub every: u64,
    /// How many are kept; `None` keeps all.
    pub keep: Option<usize>,
    /// The run's configuration as YAML, kept with each checkpoint.
    pub config: Option<String>,
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            model_name: String::new(),
            seed: 1,
            total_steps: 100,
            prompts_per_step: 32,
            samples_per_prompt: 8,
            mini_batch_prompts: None,
            micro_batch_tokens: 16384,
            micro_batch_samples: None,
            epochs: 1,
            critic_epochs: 1,
            critic_warmup: None,
            shuffle: true,
            sampling: SamplingParams::default(),
            reuse_log_probs: Some(1e-3),
            max_skipped_updates: 5,
            reward_workers: 2,
            reward_timeout: Duration::from_secs(10),
            max_failure_fraction: 0.1,
            failure_score: 0.0,
            log_completions: 4,
            eval: EvalSettings::default(),
            checkpoints: None,
        }
    }
}

impl Default for EvalSettings {
    fn default() -> Self {
        EvalSettings {
            every: 10,
            before: true,
            samples: 1,
            sampling: SamplingParams::greedy(256),
            name: "eval".into(),
        }
    }
}

impl TrainSettings {
    /// Micro-batches of a mini-batch, whole groups where a loss compares them.
    pub(super) fn cut<'a>(
        &self,
        trajectories: &[&'a Trajectory],
        whole_groups: bool,
    ) -> Vec<Vec<&'a Trajectory>> {
        let cut = match whole_groups {
            true => whole_group_batches,
            false => micro_batches,
        };
        cut(
            trajectories,
            self.micro_batch_tokens,
            self.micro_batch_samples,
        )
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first setting out of range.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("prompts_per_step", self.prompts_per_step),
            ("samples_per_prompt", self.samples_per_prompt),
            ("micro_batch_tokens", self.micro_batch_tokens),
            ("micro_batch_samples", self.micro_batch_samples.unwrap_or(1)),
            ("epochs", self.epochs),
            ("critic_epochs", self.critic_epochs),
            ("reward_workers", self.reward_workers),
            ("eval.samples", self.eval.samples),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::config(*key, "must be at least 1"));
        }
        match self.mini_batch_prompts {
            Some(m) if m == 0 || m > self.prompts_per_step => {
                let message = format!(
                    "{m} must lie between 1 and prompts_per_step, {}",
                    self.prompts_per_step
                );
                return Err(Error::config("mini_batch_prompts", message));
            }
            _ => {}
        }
        if self
            .reuse_log_probs
            .is_some_and(|gap| gap.is_nan() || gap < 0.0)
        {
            return Err(Error::config("reuse_log_probs", "must not be negative"));
        }
        if !(0.0..=1.0).contains(&self.max_failure_fraction) {
            return Err(Error::config("max_failure_fraction", "must lie in [0, 1]"));
        }
        if self.sampling.temperature == 0.0 && self.samples_per_prompt > 1 {
            return Err(Error::config(
                "sampling.temperature",
                "greedy answers to one prompt are all equal; set it above 0",
            ));
        }
        self.sampling.validate()?;
        self.eval.sampling.validate()
    }
}
