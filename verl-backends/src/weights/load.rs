//! A model folder becomes a [`Model`].

use super::parameters::Parameters;
use super::safetensors::Shards;
use super::save::OPTIMIZER;
use crate::model::{Coding, Model, ModelConfig, ParamMut, QuantScheme, Weight};
use burn::tensor::{DType, Device, Tensor, TensorData};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verl_core::optimizer::OptimizerState;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// Loads a Hugging Face model folder onto a device, as f32: safetensors, single
/// or sharded, or else the one GGUF file beside its `config.json`.
///
/// Projections that the configuration's [`QuantScheme`] keeps in 4 bits are
/// dequantised one by one as they are read.
///
/// # Errors
/// When the configuration is not supported, or when tensors are missing,
/// misshapen, truncated or not used: one error lists every name.
pub fn load_model(dir: &Path, device: &Device) -> Result<Model> {
    let config = Arc::new(ModelConfig::from_dir(dir)?);
    match gguf_file(dir)? {
        Some(path) => super::gguf::load(config, &path, device),
        None => {
            let scheme = config.quantisation;
            load_weights(config, scheme, dir, device)
        }
    }
}

/// As [`load_model`], with every projection of the layers kept as codes: those
/// of the checkpoint where it has some, `coding`'s otherwise. From safetensors
/// they are quantised one by one as they are read, so the whole model never
/// exists in full; from a GGUF file it does.
///
/// # Errors
/// As [`load_model`]; and [`Error::Weights`] naming a projection with a value
/// that is not finite.
pub fn load_quantised(dir: &Path, coding: Coding, device: &Device) -> Result<Model> {
    let config = Arc::new(ModelConfig::from_dir(dir)?);
    if let Some(path) = gguf_file(dir)? {
        let mut model = super::gguf::load(config, &path, device)?;
        model.quantise(coding)?;
        return Ok(model);
    }
    let shards = Shards::open(dir)?;
    let parameters = Parameters::new(&shards, config.quantisation);
    let mut model = Model::skeleton(config, device);
    check(&mut model, &shards, &parameters, dir)?;
    let mut failed = None;
    model.each_linear(&mut |name, linear| {
        if failed.is_none() {
            let weight = read_coded(&parameters, name, linear.weight.dims(), coding);
            match weight {
                Ok(weight) => linear.weight = weight,
                Err(error) => failed = Some(error),
            }
        }
    });
    fill_all(&mut model, &parameters, failed, device)
}

fn read_coded(
    parameters: &Parameters<'_>,
    module: &str,
    dims: [usize; 2],
    coding: Coding,
) -> Result<Weight> {
    let name = format!("{module}.weight");
    if let Some(coded) = parameters.quantised(&name)? {
        return Ok(Weight::Coded(Arc::new(coded)));
    }
    let data = parameters.read(&name)?;
    let values: Vec<f32> = data.iter::<f32>().collect();
    coding.weight(module, &values, dims)
}

