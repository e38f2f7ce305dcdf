//! Whole GRPO steps of a fixed size, for side-by-side timing: random weights of
//! the SmolLM2-135M shape, random rewards, fixed lengths. One JSON line per
//! step; `grpo_step.sh` runs it beside TRL.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verl::algos::Catalogue;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions};
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::model::{LoraConfig, Model, ModelConfig};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::text::HfTokenizer;
use verl::core::registry::Settings;
use verl::core::rollout::{SamplingParams, sample_seed};
use verl::core::tracking::{Metrics, Tracker};
use verl::core::trainer::{EvalSettings, Prompt};
use verl::{Parts, TrainSettings, Trainer, reward_fn};

/// Times whole GRPO steps on random weights of the SmolLM2-135M shape.
#[derive(Parser)]
struct Args {
    /// Folder with a tokenizer; its texts are only counted.
    #[arg(long)]
    tokenizer: PathBuf,
    /// Prompts per step.
    #[arg(long, default_value_t = 4)]
    prompts: usize,
    /// Answers per prompt.
    #[arg(long, default_value_t = 8)]
    samples: usize,
    /// Tokens per prompt.
    #[arg(long, default_value_t = 128)]
    prompt_len: usize,
    /// Tokens per answer.
    #[arg(long, default_value_t = 128)]
    answer_len: usize,
    /// Layers of the model.
    #[arg(long, default_value_t = 30)]
    layers: usize,
    /// Steps.
    #[arg(long, default_value_t = 3)]
    steps: u64,
    /// Layers recorded at a time in the backward pass; 0 records all.
    #[arg(long, default_value_t = 0)]
    checkpoint_every: usize,
    /// Rank of an adapter on all projections, the rest frozen; 0 trains all.
    #[arg(long, default_value_t = 0)]
    lora: usize,
    /// Take the sampler's log-probs as the old ones, as TRL does.
    #[arg(long)]
    bypass: bool,
}

const VOCAB: usize = 49152;

fn main() -> verl::Result<()> {
    let args = Args::parse();
    let tokens = args.prompts * args.samples;
    let mut trainer = Trainer::new(parts(&args)?, settings(&args))?;
    trainer.add_tracker(Box::new(Lines {
        generated: tokens * args.answer_len,
        trained: tokens * (args.prompt_len + args.answer_len),
    }));
    trainer.fit().map(|_| ())
}

fn model(layers: usize) -> verl::Result<Model> {
    let json = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": layers, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": VOCAB, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 100_000.0, "tie_word_embeddings": true,
    });
    let json = json.as_object().cloned().unwrap_or_default();
    let config = ModelConfig::from_json(json, Path::new("grpo_step"))?;
    Ok(Model::random(Arc::new(config), 1, &Device::flex()))
}

fn parts(args: &Args) -> verl::Result<Parts> {
    let mut model = model(args.layers)?;
    if args.lora > 0 {
        let config = LoraConfig {
            rank: args.lora,
            ..Default::default()
        };
        model.attach_lora(config, 1)?;
    }
    let tokenizer = Arc::new(HfTokenizer::from_dir(&args.tokenizer)?);
    let mut options = Settings::default();
    if args.bypass {
        let bypass = serde_json::json!({"bypass_mode": true});
        options.0.insert("rollout_correction".into(), bypass);
    }
    let engine = EngineOptions {
        checkpoint_every: args.checkpoint_every,
        ..Default::default()
    };
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let rewards = std::sync::atomic::AtomicU64::new(0);
    let random = move |_: &verl::core::reward::RewardInput<'_>| {
        let n = rewards.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (sample_seed(7, n, 0, 0) % 1000) as f32 / 1000.0
    };
    let prompt = |n: u64| Prompt {
        ids: (0..args.prompt_len as u64)
            .map(|i| (sample_seed(3, n, i, 0) % VOCAB as u64) as u32)
            .collect(),
        text: "random".into(),
        answer: None,
        row: Arc::default(),
    };
    Ok(Parts {
        engine: Box::new(NativeGenerator::new(
            model.clone(),
            GeneratorOptions {
                max_rows: args.prompts * args.samples,
                ..Default::default()
            },
        )?),
        policy: Box::new(CausalPolicy::new(model, adam, engine)?),
        critic: None,
        reward_model: None,
        algorithm: Catalogue::builtin().build("grpo", &options)?,
        reward: Arc::new(reward_fn("random", random)),
        prompts: (0..args.prompts as u64 * (args.steps + 1))
            .map(prompt)
            .collect(),
        eval_prompts: Vec::new(),
        trackers: Vec::new(),
        tokenizer,
    })
}

fn settings(args: &Args) -> TrainSettings {
    TrainSettings {
        total_steps: args.steps,
        prompts_per_step: args.prompts,
        samples_per_prompt: args.samples,
        micro_batch_tokens: usize::MAX,
        sampling: SamplingParams {
            max_tokens: args.answer_len,
            ignore_eos: true,
            ..Default::default()
        },
        log_completions: 0,
        eval: EvalSettings {
            before: false,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Prints the figures that TRL's side prints, and more.
#[derive(Debug)]
struct Lines {
    generated: usize,
    trained: usize,
}

impl Tracker for Lines {
    fn log_step(&mut self, metrics: &Metrics) -> verl::Result<()> {
        let seconds = |phase: &str| metrics.get(&format!("timing_s/{phase}")).unwrap_or(0.0);
        let line = serde_json::json!({
            "sampling_s": seconds("gen"),
            "old_log_prob_s": seconds("old_log_prob"),
            "update_s": seconds("update_actor"),
            "step_s": seconds("step"),
            "generated_tokens": self.generated,
            "trained_tokens": self.trained,
        });
        println!("{line}");
        Ok(())
    }
}
