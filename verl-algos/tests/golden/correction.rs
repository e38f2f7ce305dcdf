//! Rollout correction: weights, rejection, metrics and bypass mode.

use crate::losses::aggregation;
use crate::reference::{Case, Table, cases};
use crate::rows::{Rows, gradient};
use serde_json::Value;
use verl_algos::ClippedLoss;
use verl_algos::rollout_correction::{RolloutCorrectionConfig, Threshold};
use verl_core::algorithm::{LossInput, Objective};
use verl_core::math::Denominators;
use verl_core::types::{Column, Trajectory};

/// Reads the options of a case.
fn config(options: &Value) -> RolloutCorrectionConfig {
    let mut options = options.clone();
    // Given in every case, but without an effect in some.
    let map = options.as_object_mut().unwrap();
    map.retain(|_, value| !value.is_null() && *value != false);
    let mut config: RolloutCorrectionConfig = serde_json::from_value(options).unwrap();
    mirror(&mut config);
    config
}

/// Bounds of the inverse ratio, which the reference compares where it says
/// that it compares the ratio.
fn mirror(config: &mut RolloutCorrectionConfig) {
    let (Some(names), Some(Threshold::Text(thresholds))) =
        (&config.rollout_rs, &config.rollout_rs_threshold)
    else {
        return;
    };
    let mirrored = names.split(',').zip(thresholds.split(',').cycle());
    let mirrored = mirrored.map(|(_, bounds)| match bounds.split_once('_') {
        Some((lower, upper)) => {
            let inverse = |text: &str| 1.0 / text.parse::<f64>().unwrap();
            format!("{}_{}", inverse(upper), inverse(lower))
        }
        None => bounds.to_string(),
    });
    let mirrored = mirrored.collect::<Vec<_>>().join(",");
    config.rollout_rs_threshold = Some(Threshold::Text(mirrored));
}

/// The rows of a case under the two policies.
fn rows(case: &Case) -> Rows {
    let mut rows = Rows::of(case);
    rows.set(Column::OldLogProbs, &case.input("log_prob"));
    let rollout = case.input("rollout_log_prob");
    rows.set(Column::RolloutLogProbs, &rollout);
    rows
}

/// Metrics that are means over rows, by parts of their names.
const OVER_ROWS: [&str; 5] = [
    "seq",
    "ppl",
    "ratio_fraction",
    "rollout_is_max",
    "rollout_is_min",
];

/// Compares the metrics; of batches with an empty row only those over tokens,
/// since the reference counts such rows in means over rows.
fn check_metrics(case: &Case, rows: &Rows, got: &[(String, f64)]) {
    let empty = rows.lengths().any(|n| n == 0);
    let mut compared = 0;
    for (name, want) in case.metrics() {
        let bare = name.strip_prefix("rollout_corr/").unwrap_or(name);
        let over_rows = match bare.starts_with("rollout_rs") {
            true => bare == "rollout_rs_seq_masked_fraction",
            false => OVER_ROWS.iter().any(|part| bare.contains(part)),
        };
        if empty && over_rows {
            continue;
        }
        let ours = got
            .iter()
            .find(|(ours, _)| ours.strip_prefix("rollout_corr/") == Some(bare));
        let Some((_, ours)) = ours else {
            panic!("{}: no metric {bare}", case.name);
        };
        // Cut here, infinite there.
        if want.is_infinite() {
            assert!(ours.is_finite() && *ours > 1e8, "{}: {bare}", case.name);
        } else {
            case.check_number(bare, *ours, want);
        }
        compared += 1;
    }
    assert!(compared >= 3, "{}: {compared} metrics compared", case.name);
}

fn mask(rows: &Rows) -> Vec<f32> {
    let row = |t: &Trajectory| -> Vec<f32> {
        let live = t.response_mask().iter();
        live.map(|live| f32::from(u8::from(*live))).collect()
    };
    rows.batch.trajectories().flat_map(row).collect()
}

#[test]
fn weights() {
    for case in cases("rollout_is_weights") {
        let mut rows = rows(&case);
        let correction = config(case.options()).build().unwrap();
        let metrics = correction.apply(&mut rows.batch).unwrap();
        let got = rows.column(Column::ImportanceWeights);
        case.check_output("weights", &got);
        check_metrics(&case, &rows, &metrics);
    }
}

