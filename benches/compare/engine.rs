//! Parts of a step on random weights of the SmolLM2-135M shape, for
//! side-by-side timing with `torch_engine.py`. One JSON line per repetition.

use clap::{Parser, ValueEnum};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use verl::algos::Catalogue;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions};
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::model::{Kernels, Model, ModelConfig};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::core::algorithm::Objective;
use verl::core::math::{Denominators, LossAggregation};
use verl::core::policy::{Policy, Trainable};
use verl::core::registry::Settings;
use verl::core::rollout::{RolloutEngine, RolloutRequest, SamplingParams, sample_seed};
use verl::core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

/// Times decoding, or log-probs with their backward pass.
#[derive(Parser)]
struct Args {
    /// What to time.
    #[arg(long, value_enum)]
    what: What,
    /// Sequences.
    #[arg(long, default_value_t = 8)]
    rows: usize,
    /// Tokens per prompt.
    #[arg(long, default_value_t = 128)]
    prompt_len: usize,
    /// Tokens per answer.
    #[arg(long, default_value_t = 128)]
    answer_len: usize,
    /// All rows answer one prompt.
    #[arg(long)]
    shared: bool,
    /// Layers of the model.
    #[arg(long, default_value_t = 30)]
    layers: usize,
    /// Size of the vocabulary.
    #[arg(long, default_value_t = 49152)]
    vocab: usize,
    /// Layers whose activations are kept at a time; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    checkpoint_every: usize,
    /// burn's operations instead of the library's own kernels.
    #[arg(long)]
    plain: bool,
    /// Repetitions; the first warms up.
    #[arg(long, default_value_t = 6)]
    repeat: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Sampling.
    Decode,
    /// Log-probs and backward pass.
    Update,
}

fn main() -> verl::Result<()> {
    let args = Args::parse();
    let model = model(&args)?;
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let options = EngineOptions {
        checkpoint_every: args.checkpoint_every,
        share_prompt_tokens: if args.shared { 1 } else { usize::MAX },
        ..Default::default()
    };
    let mut policy = CausalPolicy::new(model.clone(), adam, options)?;
    let generator = GeneratorOptions {
        max_rows: args.rows,
        ..Default::default()
    };
    let mut engine = NativeGenerator::new(model, generator)?;
    for _ in 0..args.repeat {
        let start = Instant::now();
        let tokens = match args.what {
            What::Decode => decode(&mut engine, &args)?,
            What::Update => update(&mut policy, &args)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let line = serde_json::json!({
            "seconds": seconds, "tokens": tokens, "tokens_per_s": tokens as f64 / seconds,
            "peak_mib": peak_mib(),
        });
        println!("{line}");
    }
    Ok(())
}

fn model(args: &Args) -> verl::Result<Model> {
    let json = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": args.layers, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": args.vocab, "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5, "rope_theta": 100_000.0, "tie_word_embeddings": true,
    });
    let json = json.as_object().cloned().unwrap_or_default();
    let config = ModelConfig::from_json(json, Path::new("engine"))?;
    let mut model = Model::random(Arc::new(config), 1, &Device::flex());
    if args.plain {
        model.kernels = Kernels::Plain;
    }
    Ok(model)
}

fn ids(args: &Args, row: usize, stream: u64, n: usize) -> Vec<u32> {
    let row = if args.shared && stream == 0 { 0 } else { row };
    (0..n as u64)
        .map(|i| (sample_seed(stream, row as u64, i, 0) % args.vocab as u64) as u32)
        .collect()
}

fn decode(engine: &mut NativeGenerator, args: &Args) -> verl::Result<usize> {
    let params = Arc::new(SamplingParams {
        max_tokens: args.answer_len,
        ignore_eos: true,
        ..Default::default()
    });
    let requests = (0..args.rows)
        .map(|row| RolloutRequest {
            group: GroupId(row as u64),
            sample: 0,
            prompt: ids(args, row, 0, args.prompt_len).into(),
            params: params.clone(),
            seed: row as u64,
        })
        .collect();
    let mut tokens = 0;
    engine.generate(requests, &mut |rollout| {
        tokens += rollout.tokens.len();
        Ok(())
    })?;
    Ok(tokens)
}

fn update(policy: &mut CausalPolicy, args: &Args) -> verl::Result<usize> {
    let batch = (0..args.rows)
        .map(|row| answer(args, row))
        .collect::<verl::Result<Vec<Trajectory>>>()?;
    let refs: Vec<&Trajectory> = batch.iter().collect();
    let algorithm = Catalogue::builtin().build("grpo", &Settings::default())?;
    let objective = Objective {
        loss: algorithm.policy_loss(),
        aggregation: LossAggregation::TokenMean,
        denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    policy.forward_backward(&refs, &objective)?;
    policy.discard_gradients();
    Ok(args.rows * (args.prompt_len + args.answer_len))
}

fn answer(args: &Args, row: usize) -> verl::Result<Trajectory> {
    let n = args.answer_len;
    let mut t = Trajectory::new(TrajectoryParts {
        group: GroupId(if args.shared { 0 } else { row as u64 }),
        sample: row,
        prompt: ids(args, row, 0, args.prompt_len).into(),
        response: ids(args, row, 1, n),
        response_mask: vec![true; n],
        finish: FinishReason::Length,
        weight_version: 0,
    })?;
    t.set(Column::OldLogProbs, vec![-10.8; n])?;
    t.set(Column::Advantages, vec![1.0 - row as f32 * 0.25; n])?;
    Ok(t)
}

/// Peak resident memory of the process so far, on Linux.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}
