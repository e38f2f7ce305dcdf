//! Low-rank adapters against peft, and what an engine does with them.

use crate::forward::{check_padded_rows, close_logits, outputs};
use crate::generate::check_greedy;
use crate::golden::{
    assert_close, entries, ids, largest, loaded_adapters, reference, unpadded_rows,
};
use crate::learn::{check_gradients, floats, number};
use burn::tensor::Device;
use std::path::Path;
use verl_backends::engine::{CausalPolicy, EngineOptions, Schedule, ValueCritic};
use verl_backends::model::{Coding, LoraConfig, Model, Targets, Weight};
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_backends::weights::{
    load_adapter, load_model, load_quantised, save_adapter, save_pretrained,
};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, Objective, PolicyLoss};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::policy::{LogProbModel, Policy, ScoreOptions, SequenceRef, Trainable};
use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

/// Minus the log-prob of every token.
#[derive(Debug)]
struct Likelihood;

impl PolicyLoss for Likelihood {
    fn name(&self) -> &str {
        "likelihood"
    }

    fn needs(&self) -> &[Column] {
        &[]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        Ok(LossOutput {
            loss_n: input.log_probs_n.clone().neg(),
            metrics_n: vec![],
        })
    }
}

/// Sequences whose first token is the prompt.
fn trajectories(sequences: &[Vec<u32>]) -> Vec<Trajectory> {
    let make = |(i, ids): (usize, &Vec<u32>)| {
        let parts = TrajectoryParts {
            group: GroupId(i as u64),
            sample: 0,
            prompt: ids[..1].into(),
            response: ids[1..].to_vec(),
            response_mask: vec![true; ids.len() - 1],
            finish: FinishReason::Stop,
            weight_version: 0,
        };
        Trajectory::new(parts).unwrap()
    };
    sequences.iter().enumerate().map(make).collect()
}

fn objective(batch: &[Trajectory]) -> Objective<'static> {
    Objective {
        loss: &Likelihood,
        aggregation: LossAggregation::TokenMean,
        denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    }
}

fn policy(model: &Model, checkpoint_every: usize) -> CausalPolicy {
    let options = EngineOptions {
        checkpoint_every,
        schedule: Schedule::constant(1e-2),
        ..Default::default()
    };
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    CausalPolicy::new(model.clone(), adam, options).unwrap()
}

fn log_probs(model: &dyn LogProbModel, batch: &[Trajectory]) -> Vec<f32> {
    let sequences: Vec<SequenceRef<'_>> = batch.iter().map(SequenceRef::from).collect();
    let scores = model
        .log_probs(&sequences, ScoreOptions::default())
        .unwrap();
    scores.into_iter().flat_map(|s| s.log_probs).collect()
}

fn rows() -> Vec<Vec<u32>> {
    vec![vec![5, 9, 30, 7, 11, 3], vec![8, 2, 6], vec![40, 1, 2, 3]]
}

#[test]
fn an_adapter_computes_what_peft_computes() {
    for (name, base, model, _, golden) in loaded_adapters() {
        check_padded_rows(&name, &model, &golden);
        check_greedy(&name, &model, &golden);
        for case in golden.cases("adapter switched off") {
            let row = [ids(&case["inputs"]["input_ids"])];
            let want = golden.floats(&case["outputs"]["logits_adapter_off"]);
            close_logits(&name, &outputs(&model.without_lora(), &row), &want);
            assert_eq!(outputs(&model.without_lora(), &row), outputs(&base, &row));

            let mut merged = model.clone();
            let taken = merged.merge().unwrap();
            let want = golden.floats(&case["outputs"]["logits_merged"]);
            close_logits(&name, &outputs(&merged, &row), &want);
            let weights = merged.tensors();
            for (param, want) in entries(&case["outputs"]["merged_weights"]) {
                let (_, got) = weights.iter().find(|(n, _)| *n == param).unwrap();
                assert_close(&param, &floats(got), &golden.floats(&want), 1e-6);
            }
            merged.unmerge(taken);
            close_logits(&name, &outputs(&merged, &row), &outputs(&model, &row));
        }
    }
}

