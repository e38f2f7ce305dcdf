//! A run from a configuration file: everything is wired here, and nothing
//! else happens here.

use crate::lora;
use crate::optimizer;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use verl_algos::Catalogue;
use verl_backends::burn::tensor::Device;
use verl_backends::engine::{CausalPolicy, EngineOptions, Schedule, ValueCritic};
use verl_backends::generate::{GeneratorOptions, NativeGenerator};
use verl_backends::model::Model;
use verl_backends::text::HfTokenizer;
use verl_backends::weights::{load_model, load_quantised};
use verl_core::algorithm::Algorithm;
use verl_core::config::{Dtype, OptimConfig, Plan, Resume, RunConfig};
use verl_core::data::{PromptFormat, PromptLimit};
use verl_core::policy::{Critic, Policy};
use verl_core::registry::Settings;
use verl_core::reward::{RewardFn, RewardRegistry};
use verl_core::text::{ChatOptions, Tokenizer};
use verl_core::tracking::Trackers;
use verl_core::trainer::{
    CheckpointSettings, EvalSettings, FitReport, Parts, Prompt, StopHandle, TrainSettings, Trainer,
};
use verl_core::{Error, Result};

/// A run that is ready to start.
#[derive(Debug)]
pub struct Run {
    trainer: Trainer,
    plan: Plan,
    resumed: Option<u64>,
}

impl Run {
    /// Sets a run up from a YAML file and `key.path=value` overrides, with the
    /// built-in algorithms and rewards.
    ///
    /// # Errors
    /// Names the key and line, the row, or the tensor that is at fault.
    pub fn from_yaml(path: impl AsRef<Path>, overrides: &[String]) -> Result<Run> {
        RunBuilder::default().build(RunConfig::from_file(path, overrides)?)
    }

    /// Runs to the end, or to the next checkpoint after a stop.
    ///
    /// # Errors
    /// Whatever ends the run; see [`Trainer::fit`].
    pub fn fit(&mut self) -> Result<FitReport> {
        self.trainer.fit()
    }

    /// The trainer.
    pub fn trainer(&mut self) -> &mut Trainer {
        &mut self.trainer
    }

    /// A handle that ends [`Run::fit`] cleanly.
    pub fn stop_handle(&self) -> StopHandle {
        self.trainer.stop_handle()
    }

    /// What the batch sizes come to.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The step of the checkpoint that the run goes on from.
    pub fn resumed(&self) -> Option<u64> {
        self.resumed
    }
}

/// Sets runs up, with algorithms and rewards of your own beside the built-in
/// ones.
#[derive(Debug)]
pub struct RunBuilder {
    /// Algorithms by name.
    pub algorithms: Catalogue,
    /// Rewards by name.
    pub rewards: RewardRegistry,
}

impl Default for RunBuilder {
    fn default() -> Self {
        RunBuilder {
            algorithms: Catalogue::builtin(),
            rewards: verl_core::reward::registry(),
        }
    }
}

impl RunBuilder {
    /// Loads data and models and checks that everything fits.
    ///
    /// # Errors
    /// As [`Run::from_yaml`].
    pub fn build(&self, mut config: RunConfig) -> Result<Run> {
        config.require_files()?;
        let algorithm = self.algorithm(&config)?;
        let warmup = algorithm.critic_warmup();
        config.training.critic_warmup.get_or_insert(warmup);
        if algorithm.value_loss().is_none() {
            config.refuse("critic", &format!("`{}` has no critic", algorithm.name()))?;
        }
        let reward = self.reward(&config)?;
        let device = crate::device(&config.device)?;
        let tokenizer = Arc::new(HfTokenizer::from_dir(&config.actor.model.path)?);
        let prompts = prompts(&config, &config.data.train_files, &*tokenizer)?;
        let eval_prompts = eval_prompts(&config, &*tokenizer)?;
        let plan = config.plan(prompts.len())?;
        let mut parts = models(&config, &plan, algorithm, tokenizer, &device)?.with(
            reward,
            prompts,
            eval_prompts,
        );
        save_config(&config)?;
        let settings = settings(&config, &plan)?;
        // Trackers cut what lies after the step that is resumed, so they are
        // opened last.
        let trackers = std::mem::take(&mut parts.trackers);
        let mut trainer = Trainer::new(parts, settings)?;
        let resumed = match &config.training.resume {
            Resume::Never => None,
            Resume::Auto => trainer.resume_latest()?,
            Resume::Path(path) => Some(trainer.resume_from(path)?),
        };
        trackers.into_iter().for_each(|t| trainer.add_tracker(t));
        let records = Trackers::open(
            &config.tracking,
            &config.output_dir,
            resumed,
            plan.total_steps,
        )?;
        trainer.add_tracker(Box::new(records));
        Ok(Run {
            trainer,
            plan,
            resumed,
        })
    }

