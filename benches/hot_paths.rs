//! The hot paths of a training step, on a small Llama-shaped model.
//!
//! ```text
//! cargo bench -p verl-benches --bench hot_paths
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use verl::backends::burn::tensor::{Device, Distribution, Tensor};
use verl::backends::engine::{CausalPolicy, EngineOptions};
use verl::backends::generate::{GeneratorOptions, NativeGenerator, Sampler};
use verl::backends::model::{Model, ModelConfig};
use verl::backends::optim::{Adafactor, AdamW, AdamW8bit, AdamWConfig, Lion, Muon};
use verl::backends::quant::{AwqTensors, Dequantise, Int8, Nf4, Quantised};
use verl::core::algorithm::Objective;
use verl::core::math::Denominators;
use verl::core::optimizer::Optimizer;
use verl::core::policy::{LogProbModel, Policy, ScoreOptions, SequenceRef, Trainable};
use verl::core::rollout::{RolloutEngine, RolloutRequest, SamplingParams, WeightTensor};
use verl::core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

const GROUPS: u64 = 4;
const SAMPLES: usize = 4;
const PROMPT: usize = 32;
const ANSWER: usize = 32;

fn model() -> Model {
    let json = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8192,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
    });
    let config = ModelConfig::from_json(
        json.as_object().cloned().unwrap_or_default(),
        Path::new("bench"),
    );
    Model::random(
        Arc::new(config.expect("a valid configuration")),
        1,
        &Device::flex(),
    )
}

fn batch(groups: u64, samples: usize, prompt: usize, answer: usize) -> Batch {
    let group = |g: u64| {
        let prompt: Arc<[u32]> = (0..prompt as u32)
            .map(|i| i * 7 % 8000 + g as u32)
            .collect();
        let member = |sample: usize| {
            let mut t = Trajectory::new(TrajectoryParts {
                group: GroupId(g),
                sample,
                prompt: prompt.clone(),
                response: (0..answer as u32)
                    .map(|i| i * 13 % 8000 + sample as u32)
                    .collect(),
                response_mask: vec![true; answer],
                finish: FinishReason::Stop,
                weight_version: 0,
            })
            .expect("a valid trajectory");
            t.set_score((sample % 2) as f32).expect("finite");
            for column in [Column::OldLogProbs, Column::Advantages] {
                t.set(column, vec![0.1 * sample as f32 - 1.0; answer])
                    .expect("aligned");
            }
            t
        };
        Group::new(GroupId(g), (0..samples).map(member).collect()).expect("not empty")
    };
    Batch::new((0..groups).map(group).collect())
}

