//! The CPU's own kernels against burn's operations, at lengths that take
//! several tiles of queries, keys and vocabulary.

use crate::golden::{assert_close, largest};
use crate::learn::{DualClip, floats};
use burn::tensor::Device;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use verl_backends::engine::{CausalPolicy, EngineOptions};
use verl_backends::generate::{GeneratorOptions, NativeGenerator};
use verl_backends::model::{Kernels, Model, ModelConfig};
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_core::algorithm::Objective;
use verl_core::config::Dtype;
use verl_core::math::{Denominators, LossAggregation};
use verl_core::policy::{LogProbModel, Policy, ScoreOptions, SequenceRef, TokenScores, Trainable};
use verl_core::rollout::{RolloutEngine, RolloutRequest, SamplingParams, WeightTensor};
use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

const VOCAB: usize = 6007;

fn model(kind: &str, more: serde_json::Value) -> Model {
    let mut json = json!({
        "architectures": [format!("{kind}ForCausalLM")], "model_type": kind.to_lowercase(),
        "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
        "initializer_range": 0.2, "tie_word_embeddings": true,
    });
    let json = json.as_object_mut().unwrap();
    json.extend(more.as_object().unwrap().clone());
    let config = ModelConfig::from_json(json.clone(), Path::new("test")).unwrap();
    let mut model = Model::random(Arc::new(config), 3, &Device::flex());
    // Norms and biases that do something.
    let mut n = 0;
    model.each(&mut |_, param| {
        if let [width] = param.dims()[..] {
            n += 1;
            let values: Vec<f32> = (0..width)
                .map(|i| ((i * 7 + n) % 11) as f32 * 0.1 + 0.2)
                .collect();
            let tensor = burn::tensor::Tensor::<1>::from_floats(&values[..], &Device::flex());
            param.replace(verl_core::rollout::WeightTensor::Vector(tensor));
        }
    });
    model
}

fn models() -> Vec<(&'static str, Model)> {
    vec![
        ("bias", model("Qwen2", json!({}))),
        (
            "head norms",
            model(
                "Qwen3",
                json!({"head_dim": 20, "tie_word_embeddings": false}),
            ),
        ),
        ("window", model("Mistral", json!({"sliding_window": 37}))),
        (
            "wide window",
            model("Mistral", json!({"sliding_window": 300})),
        ),
    ]
}

/// A long prompt with answers of several lengths, and short prompts.
fn batch() -> Vec<Trajectory> {
    let token = |i: usize| ((i * 7919 + i * i * 31) % (VOCAB - 7)) as u32;
    let ids = |from: usize, n: usize| -> Vec<u32> { (from..from + n).map(token).collect() };
    let shapes = [
        (0, 290, 5),
        (0, 290, 330),
        (0, 290, 1),
        (1, 3, 40),
        (2, 1, 1),
        (3, 1, 600),
    ];
    let rows = shapes.iter().enumerate();
    rows.map(|(i, (group, prompt, answer))| {
        let response = ids(1000 * i + 500, *answer);
        let n = response.len();
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(*group),
            sample: i,
            prompt: ids(*group as usize * 50, *prompt).into(),
            response,
            response_mask: (0..n).map(|t| t % 5 != 3).collect(),
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap();
        t.set(Column::OldLogProbs, vec![-8.0; n]).unwrap();
        t.set(Column::Advantages, vec![1.0 - 0.4 * i as f32; n])
            .unwrap();
        t
    })
    .collect()
}

fn policy(model: &Model, kernels: Kernels, checkpoint_every: usize) -> CausalPolicy {
    let mut model = model.clone();
    model.kernels = kernels;
    let options = EngineOptions {
        checkpoint_every,
        vocab: Some(VOCAB - 5),
        ..Default::default()
    };
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    CausalPolicy::new(model, adam, options).unwrap()
}

