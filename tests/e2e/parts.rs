//! A trainer small enough to run many times.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use verl::algos::Catalogue;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions, Schedule, ValueCritic};
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::model::{Coding, Kernels, LoraConfig, Model, ModelConfig};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::text::HfTokenizer;
use verl::core::optimizer::Optimizer;
use verl::core::registry::Settings;
use verl::core::rollout::SamplingParams;
use verl::core::text::{ChatOptions, Message, Tokenizer};
use verl::core::trainer::{CheckpointSettings, EvalSettings, Prompt};
use verl::{Critic, Parts, Policy, RewardFn, TrainSettings, reward_fn};

pub(crate) fn model_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/model")
}

/// What a test varies.
pub(crate) struct Setup {
    pub(crate) algorithm: String,
    pub(crate) options: serde_json::Value,
    pub(crate) lr: f64,
    pub(crate) reward: Arc<dyn RewardFn>,
    pub(crate) kernels: Kernels,
    pub(crate) lora: Option<LoraConfig>,
    pub(crate) coding: Option<Coding>,
    pub(crate) optimizer: fn() -> Box<dyn Optimizer>,
}

fn adamw() -> Box<dyn Optimizer> {
    Box::new(AdamW::new(AdamWConfig {
        weight_decay: 0.0,
        ..Default::default()
    }))
}

impl Default for Setup {
    fn default() -> Self {
        // Rewards short answers: something a random model can learn.
        let reward = reward_fn("short", |input| 1.0 / (1.0 + input.response.len() as f32));
        Setup {
            algorithm: "grpo".into(),
            options: serde_json::json!({}),
            lr: 1e-3,
            reward: Arc::new(reward),
            kernels: Kernels::default(),
            lora: None,
            coding: None,
            optimizer: adamw,
        }
    }
}

impl Setup {
    pub(crate) fn parts(&self) -> Parts {
        let config = Arc::new(ModelConfig::from_dir(&model_dir()).unwrap());
        let mut model = Model::random(config, 3, &Device::flex());
        model.kernels = self.kernels;
        if let Some(coding) = self.coding {
            model.quantise(coding).unwrap();
        }
        if let Some(lora) = &self.lora {
            model.attach_lora(lora.clone(), 5).unwrap();
        }
        let tokenizer = Arc::new(HfTokenizer::from_dir(&model_dir()).unwrap());
        let settings = Settings(self.options.as_object().unwrap().clone());
        let algorithm = Catalogue::builtin()
            .build(&self.algorithm, &settings)
            .unwrap();
        let engine = || EngineOptions {
            schedule: Schedule::constant(self.lr),
            vocab: Some(tokenizer.vocab_size()),
            ..Default::default()
        };
        let critic = algorithm.requirements().critic.then(|| {
            Box::new(ValueCritic::new(model.clone(), (self.optimizer)(), engine()).unwrap())
                as Box<dyn Critic>
        });
        let reward_model = algorithm.reward_model().map(|_| {
            Box::new(CausalPolicy::new(model.clone(), (self.optimizer)(), engine()).unwrap())
                as Box<dyn Policy>
        });
        let generator = GeneratorOptions {
            vocab: Some(tokenizer.vocab_size()),
            stop_ids: tokenizer.stop_ids().to_vec(),
            ..Default::default()
        };
        let prompts = |range: std::ops::Range<u32>| {
            range
                .map(|i| prompt(&format!("{i}+{}=", i + 1), &tokenizer))
                .collect()
        };
        Parts {
            engine: Box::new(NativeGenerator::new(model.clone(), generator).unwrap()),
            policy: Box::new(CausalPolicy::new(model, (self.optimizer)(), engine()).unwrap()),
            critic,
            reward_model,
            algorithm,
            reward: self.reward.clone(),
            prompts: prompts(0..10),
            eval_prompts: prompts(20..24),
            trackers: Vec::new(),
            tokenizer,
        }
    }
}

fn prompt(text: &str, tokenizer: &HfTokenizer) -> Prompt {
    let ids = tokenizer
        .encode_chat(&[Message::new("user", text)], &ChatOptions::default())
        .unwrap();
    Prompt {
        ids: ids.into(),
        text: text.into(),
        answer: None,
        row: Arc::default(),
    }
}

pub(crate) fn settings(steps: u64, checkpoints: Option<&Path>) -> TrainSettings {
    TrainSettings {
        total_steps: steps,
        prompts_per_step: 4,
        samples_per_prompt: 4,
        mini_batch_prompts: Some(2),
        sampling: SamplingParams {
            max_tokens: 5,
            ..Default::default()
        },
        eval: EvalSettings {
            every: 0,
            before: false,
            sampling: SamplingParams::greedy(5),
            ..Default::default()
        },
        checkpoints: checkpoints.map(|dir| CheckpointSettings {
            dir: dir.to_path_buf(),
            every: 1,
            keep: None,
            config: None,
        }),
        ..Default::default()
    }
}

/// All weights, bit for bit.
pub(crate) fn weights(policy: &dyn verl::Policy) -> Vec<(String, Vec<u32>)> {
    use verl::core::rollout::WeightTensor::{Matrix, Vector};
    let bits = |tensor| -> Vec<u32> {
        match tensor {
            Vector(t) => t.into_data().iter::<f32>().map(f32::to_bits).collect(),
            Matrix(t) => t.into_data().iter::<f32>().map(f32::to_bits).collect(),
        }
    };
    policy
        .weights()
        .tensors
        .into_iter()
        .map(|(name, tensor)| (name, bits(tensor)))
        .collect()
}
