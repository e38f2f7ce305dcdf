//! Memory that must not grow: one process, one test, measured by Linux.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use verl::algos::Catalogue;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions, Schedule};
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::model::{Model, ModelConfig};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::text::HfTokenizer;
use verl::core::math::Denominators;
use verl::core::policy::Policy;
use verl::core::registry::Settings;
use verl::core::rollout::SamplingParams;
use verl::core::text::Tokenizer as _;
use verl::core::trainer::{EvalSettings, Prompt};
use verl::core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};
use verl::{Parts, TrainSettings, Trainer, reward_fn};

const MIB: usize = 1 << 20;

#[test]
fn memory_is_bounded() {
    logits_of_a_large_vocabulary_are_never_held();
    steps_leave_nothing_behind();
}

/// 2,048 tokens at a vocabulary of 151,936: their logits alone would be 1.2 GB.
fn logits_of_a_large_vocabulary_are_never_held() {
    let json = serde_json::json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 151_936, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": true,
    });
    let config = ModelConfig::from_json(json.as_object().unwrap().clone(), Path::new("test"));
    let model = Model::random(Arc::new(config.unwrap()), 1, &Device::flex());
    let mut policy = policy(model, 1e-3, None);
    let batch: Vec<Trajectory> = (0..8).map(|i| answer(i, 256)).collect();
    let refs: Vec<&Trajectory> = batch.iter().collect();
    let algorithm = Catalogue::builtin()
        .build("grpo", &Settings::default())
        .unwrap();
    let objective = verl::core::algorithm::Objective {
        loss: algorithm.policy_loss(),
        aggregation: verl::core::math::LossAggregation::TokenMean,
        denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
        entropy_coeff: 0.01,
        kl: None,
        temperature: 1.0,
    };
    forget_peak();
    let before = status("VmRSS:");
    policy.forward_backward(&refs, &objective).unwrap();
    let grown = status("VmHWM:") - before;
    assert!(grown < 160 * MIB, "{} MiB", grown / MIB);
}

fn answer(i: usize, n: usize) -> Trajectory {
    let mut t = Trajectory::new(TrajectoryParts {
        group: GroupId(i as u64),
        sample: 0,
        prompt: vec![1, 2].into(),
        response: (0..n).map(|t| (t * 37 + i) as u32).collect(),
        response_mask: vec![true; n],
        finish: FinishReason::Stop,
        weight_version: 0,
    })
    .unwrap();
    t.set(Column::OldLogProbs, vec![-11.9; n]).unwrap();
    t.set(Column::Advantages, vec![1.0 - i as f32 * 0.2; n])
        .unwrap();
    t
}

/// Rollout, reference, update, at varying lengths.
fn steps_leave_nothing_behind() {
    let grown = |steps| {
        let mut trainer = Trainer::new(parts(), settings(steps)).unwrap();
        trainer.fit().unwrap();
        status("VmRSS:")
    };
    let (warm, end) = (grown(20), grown(90));
    assert!(
        end < warm + 24 * MIB,
        "{} MiB, then {} MiB",
        warm / MIB,
        end / MIB
    );
}

fn policy(model: Model, lr: f64, vocab: Option<usize>) -> CausalPolicy {
    let options = EngineOptions {
        schedule: Schedule::constant(lr),
        vocab,
        ..Default::default()
    };
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    CausalPolicy::new(model, adam, options).unwrap()
}

fn model_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/model")
}

fn parts() -> Parts {
    let tokenizer = Arc::new(HfTokenizer::from_dir(&model_dir()).unwrap());
    let config = Arc::new(ModelConfig::from_dir(&model_dir()).unwrap());
    let model = Model::random(config, 3, &Device::flex());
    let vocab = Some(tokenizer.vocab_size());
    let generator = GeneratorOptions {
        vocab,
        stop_ids: tokenizer.stop_ids().to_vec(),
        ..Default::default()
    };
    let options = serde_json::json!({"use_kl_loss": true});
    let prompt = |i: u32| Prompt {
        ids: (0..3 + i % 9).map(|t| 3 + (t + i) % 10).collect(),
        text: "test".into(),
        answer: None,
        row: Arc::default(),
    };
    Parts {
        engine: Box::new(NativeGenerator::new(model.clone(), generator).unwrap()),
        policy: Box::new(policy(model, 1e-3, vocab)),
        critic: None,
        reward_model: None,
        algorithm: Catalogue::builtin()
            .build("grpo", &Settings(options.as_object().unwrap().clone()))
            .unwrap(),
        reward: Arc::new(reward_fn("longer", |input| input.response.len() as f32)),
        prompts: (0..30).map(prompt).collect(),
        eval_prompts: Vec::new(),
        trackers: Vec::new(),
        tokenizer,
    }
}

fn settings(steps: u64) -> TrainSettings {
    TrainSettings {
        total_steps: steps,
        prompts_per_step: 8,
        samples_per_prompt: 8,
        sampling: SamplingParams {
            max_tokens: 24,
            ..Default::default()
        },
        eval: EvalSettings {
            before: false,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// A figure of this process's memory, in bytes.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(name)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Lets the peak start anew from the present size.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}
