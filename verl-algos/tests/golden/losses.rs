//! Aggregation, policy and value losses, and the whole objective.

use crate::advantages::rewarded;
use crate::reference::build;
use crate::reference::{Case, Table, cases};
use crate::rows::{Rows, gradient};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde_json::{Value, json};
use verl_algos::TermsConfig;
use verl_core::algorithm::{
    Algorithm, LossInput, LossOutput, Objective, ObjectiveValue, PolicyLoss, ValueObjective,
};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::types::Column;

const CLIP: [&str; 4] = [
    "clip_ratio",
    "clip_ratio_low",
    "clip_ratio_high",
    "clip_ratio_c",
];

/// `loss_scale_factor` where the mode reads it; the padded length when the
/// case does not set one.
fn scale(mode: &str, given: Option<f64>, width: usize) -> Value {
    match mode {
        "seq-mean-token-sum-norm" => json!(given.unwrap_or(width as f64)),
        _ => Value::Null,
    }
}

pub(crate) fn aggregation(mode: &str, given: Option<f64>, width: usize) -> LossAggregation {
    let terms = TermsConfig {
        loss_agg_mode: mode.into(),
        loss_scale_factor: scale(mode, given, width).as_f64().map(|x| x as f32),
        ..TermsConfig::default()
    };
    terms.build().unwrap().aggregation
}

fn objective(algorithm: &dyn Algorithm, denominators: Denominators) -> Objective<'_> {
    let terms = algorithm.policy_terms();
    Objective {
        loss: algorithm.policy_loss(),
        aggregation: terms.aggregation,
        denominators,
        entropy_coeff: terms.entropy_coeff,
        kl: terms.kl_loss,
        temperature: 1.0,
    }
}

/// Compares the metrics that both sides have. The reference's are means over
/// the given rows, ours add up to means over the mini-batch.
fn check_metrics(case: &Case, value: &ObjectiveValue, share: f64) {
    let mut compared = 0;
    for (name, want) in case.metrics() {
        let Some((_, got)) = value
            .metrics
            .iter()
            .find(|(ours, _)| ours == name || ours.strip_prefix("actor/") == Some(name))
        else {
            continue;
        };
        let aggregated = name.ends_with("loss");
        case.check_number(name, if aggregated { *got } else { got / share }, want);
        compared += 1;
    }
    assert!(compared >= 3, "{}: {compared} metrics compared", case.name);
}

#[test]
fn aggregation_modes() {
    let mut refused = 0;
    for case in cases("agg_loss") {
        if case.is_refused() {
            // Several ranks without global counts: `Denominators` are not
            // optional here, so the case cannot be written down.
            refused += 1;
            continue;
        }
        let losses = case.input("loss_mat");
        let mode = aggregation(
            case.text("loss_agg_mode"),
            case.number("loss_scale_factor"),
            losses.width(),
        );
        let rows = Rows::new(&case.input("loss_mask"), None);
        let lengths: Vec<usize> = rows.lengths().collect();
        let sizes = rows.denominators(
            case.number("batch_num_tokens"),
            case.number("global_batch_size"),
        );
        // The reference multiplies by the ranks over which it later averages.
        let ranks = case.number("dp_size").unwrap() as f32;
        let weights: Vec<f32> = mode.token_weights(&lengths, &sizes);
        let packed = rows.pack(&losses, 1).concat();
        let loss = ranks * packed.iter().zip(&weights).map(|(l, w)| l * w).sum::<f32>();
        if lengths.iter().all(|n| *n == 0) {
            // The reference divides 0 by 0 in most modes.
            assert_eq!(loss, 0.0, "{}", case.name);
            continue;
        }
        case.check_output("loss", &[loss]);
        let gradient: Vec<f32> = weights.iter().map(|w| w * ranks).collect();
        case.check_output("grad_loss_mat", &rows.unpack(&gradient, 1));
    }
    assert_eq!(refused, 4);
}

/// A loss whose tokens carry importance weights of the rollout correction,
/// which is not part of the clipped loss itself.
#[derive(Debug)]
struct Weighted<'a>(&'a dyn PolicyLoss, Tensor<1>);

