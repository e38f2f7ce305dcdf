//! Putting a trainer together, and checking that the parts fit.

use super::fit::Totals;
use super::{Prompt, StopHandle, TrainSettings};
use crate::algorithm::Algorithm;
use crate::checkpoint::CheckpointStore;
use crate::data::PromptLoader;
use crate::math::KlController;
use crate::policy::{Critic, LogProbModel, Policy};
use crate::reward::{RewardFn, ScoringPool};
use crate::rollout::RolloutEngine;
use crate::text::Tokenizer;
use crate::tracking::Tracker;
use crate::types::Column;
use crate::{Error, Result};
use std::sync::Arc;

/// What a trainer is made of.
#[derive(Debug)]
pub struct Parts {
    /// The algorithm.
    pub algorithm: Box<dyn Algorithm>,
    /// The model to train.
    pub policy: Box<dyn Policy>,
    /// The value model, for algorithms that need one.
    pub critic: Option<Box<dyn Critic>>,
    /// The reward model, for algorithms that train one.
    pub reward_model: Option<Box<dyn Policy>>,
    /// What samples.
    pub engine: Box<dyn RolloutEngine>,
    /// Ids to text, for rewards and logs.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// What judges.
    pub reward: Arc<dyn RewardFn>,
    /// Prompts to train on.
    pub prompts: Vec<Prompt>,
    /// Held-out prompts; may be empty.
    pub eval_prompts: Vec<Prompt>,
    /// Where figures go.
    pub trackers: Vec<Box<dyn Tracker>>,
}

/// The policy that KL terms refer to.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) model: Box<dyn LogProbModel>,
    /// Version of its weights.
    pub(super) version: u64,
}

impl Reference {
    /// The policy as it is now.
    fn of(policy: &dyn Policy) -> Self {
        Reference {
            model: policy.frozen(),
            version: policy.weights().version,
        }
    }
}

/// Trains a policy; see [`Trainer::fit`].
#[derive(Debug)]
pub struct Trainer {
    pub(super) settings: TrainSettings,
    pub(super) parts: Parts,
    pub(super) reference: Option<Reference>,
    pub(super) pool: ScoringPool,
    pub(super) loader: PromptLoader,
    pub(super) kl: Option<KlController>,
    pub(super) store: Option<CheckpointStore>,
    pub(super) stop: StopHandle,
    /// Steps done.
    pub(super) step: u64,
    /// Skipped updates in a row, and in all.
    pub(super) skipped: (u64, u64),
    /// Step of the last checkpoint.
    pub(super) saved: Option<u64>,
    pub(super) totals: Totals,
}

impl Trainer {
    /// Checks the parts against the algorithm's needs and the settings.
    ///
    /// A reference policy, where the algorithm needs one, is the policy as it
    /// is now.
    ///
    /// # Errors
    /// Names what is missing and the key that provides it, or the setting that
    /// is out of range.
    pub fn new(parts: Parts, settings: TrainSettings) -> Result<Self> {
        settings.validate()?;
        check_needs(&parts, &settings)?;
        if parts.prompts.is_empty() {
            return Err(Error::config(
                "data.train_files",
                "there are no prompts to train on",
            ));
        }
        let reference = parts
            .algorithm
            .requirements()
            .reference
            .then(|| Reference::of(&*parts.policy));
        let store = settings
            .checkpoints
            .as_ref()
            .map(|c| CheckpointStore::new(&c.dir, c.keep))
            .transpose()?;
        Ok(Trainer {
            pool: ScoringPool::new(settings.reward_workers, settings.reward_timeout)?,
            loader: PromptLoader::new(
                parts.prompts.len(),
                settings.prompts_per_step,
                settings.seed,
                settings.shuffle,
            )?,
            kl: parts
                .algorithm
                .kl_in_reward()
                .map(|kl| KlController::new(kl.control)),
            reference,
            store,
            stop: StopHandle::default(),
            step: 0,
            skipped: (0, 0),
            saved: None,
            totals: Totals::default(),
            settings,
            parts,
        })
    }

    /// A handle that ends [`Trainer::fit`] cleanly.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Adds a tracker.
    pub fn add_tracker(&mut self, tracker: Box<dyn Tracker>) {
        self.parts.trackers.push(tracker);
    }

    /// Steps done so far.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Answer tokens sampled for training so far.
    pub fn tokens_generated(&self) -> u64 {
        self.totals.tokens_generated
    }

    pub(super) fn critic_warmup(&self) -> u64 {
        let given = self.settings.critic_warmup;
        given.unwrap_or_else(|| self.parts.algorithm.critic_warmup())
    }

    /// The policy as it stands.
    pub fn policy(&self) -> &dyn Policy {
        &*self.parts.policy
    }
}

fn check_needs(parts: &Parts, settings: &TrainSettings) -> Result<()> {
    let algorithm = &parts.algorithm;
    let needs = algorithm.requirements();
    if needs.critic && parts.critic.is_none() {
        let message = format!(
            "`{}` needs a critic; give the run one (section `critic`)",
            algorithm.name()
        );
        return Err(Error::config("algorithm.name", message));
    }
    if algorithm.reward_model().is_some() && parts.reward_model.is_none() {
        let message = format!(
            "`{}` trains a reward model; give the run one (`Parts::reward_model`)",
            algorithm.name()
        );
        return Err(Error::config("algorithm.name", message));
    }
    if settings.samples_per_prompt < needs.min_group_size {
        let message = format!(
            "`{}` compares the answers to one prompt and needs at least {} of them; rollout.n is {}",
            algorithm.name(),
            needs.min_group_size,
            settings.samples_per_prompt
        );
        return Err(Error::config("rollout.n", message));
    }
    check_columns(&**algorithm)?;
    let terms = algorithm.policy_terms();
    if (terms.kl_loss.is_some() || algorithm.kl_in_reward().is_some()) && !needs.reference {
        let message = format!(
            "`{}` uses a KL term but does not ask for a reference policy",
            algorithm.name()
        );
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Every column that the algorithm reads must be one that this run computes.
fn check_columns(algorithm: &dyn Algorithm) -> Result<()> {
    let needs = algorithm.requirements();
    let computed = |column: Column| match column {
        Column::RefLogProbs => needs.reference,
        Column::Values | Column::Returns => needs.critic,
        Column::SumPiSquared => needs.sum_pi_squared,
        Column::ImplicitRewards => algorithm.reward_model().is_some(),
        _ => true,
    };
    let estimator = algorithm.estimator().needs().iter();
    let value_loss = algorithm
        .value_loss()
        .map_or(&[][..], |(loss, _)| loss.needs())
        .iter();
    let mut read = estimator
        .chain(algorithm.policy_loss().needs())
        .chain(value_loss);
    match read.find(|column| !computed(**column)) {
        Some(column) => Err(Error::invalid(format!(
            "`{}` reads the column `{}` but its requirements do not ask for what fills it; {}",
            algorithm.name(),
            column.name(),
            column.remedy()
        ))),
        None => Ok(()),
    }
}
