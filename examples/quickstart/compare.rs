//! Every algorithm on one task: the quickstart's sums.
//!
//! ```text
//! cargo run --release --example compare_algorithms
//! cargo run --release --example compare_algorithms -- --algorithms grpo,dapo,ppo --seeds 3
//! ```
//! Writes `comparison.md` and `comparison.svg` (held-out accuracy over steps)
//! beside the records of each run. All of them take about half an hour on two
//! CPU cores.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::time::Instant;
use verl::Trainer;
use verl::algos::Catalogue;
use verl::core::config::TrackingConfig;
use verl::core::tracking::Trackers;

mod curves;
mod setup;
mod task;

use curves::Curve;

/// Trains the quickstart's model with each algorithm and compares them.
#[derive(Parser)]
struct Args {
    /// Folder for everything the runs write.
    #[arg(long, default_value = "runs/compare_algorithms")]
    out: PathBuf,
    /// Names of the algorithms; all unless given.
    #[arg(long, value_delimiter = ',')]
    algorithms: Vec<String>,
    /// Runs per algorithm.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Training steps.
    #[arg(long, default_value_t = 40)]
    steps: u64,
}

fn main() -> verl::Result<()> {
    tracing_subscriber::fmt()
        .with_target(false)
        .without_time()
        .with_max_level(tracing::Level::WARN)
        .init();
    let args = Args::parse();
    let names = match args.algorithms.is_empty() {
        true => Catalogue::builtin().names().map(String::from).collect(),
        false => args.algorithms.clone(),
    };
    let mut curves = Vec::new();
    for name in &names {
        for seed in 1..=args.seeds {
            let curve = run(name, seed, &args)?;
            println!("{curve}");
            curves.push(curve);
            write(&args.out, &curves)?;
        }
    }
    println!("{}", args.out.join("comparison.md").display());
    Ok(())
}

/// One run, and its held-out accuracy over steps.
fn run(name: &str, seed: u64, args: &Args) -> verl::Result<Curve> {
    let out = args.out.join(format!("{name}-{seed}"));
    let parts = setup::parts(name)?;
    let mut settings = setup::settings(&*parts.algorithm, &out, seed, args.steps);
    settings.checkpoints = None;
    let mut trainer = Trainer::new(parts, settings)?;
    let (points, recorder) = curves::recorder();
    trainer.add_tracker(Box::new(recorder));
    let records = Trackers::open(&TrackingConfig::default(), &out, None, args.steps)?;
    trainer.add_tracker(Box::new(records));
    let start = Instant::now();
    trainer.fit()?;
    Ok(Curve {
        name: name.into(),
        seed,
        points: points.take(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn write(out: &Path, curves: &[Curve]) -> verl::Result<()> {
    for (file, text) in [
        ("comparison.md", curves::table(curves)),
        ("comparison.svg", curves::svg(curves)),
    ] {
        let path = out.join(file);
        std::fs::write(&path, text).map_err(verl::Error::io(&path))?;
    }
    Ok(())
}