#[test]
fn gradients_are_pefts_and_the_rest_is_frozen() {
    for (name, _, model, _, golden) in loaded_adapters() {
        for case in golden.cases("mean negative log-prob") {
            let batch = trajectories(&unpadded_rows(&case["inputs"]));
            for (checkpoint_every, split) in [(0, 3), (1, 1)] {
                let what = format!("{name}, checkpoint {checkpoint_every}");
                let mut policy = policy(&model, checkpoint_every);
                let refs: Vec<&Trajectory> = batch.iter().collect();
                for micro in refs.chunks(split) {
                    policy.forward_backward(micro, &objective(&batch)).unwrap();
                }
                let outputs = &case["outputs"];
                check_gradients(&what, &golden, policy.gradients(), &outputs["grads"]);
                for (param, _) in model.tensors() {
                    let kept = policy.gradients().get(&param).is_some();
                    assert_eq!(kept, param.contains(".lora_"), "{what}: {param}");
                }
                let norm = policy.optimizer_step().unwrap().grad_norm as f32;
                let want = number(&outputs["grad_norm"]);
                assert_close(&what, &[norm], &[want], 1e-4 * want);
            }
        }
    }
}

/// Training moves the adapter alone; the reference is the model without it; an
/// exact resume needs the adapter's folder alone, and `save_pretrained` writes
/// one that loads as the same adapter.
#[test]
fn a_trained_adapter_is_saved_and_resumed_without_its_model() {
    for (name, base, model, ..) in loaded_adapters() {
        let batch = trajectories(&rows());
        let refs: Vec<&Trajectory> = batch.iter().collect();
        let train = |policy: &mut CausalPolicy| {
            policy.forward_backward(&refs, &objective(&batch)).unwrap();
            policy.optimizer_step().unwrap();
        };
        let mut first = policy(&model, 0);
        let before = log_probs(&first, &batch);
        train(&mut first);
        assert_ne!(log_probs(&first, &batch), before);
        let of_base = log_probs(&policy(&base, 0), &batch);
        assert_eq!(log_probs(&*first.frozen(), &batch), of_base, "{name}");

        let dir = tempfile::tempdir().unwrap();
        first.save_state(dir.path()).unwrap();
        assert!(!dir.path().join("model.safetensors").exists());
        let mut second = policy(&model, 0);
        second.load_state(dir.path()).unwrap();
        train(&mut first);
        train(&mut second);
        for ((param, a), (_, b)) in first.model().tensors().iter().zip(second.model().tensors()) {
            assert_eq!(floats(a), floats(&b), "{name}: {param}");
        }

        let dir = tempfile::tempdir().unwrap();
        first.save_pretrained(dir.path()).unwrap();
        let mut loaded = base.clone();
        load_adapter(&mut loaded, dir.path()).unwrap();
        assert_eq!(outputs(&loaded, &rows()), outputs(first.model(), &rows()));
    }
}

#[test]
fn a_fresh_adapter_changes_nothing_and_takes_the_projections_it_is_told() {
    let (_, base, ..) = loaded_adapters().swap_remove(0);
    let attach = |targets, exclude: &[&str]| {
        let mut model = base.clone();
        let config = LoraConfig {
            rank: 4,
            targets,
            exclude: exclude.iter().map(|s| s.to_string()).collect(),
            ..Default::default()
        };
        model.attach_lora(config, 7).map(|()| {
            let adapted: Vec<String> = model
                .tensors()
                .into_iter()
                .filter_map(|(n, _)| n.strip_suffix(".lora_A.weight").map(String::from))
                .collect();
            (model, adapted)
        })
    };
    let layers = base.layers.len();
    let (model, all) = attach(Targets::AllLinear, &[]).unwrap();
    assert_eq!(all.len(), 7 * layers);
    assert_eq!(outputs(&model, &rows()), outputs(&base, &rows()));
    let names = Targets::Names(vec!["q_proj".into(), "mlp.up_proj".into()]);
    assert_eq!(attach(names, &[]).unwrap().1.len(), 2 * layers);
    let pattern = Targets::Pattern(r".*layers\.0\..*_proj".into());
    let (_, first) = attach(pattern, &["down_proj"]).unwrap();
    assert_eq!(first.len(), 6);
    assert!(first.iter().all(|n| n.starts_with("model.layers.0.")));

    let refused = |targets| attach(targets, &[]).unwrap_err().to_string();
    let error = refused(Targets::Names(vec!["q_proj".into(), "lm_head".into()]));
    assert!(error.contains("`lm_head` is no projection"), "{error}");
    assert!(refused(Targets::Pattern("q_proj".into())).contains("selects no projection"));
    assert!(refused(Targets::Pattern("(".into())).contains("unclosed group"));
}

