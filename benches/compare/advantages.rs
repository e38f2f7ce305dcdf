//! Times every advantage estimator on one thread and writes inputs, results
//! and times for `advantages.py`; `advantages.sh` runs both.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::time::Instant;
use verl::core::types::{Batch, Column};
use verl::{AdvantageEstimator, Error, Result};
use verl_benches::estimation::{GROUPS, SAMPLES, TOKENS, batch, estimators};

/// Times advantage estimators for a comparison.
#[derive(Parser)]
struct Args {
    /// Folder to write to.
    #[arg(long)]
    out: PathBuf,
    /// Timed runs of each estimator, after one to warm up.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let batch = batch()?;
    let mut mask = Vec::new();
    for t in batch.trajectories() {
        mask.extend(
            t.response_mask()
                .iter()
                .map(|live| f32::from(u8::from(*live))),
        );
    }
    write(&args.out, "mask", &mask)?;
    for column in [
        Column::TokenRewards,
        Column::Values,
        Column::OldLogProbs,
        Column::SumPiSquared,
    ] {
        write(&args.out, column.name(), &flat(&batch, column)?)?;
    }
    let mut figures = serde_json::Map::new();
    for estimator in estimators()? {
        let seconds = time(&*estimator, &batch, &args)?;
        figures.insert(estimator.name().into(), seconds.into());
    }
    let all = serde_json::json!({
        "shape": [GROUPS as usize * SAMPLES, TOKENS], "samples": SAMPLES, "seconds": figures,
    });
    let path = args.out.join("verl_rust.json");
    std::fs::write(&path, all.to_string()).map_err(Error::io(&path))
}

/// Seconds of each timed run; the advantages go to a file.
fn time(estimator: &dyn AdvantageEstimator, batch: &Batch, args: &Args) -> Result<Vec<f64>> {
    let advantages = estimator.estimate(batch)?.advantages.concat();
    write(&args.out, estimator.name(), &advantages)?;
    let run = |_| {
        let start = Instant::now();
        let estimate = estimator.estimate(batch);
        let seconds = start.elapsed().as_secs_f64();
        estimate.map(|_| seconds)
    };
    (0..args.repeats).map(run).collect()
}

fn flat(batch: &Batch, column: Column) -> Result<Vec<f32>> {
    let rows = batch
        .trajectories()
        .map(|t| t.get(column, "the comparison"));
    Ok(rows.collect::<Result<Vec<_>>>()?.concat())
}

/// Numbers as little-endian f32.
fn write(dir: &Path, name: &str, numbers: &[f32]) -> Result<()> {
    let path = dir.join(format!("{name}.f32"));
    let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, bytes).map_err(Error::io(&path))
}
