//! Policy and value objectives.

use crate::sample::{LIVE, Row, Token, batch, close, groups, packed};
use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;
use std::collections::BTreeMap;
use verl_algos::{ClippedLoss, ClippedValueLoss};
use verl_core::algorithm::{
    KlLoss, LossInput, Objective, ObjectiveValue, ValueInput, ValueObjective,
};
use verl_core::math::{Denominators, KlEstimator, LossAggregation};
use verl_core::types::Trajectory;

pub(crate) const MODES: [LossAggregation; 5] = [
    LossAggregation::TokenMean,
    LossAggregation::TokenSum,
    LossAggregation::SeqMeanTokenSum,
    LossAggregation::SeqMeanTokenMean,
    LossAggregation::SeqMeanTokenSumNorm(8.0),
];

/// Loss, gradient of the packed tokens and metrics, added up over micro-batches.
#[derive(Debug, Default)]
pub(crate) struct Total {
    pub(crate) loss: f32,
    pub(crate) gradient: Vec<f32>,
    pub(crate) metrics: BTreeMap<String, f64>,
}

impl Total {
    pub(crate) fn add(&mut self, value: ObjectiveValue, leaf: &Tensor<1>) {
        let gradients = value.loss.clone().backward();
        let gradient = leaf.grad(&gradients).unwrap().into_data();
        self.loss += value.loss.into_scalar::<f32>();
        self.gradient.extend(gradient.try_to_vec::<f32>().unwrap());
        for (name, sum) in value.metrics {
            *self.metrics.entry(name).or_default() += sum;
        }
    }

    pub(crate) fn is_close(&self, other: &Total) -> bool {
        let metrics = |t: &Total| t.metrics.values().map(|v| *v as f32).collect::<Vec<_>>();
        close(&[self.loss], &[other.loss])
            && close(&self.gradient, &other.gradient)
            && self.metrics.keys().eq(other.metrics.keys())
            && close(&metrics(self), &metrics(other))
    }
}

pub(crate) fn leaf(values: Vec<f32>) -> Tensor<1> {
    let n = values.len();
    let device = Device::flex().autodiff();
    Tensor::from_data(TensorData::new(values, [n]), &device).require_grad()
}