#[test]
fn stabilised_adapters_scale_by_the_root_of_the_rank() {
    let config = LoraConfig {
        rank: 16,
        alpha: 8.0,
        ..Default::default()
    };
    assert_eq!(config.scale(), 0.5);
    let stabilised = LoraConfig {
        stabilised: true,
        ..config
    };
    assert_eq!(stabilised.scale(), 2.0);
}

/// Dropout is drawn anew for each micro-batch, is the same on either kind of
/// kernels and when a layer runs again, and is no part of scoring.
#[test]
fn dropout_is_a_function_of_the_place() {
    let batch = trajectories(&rows());
    let refs: Vec<&Trajectory> = batch.iter().collect();
    let name = "model.layers.0.self_attn.q_proj.lora_B.weight";
    let mut all = Vec::new();
    for (_, _, model, ..) in loaded_adapters() {
        for checkpoint_every in [0, 1] {
            let mut dropping = model.clone();
            dropping.set_lora_dropout(0.5).unwrap();
            let mut policy = policy(&dropping, checkpoint_every);
            let plain = crate::lora::policy(&model, 0);
            assert_eq!(log_probs(&policy, &batch), log_probs(&plain, &batch));
            let mut gradient = || {
                policy.forward_backward(&refs, &objective(&batch)).unwrap();
                floats(policy.gradients().get(name).unwrap())
            };
            all.push((gradient(), gradient()));
        }
    }
    let (first, second) = &all[0];
    let twice: Vec<f32> = first.iter().map(|g| 2.0 * g).collect();
    assert_ne!(*second, twice, "another micro-batch, another mask");
    for (other, _) in &all {
        assert_close("gradient", other, first, 1e-4 * largest(first));
    }
}

