//! Losses on pairs of answers.

use crate::reference::{Case, Table, cases};
use crate::rows::{Rows, gradient};
use verl_algos::dpo::{DpoConfig, DpoLossType};
use verl_algos::orpo::OrpoConfig;
use verl_algos::simpo::{SimpoConfig, SimpoLossType};
use verl_algos::spin::SpinConfig;
use verl_core::algorithm::{LossInput, Objective, PolicyLoss};
use verl_core::math::LossAggregation;
use verl_core::types::{Column, Trajectory};

/// Pairs of which a case gives the log-probs of whole answers: each answer's
/// are spread evenly over its tokens.
struct Given {
    rows: Rows,
    log_probs: Table,
}

/// Chosen and rejected answers in turns, padded.
fn interleaved(case: &Case, names: [&str; 2], lengths: &[usize], width: usize) -> Table {
    let sums = names.map(|name| case.input(name).data);
    let mut data = Vec::new();
    for (i, n) in lengths.iter().enumerate() {
        let each = sums[i % 2][i / 2] / *n as f32;
        data.extend((0..width).map(|t| if t < *n { each } else { f32::NAN }));
    }
    Table {
        shape: vec![lengths.len(), width],
        data,
    }
}

impl Given {
    fn new(case: &Case) -> Self {
        let pairs = case.input("chosen").data.len();
        let length = |name: &str| case.optional_input(name).map(|t| t.data);
        let given = [length("chosen_len"), length("rejected_len")];
        let length = |i: usize| given[i % 2].as_ref().map_or(1, |n| n[i / 2] as usize);
        let lengths: Vec<usize> = (0..2 * pairs).map(length).collect();
        let width = lengths.iter().copied().max().unwrap();
        let mask = lengths.iter().flat_map(|n| (0..width).map(move |t| t < *n));
        let mask = Table {
            shape: vec![lengths.len(), width],
            data: mask.map(|live| f32::from(u8::from(live))).collect(),
        };
        let ids: Vec<i64> = (0..2 * pairs as i64).map(|i| i / 2).collect();
        let mut rows = Rows::new(&mask, Some(&ids));
        for (i, t) in rows.batch.trajectories_mut().enumerate() {
            t.set_score(if i % 2 == 0 { 1.0 } else { 0.0 }).unwrap();
        }
        if case.optional_input("ref_chosen").is_some() {
            let names = ["ref_chosen", "ref_rejected"];
            let reference = interleaved(case, names, &lengths, width);
            rows.set(Column::RefLogProbs, &reference);
        }
        let log_probs = interleaved(case, ["chosen", "rejected"], &lengths, width);
        Given { rows, log_probs }
    }
}

