//! Greedy and sampled generation.

use crate::golden::{Golden, ids, reference, tiny_models};
use burn::tensor::Device;
use serde_json::Value;
use std::sync::Arc;
use verl_backends::engine::{CausalPolicy, EngineOptions};
use verl_backends::generate::{GeneratorOptions, NativeGenerator};
use verl_backends::model::Model;
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_backends::weights::load_model;
use verl_core::policy::{LogProbModel, Policy, ScoreOptions, SequenceRef};
use verl_core::rollout::{Rollout, RolloutEngine, RolloutRequest, SamplingParams, sample_seed};
use verl_core::types::{FinishReason, GroupId};

fn requests(prompts: &[Vec<u32>], n: usize, params: SamplingParams) -> Vec<RolloutRequest> {
    let params = Arc::new(params);
    let group = |(g, prompt): (usize, &Vec<u32>)| {
        let prompt: Arc<[u32]> = prompt.clone().into();
        let params = params.clone();
        (0..n).map(move |sample| RolloutRequest {
            group: GroupId(g as u64),
            sample,
            prompt: prompt.clone(),
            seed: sample_seed(1, 0, g as u64, sample as u64),
            params: params.clone(),
        })
    };
    prompts.iter().enumerate().flat_map(group).collect()
}

fn generate(
    model: &Model,
    options: GeneratorOptions,
    requests: Vec<RolloutRequest>,
) -> Vec<Rollout> {
    let mut all = Vec::new();
    let mut generator = NativeGenerator::new(model.clone(), options).unwrap();
    generator
        .generate(requests, &mut |r| {
            all.push(r);
            Ok(())
        })
        .unwrap();
    all.sort_by_key(|r| (r.group, r.sample));
    all
}

fn causal() -> impl Iterator<Item = (String, Model, Golden)> {
    let load = |(name, dir, golden): (String, std::path::PathBuf, _)| {
        let model = load_model(&dir, &Device::flex()).unwrap();
        let causal = model.lm_head().is_some();
        causal.then_some((name, model, golden))
    };
    tiny_models().into_iter().filter_map(load)
}

