//! Folders of quantised checkpoints: what they compute, and what is wrong with
//! broken ones.

use crate::forward::outputs;
use crate::golden::{Golden, assert_close, ids, reference};
use burn::tensor::Device;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;
use verl_backends::engine::{CausalPolicy, EngineOptions};
use verl_backends::model::{Kernels, Model};
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_backends::weights::{load_model, save_pretrained};
use verl_core::policy::{LogProbModel, ScoreOptions, SequenceRef};
use verl_core::rollout::WeightTensor;

const FOLDERS: [&str; 3] = [
    "models/tiny-qwen2-bnb-nf4",
    "models/tiny-qwen2-awq",
    "models/tiny-qwen2-gptq",
];

fn load(dir: &Path) -> verl_core::Result<Model> {
    load_model(dir, &Device::flex())
}

#[test]
fn quantised_folders_give_the_reference_logits() {
    let golden = Golden::quant("tiny_quantised_models");
    for case in golden.cases("") {
        let dir = case["config"]["model"].as_str().unwrap();
        for kernels in [Kernels::Fused, Kernels::Plain] {
            let mut model = load(&reference().join(dir)).unwrap();
            model.kernels = kernels;
            let what = format!("{dir}, {kernels:?}");
            let gate = &case["outputs"]["dequantised_layer0_gate_proj"];
            let got = matrix(&model, "model.layers.0.mlp.gate_proj.weight");
            assert_close(&what, &got, &golden.floats(gate), 1e-6);
            for (row, want) in sequences(case) {
                let want = golden.floats(want);
                let got = outputs(&model, std::slice::from_ref(&row));
                assert_close(&what, &got, &want, 5e-4);
                let scores = next_token_log_probs(&model, &row);
                assert_close(&what, &scores, &from_logits(&want, &row), 5e-4);
            }
        }
    }
}

/// The rows of a case, each with its logits.
fn sequences(case: &Value) -> Vec<(Vec<u32>, &Value)> {
    let rows = case["inputs"]["sequences"].as_array().unwrap();
    let logits = case["outputs"]["logits"].as_array().unwrap();
    rows.iter().map(ids).zip(logits).collect()
}

fn matrix(model: &Model, wanted: &str) -> Vec<f32> {
    let tensors = model.tensors();
    match tensors.into_iter().find(|(name, _)| name == wanted) {
        Some((_, WeightTensor::Matrix(tensor))) => tensor.into_data().iter::<f32>().collect(),
        _ => panic!("no matrix {wanted}"),
    }
}

/// Log-probs of all tokens but the first, as the engine scores them.
fn next_token_log_probs(model: &Model, row: &[u32]) -> Vec<f32> {
    let adam = Box::new(AdamW::new(AdamWConfig::default()));
    let policy = CausalPolicy::new(model.clone(), adam, EngineOptions::default()).unwrap();
    let sequence = SequenceRef {
        prompt: &row[..1],
        response: &row[1..],
    };
    let scores = policy.log_probs(&[sequence], ScoreOptions::default());
    scores.unwrap().remove(0).log_probs
}

fn from_logits(logits: &[f32], row: &[u32]) -> Vec<f32> {
    let steps = logits.chunks(logits.len() / row.len()).zip(&row[1..]);
    let log_prob = |(logits, id): (&[f32], &u32)| {
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        (f64::from(logits[*id as usize]) - sum.ln()) as f32
    };
    steps.map(log_prob).collect()
}

#[test]
fn a_model_from_a_quantised_folder_is_saved_in_full() {
    for folder in FOLDERS {
        let model = load(&reference().join(folder)).unwrap();
        let out = tempfile::tempdir().unwrap();
        save_pretrained(&model, out.path()).unwrap();
        let config = std::fs::read_to_string(out.path().join("config.json")).unwrap();
        assert!(!config.contains("quantization_config"), "{config}");
        let again = load(out.path()).unwrap();
        let row = vec![vec![1u32, 2, 3, 4]];
        assert_eq!(outputs(&model, &row), outputs(&again, &row), "{folder}");
    }
}

