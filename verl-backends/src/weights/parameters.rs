//! The parameters of a folder by the model's names, however they are stored.

use super::bitsandbytes::Nf4Tensors;
use super::packed::{PackedTensors, Packing};
use super::safetensors::Shards;
use crate::model::QuantScheme;
use crate::quant::{Dequantise, Quantised};
use burn::tensor::TensorData;
use verl_core::Result;

/// Parameters in full precision or in the codes of a scheme.
#[derive(Debug)]
pub(super) struct Parameters<'a> {
    shards: &'a Shards,
    scheme: Option<QuantScheme>,
}

/// How one parameter is stored.
enum Storage<'a> {
    Plain,
    Nf4(Nf4Tensors<'a>),
    Packed(PackedTensors<'a>),
}

impl<'a> Parameters<'a> {
    pub(super) fn new(shards: &'a Shards, scheme: Option<QuantScheme>) -> Self {
        Parameters { shards, scheme }
    }

    /// Names of the tensors that a parameter is made of, found or not.
    pub(super) fn parts(&self, name: &str) -> Vec<String> {
        match self.storage(name) {
            Storage::Plain => vec![name.to_string()],
            Storage::Nf4(tensors) => tensors.parts(),
            Storage::Packed(tensors) => tensors.parts(),
        }
    }

    /// Shape of a parameter whose parts are there.
    pub(super) fn shape(&self, name: &str) -> Result<Vec<usize>> {
        match self.storage(name) {
            Storage::Plain => Ok(self.shards.want(name)?.shape().to_vec()),
            Storage::Nf4(tensors) => Ok(tensors.shape()?.to_vec()),
            Storage::Packed(tensors) => Ok(tensors.shape()?.to_vec()),
        }
    }

    /// Values of a parameter, as f32.
    pub(super) fn read(&self, name: &str) -> Result<TensorData> {
        match self.quantised(name)? {
            None => self.shards.read(name),
            Some(matrix) => Ok(TensorData::new(matrix.dequantise(), matrix.shape())),
        }
    }

    /// Codes and scales of a parameter, unless it is stored in full.
    pub(super) fn quantised(&self, name: &str) -> Result<Option<Quantised>> {
        Ok(match self.storage(name) {
            Storage::Plain => None,
            Storage::Nf4(tensors) => Some(Quantised::Nf4(tensors.read()?)),
            Storage::Packed(tensors) => Some(Quantised::Grouped(tensors.read()?)),
        })
    }

    /// Whether a tensor that no parameter needs changes nothing: GPTQ writes a
    /// bias of zeros beside projections without one.
    pub(super) fn is_idle(&self, tensor: &str) -> bool {
        let Some(base) = tensor.strip_suffix(".bias") else {
            return false;
        };
        let packed = matches!(self.storage(&format!("{base}.weight")), Storage::Packed(_));
        let values = self.shards.get(tensor).and_then(|t| t.floats().ok());
        packed && values.is_some_and(|values| values.iter().all(|v| *v == 0.0))
    }

    fn storage(&self, name: &str) -> Storage<'a> {
        let packed = |packing, group_size| {
            PackedTensors::of(self.shards, packing, group_size, name).map(Storage::Packed)
        };
        let found = match self.scheme {
            None => None,
            Some(QuantScheme::BitsAndBytes) => Nf4Tensors::of(self.shards, name).map(Storage::Nf4),
            Some(QuantScheme::Awq { group_size }) => packed(Packing::Awq, group_size),
            Some(QuantScheme::Gptq {
                group_size,
                by_activation,
            }) => packed(Packing::Gptq { by_activation }, group_size),
        };
        found.unwrap_or(Storage::Plain)
    }
}
