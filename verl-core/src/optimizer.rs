//! Parameter updates.

use crate::Result;
use crate::rollout::WeightTensor;
use std::fmt;

/// An optimizer's memory, by parameter name, for checkpoints.
#[derive(Debug, Clone, Default)]
pub struct OptimizerState {
    /// Updates made so far.
    pub step: u64,
    /// Named tensors, e.g. `exp_avg.model.norm.weight`.
    pub tensors: Vec<(String, WeightTensor)>,
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
    fn load_state(&mut self, state: OptimizerState) -> Result<()>;
}

const _: fn(&dyn Optimizer) = |_| {};
