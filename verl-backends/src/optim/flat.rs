//! Parameters as vectors, for updates that treat every weight alike.

use burn::tensor::Tensor;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// The shape that a flattened parameter goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Vector,
    Matrix([usize; 2]),
}

impl Form {
    /// The values in their shape.
    pub(super) fn restore(self, values: Tensor<1>) -> WeightTensor {
        match self {
            Form::Vector => WeightTensor::Vector(values),
            Form::Matrix(dims) => WeightTensor::Matrix(values.reshape(dims)),
        }
    }
}

/// A tensor's values row after row, and its shape.
pub(super) fn flatten(tensor: WeightTensor) -> (Tensor<1>, Form) {
    match tensor {
        WeightTensor::Vector(vector) => (vector, Form::Vector),
        WeightTensor::Matrix(matrix) => {
            let [rows, columns] = matrix.dims();
            (
                matrix.reshape([rows * columns]),
                Form::Matrix([rows, columns]),
            )
        }
    }
}

/// A parameter and its gradient, flattened.
pub(super) struct Pair {
    pub(super) param: Tensor<1>,
    pub(super) grad: Tensor<1>,
    pub(super) form: Form,
}

impl Pair {
    /// Refuses a gradient of another shape.
    pub(super) fn new(name: &str, param: WeightTensor, grad: WeightTensor) -> Result<Self> {
        let ((param, form), (grad, grad_form)) = (flatten(param), flatten(grad));
        match form == grad_form && param.dims() == grad.dims() {
            true => Ok(Pair { param, grad, form }),
            false => Err(misshapen("gradient", name)),
        }
    }

    /// Number of weights.
    pub(super) fn len(&self) -> usize {
        self.param.dims()[0]
    }
}

/// The error of a gradient or a state that does not fit its parameter.
pub(super) fn misshapen(what: &str, name: &str) -> Error {
    Error::invalid(format!("the {what} of `{name}` has another shape than it"))
}

/// Number of values in a tensor.
pub(super) fn count(tensor: &WeightTensor) -> usize {
    match tensor {
        WeightTensor::Vector(vector) => vector.dims()[0],
        WeightTensor::Matrix(matrix) => matrix.dims().iter().product(),
    }
}
