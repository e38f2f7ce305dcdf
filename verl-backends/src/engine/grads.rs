//! Accumulated gradients by parameter name.

use crate::model::Model;
use burn::tensor::Tensor;
use std::collections::BTreeMap;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// The sum of the gradients added since the last update.
#[derive(Debug, Default)]
pub struct Gradients {
    sums: BTreeMap<String, WeightTensor>,
    /// Gradients of frozen weights are not kept.
    adapters_only: bool,
}

impl Gradients {
    /// No gradients yet, for the parameters that training changes.
    pub(crate) fn of(model: &Model) -> Self {
        Gradients {
            adapters_only: model.lora.is_some(),
            ..Gradients::default()
        }
    }

    /// Whether a parameter's gradient is kept.
    pub(crate) fn wants(&self, name: &str) -> bool {
        !self.adapters_only || Model::stays_trainable(name)
    }

    /// Adds a vector's gradient, unless the vector is frozen.
    pub fn add_vector(&mut self, name: &str, grad: Tensor<1>) {
        if !self.wants(name) {
            return;
        }
        let sum = match self.sums.remove(name) {
            Some(WeightTensor::Vector(sum)) => sum + grad,
            _ => grad,
        };
        self.sums
            .insert(name.to_string(), WeightTensor::Vector(sum));
    }

    /// Adds a matrix's gradient, unless the matrix is frozen.
    pub fn add_matrix(&mut self, name: &str, grad: Tensor<2>) {
        if !self.wants(name) {
            return;
        }
        let sum = match self.sums.remove(name) {
            Some(WeightTensor::Matrix(sum)) => sum + grad,
            _ => grad,
        };
        self.sums
            .insert(name.to_string(), WeightTensor::Matrix(sum));
    }

    /// Lets `add` add to a vector's gradient in place, unless the vector is
    /// frozen.
    #[cfg(feature = "flex")]
    pub(crate) fn in_vector(&mut self, name: &str, n: usize, add: impl FnOnce(&mut [f32])) {
        if !self.wants(name) {
            return;
        }
        let mut sum = match self.sums.remove(name) {
            Some(WeightTensor::Vector(sum)) => crate::host::values(sum),
            _ => vec![0f32; n],
        };
        add(&mut sum);
        let sum = WeightTensor::Vector(crate::host::tensor(sum, [n]));
        self.sums.insert(name.to_string(), sum);
    }

    /// Lets `add` add to a matrix's gradient in place, unless the matrix is
    /// frozen.
    #[cfg(feature = "flex")]
    pub(crate) fn in_matrix(&mut self, name: &str, dims: [usize; 2], add: impl FnOnce(&mut [f32])) {
        if !self.wants(name) {
            return;
        }
        let mut sum = match self.sums.remove(name) {
            Some(WeightTensor::Matrix(sum)) => crate::host::values(sum),
            _ => vec![0f32; dims[0] * dims[1]],
        };
        add(&mut sum);
        let sum = WeightTensor::Matrix(crate::host::tensor(sum, dims));
        self.sums.insert(name.to_string(), sum);
    }

    /// The gradient of a parameter, if any was added.
    pub fn get(&self, name: &str) -> Option<&WeightTensor> {
        self.sums.get(name)
    }

    /// Takes a parameter's gradient out.
    pub fn take(&mut self, name: &str) -> Option<WeightTensor> {
        self.sums.remove(name)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sums.clear();
    }

    /// The L2 norm over all parameters together.
    ///
    /// # Errors
    /// [`Error::NotFinite`] naming the first tensor that holds a NaN or an
    /// infinity (or whose squares overflow).
    pub fn global_norm(&self) -> Result<f64> {
        let mut total = 0f64;
        for (name, grad) in &self.sums {
            let square = match grad {
                WeightTensor::Vector(t) => sum_of_squares(t),
                WeightTensor::Matrix(t) => sum_of_squares(t),
            };
            if !square.is_finite() {
                return Err(Error::NotFinite {
                    what: "squared gradient".into(),
                    value: square as f32,
                    place: name.clone(),
                });
            }
            total += square;
        }
        Ok(total.sqrt())
    }
}

fn sum_of_squares<const D: usize>(tensor: &Tensor<D>) -> f64 {
    #[cfg(feature = "flex")]
    if let Some(values) = crate::host::View::of(tensor) {
        return crate::host::sum_of_squares(&values);
    }
    f64::from(tensor.clone().square().sum().into_scalar::<f32>())
}
