//! Losses, gradients and optimizer steps against PyTorch.

use crate::golden::{Golden, assert_close, entries, float_rows, largest, loaded_models, rows};
use serde_json::Value;
use std::sync::Arc;
use verl_backends::engine::{CausalPolicy, EngineOptions, Gradients, Schedule};
use verl_backends::model::Model;
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_core::Result;
use verl_core::algorithm::{KlLoss, LossInput, LossOutput, Objective, PolicyLoss};
use verl_core::math::{Denominators, KlEstimator, LossAggregation};
use verl_core::policy::{LogProbModel, Policy, ScoreOptions, SequenceRef, Trainable};
use verl_core::rollout::WeightTensor;
use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

/// PPO's clipped loss with dual clip, as the reference cases use it.
#[derive(Debug)]
pub(crate) struct DualClip {
    pub(crate) low: f32,
    pub(crate) high: f32,
    pub(crate) c: f32,
}

impl PolicyLoss for DualClip {
    fn name(&self) -> &str {
        "dual_clip"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let a = input.column_n(Column::Advantages, "dual_clip")?;
        let ratio =
            (input.log_probs_n.clone() - input.column_n(Column::OldLogProbs, "dual_clip")?).exp();
        let plain = (ratio.clone() * a.clone()).neg();
        let clipped = (ratio.clamp(1.0 - self.low, 1.0 + self.high) * a.clone()).neg();
        let worse = plain.max_pair(clipped);
        let bounded = worse.clone().min_pair(a.clone().mul_scalar(-self.c));
        Ok(LossOutput {
            loss_n: worse.mask_where(a.lower_scalar(0.0), bounded),
            metrics_n: vec![],
        })
    }
}

/// Trajectories of a case in verl's layout: prompt padded left, response right.
fn trajectories(golden: &Golden, inputs: &Value) -> Vec<Trajectory> {
    let prompt_len = inputs["prompt_len"].as_u64().unwrap() as usize;
    let (ids, mask, live) = (
        rows(&inputs["input_ids"]),
        rows(&inputs["attention_mask"]),
        rows(&inputs["response_mask"]),
    );
    let columns = [
        (Column::Advantages, "advantages"),
        (Column::OldLogProbs, "old_log_probs"),
        (Column::RefLogProbs, "ref_log_probs"),
    ];
    let make = |i: usize| {
        let keep = |range: std::ops::Range<usize>| -> Vec<u32> {
            range
                .filter(|&t| mask[i][t] == 1)
                .map(|t| ids[i][t] as u32)
                .collect()
        };
        let response = keep(prompt_len..ids[i].len());
        let n = response.len();
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(i as u64),
            sample: 0,
            prompt: keep(0..prompt_len).into(),
            response,
            response_mask: live[i][..n].iter().map(|m| *m == 1).collect(),
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap();
        for (column, key) in columns {
            if !inputs[key].is_null() {
                t.set(column, float_rows(golden, &inputs[key])[i][..n].to_vec())
                    .unwrap();
            }
        }
        t
    };
    (0..ids.len()).map(make).collect()
}

pub(crate) fn number(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

fn policy(model: &Model, options: EngineOptions, config: &Value) -> CausalPolicy {
    let adam = &config["optimizer"];
    let betas = adam["betas"].as_array().map_or((0.9, 0.999), |b| {
        (b[0].as_f64().unwrap(), b[1].as_f64().unwrap())
    });
    let settings = AdamWConfig {
        betas,
        eps: adam["eps"].as_f64().unwrap_or(1e-8),
        weight_decay: adam["weight_decay"].as_f64().unwrap_or(0.01),
    };
    let options = EngineOptions {
        schedule: Schedule::constant(adam["lr"].as_f64().unwrap_or(1e-3)),
        grad_clip: adam["clip_grad_norm"]
            .as_f64()
            .or(adam["max_grad_norm"].as_f64())
            .unwrap_or(1.0),
        ..options
    };
    CausalPolicy::new(model.clone(), Box::new(AdamW::new(settings)), options).unwrap()
}

fn objective<'a>(config: &Value, loss: &'a DualClip, batch: &[Trajectory]) -> Objective<'a> {
    let aggregation = match config["loss_agg_mode"].as_str().unwrap() {
        "token-mean" => LossAggregation::TokenMean,
        "seq-mean-token-mean" => LossAggregation::SeqMeanTokenMean,
        "seq-mean-token-sum" => LossAggregation::SeqMeanTokenSum,
        other => panic!("aggregation {other}"),
    };
    let coef = number(&config["kl_loss_coef"]);
    Objective {
        loss,
        aggregation,
        denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
        entropy_coeff: number(&config["entropy_coeff"]),
        kl: (coef != 0.0).then_some(KlLoss {
            coef,
            estimator: KlEstimator::K3,
        }),
        temperature: number(&config["temperature"]),
    }
}

fn dual_clip(config: &Value) -> DualClip {
    DualClip {
        low: number(&config["clip_ratio_low"]),
        high: number(&config["clip_ratio_high"]),
        c: number(&config["clip_ratio_c"]),
    }
}

