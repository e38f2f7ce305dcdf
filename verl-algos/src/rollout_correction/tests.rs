//! Messages, and what the reference files do not hold.

use super::{RolloutCorrection, RolloutCorrectionConfig};
use serde_json::{Value, json};
use verl_core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

fn correction(options: Value) -> RolloutCorrection {
    let config: RolloutCorrectionConfig = serde_json::from_value(options).unwrap();
    config.build().unwrap()
}

fn refusal(options: Value) -> String {
    let config: RolloutCorrectionConfig = serde_json::from_value(options).unwrap();
    let message = config.build().unwrap_err().to_string();
    let bare = message.strip_prefix("algorithm.rollout_correction.");
    bare.unwrap_or_else(|| panic!("{message}")).to_string()
}

/// Answers to one prompt whose tokens have the given ratios.
fn batch(ratios: &[&[f32]]) -> Batch {
    let answer = |(sample, ratios): (usize, &&[f32])| {
        let n = ratios.len();
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(0),
            sample,
            prompt: vec![1].into(),
            response: vec![7; n],
            response_mask: vec![true; n],
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap();
        t.set(Column::RolloutLogProbs, vec![-8.0; n]).unwrap();
        let old = ratios.iter().map(|r| -8.0 + r.ln()).collect();
        t.set(Column::OldLogProbs, old).unwrap();
        t
    };
    let answers = ratios.iter().enumerate().map(answer).collect();
    Batch::new(vec![Group::new(GroupId(0), answers).unwrap()])
}

fn masks(batch: &Batch) -> Vec<Vec<bool>> {
    batch
        .trajectories()
        .map(|t| t.response_mask().to_vec())
        .collect()
}

fn weights(batch: &Batch) -> Vec<f32> {
    let row = |t: &Trajectory| t.get(Column::ImportanceWeights, "test").unwrap().to_vec();
    batch.trajectories().flat_map(row).collect()
}

fn figure(metrics: &[(String, f64)], name: &str) -> f64 {
    let found = metrics
        .iter()
        .find(|(n, _)| n == &format!("rollout_corr/{name}"));
    found.unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn wrong_options_are_refused_with_a_remedy() {
    for (options, want) in [
        (
            json!({"rollout_is_threshold": 2.0}),
            "rollout_is_threshold: has no effect without rollout_is",
        ),
        (
            json!({"rollout_is": "token", "rollout_is_threshold": "2_1"}),
            "rollout_is_threshold: `2_1` is neither a positive number nor two, as in 0.5_2.0",
        ),
        (
            json!({"rollout_rs": "token_k1"}),
            "rollout_rs_threshold: rollout_rs needs it; see the criteria for its form",
        ),
        (
            json!({"rollout_rs": "token_k1, token_k1", "rollout_rs_threshold": 2}),
            "rollout_rs: `token_k1` stands there twice",
        ),
        (
            json!({"rollout_rs": "token_k1,token_k2", "rollout_rs_threshold": "1,2,3"}),
            "rollout_rs_threshold: 3 thresholds for 2 criteria; give one for all, or one for each",
        ),
        (
            json!({"rollout_rs": "token_k2", "rollout_rs_threshold": "0.5_2"}),
            "rollout_rs_threshold: `0.5_2`: token_k2 has an upper bound only",
        ),
        (
            json!({"rollout_rs": "token_k1", "rollout_rs_threshold": 0.5}),
            "rollout_rs_threshold: `0.5`: no ratio lies between these bounds",
        ),
        (
            json!({"rollout_token_veto_threshold": 2.0}),
            "rollout_token_veto_threshold: 2 is out of range; it must be between 0 and 1",
        ),
        (
            json!({"loss_type": "reinforce"}),
            "loss_type: has no effect without bypass_mode: true",
        ),
    ] {
        assert_eq!(refusal(options), want);
    }
    for unknown in ["seq_max_k1", "token_k4", "geometric"] {
        let message = refusal(json!({"rollout_rs": unknown, "rollout_rs_threshold": 2}));
        assert!(message.starts_with(&format!("rollout_rs: `{unknown}` is not a criterion")));
    }
    let idle = refusal(json!({"bypass_mode": true, "rollout_is": "token"}));
    assert!(idle.starts_with("rollout_is: has no effect in bypass mode"));
}

#[test]
fn bounds_of_k1_are_bounds_of_the_ratio() {
    let mut batch = batch(&[&[0.4, 0.6, 1.0, 2.9, 3.1]]);
    let options = json!({"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_3.0"});
    correction(options).apply(&mut batch).unwrap();
    assert_eq!(masks(&batch), [[false, true, true, true, false]]);
}

#[test]
fn a_veto_takes_out_the_whole_answer() {
    let mut batch = batch(&[&[1.0, 0.001], &[1.0, 0.1]]);
    let options = json!({"rollout_token_veto_threshold": 0.01});
    let metrics = correction(options).apply(&mut batch).unwrap();
    assert_eq!(masks(&batch), [[false, false], [true, true]]);
    assert_eq!(figure(&metrics, "rollout_rs_veto_seq_masked_fraction"), 0.5);
    assert_eq!(figure(&metrics, "rollout_rs_masked_fraction"), 0.5);
}

#[test]
fn geometric_weights_do_not_grow_with_length() {
    let mut batch = batch(&[&[1.5, 1.5, 1.5, 1.5], &[]]);
    let options = json!({"rollout_is": "geometric"});
    correction(options).apply(&mut batch).unwrap();
    assert!(weights(&batch).iter().all(|w| (w - 1.5).abs() < 1e-5));
}

#[test]
fn nothing_left_is_no_division_by_zero() {
    let mut batch = batch(&[&[5.0, 6.0]]);
    let options = json!({
        "rollout_is": "token", "rollout_is_threshold": "0.5_2",
        "rollout_is_batch_normalize": true,
        "rollout_rs": "seq_mean_k1", "rollout_rs_threshold": 2,
    });
    let metrics = correction(options).apply(&mut batch).unwrap();
    assert_eq!(weights(&batch), [0.0, 0.0]);
    assert_eq!(masks(&batch), [[false, false]]);
    assert!(
        metrics.iter().all(|(_, value)| value.is_finite()),
        "{metrics:?}"
    );
}

#[test]
fn no_tokens_are_no_figures() {
    let mut batch = batch(&[&[], &[]]);
    let options = json!({"rollout_is": "token", "rollout_token_veto_threshold": 0.01});
    assert_eq!(correction(options).apply(&mut batch).unwrap(), []);
    assert!(weights(&batch).is_empty());
}

#[test]
fn the_log_probs_of_the_sampler_are_needed() {
    let parts = TrajectoryParts {
        group: GroupId(0),
        sample: 0,
        prompt: vec![1].into(),
        response: vec![7],
        response_mask: vec![true],
        finish: FinishReason::Stop,
        weight_version: 0,
    };
    let mut bare = Trajectory::new(parts).unwrap();
    bare.set(Column::OldLogProbs, vec![-1.0]).unwrap();
    let mut batch = Batch::new(vec![Group::new(GroupId(0), vec![bare]).unwrap()]);
    let error = correction(json!({})).apply(&mut batch).unwrap_err();
    let want = "rollout correction reads the column `rollout_log_probs`";
    assert!(error.to_string().starts_with(want), "{error}");
    // Bypass mode has them as the old ones, and nothing to do beforehand.
    let bypass = correction(json!({"bypass_mode": true}));
    assert_eq!(bypass.apply(&mut batch).unwrap(), []);
}