#[test]
fn rejection() {
    for case in cases("rollout_rejection_mask") {
        let mut rows = rows(&case);
        let before = self::rows(&case);
        let correction = config(case.options()).build().unwrap();
        let metrics = correction.apply(&mut rows.batch).unwrap();
        case.check_output("modified_response_mask", &mask(&rows));
        check_metrics(&case, &before, &metrics);
    }
}

#[test]
fn all_together() {
    for case in cases("rollout_correction") {
        let mut rows = rows(&case);
        let before = self::rows(&case);
        let correction = config(case.options()).build().unwrap();
        let metrics = correction.apply(&mut rows.batch).unwrap();
        case.check_output("modified_response_mask", &mask(&rows));
        if let Some(Table { data, .. }) = case.optional_output("weights") {
            let weights = rows.column(Column::ImportanceWeights);
            case.check("weights", &weights, &data);
        }
        check_metrics(&case, &before, &metrics);
    }
}

#[test]
fn off_policy_metrics() {
    let mut without = 0;
    for case in cases("offpolicy_metrics") {
        let mut rows = Rows::of(&case);
        rows.set(Column::OldLogProbs, &case.input("log_prob"));
        let correction = RolloutCorrectionConfig::default().build().unwrap();
        let Some(rollout) = case.optional_input("rollout_log_prob") else {
            // The reference then gives the perplexity of one policy.
            assert!(correction.apply(&mut rows.batch).is_err(), "{}", case.name);
            without += 1;
            continue;
        };
        rows.set(Column::RolloutLogProbs, &rollout);
        let metrics = correction.apply(&mut rows.batch).unwrap();
        check_metrics(&case, &rows, &metrics);
    }
    assert_eq!(without, 1);
}

#[test]
fn bypass_mode() {
    for case in cases("policy_loss_bypass_mode") {
        let mut rows = Rows::of(&case);
        rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
        rows.set(Column::Advantages, &case.input("advantages"));
        let mut options = config(case.config("rollout_correction"));
        options.bypass_mode = true;
        let correction = options.build().unwrap();
        let loss = correction.wrap(Box::new(ClippedLoss {
            low: case.number("clip_ratio_low").unwrap() as f32,
            high: case.number("clip_ratio_high").unwrap() as f32,
            c: case.number("clip_ratio_c").unwrap() as f32,
        }));

        // The reference divides by what rejection leaves.
        let log_probs_n = rows.leaf(&case.input("log_prob"));
        let trajectories: Vec<&Trajectory> = rows.batch.trajectories().collect();
        let input = LossInput::new(&trajectories, log_probs_n.clone(), None).unwrap();
        let output = loss.per_token(&input).unwrap();
        let rejected = output.metrics_n.iter();
        let mut rejected = rejected.filter(|(name, _)| name.ends_with("rs_masked_fraction"));
        let rejected = rejected.next().unwrap().1.clone().into_data();
        let rejected: Vec<f32> = rejected.iter::<f32>().collect();
        let kept = input.segments.iter().map(|segment| {
            let row = rejected[segment.clone()].iter();
            row.filter(|rejected| **rejected == 0.0).count()
        });
        let denominators = Denominators::count(kept);

        let objective = Objective {
            loss: &*loss,
            aggregation: aggregation(case.text("loss_agg_mode"), None, 0),
            denominators,
            entropy_coeff: 0.0,
            kl: None,
            temperature: 1.0,
        };
        let value = rows.policy(&objective, log_probs_n.clone(), None);
        case.check_output("loss", &[value.loss.clone().into_scalar::<f32>()]);
        let gradient = rows.unpack(&gradient(&value.loss, &log_probs_n), 1);
        case.check_output("grad_log_prob", &gradient);

        // Metrics of the correction are means over all tokens in the reference.
        let all = rows.lengths().sum::<usize>() as f64 / denominators.tokens as f64;
        // Its mean of the weights is taken before they are normalised.
        let normalised = case.config("rollout_correction")["rollout_is_batch_normalize"] == true;
        let mut compared = 0;
        for (name, want) in case.metrics() {
            let share = if name.starts_with("actor/") { 1.0 } else { all };
            let Some((_, got)) = value.metrics.iter().find(|(ours, _)| ours == name) else {
                continue;
            };
            if normalised && name.ends_with("rollout_is_mean") {
                case.check_number(name, got / share, 1.0);
            } else {
                case.check_number(name, got / share, want);
            }
            compared += 1;
        }
        assert!(compared >= 4, "{}: {compared} metrics compared", case.name);
    }
}