impl PolicyLoss for Weighted<'_> {
    fn name(&self) -> &str {
        "weighted"
    }

    fn needs(&self) -> &[Column] {
        self.0.needs()
    }

    fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
        let output = self.0.per_token(input)?;
        Ok(LossOutput {
            loss_n: output.loss_n * self.1.clone(),
            ..output
        })
    }
}

#[test]
fn clipped_policy_loss() {
    for case in cases("policy_loss_vanilla") {
        let mode = case.text("loss_agg_mode");
        let global = case.config("global_batch_info");
        let log_probs = case.input("log_prob");
        let factor = scale(
            mode,
            global["loss_scale_factor"].as_f64(),
            log_probs.width(),
        );
        let settings = case.settings(
            &[&CLIP[..], &["loss_agg_mode"]].concat(),
            &[("loss_scale_factor", factor)],
        );
        let algorithm = build("grpo", &settings);
        let mut rows = Rows::of(&case);
        rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
        rows.set(Column::Advantages, &case.input("advantages"));

        let sizes = rows.denominators(
            global["batch_num_tokens"].as_f64(),
            global["global_batch_size"].as_f64(),
        );
        let mut objective = objective(&*algorithm, sizes);
        let weighted = case.optional_input("rollout_is_weights").map(|weights| {
            let weights_n = rows.pack(&weights, 1).concat();
            let n = weights_n.len();
            let weights_n = Tensor::from_data(TensorData::new(weights_n, [n]), &Device::flex());
            Weighted(algorithm.policy_loss(), weights_n)
        });
        if let Some(weighted) = &weighted {
            objective.loss = weighted;
        }

        let log_probs_n = rows.leaf(&log_probs);
        let value = rows.policy(&objective, log_probs_n.clone(), None);
        let ranks = global["dp_size"].as_f64().unwrap_or(1.0) as f32;
        let loss = value.loss.clone().mul_scalar(ranks);
        case.check_output("loss", &[loss.clone().into_scalar::<f32>()]);
        let gradient = rows.unpack(&gradient(&loss, &log_probs_n), 1);
        case.check_output("grad_log_prob", &gradient);
        let local: usize = rows.lengths().sum();
        check_metrics(&case, &value, local as f64 / sizes.tokens as f64);
    }
}

#[test]
fn dr_grpo() {
    for case in cases("dr_grpo") {
        let log_probs = case.input("log_prob");
        let mode = case.text("loss_agg_mode");
        let factor = scale(mode, case.number("loss_scale_factor"), log_probs.width());
        let settings = case.settings(
            &[
                "norm_adv_by_std_in_grpo",
                "loss_agg_mode",
                "clip_ratio_low",
                "clip_ratio_high",
                "clip_ratio_c",
            ],
            &[
                ("loss_scale_factor", factor),
                ("singleton_groups", json!("raw")),
            ],
        );
        let algorithm = build("grpo", &settings);
        let mut rows = rewarded(&case);
        rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
        let estimate = algorithm.estimator().estimate(&rows.batch).unwrap();
        case.check_output("advantages", &rows.restore(&estimate.advantages));
        estimate.store(&mut rows.batch).unwrap();

        let log_probs_n = rows.leaf(&log_probs);
        let objective = objective(&*algorithm, rows.denominators(None, None));
        let value = rows.policy(&objective, log_probs_n.clone(), None);
        case.check_output("loss", &[value.loss.clone().into_scalar::<f32>()]);
        let gradient = rows.unpack(&gradient(&value.loss, &log_probs_n), 1);
        case.check_output("grad_log_prob", &gradient);
        check_metrics(&case, &value, 1.0);
    }
}

