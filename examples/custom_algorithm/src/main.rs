//! An algorithm of one's own: an estimator and a loss that verl has not, with
//! options of their own, trained with from YAML.
//!
//! ```text
//! cargo run --release -p custom_algorithm
//! ```
//! Twenty steps take a few seconds; the mean reward rises from 0.1 to above 0.9.

use serde::{Deserialize, Serialize};
use verl::core::algorithm::{Advantages, LossInput, LossOutput, Requirements};
use verl::core::config::RunConfig;
use verl::core::types::{Batch, Column};
use verl::{AdvantageEstimator, PolicyLoss, Result, RunBuilder};

/// An answer's reward less the median of its group.
#[derive(Debug, Serialize, Deserialize)]
struct MedianBaseline {
    /// Advantages are cut to `[-bound, bound]`.
    bound: f32,
}

impl AdvantageEstimator for MedianBaseline {
    fn name(&self) -> &str {
        "median_baseline"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        Requirements::default().min_group_size(2)
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let mut advantages_s = Vec::new();
        for group in batch.groups() {
            let rewards: Vec<f32> = group
                .trajectories()
                .iter()
                .map(|t| t.total_reward())
                .collect();
            let mut sorted = rewards.clone();
            sorted.sort_by(f32::total_cmp);
            let n = sorted.len();
            let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
            advantages_s.extend(
                rewards
                    .iter()
                    .map(|r| (r - median).clamp(-self.bound, self.bound)),
            );
        }
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}

/// The policy gradient, held near the old policy by a squared log-ratio.
#[derive(Debug, Serialize, Deserialize)]
struct Tethered {
    /// Strength of the tether.
    tether: f32,
}

impl PolicyLoss for Tethered {
    fn name(&self) -> &str {
        "tethered"
    }

    fn needs(&self) -> &[Column] {
        &[Column::Advantages, Column::OldLogProbs]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages_n = input.column_n(Column::Advantages, "tethered")?;
        let old_n = input.column_n(Column::OldLogProbs, "tethered")?;
        let drift_n = (input.log_probs_n.clone() - old_n).square();
        let gain_n = input.log_probs_n.clone() * advantages_n;
        Ok(LossOutput {
            loss_n: drift_n.clone().mul_scalar(self.tether) - gain_n,
            metrics_n: vec![("actor/drift", drift_n.inner())],
        })
    }
}

fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_target(false)
        .without_time()
        .init();
    let mut builder = RunBuilder::default();
    builder.algorithms.estimator("median_baseline", |options| {
        Ok(Box::new(options.take(MedianBaseline { bound: 1.0 })?))
    })?;
    builder.algorithms.loss("tethered", |options| {
        Ok(Box::new(options.take(Tethered { tether: 0.1 })?))
    })?;
    let overrides: Vec<String> = std::env::args().skip(1).collect();
    let yaml = include_str!("../run.yaml");
    let summary = builder
        .build(RunConfig::from_yaml(yaml, &overrides)?)?
        .fit()?
        .summary;
    println!(
        "mean reward: {:.2?} before, {:.2?} after",
        summary.accuracy_before, summary.accuracy_after
    );
    Ok(())
}