/// Compares loss and gradients with respect to the log-probs of answers, which
/// are those with respect to any of their tokens.
fn reproduce(case: &Case, rows: &Rows, log_probs: &Table, loss: &dyn PolicyLoss) {
    let objective = Objective {
        loss,
        aggregation: LossAggregation::SeqMeanTokenMean,
        denominators: rows.denominators(None, None),
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    let log_probs_n = rows.leaf(log_probs);
    let value = rows.policy(&objective, log_probs_n.clone(), None);
    case.check_output("loss", &[value.loss.clone().into_scalar::<f32>()]);
    let gradient = gradient(&value.loss, &log_probs_n);

    let trajectories: Vec<&Trajectory> = rows.batch.trajectories().collect();
    let input = LossInput::new(&trajectories, log_probs_n, None).unwrap();
    let loss_n = loss.per_token(&input).unwrap().loss_n.into_data();
    let loss_n: Vec<f32> = loss_n.iter::<f32>().collect();
    let (mut chosen, mut rejected, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for group in input.segments.chunks(2).zip(trajectories.chunks(2)) {
        let ([a, b], [first, second]) = group else {
            panic!("{}: not a pair", case.name);
        };
        assert!(first.score() != second.score(), "{}: a tie", case.name);
        let (best, worst) = if first.score() > second.score() {
            (a, b)
        } else {
            (b, a)
        };
        chosen.push(gradient[best.start]);
        rejected.push(gradient[worst.start]);
        losses.push(loss_n[best.start]);
    }
    case.check_output("grad_chosen", &chosen);
    case.check_output("grad_rejected", &rejected);
    if case.optional_output("losses").is_some() {
        case.check_output("losses", &losses);
    }
}

fn option(case: &Case, key: &str) -> f32 {
    case.number(key).unwrap() as f32
}

#[test]
fn dpo() {
    for case in cases("pref_dpo") {
        let given = Given::new(&case);
        let (loss_type, average_log_prob) = match case.text("loss_type") {
            "sigmoid" => (DpoLossType::Sigmoid, false),
            "robust" => (DpoLossType::Robust, false),
            "hinge" => (DpoLossType::Hinge, false),
            "ipo" => (DpoLossType::Ipo, false),
            "ipo_norm" => (DpoLossType::Ipo, true),
            other => panic!("{}: {other}", case.name),
        };
        let config = DpoConfig {
            beta: option(&case, "beta"),
            loss_type,
            label_smoothing: option(&case, "label_smoothing"),
            reference_free: false,
            average_log_prob,
        };
        let loss = config.build().unwrap();
        reproduce(&case, &given.rows, &given.log_probs, &loss);
    }
}

#[test]
fn orpo() {
    for case in cases("pref_orpo") {
        let given = Given::new(&case);
        let beta = option(&case, "beta");
        let loss = OrpoConfig { beta }.build().unwrap();
        reproduce(&case, &given.rows, &given.log_probs, &loss);
    }
}

#[test]
fn simpo() {
    for case in cases("pref_simpo") {
        let given = Given::new(&case);
        let config = SimpoConfig {
            loss_type: match case.text("loss_type") {
                "simpo" => SimpoLossType::Simpo,
                _ => SimpoLossType::Cpo,
            },
            beta: Some(option(&case, "beta")),
            gamma: Some(option(&case, "gamma")),
            cpo_alpha: Some(option(&case, "cpo_alpha")),
        };
        let loss = config.build().unwrap();
        reproduce(&case, &given.rows, &given.log_probs, &loss);
    }
}

#[test]
fn spin() {
    let mut set_aside = 0;
    for case in cases("spin_online_dpo") {
        if !case.config("function").is_null() {
            // Log-probs of labels from padded logits: the policy's work here.
            set_aside += 1;
            continue;
        }
        let mask = case.input("response_mask");
        let ids: Vec<i64> = (0..mask.shape[0] as i64).map(|row| row / 2).collect();
        let mut rows = Rows::new(&mask, Some(&ids));
        rows.set(Column::RefLogProbs, &case.input("ref_log_prob"));
        let rewards = case.input("token_level_rewards");
        let rewards: Vec<&[f32]> = rewards.rows().collect();
        let chosen = case.output("chosen_mask").data;
        for (t, row) in rows.batch.trajectories_mut().zip(rewards) {
            let score = t.policy_positions().map(|i| row[i]).sum();
            t.set_score(score).unwrap();
        }
        let scores: Vec<f32> = rows
            .batch
            .trajectories()
            .map(|t| t.score().unwrap())
            .collect();
        for (pair, chosen) in scores.chunks(2).zip(chosen.chunks(2)) {
            assert_eq!(pair[0] > pair[1], chosen[0] != 0.0, "{}", case.name);
        }
        let config = SpinConfig {
            dpo_beta: option(&case, "beta"),
            dpo_loss_type: match case.text("loss_type") {
                "sigmoid" => DpoLossType::Sigmoid,
                _ => DpoLossType::Ipo,
            },
            dpo_label_smoothing: option(&case, "label_smoothing"),
            reference_free: *case.config("reference_free") == true,
        };
        let loss = config.build().unwrap();
        reproduce(&case, &rows, &case.input("log_prob"), &loss);
    }
    assert_eq!(set_aside, 2);
}