    fn algorithm(&self, config: &RunConfig) -> Result<Box<dyn Algorithm>> {
        let section = &config.algorithm;
        self.algorithms
            .build(&section.name, &section.settings)
            .map_err(|e| config.locate(e))
    }

    fn reward(&self, config: &RunConfig) -> Result<Arc<dyn RewardFn>> {
        let options = Settings(config.reward.options.clone());
        let reward = self
            .rewards
            .build(&config.reward.name, &options)
            .map_err(|e| config.locate(e))?;
        Ok(Arc::from(reward))
    }
}

/// Models, engine and tokenizer of a run.
struct Models {
    algorithm: Box<dyn Algorithm>,
    policy: CausalPolicy,
    critic: Option<Box<dyn Critic>>,
    reward_model: Option<Box<dyn Policy>>,
    engine: NativeGenerator,
    tokenizer: Arc<HfTokenizer>,
}

impl Models {
    fn with(
        self,
        reward: Arc<dyn RewardFn>,
        prompts: Vec<Prompt>,
        eval_prompts: Vec<Prompt>,
    ) -> Parts {
        Parts {
            algorithm: self.algorithm,
            policy: Box::new(self.policy),
            critic: self.critic,
            reward_model: self.reward_model,
            engine: Box::new(self.engine),
            tokenizer: self.tokenizer,
            reward,
            prompts,
            eval_prompts,
            trackers: Vec::new(),
        }
    }
}

fn models(
    config: &RunConfig,
    plan: &Plan,
    algorithm: Box<dyn Algorithm>,
    tokenizer: Arc<HfTokenizer>,
    device: &Device,
) -> Result<Models> {
    let (critic_path, critic_dtype) = config.critic.resolved_model(&config.actor);
    for (key, dtype) in [
        ("actor.model.dtype", config.actor.model.dtype),
        ("critic.model.dtype", critic_dtype),
    ] {
        if dtype != Dtype::Float32 {
            let message = "training in 16 bits is not supported; set it to float32";
            return Err(config.locate(Error::config(key, message)));
        }
    }
    let vocab = Some(tokenizer.vocab_size());
    let load = |path: &std::path::Path| -> Result<Model> {
        let mut model = match lora::coding(config.actor.model.quantization) {
            Some(coding) => load_quantised(path, coding, device)?,
            None => load_model(path, device)?,
        };
        model.kernels = config.actor.model.kernels;
        Ok(model)
    };
    let base = load(&config.actor.model.path)?;
    let adapted = |model: &Model, seed| {
        lora::adapted(model, &config.actor.model, seed).map_err(|e| config.locate(e))
    };
    let model = adapted(&base, config.seed)?;
    let critic = match algorithm.requirements().critic {
        true => {
            let base = match critic_path == config.actor.model.path {
                true => base.clone(),
                false => load(critic_path)?,
            };
            let model = lora::fresh(&base, &config.actor.model, config.seed + 1)?;
            let updates = plan.total_critic_updates();
            let optim = &config.critic.optim;
            let options = engine(config, optim, updates, config.critic.grad_clip, None);
            let critic = ValueCritic::new(model, optimizer::build(optim), options)?;
            Some(Box::new(critic) as Box<dyn Critic>)
        }
        false => None,
    };
    let reward_model = match algorithm.reward_model() {
        Some(implicit) => {
            let mut optim = config.actor.optim.clone();
            optim.lr = implicit.lr.unwrap_or(optim.lr);
            let updates = plan.total_updates();
            let options = engine(config, &optim, updates, config.actor.grad_clip, vocab);
            let model = adapted(&base, config.seed + 2)?;
            let model = CausalPolicy::new(model, optimizer::build(&optim), options)?;
            Some(Box::new(model) as Box<dyn Policy>)
        }
        None => None,
    };
    let generator = GeneratorOptions {
        max_rows: config.rollout.max_num_seqs,
        dtype: config.rollout.dtype,
        vocab,
        stop_ids: tokenizer.stop_ids().to_vec(),
        tokenizer: Some(tokenizer.clone()),
    };
    let options = engine(
        config,
        &config.actor.optim,
        plan.total_updates(),
        config.actor.grad_clip,
        vocab,
    );
    Ok(Models {
        engine: NativeGenerator::new(model.clone(), generator)?,
        policy: CausalPolicy::new(model, optimizer::build(&config.actor.optim), options)?,
        algorithm,
        critic,
        reward_model,
        tokenizer,
    })
}