/// Fills what is in full precision.
fn fill_all(
    model: &mut Model,
    parameters: &Parameters<'_>,
    mut failed: Option<Error>,
    device: &Device,
) -> Result<Model> {
    model.each(&mut |name, param| {
        if failed.is_none() {
            failed = fill(parameters, name, param, device).err();
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(model.clone()),
    }
}

/// The GGUF file of a folder without safetensors.
fn gguf_file(dir: &Path) -> Result<Option<PathBuf>> {
    let names = ["model.safetensors", "model.safetensors.index.json"];
    if names.iter().any(|name| dir.join(name).exists()) {
        return Ok(None);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
        let path = entry.map_err(Error::io(dir))?.path();
        if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
        {
            files.push(path);
        }
    }
    match files.len() {
        0 | 1 => Ok(files.pop()),
        _ => Err(Error::malformed(dir, "holds several GGUF files; keep one")),
    }
}

/// Loads the weights in `dir`, stored by a scheme or in full, into a model of
/// the given configuration.
pub(crate) fn load_weights(
    config: Arc<ModelConfig>,
    scheme: Option<QuantScheme>,
    dir: &Path,
    device: &Device,
) -> Result<Model> {
    let shards = Shards::open(dir)?;
    let parameters = Parameters::new(&shards, scheme);
    let mut model = Model::skeleton(config, device);
    check(&mut model, &shards, &parameters, dir)?;
    fill_all(&mut model, &parameters, None, device)
}

/// Reads what [`write_state`](super::save::write_state) wrote. A file that does
/// not say which optimizer wrote it is from when there was AdamW alone.
pub(crate) fn read_state(path: &Path, device: &Device) -> Result<OptimizerState> {
    let shards = Shards::open_single(path)?;
    let mut state = OptimizerState {
        optimizer: shards.metadata(OPTIMIZER)?.unwrap_or("adamw".into()),
        ..OptimizerState::default()
    };
    let names: Vec<String> = shards.names().map(String::from).collect();
    for name in names {
        match shards.integers(&name)? {
            Some(codes) => {
                let codes = Tensor::from_data(codes.as_slice(), (device, DType::I32));
                state.codes.push((name, codes));
            }
            None => {
                let tensor = float_tensor(shards.read(&name)?, device);
                let tensor = tensor.ok_or_else(|| {
                    Error::malformed(path, format!("tensor `{name}` is no vector or matrix"))
                })?;
                state.tensors.push((name, tensor));
            }
        }
    }
    Ok(state)
}

fn float_tensor(data: TensorData, device: &Device) -> Option<WeightTensor> {
    match data.shape().len() {
        1 => Some(WeightTensor::Vector(Tensor::from_data(data, device))),
        2 => Some(WeightTensor::Matrix(Tensor::from_data(data, device))),
        _ => None,
    }
}

fn fill(
    parameters: &Parameters<'_>,
    name: &str,
    param: ParamMut<'_>,
    device: &Device,
) -> Result<()> {
    let data = parameters.read(name)?;
    let tensor = match param {
        ParamMut::Vector(_) => WeightTensor::Vector(Tensor::from_data(data, device)),
        ParamMut::Matrix(_) => WeightTensor::Matrix(Tensor::from_data(data, device)),
    };
    param.replace(tensor);
    Ok(())
}

/// Compares what the model wants with what the files hold.
fn check(
    model: &mut Model,
    shards: &Shards,
    parameters: &Parameters<'_>,
    dir: &Path,
) -> Result<()> {
    let (mut missing, mut misshapen, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut failed = None;
    let tied = model.config.tied();
    model.each(&mut |name, param| {
        let parts = parameters.parts(name);
        let absent = parts.iter().filter(|part| shards.get(part).is_none());
        let absent: Vec<String> = absent.cloned().collect();
        if absent.is_empty() {
            match parameters.shape(name) {
                Ok(shape) if shape != param.dims() => {
                    misshapen.push(format!("{name} is {shape:?}, expected {:?}", param.dims()));
                }
                Ok(_) => {}
                Err(error) => failed = failed.take().or(Some(error)),
            }
        }
        missing.extend(absent);
        used.extend(parts);
    });
    if let Some(error) = failed {
        return Err(error);
    }
    // A tied model's file may carry a copy of the embedding as the head, and
    // old files carry the rotation frequencies.
    let ignorable =
        |name: &str| (tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq");
    let extra: Vec<&str> = shards
        .names()
        .filter(|n| !used.contains(*n) && !ignorable(n) && !parameters.is_idle(n))
        .collect();
    let mut faults = Vec::new();
    for (kind, names) in [
        ("missing", missing.join(", ")),
        ("misshapen", misshapen.join(", ")),
        ("not used", extra.join(", ")),
    ] {
        if !names.is_empty() {
            faults.push(format!("{kind}: {names}"));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Weights {
            place: dir.display().to_string(),
            message: faults.join("; "),
        }),
    }
}
