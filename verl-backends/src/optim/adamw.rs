//! AdamW (arXiv:1711.05101): Adam with decoupled weight decay.
//!
//! ```text
//! m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
//! w = w (1 - lr wd) - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//! ```

use super::saved::Saved;
#[cfg(feature = "flex")]
use crate::host::{self, View};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use verl_core::optimizer::{Optimizer, OptimizerState};
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

const NAME: &str = "adamw";
const MEAN: &str = "exp_avg";
const SQUARE: &str = "exp_avg_sq";

/// Settings of [`AdamW`]; the defaults are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decay of every weight, in units of the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        AdamWConfig {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// The optimizer and its two moments per parameter.
#[derive(Debug)]
pub struct AdamW {
    config: AdamWConfig,
    step: u64,
    moments: BTreeMap<String, (WeightTensor, WeightTensor)>,
}

impl AdamW {
    /// An optimizer without history.
    pub fn new(config: AdamWConfig) -> Self {
        AdamW {
            config,
            step: 0,
            moments: BTreeMap::new(),
        }
    }

    fn apply<const D: usize>(
        &self,
        param: Tensor<D>,
        grad: Tensor<D>,
        moments: Option<(Tensor<D>, Tensor<D>)>,
        lr: f64,
    ) -> (Tensor<D>, Tensor<D>, Tensor<D>) {
        #[cfg(feature = "flex")]
        if let (Some(values), true) = (View::of(&param), View::of(&grad).is_some()) {
            return self.apply_on_host(&values, param.dims(), grad, moments, lr);
        }
        self.apply_plain(param, grad, moments, lr)
    }

    pub(super) fn apply_plain<const D: usize>(
        &self,
        param: Tensor<D>,
        grad: Tensor<D>,
        moments: Option<(Tensor<D>, Tensor<D>)>,
        lr: f64,
    ) -> (Tensor<D>, Tensor<D>, Tensor<D>) {
        let AdamWConfig {
            betas: (b1, b2),
            eps,
            weight_decay,
        } = self.config;
        let steps = i32::try_from(self.step).unwrap_or(i32::MAX);
        let first = grad.clone().mul_scalar(1.0 - b1);
        let second = grad.square().mul_scalar(1.0 - b2);
        let (m, v) = match moments {
            Some((m, v)) => (m.mul_scalar(b1) + first, v.mul_scalar(b2) + second),
            None => (first, second),
        };
        let root = v
            .clone()
            .mul_scalar(1.0 / (1.0 - b2.powi(steps)))
            .sqrt()
            .add_scalar(eps);
        let change = (m.clone() / root).mul_scalar(lr / (1.0 - b1.powi(steps)));
        (param.mul_scalar(1.0 - lr * weight_decay) - change, m, v)
    }

    /// The constants of the present step.
    #[cfg(feature = "flex")]
    pub(super) fn host_step(&self, lr: f64) -> host::Step {
        let (b1, b2) = self.config.betas;
        let steps = i32::try_from(self.step).unwrap_or(i32::MAX);
        host::Step {
            betas: (b1 as f32, b2 as f32),
            eps: self.config.eps as f32,
            rate: (lr / (1.0 - b1.powi(steps))) as f32,
            second_correction: (1.0 / (1.0 - b2.powi(steps))) as f32,
            keep: (1.0 - lr * self.config.weight_decay) as f32,
        }
    }

    /// The optimizer that a state holds, perhaps inside another's.
    pub(super) fn restored(config: AdamWConfig, saved: &mut Saved) -> Result<Self> {
        let mut moments = BTreeMap::new();
        for name in saved.parameters(MEAN) {
            let mean = saved.tensor(MEAN, &name)?;
            let square = saved.tensor(SQUARE, &name)?;
            moments.insert(name, (mean, square));
        }
        Ok(AdamW {
            config,
            step: saved.step,
            moments,
        })
    }