fn engine(
    config: &RunConfig,
    optim: &OptimConfig,
    updates: u64,
    grad_clip: Option<f64>,
    vocab: Option<usize>,
) -> EngineOptions {
    let schedule = optim.schedule(updates);
    EngineOptions {
        schedule: Schedule::new(move |update| schedule.lr_at(update)),
        grad_clip: grad_clip.unwrap_or(f64::INFINITY),
        checkpoint_every: config.actor.model.checkpoint_every,
        vocab,
        ..EngineOptions::default()
    }
}

fn prompts(
    config: &RunConfig,
    files: &[std::path::PathBuf],
    tokenizer: &dyn Tokenizer,
) -> Result<Vec<Prompt>> {
    let data = &config.data;
    let format = PromptFormat {
        prompt_key: data.prompt_key.clone(),
        answer_key: data.answer_key.clone(),
        answer_after: data.answer_after.clone(),
        system_prompt: data.system_prompt.clone(),
        template: data.prompt_template.clone(),
    };
    let read = format.read(files, data.skip_bad_rows)?;
    for error in &read.skipped {
        tracing::warn!(%error, "row left out");
    }
    let limit = PromptLimit {
        max_tokens: data.max_prompt_length,
        truncation: data.truncation,
    };
    let (prompts, report) = limit.prepare(&read.rows, tokenizer, &ChatOptions::default())?;
    if report.cut + report.dropped > 0 {
        tracing::warn!(
            cut = report.cut,
            left_out = report.dropped,
            "prompts over data.max_prompt_length"
        );
    }
    Ok(prompts)
}

fn eval_prompts(config: &RunConfig, tokenizer: &dyn Tokenizer) -> Result<Vec<Prompt>> {
    let mut all = prompts(config, &config.data.val_files, tokenizer)?;
    if let Some(most) = config.training.val_samples {
        all.truncate(most);
    }
    Ok(all)
}

fn settings(config: &RunConfig, plan: &Plan) -> Result<TrainSettings> {
    let every = |frequency: i64| u64::try_from(frequency).unwrap_or(0);
    let training = &config.training;
    Ok(TrainSettings {
        model_name: config.actor.model.path.display().to_string(),
        seed: config.seed,
        total_steps: plan.total_steps,
        prompts_per_step: plan.prompts_per_step,
        samples_per_prompt: plan.samples_per_prompt,
        mini_batch_prompts: plan.mini_batches.first().copied(),
        micro_batch_tokens: plan.micro_batch_tokens,
        micro_batch_samples: plan.micro_batch_samples,
        epochs: plan.ppo_epochs,
        critic_epochs: plan.critic_epochs,
        critic_warmup: Some(plan.critic_warmup),
        shuffle: config.data.shuffle,
        sampling: config.rollout.sampling(),
        reuse_log_probs: config.rollout.reuse_log_probs,
        max_skipped_updates: training.max_skipped_updates,
        reward_workers: config.reward.workers.unwrap_or_else(cores),
        reward_timeout: Duration::from_secs_f64(config.reward.timeout_s),
        max_failure_fraction: config.reward.max_failure_fraction,
        failure_score: 0.0,
        log_completions: training.log_completions,
        eval: EvalSettings {
            every: every(training.test_freq),
            before: training.val_before_train,
            samples: config.rollout.val_kwargs.n,
            sampling: config.rollout.val_sampling(),
            name: "eval".into(),
        },
        checkpoints: Some(CheckpointSettings {
            dir: config.output_dir.join("checkpoints"),
            every: every(training.save_freq),
            keep: training.keep_checkpoints,
            config: Some(config.to_yaml()?),
        }),
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Writes the resolved configuration beside the run's records.
fn save_config(config: &RunConfig) -> Result<()> {
    let dir = &config.output_dir;
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let path = dir.join("config.yaml");
    std::fs::write(&path, config.to_yaml()?).map_err(Error::io(&path))
}