fn training(c: &mut Criterion) {
    let batch = batch(GROUPS, SAMPLES, PROMPT, ANSWER);
    let trajectories: Vec<&Trajectory> = batch.trajectories().collect();
    let sequences: Vec<SequenceRef<'_>> =
        trajectories.iter().map(|t| SequenceRef::from(*t)).collect();
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let mut policy =
        CausalPolicy::new(model(), adam, EngineOptions::default()).expect("a causal model");
    let grpo = verl::algos::Catalogue::builtin()
        .build("grpo", &Default::default())
        .unwrap();
    let objective = Objective {
        loss: grpo.policy_loss(),
        aggregation: grpo.policy_terms().aggregation,
        denominators: Denominators::count(trajectories.iter().map(|t| t.policy_tokens())),
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    let mut group = c.benchmark_group("training");
    group.sample_size(10).throughput(Throughput::Elements(
        trajectories.iter().map(|t| t.total_tokens() as u64).sum(),
    ));
    group.bench_function("log_probs", |b| {
        b.iter(|| {
            policy
                .log_probs(black_box(&sequences), ScoreOptions::default())
                .expect("scores")
        });
    });
    group.bench_function("forward_backward", |b| {
        b.iter(|| {
            policy
                .forward_backward(black_box(&trajectories), &objective)
                .expect("a gradient")
        });
    });
    group.bench_function("forward_backward_and_adamw", |b| {
        b.iter(|| {
            policy
                .forward_backward(black_box(&trajectories), &objective)
                .expect("a gradient");
            policy.optimizer_step().expect("an update")
        });
    });
    group.finish();
}

/// One update of a matrix of a million weights.
fn optimizers(c: &mut Criterion) {
    let side = 1024;
    let random = || Tensor::<2>::random([side, side], Distribution::Default, &Device::flex());
    let (param, grad) = (random(), random());
    let all: [(&str, Box<dyn Optimizer>); 5] = [
        ("adamw", Box::new(AdamW::new(Default::default()))),
        ("adamw_8bit", Box::new(AdamW8bit::new(Default::default()))),
        ("adafactor", Box::new(Adafactor::new(Default::default()))),
        ("lion", Box::new(Lion::new(Default::default()))),
        ("muon", Box::new(Muon::new(Default::default()))),
    ];
    let mut group = c.benchmark_group("optimizer");
    group.throughput(Throughput::Elements((side * side) as u64));
    for (name, mut optimizer) in all {
        group.bench_function(name, |b| {
            b.iter(|| {
                optimizer.begin_step();
                let (param, grad) = (param.clone(), grad.clone());
                let (param, grad) = (WeightTensor::Matrix(param), WeightTensor::Matrix(grad));
                optimizer
                    .update("mlp.up_proj.weight", black_box(param), grad, 1e-6)
                    .expect("an update")
            });
        });
    }
    group.finish();
}

fn generation(c: &mut Criterion) {
    let mut engine =
        NativeGenerator::new(model(), GeneratorOptions::default()).expect("a causal model");
    let params = Arc::new(SamplingParams {
        max_tokens: ANSWER,
        ..Default::default()
    });
    let mut group = c.benchmark_group("generation");
    for rows in [1usize, 8, 32] {
        let prompt: Arc<[u32]> = (0..PROMPT as u32).collect();
        let request = |sample: usize| RolloutRequest {
            group: GroupId(0),
            sample,
            prompt: prompt.clone(),
            seed: sample as u64,
            params: params.clone(),
        };
        group
            .sample_size(10)
            .throughput(Throughput::Elements((rows * ANSWER) as u64));
        group.bench_function(format!("{rows} rows"), |b| {
            b.iter(|| {
                engine
                    .generate((0..rows).map(request).collect(), &mut |_| Ok(()))
                    .expect("answers")
            });
        });
    }
    group.finish();
}

fn sampler(c: &mut Criterion) {
    use rand::SeedableRng;
    let logits: Vec<f32> = (0..49152u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 400.0)
        .collect();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    for (name, params) in [
        ("plain", SamplingParams::default()),
        (
            "top_p",
            SamplingParams {
                top_p: 0.9,
                ..Default::default()
            },
        ),
        (
            "top_k",
            SamplingParams {
                top_k: 50,
                ..Default::default()
            },
        ),
    ] {
        let sampler = Sampler::from(&params);
        c.bench_function(&format!("sampler/{name}"), |b| {
            b.iter(|| sampler.draw(black_box(&logits), &mut rng))
        });
    }
}

/// Rows of a quantised projection of 4 096 inputs, in bytes of f32 written.
fn dequantise(c: &mut Criterion) {
    const SHAPE: [usize; 2] = [256, 4096];
    let values: Vec<f32> = (0..SHAPE[0] * SHAPE[1])
        .map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8)
        .collect();
    let awq = AwqTensors {
        shape: SHAPE,
        group_size: 128,
        qweight: &vec![0x7531_6420; SHAPE[1] * SHAPE[0] / 8],
        qzeros: &vec![0x8888_8888; SHAPE[1] / 128 * SHAPE[0] / 8],
        scales: &vec![0.01; SHAPE[1] / 128 * SHAPE[0]],
    };
    let codecs = [
        ("nf4", Nf4::quantise(&values, SHAPE).map(Quantised::Nf4)),
        (
            "nf4, double",
            Nf4::quantise_twice(&values, SHAPE).map(Quantised::Nf4),
        ),
        ("int8", Int8::quantise(&values, SHAPE).map(Quantised::Int8)),
        ("awq", awq.unpack().map(Quantised::Grouped)),
    ];
    let mut group = c.benchmark_group("dequantise_rows");
    group.throughput(Throughput::Bytes(4 * values.len() as u64));
    for (name, matrix) in codecs {
        let matrix = matrix.expect("a matrix");
        let mut out = vec![0.0; values.len()];
        group.bench_function(name, |b| {
            b.iter(|| matrix.dequantise_rows(0..SHAPE[0], black_box(&mut out)));
        });
    }
    group.finish();
}

criterion_group!(
    benches, training, optimizers, generation, sampler, dequantise
);
criterion_main!(benches);
