//! Muon (Keller Jordan et al., <https://kellerjordan.github.io/posts/muon>)
//! as scaled in Moonlight (arXiv:2502.16982, equations 1 and 4): hidden
//! matrices move along their orthogonalised momentum; embeddings, heads, norms
//! and biases are left to AdamW.
//!
//! ```text
//! m = mu m + g                     u = g + mu m   (Nesterov)
//! O = newton_schulz(u)             O = U V^T of u = U S V^T, roughly
//! w = w (1 - lr wd) - lr 0.2 sqrt(max(rows, columns)) O
//! ```
//!
//! Moonlight's factor gives an update the root mean square that AdamW's has,
//! so one learning rate and one weight decay serve both.

use super::adamw::{AdamW, AdamWConfig};
use super::flat::misshapen;
use super::saved::Saved;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use verl_core::Result;
use verl_core::optimizer::{Optimizer, OptimizerState};
use verl_core::rollout::WeightTensor;

const NAME: &str = "muon";
const MOMENTUM: &str = "momentum";

/// Coefficients of the quintic iteration `a X + (b A + c A^2) X`, `A = X X^T`.
const QUINTIC: (f64, f64, f64) = (3.4445, -4.7750, 2.0315);

/// Root mean square of a typical AdamW update, in units of its rate.
const ADAMW_RMS: f64 = 0.2;

/// Modules whose matrices are no hidden layer's: embeddings and heads.
const OUTER: [&str; 3] = ["embed_tokens", "lm_head", "score"];

/// Settings of [`Muon`]; the defaults are those of the two sources.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MuonConfig {
    /// Decay of the Nesterov momentum.
    pub momentum: f64,
    /// Newton-Schulz iterations per update.
    pub steps: usize,
    /// For what is no hidden matrix. Its weight decay is everything's.
    pub adamw: AdamWConfig,
}

impl Default for MuonConfig {
    fn default() -> Self {
        MuonConfig {
            momentum: 0.95,
            steps: 5,
            adamw: AdamWConfig {
                weight_decay: 0.1,
                ..AdamWConfig::default()
            },
        }
    }
}

/// The optimizer: a momentum per hidden matrix, and AdamW for the rest.
#[derive(Debug)]
pub struct Muon {
    config: MuonConfig,
    momenta: BTreeMap<String, Tensor<2>>,
    adamw: AdamW,
}

impl Muon {
    /// An optimizer without history.
    pub fn new(config: MuonConfig) -> Self {
        Muon {
            config,
            momenta: BTreeMap::new(),
            adamw: AdamW::new(config.adamw),
        }
    }

    fn hidden(
        &mut self,
        name: &str,
        param: Tensor<2>,
        grad: Tensor<2>,
        lr: f64,
    ) -> Result<Tensor<2>> {
        let [rows, columns] = param.dims();
        if grad.dims() != [rows, columns] {
            return Err(misshapen("gradient", name));
        }
        let mu = self.config.momentum;
        let momentum = match self.momenta.remove(name) {
            Some(before) if before.dims() != [rows, columns] => {
                return Err(misshapen("momentum", name));
            }
            Some(before) => before.mul_scalar(mu) + grad.clone(),
            None => grad.clone(),
        };
        let direction = orthogonalise(grad + momentum.clone().mul_scalar(mu), self.config.steps);
        self.momenta.insert(name.to_string(), momentum);
        let scale = lr * ADAMW_RMS * (rows.max(columns) as f64).sqrt();
        let kept = param.mul_scalar(1.0 - lr * self.config.adamw.weight_decay);
        Ok(kept - direction.mul_scalar(scale))
    }
}

/// The matrix with its singular values moved near 1 (between about 0.7 and
/// 1.2) by `steps` Newton-Schulz iterations.
///
/// # Shapes
/// `[rows, columns]` in and out.
pub fn orthogonalise(matrix: Tensor<2>, steps: usize) -> Tensor<2> {
    let [rows, columns] = matrix.dims();
    // The iteration squares the shorter side.
    let tall = rows > columns;
    let wide = if tall { matrix.transpose() } else { matrix };
    let norm = wide.clone().square().sum().sqrt().add_scalar(1e-7);
    let mut x = wide / norm.reshape([1, 1]);
    let (a, b, c) = QUINTIC;
    for _ in 0..steps {
        let gram = x.clone().matmul(x.clone().transpose());
        let square = gram.clone().matmul(gram.clone());
        let polynomial = gram.mul_scalar(b) + square.mul_scalar(c);
        x = x.clone().mul_scalar(a) + polynomial.matmul(x);
    }
    if tall { x.transpose() } else { x }
}

fn is_outer(name: &str) -> bool {
    name.split('.').any(|part| OUTER.contains(&part))
}

impl Optimizer for Muon {
    fn begin_step(&mut self) {
        self.adamw.begin_step();
    }

    fn update(
        &mut self,
        name: &str,
        param: WeightTensor,
        grad: WeightTensor,
        lr: f64,
    ) -> Result<WeightTensor> {
        match (param, grad) {
            (WeightTensor::Matrix(param), WeightTensor::Matrix(grad)) if !is_outer(name) => {
                let updated = self.hidden(name, param, grad, lr)?;
                Ok(WeightTensor::Matrix(updated))
            }
            (param, grad) => self.adamw.update(name, param, grad, lr),
        }
    }

    fn state(&self) -> OptimizerState {
        let mut state = self.adamw.state();
        state.optimizer = NAME.into();
        let named = |(name, momentum): (&String, &Tensor<2>)| {
            let key = format!("{MOMENTUM}.{name}");
            (key, WeightTensor::Matrix(momentum.clone()))
        };
        state.tensors.extend(self.momenta.iter().map(named));
        state
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<()> {
        let mut saved = Saved::open(state, NAME)?;
        let mut momenta = BTreeMap::new();
        for name in saved.parameters(MOMENTUM) {
            let momentum = saved.matrix(MOMENTUM, &name)?;
            momenta.insert(name, momentum);
        }
        let adamw = AdamW::restored(self.config.adamw, &mut saved)?;
        saved.finish()?;
        (self.momenta, self.adamw) = (momenta, adamw);
        Ok(())
    }
}