fn scores(policy: &CausalPolicy, batch: &[Trajectory]) -> Vec<TokenScores> {
    let sequences: Vec<SequenceRef<'_>> = batch.iter().map(SequenceRef::from).collect();
    let options = ScoreOptions {
        temperature: 0.8,
        entropy: true,
        sum_pi_squared: true,
    };
    policy.log_probs(&sequences, options).unwrap()
}

#[test]
fn scores_are_those_of_the_plain_path() {
    let batch = batch();
    for (name, model) in models() {
        let fused = scores(&policy(&model, Kernels::Fused, 0), &batch);
        let plain = scores(&policy(&model, Kernels::Plain, 0), &batch);
        for (got, want) in fused.iter().zip(&plain) {
            for (got, want) in [
                (&got.log_probs, &want.log_probs),
                (&got.entropy, &want.entropy),
                (&got.sum_pi_squared, &want.sum_pi_squared),
            ] {
                assert_close(name, got, want, 1e-4 * largest(want).max(1.0));
            }
        }
    }
}

#[test]
fn gradients_and_updates_are_those_of_the_plain_path() {
    let batch = batch();
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
    for (name, model) in models() {
        let run = |kernels, every, micro| {
            let mut policy = policy(&model, kernels, every);
            for micro in refs.chunks(micro) {
                policy.forward_backward(micro, &objective).unwrap();
            }
            policy
        };
        let mut plain = run(Kernels::Plain, 0, 6);
        for (every, micro) in [(0, 6), (2, 6), (1, 2)] {
            let mut fused = run(Kernels::Fused, every, micro);
            for (param, _) in model.tensors() {
                let of = |p: &CausalPolicy| floats(p.gradients().get(&param).unwrap());
                let want = of(&plain);
                let what = format!("{name}, checkpoint {every}: {param}");
                assert_close(&what, &of(&fused), &want, 2e-4 * largest(&want).max(1e-3));
            }
            let report = fused.optimizer_step().unwrap();
            assert!(report.skipped.is_none() && report.grad_norm > 0.0);
        }
        plain.optimizer_step().unwrap();
    }
}

/// Weights that 16 bits hold exactly are sampled from as if they had 32.
#[test]
fn sixteen_bit_weights_are_the_weights_rounded() {
    let (_, mut model) = models().swap_remove(1);
    model.each(&mut |_, param| {
        let rounded = |x: f32| f32::from_bits(x.to_bits() & 0xFFFF_0000);
        let tensor = match param.tensor() {
            WeightTensor::Matrix(t) => {
                let values: Vec<f32> = t.to_data().iter::<f32>().map(rounded).collect();
                let data = burn::tensor::TensorData::new(values, t.dims());
                WeightTensor::Matrix(burn::tensor::Tensor::from_data(data, &Device::flex()))
            }
            vector => vector,
        };
        param.replace(tensor);
    });
    let answers = |dtype| {
        let options = GeneratorOptions {
            dtype,
            ..Default::default()
        };
        let mut engine = NativeGenerator::new(model.clone(), options).unwrap();
        let params = Arc::new(SamplingParams {
            max_tokens: 20,
            ..Default::default()
        });
        let request = |sample: usize| RolloutRequest {
            group: GroupId(0),
            sample,
            prompt: vec![5, 6, 7 + sample as u32 / 3].into(),
            params: params.clone(),
            seed: sample as u64,
        };
        let mut answers = Vec::new();
        engine
            .generate((0..7).map(request).collect(), &mut |rollout| {
                answers.push((rollout.sample, rollout.tokens, rollout.log_probs));
                Ok(())
            })
            .unwrap();
        answers
    };
    assert_eq!(answers(Dtype::Bfloat16), answers(Dtype::Float32));

    model.kernels = Kernels::Plain;
    let options = GeneratorOptions {
        dtype: Dtype::Bfloat16,
        ..Default::default()
    };
    let error = NativeGenerator::new(model, options)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("rollout.dtype: "), "{error}");
}
