//! GGUF files: one made of a reference model, and a real one where it is.

use crate::golden::{assert_close, ids, reference};
use burn::tensor::Device;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use verl_backends::generate::{GeneratorOptions, NativeGenerator};
use verl_backends::text::HfTokenizer;
use verl_backends::weights::load_model;
use verl_core::rollout::{RolloutEngine, RolloutRequest, SamplingParams};
use verl_core::text::{ChatOptions, Message, Tokenizer};
use verl_core::types::GroupId;

/// Writes a model's tensors as a GGUF file, q and k rows permuted as llama.cpp
/// does.
fn to_gguf(model: &Path, out: &Path, skip: &str) -> Vec<u8> {
    let bytes = std::fs::read(model.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(model.join("config.json")).unwrap()).unwrap();
    let number = |key: &str| config[key].as_u64().unwrap() as usize;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, view) in file.iter().filter(|(n, _)| *n != skip) {
        let stored = name
            .replace("model.layers.", "blk.")
            .replace("self_attn.q_proj", "attn_q")
            .replace("self_attn.k_proj", "attn_k")
            .replace("self_attn.v_proj", "attn_v")
            .replace("self_attn.o_proj", "attn_output")
            .replace("mlp.gate_proj", "ffn_gate")
            .replace("mlp.up_proj", "ffn_up")
            .replace("mlp.down_proj", "ffn_down")
            .replace("input_layernorm", "attn_norm")
            .replace("post_attention_layernorm", "ffn_norm")
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace("lm_head", "output");
        let heads = match () {
            () if name.contains("q_proj") => number("num_attention_heads"),
            () if name.contains("k_proj") => number("num_key_value_heads"),
            () => 0,
        };
        tensors.push((
            stored,
            view.shape().to_vec(),
            permuted(view.data(), view.shape(), heads),
        ));
    }
    let mut file = Vec::new();
    let text = |file: &mut Vec<u8>, s: &str| {
        file.extend((s.len() as u64).to_le_bytes());
        file.extend(s.as_bytes());
    };
    file.extend(b"GGUF");
    file.extend(3u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(1u64.to_le_bytes());
    text(&mut file, "general.architecture");
    file.extend(8u32.to_le_bytes());
    text(&mut file, "llama");
    let mut offset = 0u64;
    for (name, shape, data) in &tensors {
        text(&mut file, name);
        file.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .rev()
            .for_each(|n| file.extend((*n as u64).to_le_bytes()));
        file.extend(0u32.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset += (data.len() as u64).next_multiple_of(32);
    }
    for (_, _, data) in &tensors {
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(data);
    }
    std::fs::File::create(out)
        .unwrap()
        .write_all(&file)
        .unwrap();
    file
}

fn permuted(data: &[u8], shape: &[usize], heads: usize) -> Vec<u8> {
    if heads == 0 {
        return data.to_vec();
    }
    let (row_bytes, per_head) = (data.len() / shape[0], shape[0] / heads);
    let mut out = vec![0; data.len()];
    for row in 0..shape[0] {
        let (head, within) = (row / per_head, row % per_head);
        let target = head * per_head + 2 * (within % (per_head / 2)) + within / (per_head / 2);
        out[target * row_bytes..][..row_bytes]
            .copy_from_slice(&data[row * row_bytes..][..row_bytes]);
    }
    out
}

#[test]
fn a_gguf_file_holds_the_same_model() {
    let dir = reference().join("models/tiny-llama3");
    let out = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join("config.json"), out.path().join("config.json")).unwrap();
    to_gguf(&dir, &out.path().join("model.gguf"), "");
    let (want, got) = (
        load_model(&dir, &Device::flex()).unwrap(),
        load_model(out.path(), &Device::flex()).unwrap(),
    );
    for ((name, a), (_, b)) in want.tensors().iter().zip(got.tensors()) {
        assert_eq!(
            format!("{:?}", data(a)),
            format!("{:?}", data(&b)),
            "{name}"
        );
    }
}

fn data(tensor: &verl_core::rollout::WeightTensor) -> Vec<f32> {
    match tensor {
        verl_core::rollout::WeightTensor::Vector(t) => t.to_data().iter::<f32>().collect(),
        verl_core::rollout::WeightTensor::Matrix(t) => t.to_data().iter::<f32>().collect(),
    }
}

#[test]
fn faults_of_a_gguf_file_are_named() {
    let dir = reference().join("models/tiny-llama3");
    let out = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join("config.json"), out.path().join("config.json")).unwrap();
    let path = out.path().join("model.gguf");
    to_gguf(&dir, &path, "model.norm.weight");
    let error = load_model(out.path(), &Device::flex())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("missing: model.norm.weight (output_norm.weight)"),
        "{error}"
    );
    let whole = to_gguf(&dir, &path, "");
    for (length, want) in [
        (whole.len() - 100, "the file ends inside tensor"),
        (40, "the file ends in its header"),
    ] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = load_model(out.path(), &Device::flex())
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{error}");
    }
}

/// Runs where `VERL_SMOLLM2_DIR` names the folder that `scripts/fetch_smollm2.sh`
/// makes.
#[test]
fn smollm2_answers_as_in_transformers() {
    let Some(dir) = std::env::var_os("VERL_SMOLLM2_DIR") else {
        eprintln!("VERL_SMOLLM2_DIR is not set: the real model is not checked");
        return;
    };
    let dir = Path::new(&dir);
    let tokenizer = HfTokenizer::from_dir(dir).unwrap();
    let options = GeneratorOptions {
        stop_ids: tokenizer.stop_ids().to_vec(),
        ..Default::default()
    };
    let mut engine =
        NativeGenerator::new(load_model(dir, &Device::flex()).unwrap(), options).unwrap();
    let text = std::fs::read_to_string(reference().join("golden/models/smollm2.json")).unwrap();
    let golden: Value = serde_json::from_str(&text).unwrap();
    let cases = golden["cases"].as_array().unwrap().iter();
    for case in cases.filter(|c| c["desc"].as_str().unwrap().starts_with("generate")) {
        let messages: Vec<Message> =
            serde_json::from_value(case["inputs"]["messages"].clone()).unwrap();
        let prompt = tokenizer
            .encode_chat(&messages, &ChatOptions::default())
            .unwrap();
        assert_eq!(
            prompt,
            ids(&case["outputs"]["prompt_ids"]),
            "{}",
            case["desc"]
        );
        let request = RolloutRequest {
            group: GroupId(0),
            sample: 0,
            prompt: prompt.into(),
            seed: 0,
            params: Arc::new(SamplingParams::greedy(32)),
        };
        let mut answers = Vec::new();
        engine
            .generate(vec![request], &mut |r| {
                answers.push(r);
                Ok(())
            })
            .unwrap();
        assert_eq!(
            answers[0].tokens,
            ids(&case["outputs"]["greedy_ids"]),
            "{}",
            case["desc"]
        );
        let want: Vec<f32> = case["outputs"]["greedy_logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap() as f32)
            .collect();
        assert_close(
            case["desc"].as_str().unwrap(),
            &answers[0].log_probs,
            &want,
            2e-3,
        );
    }
}