pub(crate) fn floats(tensor: &WeightTensor) -> Vec<f32> {
    match tensor {
        WeightTensor::Vector(t) => t.to_data().iter::<f32>().collect(),
        WeightTensor::Matrix(t) => t.to_data().iter::<f32>().collect(),
    }
}

pub(crate) fn check_gradients(what: &str, golden: &Golden, got: &Gradients, want: &Value) {
    for (name, tensor) in entries(want) {
        let want = golden.floats(&tensor);
        // An expert that no token chose has no gradient entry.
        let got = got.get(&name).map_or_else(|| vec![0.0; want.len()], floats);
        assert_close(
            &format!("{what}: gradient of {name}"),
            &got,
            &want,
            1e-4 * largest(&want).max(1e-4),
        );
    }
}

/// Every way of running the engine that must give the same gradients.
fn engines() -> Vec<EngineOptions> {
    [0, 1, 2]
        .map(|checkpoint_every| EngineOptions {
            checkpoint_every,
            ..Default::default()
        })
        .into()
}

#[test]
fn gradients_of_the_ppo_loss_are_pytorchs() {
    for (name, model, golden) in loaded_models() {
        for case in golden.cases("PPO-clip") {
            let (config, outputs) = (&case["config"], &case["outputs"]);
            let batch = trajectories(&golden, &case["inputs"]);
            let loss = dual_clip(config);
            for (options, split) in engines().into_iter().zip([4, 1, 3]) {
                let what = format!(
                    "{name}, {}, checkpoint {}",
                    case["desc"], options.checkpoint_every
                );
                let mut policy = policy(&model, options, config);
                let mut total = 0.0;
                let refs: Vec<&Trajectory> = batch.iter().collect();
                for micro in refs.chunks(split) {
                    let metrics = policy
                        .forward_backward(micro, &objective(config, &loss, &batch))
                        .unwrap();
                    total += metrics
                        .iter()
                        .find(|(n, _)| n == "actor/pg_loss")
                        .unwrap()
                        .1;
                }
                assert_close(&what, &[total as f32], &[number(&outputs["pg_loss"])], 2e-5);
                check_gradients(&what, &golden, policy.gradients(), &outputs["grads"]);
            }
        }
    }
}

#[test]
fn log_probs_and_entropies_are_pytorchs() {
    for (name, model, golden) in loaded_models() {
        for case in golden.cases("PPO-clip") {
            let policy = policy(
                &model,
                EngineOptions {
                    score_tokens: 20,
                    ..Default::default()
                },
                &case["config"],
            );
            let batch = trajectories(&golden, &case["inputs"]);
            let sequences: Vec<SequenceRef<'_>> = batch.iter().map(SequenceRef::from).collect();
            let options = ScoreOptions {
                temperature: number(&case["config"]["temperature"]),
                entropy: true,
                ..Default::default()
            };
            let scores = policy.log_probs(&sequences, options).unwrap();
            let log_probs = float_rows(&golden, &case["outputs"]["log_probs"]);
            let entropies = float_rows(&golden, &case["outputs"]["entropy"]);
            for (i, t) in batch.iter().enumerate() {
                for p in t.policy_positions() {
                    let what = format!("{name}, row {i}, token {p}");
                    assert_close(&what, &[scores[i].log_probs[p]], &[log_probs[i][p]], 1e-4);
                    assert_close(&what, &[scores[i].entropy[p]], &[entropies[i][p]], 1e-4);
                }
            }
        }
    }
}

#[test]
fn adamw_with_global_norm_clipping_follows_pytorch_for_three_steps() {
    for (name, model, golden) in loaded_models() {
        for case in golden
            .cases("PPO-clip")
            .filter(|c| !c["outputs"]["params_after_step1"].is_null())
        {
            let (config, outputs) = (&case["config"], &case["outputs"]);
            let batch = trajectories(&golden, &case["inputs"]);
            let refs: Vec<&Trajectory> = batch.iter().collect();
            let loss = dual_clip(config);
            let mut policy = policy(&model, EngineOptions::default(), config);
            for step in 0..3 {
                policy
                    .forward_backward(&refs, &objective(config, &loss, &batch))
                    .unwrap();
                let report = policy.optimizer_step().unwrap();
                let want = outputs["step_grad_norms_before_clip"][step]
                    .as_f64()
                    .unwrap();
                assert!(
                    (report.grad_norm - want).abs() < 2e-3 * want,
                    "{name}: norm {} not {want}",
                    report.grad_norm
                );
                let after = &outputs[format!("params_after_step{}", step + 1)];
                if !after.is_null() {
                    check_params(&name, &golden, &policy, after);
                }
            }
        }
    }
}

/// Where the first gradient is near 0, Adam's first step depends on its last
/// digits: the reference allows ten such elements.
fn check_params(name: &str, golden: &Golden, policy: &CausalPolicy, want: &Value) {
    let got: std::collections::HashMap<String, Vec<f32>> = policy
        .model()
        .tensors()
        .iter()
        .map(|(n, t)| (n.clone(), floats(t)))
        .collect();
    let mut over = 0;
    for (param, tensor) in entries(want) {
        for (g, w) in got[&param].iter().zip(golden.floats(&tensor)) {
            over += usize::from((g - w).abs() > 2e-5);
            assert!((g - w).abs() < 2e-3, "{name}: {param} is {g}, not {w}");
        }
    }
    assert!(over <= 10, "{name}: {over} elements are off");
}