#[test]
fn clipped_value_loss() {
    for case in cases("value_loss") {
        let predictions = case.input("vpreds");
        let mode = case.text("loss_agg_mode");
        let factor = scale(mode, case.number("loss_scale_factor"), predictions.width());
        let settings = case.settings(
            &["cliprange_value"],
            &[
                ("value_loss_agg_mode", json!(mode)),
                ("value_loss_scale_factor", factor),
            ],
        );
        let algorithm = build("ppo", &settings);
        let mut rows = Rows::of(&case);
        rows.set(Column::Values, &case.input("values"));
        rows.set(Column::Returns, &case.input("returns"));

        let (loss, aggregation) = algorithm.value_loss().unwrap();
        let denominators = rows.denominators(
            case.number("batch_num_tokens"),
            case.number("global_batch_size"),
        );
        let objective = ValueObjective {
            loss,
            aggregation,
            denominators,
        };
        let values_n = rows.leaf(&predictions);
        let value = rows.critic(&objective, values_n.clone());
        let ranks = case.number("dp_size").unwrap_or(1.0) as f32;
        let loss = value.loss.mul_scalar(ranks);
        case.check_output("loss", &[loss.clone().into_scalar::<f32>()]);
        let gradient = rows.unpack(&gradient(&loss, &values_n), 1);
        case.check_output("grad_vpreds", &gradient);

        let share = rows.lengths().sum::<usize>() as f64 / denominators.tokens as f64;
        let metric = |name: &str| {
            let found = value.metrics.iter().find(|(ours, _)| ours == name);
            (found.unwrap().1 / share) as f32
        };
        case.check_output("vf_clipfrac", &[metric("critic/vf_clipfrac")]);
        let live = rows.pack(&predictions, 1).concat();
        let mean = live.iter().sum::<f32>() / live.len() as f32;
        case.check("vpred_mean", &[metric("critic/vpred_mean")], &[mean]);
    }
}

#[test]
fn whole_objective_from_logits() {
    for case in cases("actor_total_loss") {
        let logits = case.input("logits");
        let mode = case.text("loss_agg_mode");
        let factor = scale(mode, None, logits.shape[1]);
        let keys = ["loss_agg_mode", "entropy_coeff", "kl_loss_coef"];
        let kind = case.text("kl_loss_type");
        // verl's k3 is the cut form.
        let kind = if kind == "k3+" { "low_var_kl+" } else { kind };
        let settings = case.settings(
            &[&CLIP[..], &keys].concat(),
            &[("loss_scale_factor", factor), ("kl_loss_type", json!(kind))],
        );
        let algorithm = build("grpo", &settings);
        let mut rows = Rows::of(&case);
        rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
        rows.set(Column::RefLogProbs, &case.input("ref_log_prob"));
        rows.set(Column::Advantages, &case.input("advantages"));

        let leaf = packed_logits(&rows, &logits);
        let temperature = case.number("temperature").unwrap();
        let log_probs = log_softmax(leaf.clone().div_scalar(temperature), 1);
        let labels_n = rows.pack(&case.input("labels"), 1).concat();
        let n = labels_n.len();
        let labels_n: Vec<i64> = labels_n.iter().map(|x| *x as i64).collect();
        let labels =
            Tensor::<2, Int>::from_data(TensorData::new(labels_n, [n, 1]), &Device::flex());
        let log_probs_n = log_probs.clone().gather(1, labels).reshape([n]);
        let entropy_n = (log_probs.clone().exp() * log_probs)
            .sum_dim(1)
            .neg()
            .reshape([n]);

        let objective = objective(&*algorithm, rows.denominators(None, None));
        let value = rows.policy(&objective, log_probs_n, Some(entropy_n));
        case.check_output("loss", &[value.loss.clone().into_scalar::<f32>()]);
        let gradient = rows.unpack(&gradient(&value.loss, &leaf), logits.width());
        case.check_output("grad_logits", &gradient);
        check_metrics(&case, &value, 1.0);
    }
}

/// Logits of the policy tokens, `[n, v]`.
fn packed_logits(rows: &Rows, logits: &Table) -> Tensor<2> {
    let v = logits.width();
    let packed = rows.pack(logits, v).concat();
    let n = packed.len() / v;
    let device = Device::flex().autodiff();
    Tensor::from_data(TensorData::new(packed, [n, v]), &device).require_grad()
}
