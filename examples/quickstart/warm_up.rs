//! Makes the quickstart's model: a tiny Qwen2 that has seen sums, most of them
//! wrong.
//!
//! Supervised learning on a corpus in which a sum is right one time in three,
//! one too small half of the time, and ten off otherwise. The model learns to
//! write numbers and knows the right answer as one of several; reinforcement
//! learning then has something to bring out.
//!
//! ```text
//! cargo run --release --example warm_up -- --out examples/quickstart/model
//! ```
//! About two minutes on two CPU cores. The same seed gives the same weights.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions, Schedule};
use verl::backends::model::{Model, ModelConfig};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::text::HfTokenizer;
use verl::core::algorithm::{LossInput, LossOutput, Objective, PolicyLoss};
use verl::core::math::{Denominators, LossAggregation, LrSchedule, ScheduleKind};
use verl::core::policy::{Policy, Trainable};
use verl::core::rollout::sample_seed;
use verl::core::text::Tokenizer;
use verl::core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

mod task;

/// Makes the quickstart's model by supervised learning.
#[derive(Parser)]
struct Args {
    /// Folder with config.json and the tokenizer; the weights are written to it.
    #[arg(long, default_value = "examples/quickstart/model")]
    out: PathBuf,
    /// Seed of the first weights and of the corpus.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Updates.
    #[arg(long, default_value_t = 1500)]
    steps: u64,
    /// Sums per update.
    #[arg(long, default_value_t = 192)]
    batch: u64,
}

/// The negative log-likelihood of the tokens.
#[derive(Debug)]
struct Likelihood;

impl PolicyLoss for Likelihood {
    fn name(&self) -> &str {
        "likelihood"
    }

    fn needs(&self) -> &[Column] {
        &[]
    }

    fn per_token(&self, input: &LossInput<'_>) -> verl::Result<LossOutput> {
        Ok(LossOutput {
            loss_n: input.log_probs_n.clone().neg(),
            metrics_n: vec![],
        })
    }
}

fn main() -> verl::Result<()> {
    let args = Args::parse();
    let tokenizer = HfTokenizer::from_dir(&args.out)?;
    let mut policy = untrained(&args.out, args.seed, args.steps)?;
    let (sums, _) = task::questions();
    for step in 0..args.steps {
        let corpus: Vec<Trajectory> = (0..args.batch)
            .map(|i| example(&sums, sample_seed(args.seed, step, i, 0), &tokenizer))
            .collect::<verl::Result<_>>()?;
        let batch: Vec<&Trajectory> = corpus.iter().collect();
        let objective = Objective {
            loss: &Likelihood,
            aggregation: LossAggregation::TokenMean,
            denominators: Denominators::count(batch.iter().map(|t| t.policy_tokens())),
            entropy_coeff: 0.0,
            kl: None,
            temperature: 1.0,
        };
        let loss = policy.forward_backward(&batch, &objective)?[0].1;
        policy.optimizer_step()?;
        if step % 100 == 99 {
            println!("update {:>5}  loss {loss:.4}", step + 1);
        }
    }
    policy.save_pretrained(&args.out)
}

fn untrained(dir: &Path, seed: u64, steps: u64) -> verl::Result<CausalPolicy> {
    let config = Arc::new(ModelConfig::from_dir(dir)?);
    let model = Model::random(config, seed, &Device::flex());
    println!("{} parameters", model.parameter_count());
    let schedule = LrSchedule {
        base: 3e-3,
        kind: ScheduleKind::Cosine,
        warmup: 50,
        total: steps,
        min_ratio: 0.05,
    };
    let options = EngineOptions {
        schedule: Schedule::new(move |u| schedule.lr_at(u)),
        ..Default::default()
    };
    CausalPolicy::new(model, Box::new(AdamW::new(AdamWConfig::default())), options)
}

/// A sum of the corpus, right or wrong as `random` has it.
fn example(sums: &[task::Sum], random: u64, tokenizer: &HfTokenizer) -> verl::Result<Trajectory> {
    let sum = sums[(random % sums.len() as u64) as usize];
    let written = match (random >> 32) % 12 {
        0..4 => sum.answer(),
        4..10 => sum.answer().saturating_sub(1),
        _ => sum.answer() + 10,
    };
    let prompt = task::prompt(sum, tokenizer)?;
    let mut response = tokenizer.encode(&written.to_string())?;
    response.extend(tokenizer.stop_ids().first());
    Trajectory::new(TrajectoryParts {
        group: GroupId(random),
        sample: 0,
        prompt: prompt.ids,
        response_mask: vec![true; response.len()],
        response,
        finish: FinishReason::Stop,
        weight_version: 0,
    })
}
