//! What a batch looks like, in verl's metric names.

use crate::tracking::Metrics;
use crate::types::{Batch, Column, FinishReason};

/// Rewards, advantages, lengths.
pub(super) fn batch_metrics(batch: &Batch, metrics: &mut Metrics) {
    let scores: Vec<f64> = batch
        .trajectories()
        .filter_map(|t| t.score())
        .map(f64::from)
        .collect();
    spread("critic/score", &scores, metrics);
    let rewards: Vec<f64> = batch
        .trajectories()
        .map(|t| f64::from(t.total_reward()))
        .collect();
    spread("critic/rewards", &rewards, metrics);
    for (name, column) in [
        ("critic/advantages", Column::Advantages),
        ("critic/returns", Column::Returns),
        ("critic/values", Column::Values),
    ] {
        let values = live_values(batch, column);
        if !values.is_empty() {
            spread(name, &values, metrics);
        }
    }
    let lengths: Vec<f64> = batch
        .trajectories()
        .map(|t| t.response().len() as f64)
        .collect();
    spread("response_length", &lengths, metrics);
    let cut = batch
        .trajectories()
        .filter(|t| t.finish() == FinishReason::Length)
        .count();
    metrics.set(
        "response_length/clip_ratio",
        cut as f64 / batch.len().max(1) as f64,
    );
    let prompts: Vec<f64> = batch
        .trajectories()
        .map(|t| t.prompt().len() as f64)
        .collect();
    spread("prompt_length", &prompts, metrics);
    let uniform = batch.groups().iter().filter(|g| g.is_uniform()).count();
    metrics.set(
        "reward/uniform_groups",
        uniform as f64 / batch.groups().len().max(1) as f64,
    );
}

/// How far the sampler's log-probs lie from the trainer's.
pub(super) fn rollout_gap(batch: &Batch, metrics: &mut Metrics) {
    let (mut sum, mut max, mut count) = (0f64, 0f64, 0usize);
    for t in batch.trajectories() {
        let columns = (
            t.get(Column::RolloutLogProbs, "metrics"),
            t.get(Column::OldLogProbs, "metrics"),
        );
        let (Ok(sampled), Ok(scored)) = columns else {
            continue;
        };
        for i in t.policy_positions() {
            let gap = (f64::from(sampled[i]).exp() - f64::from(scored[i]).exp()).abs();
            (sum, max, count) = (sum + gap, max.max(gap), count + 1);
        }
    }
    metrics.set(
        "training/rollout_probs_diff_mean",
        sum / count.max(1) as f64,
    );
    metrics.set("training/rollout_probs_diff_max", max);
}

fn live_values(batch: &Batch, column: Column) -> Vec<f64> {
    let live = |t: &crate::types::Trajectory| -> Vec<f64> {
        match t.get(column, "metrics") {
            Ok(values) => t.policy_positions().map(|i| f64::from(values[i])).collect(),
            Err(_) => Vec::new(),
        }
    };
    batch.trajectories().flat_map(live).collect()
}

fn spread(name: &str, values: &[f64], metrics: &mut Metrics) {
    if values.is_empty() {
        return;
    }
    metrics.set(
        format!("{name}/mean"),
        values.iter().sum::<f64>() / values.len() as f64,
    );
    metrics.set(
        format!("{name}/max"),
        values.iter().copied().fold(f64::MIN, f64::max),
    );
    metrics.set(
        format!("{name}/min"),
        values.iter().copied().fold(f64::MAX, f64::min),
    );
}
