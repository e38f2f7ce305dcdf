//! A saved state on its way back into an optimizer.

use burn::tensor::{Int, IntDType, Tensor};
use std::collections::BTreeMap;
use verl_core::optimizer::OptimizerState;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// Tensors are taken out by kind and parameter, `{kind}.{parameter}`; one that
/// nobody took is an error in the end.
pub(super) struct Saved {
    optimizer: &'static str,
    pub(super) step: u64,
    tensors: BTreeMap<String, WeightTensor>,
    codes: BTreeMap<String, Tensor<1, Int>>,
}

impl Saved {
    /// A state that `optimizer` must have written.
    pub(super) fn open(state: OptimizerState, optimizer: &'static str) -> Result<Self> {
        state.written_by(optimizer)?;
        Ok(Saved {
            optimizer,
            step: state.step,
            tensors: state.tensors.into_iter().collect(),
            codes: state.codes.into_iter().collect(),
        })
    }

    /// The parameters that have a tensor of this kind.
    pub(super) fn parameters(&self, kind: &str) -> Vec<String> {
        let of_kind = |key: &String| Some(key.strip_prefix(kind)?.strip_prefix('.')?.to_string());
        self.tensors.keys().filter_map(of_kind).collect()
    }

    /// Takes a tensor out.
    pub(super) fn tensor(&mut self, kind: &str, parameter: &str) -> Result<WeightTensor> {
        let key = format!("{kind}.{parameter}");
        let found = self.tensors.remove(&key);
        found.ok_or_else(|| self.fault(format!("no `{key}`")))
    }

    /// Takes a vector out.
    pub(super) fn vector(&mut self, kind: &str, parameter: &str) -> Result<Tensor<1>> {
        match self.tensor(kind, parameter)? {
            WeightTensor::Vector(vector) => Ok(vector),
            WeightTensor::Matrix(_) => {
                Err(self.fault(format!("a matrix as `{kind}.{parameter}`, not a vector")))
            }
        }
    }

    /// Takes a matrix out.
    pub(super) fn matrix(&mut self, kind: &str, parameter: &str) -> Result<Tensor<2>> {
        match self.tensor(kind, parameter)? {
            WeightTensor::Matrix(matrix) => Ok(matrix),
            WeightTensor::Vector(_) => {
                Err(self.fault(format!("a vector as `{kind}.{parameter}`, not a matrix")))
            }
        }
    }

    /// Takes integers out, as `i32`.
    pub(super) fn codes(&mut self, kind: &str, parameter: &str) -> Result<Tensor<1, Int>> {
        let key = format!("{kind}.{parameter}");
        let found = self.codes.remove(&key);
        let found = found.ok_or_else(|| self.fault(format!("no `{key}`")))?;
        Ok(found.cast(IntDType::I32))
    }

    /// Checks that everything was taken.
    pub(super) fn finish(self) -> Result<()> {
        match self.tensors.keys().chain(self.codes.keys()).next() {
            Some(stray) => Err(self.fault(format!("the unknown tensor `{stray}`"))),
            None => Ok(()),
        }
    }

    /// An error that says what the state has.
    pub(super) fn fault(&self, what: String) -> Error {
        Error::invalid(format!("the state of `{}` has {what}", self.optimizer))
    }
}
