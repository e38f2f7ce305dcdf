//! What the batch-size keys come to: printed at start, used by the trainer.

use super::RunConfig;
use crate::{Error, Result};
use std::fmt;

/// Batches, updates and length of a run.
///
/// # Example
/// ```
/// use verl_core::config::RunConfig;
///
/// let yaml = "training: {train_batch_size: 10, total_steps: 5}\n\
///             actor: {ppo_mini_batch_size: 3}\nrollout: {n: 4}";
/// let plan = RunConfig::from_yaml(yaml, &[])?.plan(100)?;
/// assert_eq!(plan.mini_batches, [3, 3, 3, 1]);
/// assert_eq!(plan.samples_per_step, 40);
/// assert_eq!(plan.updates_per_step, 4);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Prompts per step.
    pub prompts_per_step: usize,
    /// Samples per prompt.
    pub samples_per_prompt: usize,
    /// Samples per step.
    pub samples_per_step: usize,
    /// Prompts of each mini-batch of one pass. All are alike but perhaps the
    /// last, whose loss is averaged over its own prompts.
    pub mini_batches: Vec<usize>,
    /// Passes over a step's samples.
    pub ppo_epochs: usize,
    /// Optimizer updates of the actor per step.
    pub updates_per_step: usize,
    /// Passes of the critic over a step's samples.
    pub critic_epochs: usize,
    /// Most tokens per micro-batch.
    pub micro_batch_tokens: usize,
    /// Most samples per micro-batch, if limited.
    pub micro_batch_samples: Option<usize>,
    /// Steps in one pass over the training prompts.
    pub steps_per_epoch: u64,
    /// Steps of the run.
    pub total_steps: u64,
    /// Steps at the start without an update of the actor.
    pub critic_warmup: u64,
}

impl Plan {
    /// Optimizer updates of the actor in the whole run; its learning-rate
    /// schedule spans them.
    pub fn total_updates(&self) -> u64 {
        self.total_steps.saturating_sub(self.critic_warmup) * self.updates_per_step as u64
    }

    /// Optimizer updates of the critic in the whole run.
    pub fn total_critic_updates(&self) -> u64 {
        self.total_steps * (self.mini_batches.len() * self.critic_epochs) as u64
    }
}

impl RunConfig {
    /// Works out the run over `train_prompts` prompts.
    ///
    /// An epoch has as many steps as it has whole batches; what is left over
    /// is not trained on in that epoch.
    ///
    /// # Errors
    /// [`Error::Config`] naming both numbers when a step needs more prompts
    /// than there are, or when the run would have no step that trains the
    /// actor.
    pub fn plan(&self, train_prompts: usize) -> Result<Plan> {
        self.validate()?;
        let prompts = self.training.train_batch_size;
        let problem = |key: &str, message: String| Err(self.locate(Error::config(key, message)));
        if prompts > train_prompts {
            return problem(
                "training.train_batch_size",
                format!(
                    "a step takes {prompts} prompts, but there are only {train_prompts} training prompts; lower it or add data"
                ),
            );
        }
        let mini = self.mini_batch_prompts().unwrap_or(prompts);
        let mini_batches: Vec<_> = (0..prompts)
            .step_by(mini)
            .map(|start| mini.min(prompts - start))
            .collect();
        let steps_per_epoch = (train_prompts / prompts) as u64;
        let by_epochs = |epochs: u64| epochs.saturating_mul(steps_per_epoch);
        let total_steps = match (self.training.total_steps, self.training.max_epochs) {
            (Some(steps), Some(epochs)) => steps.min(by_epochs(epochs)),
            (Some(steps), None) => steps,
            (None, epochs) => by_epochs(epochs.unwrap_or(1)),
        };
        let critic_warmup = self.training.critic_warmup.unwrap_or(0);
        if critic_warmup >= total_steps {
            return problem(
                "training.critic_warmup",
                format!(
                    "{critic_warmup} steps train only the critic, but the run has {total_steps}; the actor would never be trained"
                ),
            );
        }
        let rows = self
            .training
            .micro_batch_size
            .map(|prompts| prompts.saturating_mul(self.rollout.n));
        Ok(Plan {
            prompts_per_step: prompts,
            samples_per_prompt: self.rollout.n,
            samples_per_step: prompts * self.rollout.n,
            ppo_epochs: self.actor.ppo_epochs,
            updates_per_step: mini_batches.len() * self.actor.ppo_epochs,
            mini_batches,
            critic_epochs: self.critic.ppo_epochs.unwrap_or(self.actor.ppo_epochs),
            micro_batch_tokens: self.actor.ppo_max_token_len_per_gpu,
            micro_batch_samples: self.actor.ppo_micro_batch_size_per_gpu.or(rows),
            steps_per_epoch,
            total_steps,
            critic_warmup,
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, thing: &str| format!("{n} {thing}{}", if n == 1 { "" } else { "s" });
        writeln!(
            f,
            "{} x {} = {} per step",
            count(self.prompts_per_step, "prompt"),
            count(self.samples_per_prompt, "sample"),
            count(self.samples_per_step, "sample")
        )?;
        writeln!(
            f,
            "{} per step: {} x {}",
            count(self.updates_per_step, "update"),
            count(self.ppo_epochs, "pass").replace("passs", "passes"),
            count(self.mini_batches.len(), "mini-batch").replace("batchs", "batches"),
        )?;
        let (first, last) = (
            self.mini_batches.first().copied(),
            self.mini_batches.last().copied(),
        );
        if let (Some(first), Some(last)) = (first, last) {
            let samples = count(first * self.samples_per_prompt, "sample");
            write!(f, "mini-batch: {} ({samples})", count(first, "prompt"))?;
            if last != first {
                let samples = count(last * self.samples_per_prompt, "sample");
                write!(
                    f,
                    ", the last {} ({samples}), its loss averaged over those alone",
                    count(last, "prompt")
                )?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "micro-batch: at most {}",
            count(self.micro_batch_tokens, "token")
        )?;
        if let Some(samples) = self.micro_batch_samples {
            write!(f, " and {}", count(samples, "sample"))?;
        }
        let epochs = self.total_steps as f64 / self.steps_per_epoch as f64;
        write!(
            f,
            "\n{} in all ({epochs:.2} epochs of {}), {} of the actor",
            count(self.total_steps as usize, "step"),
            self.steps_per_epoch,
            count(self.total_updates() as usize, "update")
        )
    }
}
