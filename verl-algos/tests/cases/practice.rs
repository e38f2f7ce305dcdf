//! Faults met in practice.

use crate::answer::{advantages, algorithm, answer, close, estimate, group, scored, with};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::json;
use verl_core::algorithm::{LossInput, LossOutput, Objective, PolicyLoss};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::reward::{OverlongOptions, OverlongPenalty, RewardFn, RewardInput};
use verl_core::types::{Batch, Column, Trajectory};

/// A loss of given numbers: each token's old log-prob times the policy's.
#[derive(Debug)]
struct Given;

impl PolicyLoss for Given {
    fn name(&self) -> &str {
        "given"
    }
    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs]
    }
    fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
        let given_n = input.column_n(Column::OldLogProbs, "given")?;
        Ok(LossOutput {
            loss_n: given_n * input.log_probs_n.clone(),
            metrics_n: Vec::new(),
        })
    }
}

/// Loss and gradient of a micro-batch, at log-probs of 1.
fn evaluate(
    rows: &[&Trajectory],
    loss: &dyn PolicyLoss,
    aggregation: LossAggregation,
    denominators: Denominators,
) -> (f32, Vec<f32>) {
    let objective = Objective {
        loss,
        aggregation,
        denominators,
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    let n = rows.iter().map(|t| t.policy_tokens()).sum();
    let data = TensorData::new(vec![1f32; n], [n]);
    let leaf = Tensor::<1>::from_data(data, &Device::flex().autodiff()).require_grad();
    let input = LossInput::new(rows, leaf.clone(), None).unwrap();
    let value = objective.evaluate(&input).unwrap().loss;
    let gradient = leaf.grad(&value.backward()).unwrap();
    let gradient = gradient.into_data().iter::<f32>().collect();
    (value.into_scalar::<f32>(), gradient)
}

/// Four tokens with loss 1 each, and one token with loss 6.
fn two_rows() -> [Trajectory; 2] {
    [
        with(
            answer(0, 0, &[true; 4]),
            &[(Column::OldLogProbs, &[1.0; 4])],
        ),
        with(answer(0, 1, &[true]), &[(Column::OldLogProbs, &[6.0])]),
    ]
}

#[test]
fn each_aggregation_means_what_it_says() {
    let [a, b] = &two_rows();
    let sizes = Denominators::count([4, 1]);
    for (mode, options, want) in [
        ("token-mean", json!({}), 2.0),
        ("seq-mean-token-mean", json!({}), 3.5),
        ("seq-mean-token-sum", json!({}), 5.0),
        (
            "seq-mean-token-sum-norm",
            json!({"loss_scale_factor": 8}),
            0.625,
        ),
    ] {
        let mut options = options;
        options["loss_agg_mode"] = json!(mode);
        let aggregation = algorithm("grpo", options).policy_terms().aggregation;
        assert_eq!(
            evaluate(&[a, b], &Given, aggregation, sizes).0,
            want,
            "{mode}"
        );
    }
}

#[test]
fn a_split_into_micro_batches_changes_nothing() {
    let [a, b] = &two_rows();
    let sizes = Denominators::count([4, 1]);
    let part = |rows: &[&Trajectory]| evaluate(rows, &Given, LossAggregation::TokenMean, sizes);
    let (whole, gradient) = part(&[a, b]);
    let (first, second) = (part(&[a]), part(&[b]));
    assert_eq!((whole, first.0 + second.0), (2.0, 2.0));
    assert_eq!(gradient, [first.1, second.1].concat());
    assert!(close(&gradient, &[0.2, 0.2, 0.2, 0.2, 1.2]));
}

#[test]
fn groups_without_spread_have_no_advantage_and_are_told() {
    let batch = scored(&[&[1.0; 4], &[0.0; 4], &[1.0, 0.0, 0.0, 0.0]]);
    let got = advantages("grpo", json!({}), &batch);
    assert_eq!(got[..8], [0.0; 8]);
    assert!(close(&got[8..], &[1.5, -0.5, -0.5, -0.5]));
    // What the metric `reward/uniform_groups` counts.
    let uniform: Vec<bool> = batch.groups().iter().map(|g| g.is_uniform()).collect();
    assert_eq!(uniform, [true, true, false]);
    // Whether a KL term pulls them is a choice, and it is off unless made.
    let kl = |options| algorithm("grpo", options).policy_terms().kl_loss.is_some();
    assert!(!kl(json!({})) && kl(json!({"kl_loss_coef": 0.001})));
}

#[test]
fn one_answer_alone_teaches_nothing_and_is_refused_beforehand() {
    let (lone, rest) = (scored(&[&[2.0]]), scored(&[&[2.0], &[1.0, 0.0]]));
    for name in ["rloo", "grpo", "opo", "gpg", "reinforce_plus_plus_baseline"] {
        assert_eq!(advantages(name, json!({}), &lone), [0.0], "{name}");
        assert_eq!(advantages(name, json!({}), &rest)[0], 0.0, "{name}");
        assert_eq!(algorithm(name, json!({})).requirements().min_group_size, 2);
    }
    assert_eq!(
        advantages("rloo", json!({"singleton_groups": "raw"}), &lone),
        [2.0]
    );
}

#[test]
fn values_of_padding_do_not_leak() {
    let t = with(
        answer(0, 0, &[true, true, false]),
        &[
            (Column::TokenRewards, &[0.0, 1.0, 0.0]),
            (Column::Values, &[0.0, 0.0, 50.0]),
        ],
    );
    let batch = Batch::new(vec![group(0, vec![t])]);
    let options = json!({"lam": 0.9, "whiten_advantages": false});
    let got = estimate("ppo", options, &batch);
    assert!(close(&got.advantages[0], &[0.9, 1.0, 0.0]), "{got:?}");
    assert!(close(&got.returns.unwrap()[0], &[0.9, 1.0, 0.0]));
}

#[test]
fn poison_under_the_mask_stays_there_and_elsewhere_surfaces() {
    let t = with(
        answer(0, 0, &[true, false]),
        &[
            (Column::OldLogProbs, &[0.0, f32::NAN]),
            (Column::Advantages, &[1.0, 1.0]),
        ],
    );
    for name in [
        "grpo", "gspo", "gmpo", "sapo", "cispo", "dppo_tv", "kl_cov", "clip_cov",
    ] {
        let algorithm = algorithm(name, json!({}));
        let mode = LossAggregation::SeqMeanTokenMean;
        let sizes = Denominators::count([1]);
        let (loss, gradient) = evaluate(&[&t], algorithm.policy_loss(), mode, sizes);
        assert!(
            loss.is_finite() && gradient[0].is_finite(),
            "{name}: {loss} {gradient:?}"
        );
    }
    let mut bad = answer(0, 0, &[true, true]);
    let error = bad.set(Column::OldLogProbs, vec![0.0, f32::NAN]);
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "old_log_probs is NaN at group 0, sample 0, response token 1"
    );
}

#[test]
fn the_overlong_penalty_ramps_before_the_limit() {
    let options = OverlongOptions {
        max_response_length: 10,
        buffer_length: 4,
        penalty_factor: 1.0,
        uncapped: false,
    };
    let penalty = OverlongPenalty::new(options).unwrap();
    let row = serde_json::Map::new();
    for (tokens, want) in [(6, 0.0), (7, -0.25), (8, -0.5), (10, -1.0), (12, -1.0)] {
        let input = RewardInput::new("", "", &row).with_tokens(tokens, tokens >= 10);
        assert_eq!(penalty.of(tokens), want);
        assert_eq!(penalty.score(&input).unwrap().value, want);
    }
}
