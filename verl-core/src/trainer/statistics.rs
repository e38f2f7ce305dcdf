//! What a batch looks like, in verl's metric names.

use crate::policy::TokenScores;
use crate::tracking::Metrics;
use crate::types::{Batch, Column, FinishReason, Trajectory};

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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Gap {
    /// Mean and largest difference of the probabilities.
    pub(super) mean: f64,
    pub(super) largest: f64,
    /// Largest difference of the log-probs.
    pub(super) largest_log: f64,
}

impl Gap {
    pub(super) fn write(&self, metrics: &mut Metrics) {
        metrics.set("training/rollout_probs_diff_mean", self.mean);
        metrics.set("training/rollout_probs_diff_max", self.largest);
    }
}

/// The gap over the policy's tokens, given the trainer's scores. A log-prob
/// that is not a number on either side is an infinite gap.
pub(super) fn rollout_gap<'a>(
    trajectories: impl Iterator<Item = &'a Trajectory>,
    scores: &[TokenScores],
) -> Gap {
    let (mut gap, mut sum, mut count) = (Gap::default(), 0f64, 0usize);
    for (t, scores) in trajectories.zip(scores) {
        let Ok(sampled) = t.get(Column::RolloutLogProbs, "metrics") else {
            continue;
        };
        for i in t.policy_positions() {
            let (a, b) = (f64::from(sampled[i]), f64::from(scores.log_probs[i]));
            let log = (a - b).abs();
            let difference = (a.exp() - b.exp()).abs();
            (sum, count) = (sum + difference, count + 1);
            gap.largest = gap.largest.max(difference);
            gap.largest_log = gap
                .largest_log
                .max(if log.is_nan() { f64::INFINITY } else { log });
        }
    }
    gap.mean = sum / count.max(1) as f64;
    gap
}

fn live_values(batch: &Batch, column: Column) -> Vec<f64> {
    let live = |t: &Trajectory| -> Vec<f64> {
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
