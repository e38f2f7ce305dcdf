//! Every algorithm on the contextual bandit, over several seeds: the long form
//! of `tests/bandit.rs`.
//!
//! ```text
//! cargo run --release -p verl-benches --bin bandit
//! cargo run --release -p verl-benches --bin bandit -- --algorithms grpo,dapo --seeds 10
//! ```
//! Prints a table and fails if a run ends below the bar.

use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;
use verl::algos::Catalogue;
use verl_benches::bandit::Bandit;

/// Trains a table of logits with each algorithm.
#[derive(Parser)]
struct Args {
    /// Names of the algorithms; all unless given.
    #[arg(long, value_delimiter = ',')]
    algorithms: Vec<String>,
    /// Runs per algorithm.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Policy updates.
    #[arg(long, default_value_t = 200)]
    steps: u64,
    /// Expected reward that every run must reach.
    #[arg(long, default_value_t = 0.8)]
    bar: f64,
}

fn main() -> verl::Result<ExitCode> {
    let args = Args::parse();
    let catalogue = Catalogue::builtin();
    let names = match args.algorithms.is_empty() {
        true => catalogue.names().map(String::from).collect(),
        false => args.algorithms.clone(),
    };
    println!(
        "expected reward after {} steps, bar {}",
        args.steps, args.bar
    );
    println!("| algorithm | lowest | highest | seconds a run |\n|---|---|---|---|");
    let mut failed = false;
    for name in &names {
        let start = Instant::now();
        let train = |seed| Bandit::new(name, seed, args.steps).train(&catalogue);
        let rewards = (1..=args.seeds)
            .map(train)
            .collect::<verl::Result<Vec<f64>>>()?;
        let seconds = start.elapsed().as_secs_f64() / rewards.len().max(1) as f64;
        let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rewards.iter().copied().fold(0.0, f64::max);
        let mark = if low < args.bar {
            " (below the bar)"
        } else {
            ""
        };
        failed |= low < args.bar;
        println!("| `{name}` | {low:.3}{mark} | {high:.3} | {seconds:.2} |");
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
