//! Lion (arXiv:2302.06675, Algorithm 2): the sign of a blend of momentum and
//! gradient, with decoupled weight decay.
//!
//! ```text
//! c = b1 m + (1 - b1) g
//! w = w (1 - lr wd) - lr sign(c)
//! m = b2 m + (1 - b2) g
//! ```
//!
//! Every weight moves by `lr`, so the paper's rates are 3 to 10 times smaller
//! than AdamW's, and its weight decays as much larger.

use super::flat::{Pair, misshapen};
use super::saved::Saved;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use verl_core::Result;
use verl_core::optimizer::{Optimizer, OptimizerState};
use verl_core::rollout::WeightTensor;

const NAME: &str = "lion";
const MOMENTUM: &str = "momentum";

/// Settings of [`Lion`]; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LionConfig {
    /// Share of the momentum in an update, and decay of the momentum.
    pub betas: (f64, f64),
    /// Decay of every weight, in units of the learning rate.
    pub weight_decay: f64,
}

impl Default for LionConfig {
    fn default() -> Self {
        LionConfig {
            betas: (0.9, 0.99),
            weight_decay: 0.0,
        }
    }
}

/// The optimizer and one momentum per parameter.
#[derive(Debug)]
pub struct Lion {
    config: LionConfig,
    step: u64,
    momenta: BTreeMap<String, Tensor<1>>,
}

impl Lion {
    /// An optimizer without history.
    pub fn new(config: LionConfig) -> Self {
        Lion {
            config,
            step: 0,
            momenta: BTreeMap::new(),
        }
    }

    /// New weights and new momentum.
    fn apply(
        &self,
        param: Tensor<1>,
        grad: &Tensor<1>,
        momentum: &Tensor<1>,
        lr: f64,
    ) -> (Tensor<1>, Tensor<1>) {
        let LionConfig {
            betas: (b1, b2),
            weight_decay,
        } = self.config;
        let blend =
            |beta: f64| momentum.clone().mul_scalar(beta) + grad.clone().mul_scalar(1.0 - beta);
        let change = blend(b1).sign().mul_scalar(lr);
        (
            param.mul_scalar(1.0 - lr * weight_decay) - change,
            blend(b2),
        )
    }
}

impl Optimizer for Lion {
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
        let pair = Pair::new(name, param, grad)?;
        let momentum = match self.momenta.remove(name) {
            Some(momentum) if momentum.dims() != [pair.len()] => {
                return Err(misshapen("momentum", name));
            }
            Some(momentum) => momentum,
            None => pair.grad.zeros_like(),
        };
        let (updated, momentum) = self.apply(pair.param, &pair.grad, &momentum, lr);
        self.momenta.insert(name.to_string(), momentum);
        Ok(pair.form.restore(updated))
    }

    fn state(&self) -> OptimizerState {
        let named = |(name, momentum): (&String, &Tensor<1>)| {
            let key = format!("{MOMENTUM}.{name}");
            (key, WeightTensor::Vector(momentum.clone()))
        };
        OptimizerState {
            optimizer: NAME.into(),
            step: self.step,
            tensors: self.momenta.iter().map(named).collect(),
            codes: Vec::new(),
        }
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<()> {
        let mut saved = Saved::open(state, NAME)?;
        let mut momenta = BTreeMap::new();
        for name in saved.parameters(MOMENTUM) {
            let momentum = saved.vector(MOMENTUM, &name)?;
            momenta.insert(name, momentum);
        }
        let step = saved.step;
        saved.finish()?;
        (self.step, self.momenta) = (step, momenta);
        Ok(())
    }
}
