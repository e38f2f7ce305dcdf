//! A [`Model`] becomes a model folder that `transformers` loads.

use crate::model::Model;
use safetensors::{Dtype, View};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// Writes `config.json` and `model.safetensors` (f32) into `dir`, which is
/// made if need be. Tensors leave the device one at a time.
///
/// # Errors
/// When the folder cannot be written.
pub fn save_pretrained(model: &Model, dir: &Path) -> Result<()> {
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
pub(crate) fn write_tensors(tensors: Vec<(String, WeightTensor)>, path: &Path) -> Result<()> {
    let views = tensors
        .into_iter()
        .map(|(name, tensor)| (name, OnDevice::new(tensor)));
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|e| Error::malformed(path, e.to_string()))
}

/// A tensor whose bytes are fetched when they are written.
struct OnDevice {
    tensor: WeightTensor,
    shape: Vec<usize>,
}

impl OnDevice {
    fn new(tensor: WeightTensor) -> Self {
        let shape = match &tensor {
            WeightTensor::Vector(t) => t.dims().to_vec(),
            WeightTensor::Matrix(t) => t.dims().to_vec(),
        };
        OnDevice { tensor, shape }
    }
}

impl View for OnDevice {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = match &self.tensor {
            WeightTensor::Vector(t) => t.to_data_as::<f32>(),
            WeightTensor::Matrix(t) => t.to_data_as::<f32>(),
        };
        Cow::Owned(data.as_bytes().to_vec())
    }

    fn data_len(&self) -> usize {
        4 * self.shape.iter().product::<usize>()
    }
}
