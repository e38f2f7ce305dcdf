//! What every policy loss of this crate keeps.

use crate::losses::{MODES, Total, leaf, sizes};
use crate::promises::{Promise, Split, promises};
use crate::sample::{LIVE, Row, Token, batch, close, groups, packed};
use proptest::prelude::*;
use verl_core::algorithm::{LossInput, Objective, PolicyLoss};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::types::Trajectory;

type Part<'a> = (Vec<&'a Trajectory>, Vec<&'a Row>);

/// Evaluates a mini-batch part by part, with log-probs given by `log_prob`.
fn evaluate(
    loss: &dyn PolicyLoss,
    aggregation: LossAggregation,
    denominators: Denominators,
    parts: &[Part<'_>],
    log_prob: fn(&Token) -> f32,
) -> Total {
    let objective = Objective {
        loss,
        aggregation,
        denominators,
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    let mut total = Total::default();
    for (members, rows) in parts {
        // The trainer leaves such parts out.
        if members.iter().all(|t| t.policy_tokens() == 0) {
            continue;
        }
        let log_probs_n = leaf(packed(rows, log_prob));
        let input = LossInput::new(members, log_probs_n.clone(), None).unwrap();
        total.add(objective.evaluate(&input).unwrap(), &log_probs_n);
    }
    total
}

/// Evaluates a sample, cut into parts of `size` answers or groups.
fn run(
    promise: &Promise,
    mode: LossAggregation,
    sample: &[Vec<Row>],
    size: usize,
    masked: Option<f32>,
    log_prob: fn(&Token) -> f32,
) -> Total {
    let batch = batch(sample, masked);
    let all: Vec<&Trajectory> = batch.trajectories().collect();
    let rows: Vec<&Row> = sample.iter().flatten().collect();
    let answers: Vec<(&Trajectory, &Row)> = all.iter().copied().zip(rows).collect();
    let units: Vec<&[(&Trajectory, &Row)]> = match promise.split {
        Split::Answers => answers.chunks(1).collect(),
        Split::Groups => answers
            .chunk_by(|a, b| a.0.group() == b.0.group())
            .collect(),
        Split::Never => vec![&answers],
    };
    let parts: Vec<Part<'_>> = units
        .chunks(size.min(units.len()))
        .map(|units| units.concat().into_iter().unzip())
        .collect();
    evaluate(&*promise.loss, mode, sizes(&all), &parts, log_prob)
}

/// The sample with log-probs near the old ones, one advantage per answer.
fn near(sample: &[Vec<Row>]) -> Vec<Vec<Row>> {
    let row = |row: &Row| -> Row {
        let advantage = row.first().map_or(0.0, |token| token.advantage);
        let token = |token: &Token| Token {
            log_prob: token.old + 0.1 * (token.log_prob - token.old) - 0.1,
            advantage,
            ..token.clone()
        };
        row.iter().map(token).collect()
    };
    let group = |group: &Vec<Row>| group.iter().map(row).collect();
    sample.iter().map(group).collect()
}

/// Moves the live token of that number.
fn moved(sample: &[Vec<Row>], number: usize, by: f32) -> Vec<Vec<Row>> {
    let mut sample = sample.to_vec();
    let tokens = sample.iter_mut().flatten().flatten();
    let token = tokens.filter(|token| token.live).nth(number);
    token.unwrap().log_prob += by;
    sample
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn micro_batches_add_up(sample in groups(), size in 1usize..6) {
        for promise in promises() {
            for mode in MODES {
                let whole = run(&promise, mode, &sample, usize::MAX, None, |t| t.log_prob);
                let split = run(&promise, mode, &sample, size, None, |t| t.log_prob);
                prop_assert!(split.is_close(&whole), "{:?}: {split:?}, not {whole:?}", promise.loss);
            }
        }
    }

    #[test]
    fn masked_tokens_are_never_read(sample in groups()) {
        for promise in promises() {
            let mode = LossAggregation::SeqMeanTokenMean;
            let clean = run(&promise, mode, &sample, usize::MAX, None, |t| t.log_prob);
            let poisoned = run(&promise, mode, &sample, usize::MAX, Some(f32::NAN), |t| t.log_prob);
            prop_assert!(clean.loss.is_finite());
            prop_assert_eq!(clean.loss, poisoned.loss);
            prop_assert_eq!(clean.gradient, poisoned.gradient);
            prop_assert_eq!(clean.metrics, poisoned.metrics);
        }
    }

    #[test]
    fn answers_may_come_in_any_order(sample in groups()) {
        let batch = batch(&sample, None);
        let all: Vec<&Trajectory> = batch.trajectories().collect();
        let rows: Vec<&Row> = sample.iter().flatten().collect();
        let reversed = (all.iter().rev().copied().collect(), rows.iter().rev().copied().collect());
        let straight = (all.clone(), rows);
        for promise in promises() {
            // Of equal covariances one is penalised, and rounding decides.
            if promise.loss.name() == "kl_cov" {
                continue;
            }
            let [straight, reversed] = [&straight, &reversed].map(|part: &Part<'_>| {
                let mode = LossAggregation::SeqMeanTokenMean;
                let parts = std::slice::from_ref(part);
                evaluate(&*promise.loss, mode, sizes(&all), parts, |t| t.log_prob)
            });
            prop_assert!(close(&[reversed.loss], &[straight.loss]), "{:?}", promise.loss);
        }
    }

    #[test]
    fn at_the_old_policy_the_gradient_is_the_plain_one(sample in groups()) {
        let rows: Vec<&Row> = sample.iter().flatten().collect();
        let plain = packed(&rows, |t| -t.advantage);
        for promise in promises().iter().filter(|promise| promise.plain) {
            let mode = LossAggregation::TokenSum;
            let total = run(promise, mode, &sample, usize::MAX, None, |t| t.old);
            prop_assert!(close(&total.gradient, &plain), "{:?}: {total:?}", promise.loss);
            for (name, value) in total.metrics {
                let zero = name == "actor/ppo_kl" || name.contains("frac");
                prop_assert!(!zero || value == 0.0, "{:?}: {name} is {value}", promise.loss);
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_loss(sample in groups()) {
        let sample = near(&sample);
        let value = |promise: &Promise, number: usize, by: f32| {
            let moved = moved(&sample, number, by);
            let mode = LossAggregation::SeqMeanTokenMean;
            run(promise, mode, &moved, usize::MAX, None, |t| t.log_prob).loss
        };
        for promise in promises().iter().filter(|promise| promise.true_gradient) {
            let mode = LossAggregation::SeqMeanTokenMean;
            let total = run(promise, mode, &sample, usize::MAX, None, |t| t.log_prob);
            for (i, gradient) in total.gradient.iter().enumerate().take(6) {
                const STEP: f32 = 2e-3;
                let above = (value(promise, i, STEP) - total.loss) / STEP;
                let below = (total.loss - value(promise, i, -STEP)) / STEP;
                let tolerance = 1e-2 + 2e-2 * gradient.abs();
                // Where the two differ there is a kink nearby.
                if (above - below).abs() < 0.5 * tolerance {
                    let slope = 0.5 * (above + below);
                    let close = (gradient - slope).abs() < tolerance;
                    prop_assert!(close, "{:?}: {gradient}, not {slope}", promise.loss);
                }
            }
        }
    }

    #[test]
    fn far_from_the_old_policy_all_is_finite(
        log_probs in prop::array::uniform2(-300.0f32..0.0),
        old in -300.0f32..0.0,
        advantage in -9.0f32..9.0,
        certain in any::<bool>(),
    ) {
        let answer = |log_prob: f32, reward: f32| {
            vec![Token { log_prob, old, reference: old, advantage, reward, ..LIVE }]
        };
        let last = if certain { 0.0 } else { log_probs[1] };
        let sample = [vec![answer(log_probs[0], 1.0), answer(last, 0.0)]];
        for promise in promises() {
            let total = run(&promise, LossAggregation::TokenMean, &sample, 1, None, |t| t.log_prob);
            let gradient = total.gradient.iter().all(|g| g.is_finite());
            prop_assert!(total.loss.is_finite() && gradient, "{:?}: {total:?}", promise.loss);
        }
    }
}

#[test]
fn pairs_need_whole_groups() {
    let sample = [vec![
        vec![LIVE],
        vec![Token {
            reward: 1.0,
            ..LIVE
        }],
    ]];
    let batch = batch(&sample, None);
    let alone: Vec<&Trajectory> = batch.trajectories().take(1).collect();
    for promise in promises()
        .iter()
        .filter(|promise| promise.split == Split::Groups)
    {
        let input = LossInput::new(&alone, leaf(vec![-1.0]), None).unwrap();
        let error = promise.loss.per_token(&input).unwrap_err().to_string();
        let want = "compares the answers to one prompt, but group 0 has a single answer here";
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn equal_scores_have_no_loss() {
    let sample = [vec![vec![LIVE; 2], vec![LIVE]]];
    for promise in promises()
        .iter()
        .filter(|promise| promise.split == Split::Groups)
    {
        let total = run(promise, LossAggregation::TokenMean, &sample, 1, None, |t| {
            t.log_prob
        });
        assert_eq!((total.loss, total.gradient), (0.0, vec![0.0; 3]));
    }
}
