//! Adapters on disk, in the folders of the Python package `peft`:
//! `adapter_config.json` and `adapter_model.safetensors`.

use super::safetensors::Shards;
use super::save::write_tensors;
use crate::model::{Head, LoraConfig, Model, Targets};
use burn::tensor::Tensor;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// What stands before a parameter's name in the file.
const PREFIX: &str = "base_model.model.";

/// The part of `adapter_config.json` that says what an adapter computes.
#[derive(Debug, Deserialize)]
struct AdapterConfig {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    lora_dropout: f32,
    #[serde(default)]
    use_rslora: bool,
    target_modules: Option<OneOrMany>,
    exclude_modules: Option<OneOrMany>,
    base_model_name_or_path: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Options that change what an adapter computes and are not supported; each
/// may be missing, null, false, empty or `none`.
const UNSUPPORTED: &[&str] = &[
    "alora_invocation_tokens",
    "alpha_pattern",
    "bias",
    "fan_in_fan_out",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "megatron_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
];

/// Puts the adapter of a PEFT folder on a model and freezes the rest.
///
/// # Errors
/// When the folder cannot be read, when the adapter is of another kind or uses
/// an option that is not supported, or when its tensors are missing, misshapen
/// or not used: one error lists every name.
pub fn load_adapter(model: &mut Model, dir: &Path) -> Result<()> {
    let config = adapter_config(dir)?;
    model.attach_lora(config, 0).map_err(|e| {
        let message = format!("the adapter does not fit the model: {e}");
        Error::malformed(dir.join(CONFIG), message)
    })?;
    load_trained(model, dir)
}

/// Replaces what training changes in a model with an adapter by what
/// [`save_adapter`] wrote.
pub(crate) fn load_trained(model: &mut Model, dir: &Path) -> Result<()> {
    let path = dir.join(TENSORS);
    let shards = Shards::open_single(&path)?;
    let device = model.device();
    let trained: BTreeSet<String> = trained(model).map(|(name, _)| name).collect();
    let (mut faults, mut used, mut failed) = (Vec::new(), BTreeSet::new(), None);
    model.each(&mut |name, param| {
        if !trained.contains(name) {
            return;
        }
        let stored = format!("{PREFIX}{name}");
        match shards.get(&stored).map(|s| s.shape().to_vec()) {
            Some(shape) if shape == param.dims() => match shards.read(&stored) {
                Ok(data) => {
                    let tensor = match shape.len() {
                        1 => WeightTensor::Vector(Tensor::from_data(data, &device)),
                        _ => WeightTensor::Matrix(Tensor::from_data(data, &device)),
                    };
                    param.replace(tensor);
                }
                Err(error) => failed = failed.take().or(Some(error)),
            },
            Some(shape) => faults.push(format!(
                "{stored} is {shape:?}, expected {:?}",
                param.dims()
            )),
            None => faults.push(format!("{stored} is missing")),
        }
        used.insert(stored);
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let extra = shards.names().filter(|name| !used.contains(*name));
    faults.extend(extra.map(|name| format!("{name} is not used")));
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Weights {
            place: path.display().to_string(),
            message: faults.join("; "),
        }),
    }
}

/// Writes the adapter of a model, and the head of a critic, as a folder that
/// `peft` loads.
///
/// # Errors
/// [`Error::Unsupported`] for a model without adapter; when the folder cannot
/// be written.
pub fn save_adapter(model: &Model, dir: &Path) -> Result<()> {
    let lora = model.lora.as_ref();
    let lora = lora.ok_or_else(|| Error::Unsupported("the model has no adapter".into()))?;
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let path = dir.join(CONFIG);
    let text = serde_json::to_string_pretty(&config_json(lora, &model.head))
        .map_err(|e| Error::malformed(&path, e.to_string()))?;
    std::fs::write(&path, text).map_err(Error::io(&path))?;
    let named = trained(model).map(|(name, tensor)| (format!("{PREFIX}{name}"), tensor));
    write_tensors(named.collect(), &dir.join(TENSORS))
}

fn trained(model: &Model) -> impl Iterator<Item = (String, WeightTensor)> {
    let all = model.tensors().into_iter();
    all.filter(|(name, _)| model.trains(name))
}

fn config_json(lora: &LoraConfig, head: &Head) -> Value {
    let (task, saved) = match head {
        Head::Score(_) => ("TOKEN_CLS", json!(["score"])),
        _ => ("CAUSAL_LM", Value::Null),
    };
    let targets = match &lora.targets {
        Targets::AllLinear => json!([
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj"
        ]),
        Targets::Names(names) => json!(names),
        Targets::Pattern(pattern) => json!(pattern),
    };
    let exclude = match lora.exclude.is_empty() {
        true => Value::Null,
        false => json!(lora.exclude),
    };
    json!({
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": lora.base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.stabilised,
        "target_modules": targets,
        "exclude_modules": exclude,
        "modules_to_save": saved,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
    })
}

/// The settings of the adapter in a PEFT folder.
///
/// # Errors
/// When `adapter_config.json` cannot be read, is of another kind than LoRA, or
/// uses an option that is not supported.
pub fn adapter_config(dir: &Path) -> Result<LoraConfig> {
    let path = &dir.join(CONFIG);
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    let config: AdapterConfig = serde_json::from_str(&text)
        .map_err(|e| Error::malformed_at(path, e.line(), e.to_string()))?;
    if config.peft_type != "LORA" {
        let message = format!(
            "`peft_type` is {}; only LORA is supported",
            config.peft_type
        );
        return Err(Error::malformed(path, message));
    }
    for key in UNSUPPORTED {
        if let Some(value) = config.others.get(*key).filter(|v| !asks_nothing(v)) {
            let message = format!("`{key}` is {value}, which is not supported");
            return Err(Error::malformed(path, message));
        }
    }
    let targets = match config.target_modules {
        Some(OneOrMany::Many(names)) => Targets::Names(names),
        Some(OneOrMany::One(name)) => Targets::from_text(&name),
        None => return Err(Error::malformed(path, "`target_modules` is missing")),
    };
    let exclude = match config.exclude_modules {
        Some(OneOrMany::Many(names)) => names,
        Some(OneOrMany::One(_)) => {
            let message = "`exclude_modules` is a pattern; only a list is supported";
            return Err(Error::malformed(path, message));
        }
        None => Vec::new(),
    };
    Ok(LoraConfig {
        rank: config.r,
        alpha: config.lora_alpha,
        dropout: config.lora_dropout,
        stabilised: config.use_rslora,
        targets,
        exclude,
        base: config.base_model_name_or_path.unwrap_or_default(),
    })
}

fn asks_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::String(text) => text.is_empty() || text == "none",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}