fn prompts(case: &Value) -> Vec<Vec<u32>> {
    case["inputs"]["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(ids)
        .collect()
}

#[test]
fn greedy_tokens_are_transformers() {
    for (name, model, golden) in causal() {
        check_greedy(&name, &model, &golden);
    }
}

/// The greedy answers, with more and with fewer rows than prompts.
pub(crate) fn check_greedy(name: &str, model: &Model, golden: &Golden) {
    for case in golden.cases("greedy") {
        let config = &case["config"];
        let mut params =
            SamplingParams::greedy(config["max_new_tokens"].as_u64().unwrap() as usize);
        let stop = config["eos_token_id"].as_u64();
        params.stop_ids = stop.map(|id| id as u32).into_iter().collect();
        for max_rows in [1, 2, 8] {
            let options = GeneratorOptions {
                max_rows,
                ..Default::default()
            };
            let got = generate(model, options, requests(&prompts(case), 1, params.clone()));
            let got: Vec<Vec<u32>> = got.into_iter().map(|r| r.tokens).collect();
            let want = case["outputs"]["tokens"].as_array().unwrap();
            let want: Vec<Vec<u32>> = want.iter().map(ids).collect();
            assert_eq!(got, want, "{name}, {}, {max_rows} rows", case["desc"]);
        }
    }
}

const PROMPTS: [&[u32]; 4] = [
    &[3, 9, 4],
    &[7, 7, 8, 20, 11, 5, 6, 9, 30, 12],
    &[1],
    &[40, 2, 33, 21],
];

fn owned() -> Vec<Vec<u32>> {
    PROMPTS.iter().map(|p| p.to_vec()).collect()
}

#[test]
fn an_answer_does_not_depend_on_its_company() {
    for (name, model, _) in causal() {
        // Early stops make rows leave and others join.
        let params = SamplingParams {
            max_tokens: 20,
            stop_ids: (0..12).collect(),
            ..Default::default()
        };
        let run = |max_rows| {
            generate(
                &model,
                GeneratorOptions {
                    max_rows,
                    ..Default::default()
                },
                requests(&owned(), 5, params.clone()),
            )
        };
        let alone: Vec<_> = run(1).into_iter().map(|r| (r.tokens, r.finish)).collect();
        for max_rows in [3, 7, 64] {
            let together: Vec<_> = run(max_rows)
                .into_iter()
                .map(|r| (r.tokens, r.finish))
                .collect();
            assert_eq!(alone, together, "{name}, {max_rows} rows");
        }
        assert!(
            alone.iter().any(|(_, f)| *f == FinishReason::Stop)
                && alone.iter().any(|(t, _)| t.len() > 5),
            "{name}"
        );
    }
}

#[test]
fn sampler_and_trainer_agree_on_log_probs_at_any_temperature() {
    for (name, model, _) in causal() {
        let adam = Box::new(AdamW::new(AdamWConfig::default()));
        let policy = CausalPolicy::new(model.clone(), adam, EngineOptions::default()).unwrap();
        for temperature in [0.5, 1.0, 1.7] {
            let params = SamplingParams {
                temperature,
                max_tokens: 12,
                untempered_log_probs: true,
                ..Default::default()
            };
            let rollouts = generate(
                &model,
                GeneratorOptions::default(),
                requests(&owned(), 2, params),
            );
            let prompts = owned();
            let sequences: Vec<SequenceRef<'_>> = rollouts
                .iter()
                .map(|r| SequenceRef {
                    prompt: &prompts[r.group.0 as usize],
                    response: &r.tokens,
                })
                .collect();
            for (t, pick) in [(temperature, true), (1.0, false)] {
                let scores = policy
                    .log_probs(
                        &sequences,
                        ScoreOptions {
                            temperature: t,
                            entropy: false,
                            ..Default::default()
                        },
                    )
                    .unwrap();
                for (r, s) in rollouts.iter().zip(scores) {
                    let sampled = if pick {
                        &r.log_probs
                    } else {
                        &r.untempered_log_probs
                    };
                    crate::golden::assert_close(&name, sampled, &s.log_probs, 2e-4);
                }
            }
        }
    }
}

#[test]
fn padded_vocabulary_is_never_sampled_and_takes_no_probability() {
    let model = load_model(&reference().join("models/tiny-qwen2"), &Device::flex()).unwrap();
    let params = SamplingParams {
        temperature: 3.0,
        max_tokens: 100,
        ..Default::default()
    };
    let options = GeneratorOptions {
        vocab: Some(10),
        ..Default::default()
    };
    let rollouts = generate(&model, options, requests(&[vec![1, 2]], 20, params));
    assert!(rollouts.iter().flat_map(|r| &r.tokens).all(|id| *id < 10));
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let engine = EngineOptions {
        vocab: Some(10),
        ..Default::default()
    };
    let policy = CausalPolicy::new(model, adam, engine).unwrap();
    let sequence = SequenceRef {
        prompt: &[1, 2],
        response: &rollouts[0].tokens,
    };
    let scores = policy
        .log_probs(
            &[sequence],
            ScoreOptions {
                temperature: 3.0,
                entropy: false,
                ..Default::default()
            },
        )
        .unwrap();
    crate::golden::assert_close(
        "padded vocabulary",
        &rollouts[0].log_probs,
        &scores[0].log_probs,
        2e-4,
    );
}

#[test]
fn bad_requests_are_refused_before_anything_is_sampled() {
    let model = load_model(&reference().join("models/tiny-qwen2"), &Device::flex()).unwrap();
    let mut generator = NativeGenerator::new(model, GeneratorOptions::default()).unwrap();
    let mut refuse = |prompt: Vec<u32>, params: SamplingParams| {
        let mut sampled = 0;
        let mut all = requests(&[vec![1]], 1, SamplingParams::greedy(2));
        all.extend(requests(&[prompt], 1, params));
        let error = generator
            .generate(all, &mut |_| {
                sampled += 1;
                Ok(())
            })
            .unwrap_err();
        assert_eq!(sampled, 0);
        error.to_string()
    };
    assert_eq!(
        refuse(vec![], SamplingParams::greedy(2)),
        "prompt of group 0, sample 0: it is empty"
    );
    assert!(
        refuse(vec![160], SamplingParams::greedy(2))
            .contains("id 160 is outside the vocabulary of 160")
    );
    assert!(
        refuse(vec![1], SamplingParams::greedy(600)).contains("exceed the model's 512 positions")
    );
    let stop = SamplingParams {
        stop: vec!["x".into()],
        ..Default::default()
    };
    assert!(refuse(vec![1], stop).contains("stop strings need"));
}

#[test]
fn new_weights_are_taken_over_with_their_version() {
    let dir = reference().join("models/tiny-qwen2");
    let model = load_model(&dir, &Device::flex()).unwrap();
    let other = Model::random(model.config.clone(), 5, &Device::flex());
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let policy = CausalPolicy::new(other.clone(), adam, EngineOptions::default()).unwrap();
    let mut generator = NativeGenerator::new(model, GeneratorOptions::default()).unwrap();
    let mut weights = policy.weights();
    weights.version = 7;
    generator.sync_weights(&weights).unwrap();
    let mut got = Vec::new();
    let all = requests(&[vec![1, 2, 3]], 1, SamplingParams::greedy(6));
    generator
        .generate(all.clone(), &mut |r| {
            got.push(r);
            Ok(())
        })
        .unwrap();
    assert_eq!(got[0].weight_version, 7);
    assert_eq!(
        got[0].tokens,
        generate(&other, GeneratorOptions::default(), all)[0].tokens
    );
    weights.tensors.pop();
    assert!(
        generator
            .sync_weights(&weights)
            .unwrap_err()
            .to_string()
            .contains("is missing")
    );
}
