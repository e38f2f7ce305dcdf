//! A [`Model`] becomes a model folder that `transformers` loads.

use crate::model::Model;
use burn::tensor::{Int, Tensor};
use safetensors::{Dtype, View};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use verl_core::optimizer::OptimizerState;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// Key of a file's metadata that says which optimizer wrote it.
pub(super) const OPTIMIZER: &str = "optimizer";

/// Writes `config.json` and `model.safetensors` (f32) into `dir`, which is
/// made if need be. Tensors leave the device one at a time.
///
/// # Errors
/// When the folder cannot be written; [`Error::Unsupported`] for a model whose
/// projections are kept as codes.
pub fn save_pretrained(model: &Model, dir: &Path) -> Result<()> {
    if model.is_quantised() {
        let message = "weights kept as codes are not written; save the adapter, or merge it first";
        return Err(Error::Unsupported(message.into()));
    }
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let mut config = model.config.source.clone();
    for key in ["dtype", "torch_dtype"] {
        if config.contains_key(key) {
            config.insert(key.into(), Value::from("float32"));
        }
    }
    let path = dir.join("config.json");
    let text = serde_json::to_string_pretty(&config)
        .map_err(|e| Error::malformed(&path, e.to_string()))?;
    std::fs::write(&path, text).map_err(Error::io(&path))?;
    write_tensors(model.tensors(), &dir.join("model.safetensors"))
}

/// Writes named tensors as one safetensors file.
pub(super) fn write_tensors(tensors: Vec<(String, WeightTensor)>, path: &Path) -> Result<()> {
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| (name, OnDevice::weight(tensor)));
    write(tensors, HashMap::new(), path)
}

/// Writes an optimizer's tensors and kind, not its count of updates.
pub(crate) fn write_state(state: OptimizerState, path: &Path) -> Result<()> {
    let tensors = state.tensors.into_iter();
    let tensors = tensors.map(|(name, tensor)| (name, OnDevice::weight(tensor)));
    let codes = state.codes.into_iter();
    let codes = codes.map(|(name, codes)| (name, OnDevice::codes(codes)));
    let kind = HashMap::from([(OPTIMIZER.to_string(), state.optimizer)]);
    write(tensors.chain(codes), kind, path)
}

fn write(
    tensors: impl Iterator<Item = (String, OnDevice)>,
    mut metadata: HashMap<String, String>,
    path: &Path,
) -> Result<()> {
    metadata.insert("format".into(), "pt".into());
    safetensors::serialize_to_file(tensors, Some(metadata), path)
        .map_err(|e| Error::malformed(path, e.to_string()))
}

/// A tensor whose bytes are fetched when they are written.
struct OnDevice {
    tensor: Stored,
    shape: Vec<usize>,
}

enum Stored {
    Weight(WeightTensor),
    Codes(Tensor<1, Int>),
}

impl OnDevice {
    fn weight(tensor: WeightTensor) -> Self {
        let shape = match &tensor {
            WeightTensor::Vector(t) => t.dims().to_vec(),
            WeightTensor::Matrix(t) => t.dims().to_vec(),
        };
        OnDevice {
            tensor: Stored::Weight(tensor),
            shape,
        }
    }

    fn codes(codes: Tensor<1, Int>) -> Self {
        OnDevice {
            shape: codes.dims().to_vec(),
            tensor: Stored::Codes(codes),
        }
    }
}

impl View for OnDevice {
    fn dtype(&self) -> Dtype {
        match self.tensor {
            Stored::Weight(_) => Dtype::F32,
            Stored::Codes(_) => Dtype::I32,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = match &self.tensor {
            Stored::Weight(WeightTensor::Vector(t)) => t.to_data_as::<f32>(),
            Stored::Weight(WeightTensor::Matrix(t)) => t.to_data_as::<f32>(),
            Stored::Codes(t) => t.to_data_as::<i32>(),
        };
        Cow::Owned(data.as_bytes().to_vec())
    }

    fn data_len(&self) -> usize {
        4 * self.shape.iter().product::<usize>()
    }
}