    /// One pass over the weights; the gradient's memory becomes the new weights'.
    #[cfg(feature = "flex")]
    fn apply_on_host<const D: usize>(
        &self,
        param: &View,
        dims: [usize; D],
        grad: Tensor<D>,
        moments: Option<(Tensor<D>, Tensor<D>)>,
        lr: f64,
    ) -> (Tensor<D>, Tensor<D>, Tensor<D>) {
        let (mut m, mut v) = match moments {
            Some((m, v)) => (host::values(m), host::values(v)),
            None => (vec![0f32; param.len()], vec![0f32; param.len()]),
        };
        let mut values = host::values(grad);
        host::update(self.host_step(lr), param, &mut values, &mut m, &mut v);
        let tensor = |values| host::tensor(values, dims);
        (tensor(values), tensor(m), tensor(v))
    }
}

impl Optimizer for AdamW {
    fn begin_step(&mut self) {
        self.step += 1;
    }

    fn update(
        &mut self,
        name: &str,
        param: WeightTensor,
        grad: WeightTensor,
        lr: f64,
    ) -> Result<WeightTensor> {
        use WeightTensor::{Matrix, Vector};
        let (updated, m, v) = match (param, grad, self.moments.remove(name)) {
            (Vector(p), Vector(g), None) => vector(self.apply(p, g, None, lr)),
            (Vector(p), Vector(g), Some((Vector(m), Vector(v)))) => {
                vector(self.apply(p, g, Some((m, v)), lr))
            }
            (Matrix(p), Matrix(g), None) => matrix(self.apply(p, g, None, lr)),
            (Matrix(p), Matrix(g), Some((Matrix(m), Matrix(v)))) => {
                matrix(self.apply(p, g, Some((m, v)), lr))
            }
            _ => {
                return Err(Error::invalid(format!(
                    "AdamW: gradient or state of `{name}` has another rank than it"
                )));
            }
        };
        self.moments.insert(name.to_string(), (m, v));
        Ok(updated)
    }

    fn state(&self) -> OptimizerState {
        let named = |(name, (m, v)): (&String, &(WeightTensor, WeightTensor))| {
            [
                (format!("{MEAN}.{name}"), m.clone()),
                (format!("{SQUARE}.{name}"), v.clone()),
            ]
        };
        OptimizerState {
            optimizer: NAME.into(),
            step: self.step,
            tensors: self.moments.iter().flat_map(named).collect(),
            codes: Vec::new(),
        }
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<()> {
        let mut saved = Saved::open(state, NAME)?;
        let restored = AdamW::restored(self.config, &mut saved)?;
        saved.finish()?;
        *self = restored;
        Ok(())
    }
}

type Updated = (WeightTensor, WeightTensor, WeightTensor);

fn vector((p, m, v): (Tensor<1>, Tensor<1>, Tensor<1>)) -> Updated {
    (
        WeightTensor::Vector(p),
        WeightTensor::Vector(m),
        WeightTensor::Vector(v),
    )
}

fn matrix((p, m, v): (Tensor<2>, Tensor<2>, Tensor<2>)) -> Updated {
    (
        WeightTensor::Matrix(p),
        WeightTensor::Matrix(m),
        WeightTensor::Matrix(v),
    )
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn both_ways_of_updating_agree() {
        let n = 40_000;
        let series = |a: usize, b: usize| -> Tensor<1> {
            let values: Vec<f32> = (0..n)
                .map(|i| ((i * a + b) % 997) as f32 / 997.0 - 0.5)
                .collect();
            Tensor::from_floats(&values[..], &Device::flex())
        };
        let mut adam = AdamW::new(AdamWConfig::default());
        let (mut host, mut plain) = (series(7, 0), series(7, 0));
        let (mut host_moments, mut plain_moments) = (None, None);
        for step in 0..3 {
            adam.begin_step();
            let grad = series(31 + step, step);
            let (p, m, v) = adam.apply(host, grad.clone(), host_moments.take(), 1e-2);
            (host, host_moments) = (p, Some((m, v)));
            let (p, m, v) = adam.apply_plain(plain, grad, plain_moments.take(), 1e-2);
            (plain, plain_moments) = (p, Some((m, v)));
        }
        let gap: f32 = (host - plain).abs().max().into_scalar();
        assert!(gap < 2e-6, "{gap}");
    }
}