/// The members of a batch with the rows they were made of, `size` at a time.
/// Micro-batches without a policy token are left out, as the trainer does.
fn micro_batches<'a>(
    trajectories: &[&'a Trajectory],
    rows: &[&'a Row],
    size: usize,
) -> Vec<(Vec<&'a Trajectory>, Vec<&'a Row>)> {
    let chunks = trajectories.chunks(size).zip(rows.chunks(size));
    let pairs = chunks.map(|(t, r)| (t.to_vec(), r.to_vec()));
    pairs
        .filter(|(t, _)| t.iter().any(|t| t.policy_tokens() > 0))
        .collect()
}

pub(crate) fn sizes(trajectories: &[&Trajectory]) -> Denominators {
    Denominators::count(trajectories.iter().map(|t| t.policy_tokens()))
}

fn policy(sample: &[Vec<Row>], mode: LossAggregation, size: usize, masked: Option<f32>) -> Total {
    let batch = batch(sample, masked);
    let trajectories: Vec<&Trajectory> = batch.trajectories().collect();
    let rows: Vec<&Row> = sample.iter().flatten().collect();
    let objective = Objective {
        loss: &ClippedLoss::default(),
        aggregation: mode,
        denominators: sizes(&trajectories),
        entropy_coeff: 0.01,
        kl: Some(KlLoss {
            coef: 0.1,
            estimator: KlEstimator::K3,
        }),
        temperature: 1.0,
    };
    let mut total = Total::default();
    for (members, rows) in micro_batches(&trajectories, &rows, size) {
        let log_probs_n = leaf(packed(&rows, |t| t.log_prob));
        // Some function of the log-probs stands in for the entropy.
        let entropy_n = log_probs_n.clone().square();
        let input = LossInput::new(&members, log_probs_n.clone(), Some(entropy_n)).unwrap();
        total.add(objective.evaluate(&input).unwrap(), &log_probs_n);
    }
    total
}

fn critic(sample: &[Vec<Row>], mode: LossAggregation, size: usize, masked: Option<f32>) -> Total {
    let batch = batch(sample, masked);
    let trajectories: Vec<&Trajectory> = batch.trajectories().collect();
    let rows: Vec<&Row> = sample.iter().flatten().collect();
    let objective = ValueObjective {
        loss: &ClippedValueLoss { range: 0.5 },
        aggregation: mode,
        denominators: sizes(&trajectories),
    };
    let mut total = Total::default();
    for (members, rows) in micro_batches(&trajectories, &rows, size) {
        let values_n = leaf(packed(&rows, |t| t.value + 0.3 * t.advantage));
        let input = ValueInput::new(&members, values_n.clone()).unwrap();
        total.add(objective.evaluate(&input).unwrap(), &values_n);
    }
    total
}

/// The loss of a sample, in micro-batches of a size, with or without masked tokens' numbers.
type Evaluate = fn(&[Vec<Row>], LossAggregation, usize, Option<f32>) -> Total;

const EVALUATE: [Evaluate; 2] = [policy, critic];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn micro_batches_add_up(sample in groups(), size in 1usize..6) {
        for mode in MODES {
            for evaluate in EVALUATE {
                let whole = evaluate(&sample, mode, usize::MAX, None);
                let split = evaluate(&sample, mode, size, None);
                prop_assert!(split.is_close(&whole), "{mode:?}: {split:?}, not {whole:?}");
            }
        }
    }

    #[test]
    fn masked_tokens_are_never_read(sample in groups()) {
        for mode in MODES {
            for evaluate in EVALUATE {
                let clean = evaluate(&sample, mode, usize::MAX, None);
                let poisoned = evaluate(&sample, mode, usize::MAX, Some(f32::NAN));
                prop_assert!(clean.loss.is_finite());
                prop_assert_eq!(clean.loss, poisoned.loss);
                prop_assert_eq!(clean.gradient, poisoned.gradient);
            }
        }
    }

    #[test]
    fn rows_may_come_in_any_order(sample in groups()) {
        let reversed: Vec<_> = sample.iter().rev().map(|g| g.iter().rev().cloned().collect()).collect();
        for mode in MODES {
            for evaluate in EVALUATE {
                let straight = evaluate(&sample, mode, usize::MAX, None);
                let back = evaluate(&reversed, mode, usize::MAX, None);
                prop_assert!(close(&[back.loss], &[straight.loss]));
            }
        }
    }

    #[test]
    fn at_the_old_policy_the_gradient_is_the_plain_one(sample in groups()) {
        let batch = batch(&sample, None);
        let trajectories: Vec<&Trajectory> = batch.trajectories().collect();
        let rows: Vec<&Row> = sample.iter().flatten().collect();
        let log_probs_n = leaf(packed(&rows, |t| t.old));
        let objective = Objective {
            loss: &ClippedLoss::default(),
            aggregation: LossAggregation::TokenSum,
            denominators: sizes(&trajectories),
            entropy_coeff: 0.0,
            kl: None,
            temperature: 1.0,
        };
        prop_assume!(objective.denominators.tokens > 0);
        let input = LossInput::new(&trajectories, log_probs_n.clone(), None)?;
        let mut total = Total::default();
        total.add(objective.evaluate(&input)?, &log_probs_n);

        let plain = packed(&rows, |t| -t.advantage);
        prop_assert_eq!(&total.gradient, &plain);
        prop_assert!(close(&[total.loss], &[plain.iter().sum()]));
        for name in ["actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_clipfrac_lower"] {
            prop_assert_eq!(total.metrics[name], 0.0, "{}", name);
        }
    }

    #[test]
    fn far_from_the_old_policy_all_is_finite(
        log_prob in -300.0f32..0.0, old in -300.0f32..0.0, advantage in -9.0f32..9.0
    ) {
        let token = Token { log_prob, old, advantage, ..LIVE };
        let total = policy(&[vec![vec![token]]], LossAggregation::TokenMean, 1, None);
        prop_assert!(total.loss.is_finite() && total.gradient[0].is_finite());
    }
}