#[test]
fn a_critic_trains_its_adapter_and_its_value_head() {
    let (_, base, ..) = loaded_adapters().swap_remove(0);
    let mut model = base.clone();
    model.attach_lora(LoraConfig::default(), 1).unwrap();
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let critic = ValueCritic::new(model, adam, EngineOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    critic.save_pretrained(dir.path()).unwrap();
    let bytes = std::fs::read(dir.path().join("adapter_model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert!(file.tensor("base_model.model.score.weight").is_ok());
    assert!(file.tensor("base_model.model.model.norm.weight").is_err());
}

fn edited_adapter(dir: &Path, edit: impl FnOnce(&mut serde_json::Value)) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let tensors = "adapter_model.safetensors";
    std::fs::copy(dir.join(tensors), out.path().join(tensors)).unwrap();
    let text = std::fs::read_to_string(dir.join("adapter_config.json")).unwrap();
    let mut config = serde_json::from_str(&text).unwrap();
    edit(&mut config);
    std::fs::write(out.path().join("adapter_config.json"), config.to_string()).unwrap();
    out
}

#[test]
fn what_an_adapter_folder_gets_wrong_is_named() {
    let (_, base, _, dir, _) = loaded_adapters().swap_remove(0);
    let refused = |edit: fn(&mut serde_json::Value)| {
        let edited = edited_adapter(&dir, edit);
        let error = load_adapter(&mut base.clone(), edited.path());
        error.unwrap_err().to_string()
    };
    let error = refused(|c| c["use_dora"] = true.into());
    assert!(error.contains("`use_dora` is true"), "{error}");
    let error = refused(|c| c["peft_type"] = "IA3".into());
    assert!(error.contains("`peft_type` is IA3"), "{error}");
    let error = refused(|c| c["r"] = 4.into());
    assert!(error.contains("expected [4, 64]"), "{error}");
    let error = refused(|c| c["target_modules"] = serde_json::json!(["q_proj"]));
    assert!(
        error.contains("k_proj.lora_A.weight is not used"),
        "{error}"
    );
    let error = save_adapter(&base, Path::new("nowhere"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no adapter"), "{error}");
    let (mut twice, config) = (base.clone(), LoraConfig::default());
    twice.attach_lora(config.clone(), 1).unwrap();
    assert!(twice.attach_lora(config, 1).is_err());
}

/// Under an adapter, projections kept as codes compute what their dequantised
/// values compute: scores, gradients, and answers sampled from either kernels.
#[test]
fn codes_under_an_adapter_are_their_values() {
    let batch = trajectories(&rows());
    let refs: Vec<&Trajectory> = batch.iter().collect();
    for (name, base, ..) in loaded_adapters() {
        for coding in [Coding::Nf4, Coding::Nf4Double, Coding::Int8] {
            let what = format!("{name}, {coding:?}");
            let mut coded = base.clone();
            coded.quantise(coding).unwrap();
            assert!(coded.is_quantised() && !base.is_quantised());
            assert_eq!(coded.parameter_count(), base.parameter_count());
            let mut full = coded.clone();
            full.each_linear(&mut |_, linear| {
                linear.weight = Weight::Full(linear.weight.tensor(&Device::flex()));
            });
            assert_ne!(outputs(&full, &rows()), outputs(&base, &rows()), "{what}");
            close_logits(&what, &outputs(&coded, &rows()), &outputs(&full, &rows()));
            let gradients = |model: &Model| {
                let mut model = model.clone();
                let config = LoraConfig::default();
                model.attach_lora(config, 3).unwrap();
                let mut policy = policy(&model, 1);
                policy.forward_backward(&refs, &objective(&batch)).unwrap();
                let adapter = model.tensors().into_iter().map(|(n, _)| n);
                let adapter = adapter.filter(|n| n.contains(".lora_B"));
                adapter
                    .flat_map(|n| floats(policy.gradients().get(&n).unwrap()))
                    .collect::<Vec<f32>>()
            };
            let want = gradients(&full);
            assert_close(&what, &gradients(&coded), &want, 1e-4 * largest(&want));
            let error = save_pretrained(&coded, Path::new("nowhere")).unwrap_err();
            assert!(
                error.to_string().contains("codes are not written"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_merged_quantised_model_is_whole_and_comes_apart_as_it_was() {
    let (_, base, ..) = loaded_adapters().swap_remove(0);
    let mut model = base.clone();
    model.quantise(Coding::Nf4).unwrap();
    let before = outputs(&model, &rows());
    model.attach_lora(LoraConfig::default(), 1).unwrap();
    let merged = model.merge().unwrap();
    assert!(!model.is_quantised());
    close_logits("merged", &outputs(&model, &rows()), &before);
    model.unmerge(merged);
    assert!(model.is_quantised());
    assert_eq!(outputs(&model.without_lora(), &rows()), before);
}

/// Quantised on load is quantised after loading.
#[test]
fn codes_on_load_are_the_codes_of_the_loaded_model() {
    let dir = reference().join("models/tiny-qwen2");
    for coding in [Coding::Nf4, Coding::Int8] {
        let on_load = load_quantised(&dir, coding, &Device::flex()).unwrap();
        let mut after = load_model(&dir, &Device::flex()).unwrap();
        after.quantise(coding).unwrap();
        assert_eq!(outputs(&on_load, &rows()), outputs(&after, &rows()));
    }
    for name in ["tiny-qwen2-bnb-nf4", "tiny-qwen2-awq", "tiny-qwen2-gptq"] {
        let dir = reference().join("models").join(name);
        let kept = load_quantised(&dir, Coding::Nf4, &Device::flex()).unwrap();
        let full = load_model(&dir, &Device::flex()).unwrap();
        assert!(kept.is_quantised(), "{name}");
        close_logits(name, &outputs(&kept, &rows()), &outputs(&full, &rows()));
    }
}