#[test]
fn a_restored_policy_goes_on_as_if_never_stopped() {
    let (_, model, golden) = loaded_models()
        .find(|(n, ..)| n.starts_with("tiny-qwen2"))
        .unwrap();
    let case = golden.cases("PPO-clip").next().unwrap();
    let batch = trajectories(&golden, &case["inputs"]);
    let refs: Vec<&Trajectory> = batch.iter().collect();
    let loss = dual_clip(&case["config"]);
    let step = |policy: &mut CausalPolicy| {
        policy
            .forward_backward(&refs, &objective(&case["config"], &loss, &batch))
            .unwrap();
        policy.optimizer_step().unwrap();
    };
    let bytes = |policy: &CausalPolicy| -> Vec<Vec<f32>> {
        policy
            .model()
            .tensors()
            .iter()
            .map(|(_, t)| floats(t))
            .collect()
    };
    let mut unbroken = policy(&model, EngineOptions::default(), &case["config"]);
    step(&mut unbroken);
    let saved = tempfile::tempdir().unwrap();
    unbroken.save_state(saved.path()).unwrap();
    let mut resumed = policy(&model, EngineOptions::default(), &case["config"]);
    resumed.load_state(saved.path()).unwrap();
    step(&mut unbroken);
    step(&mut resumed);
    assert_eq!(bytes(&unbroken), bytes(&resumed));
}

#[test]
fn a_poisoned_gradient_updates_nothing_and_is_named() {
    let (_, model, golden) = loaded_models()
        .find(|(n, ..)| n.starts_with("tiny-qwen2"))
        .unwrap();
    let case = golden.cases("PPO-clip").next().unwrap();
    let mut batch = trajectories(&golden, &case["inputs"]);
    for t in &mut batch {
        let n = t.response().len();
        t.set(Column::Advantages, vec![f32::MAX; n]).unwrap();
    }
    let refs: Vec<&Trajectory> = batch.iter().collect();
    let mut policy = policy(&model, EngineOptions::default(), &case["config"]);
    let before: Vec<Vec<f32>> = policy
        .model()
        .tensors()
        .iter()
        .map(|(_, t)| floats(t))
        .collect();
    let loss = dual_clip(&case["config"]);
    policy
        .forward_backward(&refs, &objective(&case["config"], &loss, &batch))
        .unwrap();
    let report = policy.optimizer_step().unwrap();
    assert!(
        report
            .skipped
            .unwrap()
            .starts_with("the gradient of model.")
    );
    let after: Vec<Vec<f32>> = policy
        .model()
        .tensors()
        .iter()
        .map(|(_, t)| floats(t))
        .collect();
    assert_eq!(before, after);
}

/// One prompt and several answers, one of a single token.
fn group() -> Vec<Trajectory> {
    let prompt: Arc<[u32]> = vec![5, 9, 30, 7, 11].into();
    let member = |(sample, response): (usize, &[u32])| {
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(0),
            sample,
            prompt: prompt.clone(),
            response: response.to_vec(),
            response_mask: vec![true; response.len()],
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap();
        t.set(Column::OldLogProbs, vec![-4.5; response.len()])
            .unwrap();
        t.set(
            Column::Advantages,
            vec![1.0 - sample as f32; response.len()],
        )
        .unwrap();
        t
    };
    [&[3, 4, 8, 1][..], &[10], &[6, 5, 4, 3, 2, 1]]
        .into_iter()
        .enumerate()
        .map(member)
        .collect()
}

#[test]
fn a_shared_prompt_gives_the_same_gradients() {
    for (name, model, _) in loaded_models() {
        if model.lm_head().is_none() {
            continue;
        }
        let batch = group();
        let refs: Vec<&Trajectory> = batch.iter().collect();
        let loss = DualClip {
            low: 0.2,
            high: 0.2,
            c: 3.0,
        };
        let objective = Objective {
            loss: &loss,
            aggregation: LossAggregation::TokenMean,
            denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
            entropy_coeff: 0.1,
            kl: None,
            temperature: 0.8,
        };
        let run = |share_prompt_tokens| {
            let options = EngineOptions {
                share_prompt_tokens,
                ..Default::default()
            };
            let adam = Box::new(AdamW::new(AdamWConfig::default()));
            let mut policy = CausalPolicy::new(model.clone(), adam, options).unwrap();
            policy.forward_backward(&refs, &objective).unwrap();
            policy
        };
        let (shared, apart) = (run(0), run(usize::MAX));
        for (param, _) in model.tensors() {
            let of = |p: &CausalPolicy| p.gradients().get(&param).map(floats).unwrap_or_default();
            let want = of(&apart);
            assert_close(
                &format!("{name}: {param}"),
                &of(&shared),
                &want,
                1e-4 * largest(&want).max(1e-4),
            );
        }
    }
}