/// One tensor of a file.
#[derive(Clone)]
struct Raw {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn tensors(folder: &str) -> Vec<Raw> {
    let bytes = std::fs::read(reference().join(folder).join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let raw = |(name, view): (&str, TensorView<'_>)| Raw {
        name: name.into(),
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    let mut tensors: Vec<Raw> = file.iter().map(raw).collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}

/// The folder with other tensors and another `quantization_config`.
fn folder_of(folder: &str, tensors: &[Raw], edit: impl FnOnce(&mut Value)) -> TempDir {
    let out = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(reference().join(folder).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    edit(&mut config["quantization_config"]);
    std::fs::write(out.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|t| {
        let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
        (t.name.clone(), view.unwrap())
    });
    safetensors::serialize_to_file(views, None, &out.path().join("model.safetensors")).unwrap();
    out
}

/// The error of a folder whose tensor `name` was changed or taken away.
fn error_with(folder: &str, name: &str, edit: impl Fn(Raw) -> Option<Raw>) -> String {
    let edited: Vec<Raw> = tensors(folder)
        .into_iter()
        .filter_map(|t| if t.name == name { edit(t) } else { Some(t) })
        .collect();
    let dir = folder_of(folder, &edited, |_| {});
    load(dir.path())
        .expect_err(&format!("{folder} with a wrong {name}"))
        .to_string()
}

/// A tensor with half of its values.
fn halved(mut t: Raw) -> Option<Raw> {
    let size = t.dtype.bitsize() / 8;
    let count = t.bytes.len() / size / 2;
    t.bytes.truncate(count * size);
    t.shape = vec![count];
    Some(t)
}

/// The same bytes as 16-bit whole numbers.
fn retyped(mut t: Raw) -> Option<Raw> {
    if !t.bytes.len().is_multiple_of(2) {
        t.bytes.push(0);
    }
    (t.dtype, t.shape) = (Dtype::I16, vec![t.bytes.len() / 2]);
    Some(t)
}

fn transposed(mut t: Raw) -> Option<Raw> {
    t.shape.reverse();
    Some(t)
}

#[test]
fn every_tensor_that_is_lost_cut_or_of_another_type_is_an_error_that_names_it() {
    for folder in FOLDERS {
        let layer = |t: &Raw| t.name.starts_with("model.layers.0.mlp.down_proj");
        for t in tensors(folder).into_iter().filter(layer) {
            let name = t.name.as_str();
            if !name.ends_with("g_idx") {
                let lost = error_with(folder, name, |_| None);
                assert!(lost.contains(&format!("missing: {name}")), "{lost}");
            }
            if t.bytes.len() > 4 {
                let cut = error_with(folder, name, halved);
                assert!(cut.contains("down_proj"), "{cut}");
            }
            let other = error_with(folder, name, retyped);
            assert!(other.contains("down_proj"), "{other}");
        }
    }
}

#[test]
fn misshapen_words_and_scales_are_errors_with_both_shapes() {
    for folder in &FOLDERS[1..] {
        for (part, want) in [
            ("qweight", "misshapen: model.layers.1.mlp.up_proj.weight is"),
            (
                "qzeros",
                "up_proj.qzeros`: the shape is [14, 4], expected [4, 14]",
            ),
            (
                "scales",
                "up_proj.scales`: the shape is [112, 4], expected [4, 112]",
            ),
        ] {
            let name = format!("model.layers.1.mlp.up_proj.{part}");
            let error = error_with(folder, &name, transposed);
            assert!(error.contains(want), "{error}");
        }
    }
}

#[test]
fn scales_that_are_no_numbers_are_errors() {
    for (folder, name) in [
        (FOLDERS[0], "weight.nested_absmax"),
        (FOLDERS[1], "scales"),
        (FOLDERS[2], "scales"),
    ] {
        let name = format!("model.layers.0.self_attn.q_proj.{name}");
        let infinite = |mut t: Raw| {
            let at = t.dtype.bitsize() / 8 - 1;
            (t.bytes[at - 1], t.bytes[at]) = (0xFF, 0x7F);
            Some(t)
        };
        let error = error_with(folder, &name, infinite);
        let want = "scale 0 is NaN; only finite numbers can be used";
        assert!(error.contains("q_proj") && error.contains(want), "{error}");
    }
}

#[test]
fn a_quant_state_that_is_not_read_is_refused() {
    let name = "model.layers.1.self_attn.o_proj.weight.quant_state.bitsandbytes__nf4";
    for (key, value, want) in [
        (
            "quant_type",
            json!("fp4"),
            "quant_type is \"fp4\"; only nf4 is read",
        ),
        ("blocksize", json!(128), "blocksize is 128; only 64 is read"),
        (
            "nested_blocksize",
            json!(64),
            "nested_blocksize is 64; only 256 is read",
        ),
        ("nested_offset", Value::Null, "`nested_offset` is missing"),
        (
            "shape",
            json!([64, 64, 1]),
            "the shape [64, 64, 1] is not that of a matrix",
        ),
        (
            "shape",
            json!([32, 64]),
            "o_proj.weight is [32, 64], expected [64, 64]",
        ),
        ("shape", json!("64"), "invalid type"),
    ] {
        let error = error_with(FOLDERS[0], name, |mut t| {
            let mut state: Value = serde_json::from_slice(&t.bytes).unwrap();
            state[key] = value.clone();
            t.bytes = state.to_string().into_bytes();
            t.shape = vec![t.bytes.len()];
            Some(t)
        });
        assert!(
            error.contains("o_proj.weight") && error.contains(want),
            "{error}"
        );
    }
    let levels = "model.layers.1.self_attn.o_proj.weight.nested_quant_map";
    let error = error_with(FOLDERS[0], levels, |mut t| {
        t.bytes[..4].copy_from_slice(&(-1f32).to_le_bytes());
        Some(t)
    });
    assert!(
        error.contains("other levels than bitsandbytes' own"),
        "{error}"
    );
}

#[test]
fn a_configuration_that_is_not_read_is_refused() {
    for (folder, key, value) in [
        (FOLDERS[0], "bnb_4bit_quant_type", json!("fp4")),
        (FOLDERS[0], "load_in_8bit", json!(true)),
        (FOLDERS[1], "bits", json!(8)),
        (FOLDERS[1], "version", json!("gemv")),
        (FOLDERS[2], "checkpoint_format", json!("gptq_v2")),
        (FOLDERS[2], "quant_method", json!("hqq")),
    ] {
        let dir = folder_of(folder, &tensors(folder), |section| {
            section[key] = value.clone();
        });
        let error = load(dir.path()).unwrap_err().to_string();
        let want = format!("config.json: `quantization_config.{key}` is {value}: ");
        assert!(error.contains(&want), "{error}");
    }
}

#[test]
fn another_group_size_than_the_file_has_is_an_error() {
    for folder in &FOLDERS[1..] {
        let dir = folder_of(folder, &tensors(folder), |section| {
            section["group_size"] = json!(32);
        });
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("the shape is [4, 8], expected [2, 8]"),
            "{error}"
        );
    }
}

#[test]
fn the_list_of_groups_is_needed_where_groups_go_by_activation() {
    let folder = FOLDERS[2];
    let mut without = tensors(folder);
    without.retain(|t| !t.name.ends_with("g_idx"));
    let dir = folder_of(folder, &without, |_| {});
    let whole = load(&reference().join(folder)).unwrap();
    let row = vec![vec![1u32, 2, 3, 4]];
    let same = load(dir.path()).unwrap();
    assert_eq!(outputs(&same, &row), outputs(&whole, &row));
    let dir = folder_of(folder, &without, |section| {
        section["desc_act"] = json!(true)
    });
    let error = load(dir.path()).unwrap_err().to_string();
    let want = "missing: model.layers.0.self_attn.q_proj.g_idx, ";
    assert!(error.contains(want), "{error}");
}

#[test]
fn a_bias_that_the_model_lacks_may_only_be_zero() {
    let folder = FOLDERS[2];
    for (value, loads) in [(0u8, true), (1, false)] {
        let mut more = tensors(folder);
        more.push(Raw {
            name: "model.layers.0.self_attn.o_proj.bias".into(),
            dtype: Dtype::F16,
            shape: vec![64],
            bytes: vec![value; 128],
        });
        let dir = folder_of(folder, &more, |_| {});
        match load(dir.path()) {
            Ok(_) => assert!(loads),
            Err(error) => {
                let want = "not used: model.layers.0.self_attn.o_proj.bias";
                assert!(!loads && error.to_string().ends_with(want), "{error}");
            }
        }
    }
}

#[test]
fn a_file_that_ends_early_is_an_error_at_every_length() {
    for folder in FOLDERS {
        let out = tempfile::tempdir().unwrap();
        let from = reference().join(folder);
        std::fs::copy(from.join("config.json"), out.path().join("config.json")).unwrap();
        let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
        for length in [1, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(out.path().join("model.safetensors"), &bytes[..length]).unwrap();
            let error = load(out.path()).unwrap_err().to_string();
            assert!(error.contains("not a whole safetensors file"), "{error}");
        }
    }
}
