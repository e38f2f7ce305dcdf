//! A reward of your own, as a closure, on your own JSONL.
//!
//! Every line of `examples/data/sums.jsonl` has a `prompt`, an `answer` and the
//! field `digits`, which the closure reads. The reward is 1 for a right answer
//! and half of that for one that at least has the right number of digits.
//!
//! ```text
//! cargo run --release --example custom_reward
//! ```
//! Ten steps take a few seconds; the reward starts near 0.6 and rises.

use clap::Parser;
use std::path::{Path, PathBuf};
use verl::core::config::RunConfig;
use verl::{RunBuilder, reward_fn};

/// Trains with a reward made of a closure.
#[derive(Parser)]
struct Args {
    /// JSONL file with `prompt`, `answer` and `digits`.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/sums.jsonl"))]
    data: PathBuf,
    /// Model folder.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart/model"))]
    model: PathBuf,
    /// Folder for everything the run writes.
    #[arg(long, default_value = "runs/custom_reward")]
    out: PathBuf,
    /// Training steps.
    #[arg(long, default_value_t = 10)]
    steps: u64,
}

fn main() -> verl::Result<()> {
    tracing_subscriber::fmt()
        .with_target(false)
        .without_time()
        .init();
    let args = Args::parse();
    let mut builder = RunBuilder::default();
    builder.rewards.register("right_or_close", |_options| {
        Ok(Box::new(reward_fn("right_or_close", |input| {
            let digits = input
                .row
                .get("digits")
                .and_then(|d| d.as_u64())
                .ok_or("the row has no field `digits`")?;
            let response = input.response.trim();
            Ok::<f32, &str>(match Some(response) == input.answer {
                true => 1.0,
                false if response.len() as u64 == digits => 0.5,
                false => 0.0,
            })
        })))
    })?;
    let mut run = builder.build(config(&args)?)?;
    let summary = run.fit()?.summary;
    println!(
        "mean reward: {:.2?} before, {:.2?} after",
        summary.accuracy_before, summary.accuracy_after
    );
    Ok(())
}

fn config(args: &Args) -> verl::Result<RunConfig> {
    let path = |p: &Path| p.display().to_string();
    let yaml = format!(
        "output_dir: {out}
actor: {{ model: {{ path: {model} }}, optim: {{ lr: 3e-4 }} }}
data: {{ train_files: [{data}], val_files: [{data}], max_prompt_length: 16 }}
rollout: {{ n: 8, response_length: 4, max_num_seqs: 256 }}
reward: {{ name: right_or_close }}
training: {{ train_batch_size: 16, total_steps: {steps}, test_freq: 0, save_freq: 0, resume: never }}
",
        out = path(&args.out),
        model = path(&args.model),
        data = path(&args.data),
        steps = args.steps,
    );
    RunConfig::from_yaml(&yaml, &[])
}
