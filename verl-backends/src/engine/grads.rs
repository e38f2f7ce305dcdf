//! Accumulated gradients by parameter name.

use burn::tensor::Tensor;
use std::collections::BTreeMap;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// The sum of the gradients added since the last update.
#[derive(Debug, Default)]
pub struct Gradients {
    sums: BTreeMap<String, WeightTensor>,
}

impl Gradients {
    /// Adds a vector's gradient.
    pub fn add_vector(&mut self, name: &str, grad: Tensor<1>) {
        let sum = match self.sums.remove(name) {
            Some(WeightTensor::Vector(sum)) => sum + grad,
            _ => grad,
        };
        self.sums
            .insert(name.to_string(), WeightTensor::Vector(sum));
    }

    /// Adds a matrix's gradient.
    pub fn add_matrix(&mut self, name: &str, grad: Tensor<2>) {
        let sum = match self.sums.remove(name) {
            Some(WeightTensor::Matrix(sum)) => sum + grad,
            _ => grad,
        };
        self.sums
            .insert(name.to_string(), WeightTensor::Matrix(sum));
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
            let square: f32 = match grad {
                WeightTensor::Vector(t) => t.clone().square().sum().into_scalar(),
                WeightTensor::Matrix(t) => t.clone().square().sum().into_scalar(),
            };
            if !square.is_finite() {
                return Err(Error::NotFinite {
                    what: "squared gradient".into(),
                    value: square,
                    place: name.clone(),
                });
            }
            total += f64::from(square);
        }
        Ok(total.sqrt())
    }
}
