//! The parts of a quickstart run, whatever the algorithm.

use crate::task;
use std::path::Path;
use std::sync::Arc;
use verl::algos::Catalogue;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions, Schedule, ValueCritic};
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::text::HfTokenizer;
use verl::backends::weights::load_model;
use verl::core::registry::Settings;
use verl::core::reward::ExactReward;
use verl::core::rollout::SamplingParams;
use verl::core::text::Tokenizer;
use verl::core::trainer::{CheckpointSettings, EvalSettings};
use verl::{Algorithm, Critic, Parts, Policy, TrainSettings};

/// The model, made by `warm_up.rs`.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart/model");

/// Steps of critic pre-training at most: the tiny critic needs no more.
const VALUE_PRETRAINING: u64 = 5;

/// Model, data, reward, and what the algorithm asks for beside them.
pub(crate) fn parts(algorithm: &str) -> verl::Result<Parts> {
    let model = load_model(Path::new(MODEL), &Device::flex())?;
    let tokenizer = Arc::new(HfTokenizer::from_dir(Path::new(MODEL))?);
    let algorithm = Catalogue::builtin().build(algorithm, &Settings::default())?;
    let adam = || Box::new(AdamW::new(AdamWConfig::default()));
    let engine = |lr| EngineOptions {
        schedule: Schedule::constant(lr),
        vocab: Some(tokenizer.vocab_size()),
        ..EngineOptions::default()
    };
    let critic = match algorithm.requirements().critic {
        true => Some(
            Box::new(ValueCritic::new(model.clone(), adam(), engine(1e-3))?) as Box<dyn Critic>,
        ),
        false => None,
    };
    let reward_model = match algorithm.reward_model() {
        Some(_) => Some(
            Box::new(CausalPolicy::new(model.clone(), adam(), engine(1e-3))?) as Box<dyn Policy>,
        ),
        None => None,
    };
    let generator = GeneratorOptions {
        max_rows: 512,
        vocab: Some(tokenizer.vocab_size()),
        stop_ids: tokenizer.stop_ids().to_vec(),
        tokenizer: Some(tokenizer.clone()),
        ..Default::default()
    };
    let (train, held_out) = task::questions();
    let prompts = |sums: Vec<task::Sum>| -> verl::Result<Vec<_>> {
        sums.into_iter()
            .map(|s| task::prompt(s, &*tokenizer))
            .collect()
    };
    Ok(Parts {
        engine: Box::new(NativeGenerator::new(model.clone(), generator)?),
        policy: Box::new(CausalPolicy::new(model, adam(), engine(3e-4))?),
        critic,
        reward_model,
        algorithm,
        reward: Arc::new(ExactReward),
        prompts: prompts(train)?,
        eval_prompts: prompts(held_out)?,
        trackers: Vec::new(),
        tokenizer,
    })
}

/// The numbers of a run whose records lie in `out`.
pub(crate) fn settings(
    algorithm: &dyn Algorithm,
    out: &Path,
    seed: u64,
    steps: u64,
) -> TrainSettings {
    TrainSettings {
        model_name: "quickstart".into(),
        seed,
        total_steps: steps,
        prompts_per_step: 64,
        samples_per_prompt: 8,
        mini_batch_prompts: Some(32),
        critic_warmup: Some(algorithm.critic_warmup().min(VALUE_PRETRAINING)),
        sampling: SamplingParams {
            max_tokens: 4,
            ..Default::default()
        },
        eval: EvalSettings {
            every: 10,
            sampling: SamplingParams::greedy(4),
            ..Default::default()
        },
        checkpoints: Some(CheckpointSettings {
            dir: out.join("checkpoints"),
            every: 20,
            keep: Some(2),
            config: None,
        }),
        ..Default::default()
    }
}
