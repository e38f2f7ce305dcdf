//! Parameter updates.

use crate::rollout::WeightTensor;
use crate::{Error, Result};
use burn::tensor::{Int, Tensor};
use std::fmt;

/// An optimizer's memory, by parameter name, for checkpoints.
#[derive(Debug, Clone, Default)]
pub struct OptimizerState {
    /// The kind of optimizer that wrote it, e.g. `adamw`; empty where that was
    /// not recorded.
    pub optimizer: String,
    /// Updates made so far.
    pub step: u64,
    /// Named tensors, e.g. `exp_avg.model.norm.weight`.
    pub tensors: Vec<(String, WeightTensor)>,
    /// Named 32-bit integers, which hold numbers of fewer bits.
    pub codes: Vec<(String, Tensor<1, Int>)>,
}

impl OptimizerState {
    /// Checks that an optimizer of the kind `expected` wrote this.
    ///
    /// # Errors
    /// [`Error::ForeignState`] when another one did.
    pub fn written_by(&self, expected: &'static str) -> Result<()> {
        match self.optimizer.is_empty() || self.optimizer == expected {
            true => Ok(()),
            false => Err(Error::ForeignState {
                expected,
                found: self.optimizer.clone(),
            }),
        }
    }

    /// Bytes that the tensors take on their device.
    pub fn bytes(&self) -> usize {
        let of_weight = |tensor: &WeightTensor| match tensor {
            WeightTensor::Vector(t) => t.shape().num_elements() * t.dtype().size(),
            WeightTensor::Matrix(t) => t.shape().num_elements() * t.dtype().size(),
        };
        let tensors = self.tensors.iter().map(|(_, t)| of_weight(t));
        let codes = self.codes.iter();
        let codes = codes.map(|(_, t)| t.shape().num_elements() * t.dtype().size());
        tensors.chain(codes).sum()
    }
}

/// Updates parameters one tensor at a time, so that only one tensor's
/// temporaries exist at once. Clipping and the learning-rate schedule are the
/// caller's: both concern all tensors together.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an optimizer",
    note = "implement `Optimizer`"
)]
pub trait Optimizer: fmt::Debug + Send + Sync {
    /// Starts an update; [`Optimizer::update`] then runs once per tensor.
    fn begin_step(&mut self);

    /// The new value of the parameter `name`, given its (clipped) gradient.
    ///
    /// # Errors
    /// When parameter, gradient and stored state differ in shape.
    fn update(
        &mut self,
        name: &str,
        param: WeightTensor,
        grad: WeightTensor,
        lr: f64,
    ) -> Result<WeightTensor>;

    /// The state to save.
    fn state(&self) -> OptimizerState;

    /// Restores what [`Optimizer::state`] gave.
    ///
    /// # Errors
    /// When another kind of optimizer wrote it, or tensors are missing or
    /// unknown; nothing is changed then.
    fn load_state(&mut self, state: OptimizerState) -> Result<()>;
}

const _: fn(&dyn Optimizer) = |_| {};
