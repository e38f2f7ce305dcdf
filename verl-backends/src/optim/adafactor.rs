//! Adafactor (arXiv:1804.04235, Algorithms 4 and 5): a matrix's second moment
//! is kept as its row and column means. The learning rate is the schedule's
//! (no relative step, no scaling by the parameter's size), there is no first
//! moment, and weight decay is decoupled.
//!
//! ```text
//! b = 1 - t^-c                     s = g^2 + eps
//! R = b R + (1 - b) row means(s)   C = b C + (1 - b) column means(s)
//! u = g / sqrt(R C / mean(R))      of a vector: u = g / sqrt(V)
//! w = w (1 - lr wd) - lr u / max(1, rms(u) / d)
//! ```

use super::flat::misshapen;
use super::saved::Saved;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use verl_core::Result;
use verl_core::optimizer::{Optimizer, OptimizerState};
use verl_core::rollout::WeightTensor;

const NAME: &str = "adafactor";
const ROWS: &str = "exp_avg_sq_row";
const COLUMNS: &str = "exp_avg_sq_col";
const FULL: &str = "exp_avg_sq";

/// Settings of [`Adafactor`]; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdafactorConfig {
    /// `c` in the decay `1 - t^-c` of the second moment at update `t`.
    pub decay_exponent: f64,
    /// `d`: largest root mean square of a tensor's update, in units of the
    /// learning rate.
    pub clip_threshold: f64,
    /// Added to the squared gradient.
    pub eps: f64,
    /// Decay of every weight, in units of the learning rate.
    pub weight_decay: f64,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        AdafactorConfig {
            decay_exponent: 0.8,
            clip_threshold: 1.0,
            eps: 1e-30,
            weight_decay: 0.0,
        }
    }
}

/// The second moment of one parameter.
#[derive(Debug, Clone)]
enum Second {
    /// Of a matrix: the means of its rows and of its columns.
    Factored(Tensor<1>, Tensor<1>),
    /// Of a vector.
    Full(Tensor<1>),
}

/// The optimizer and its second moments.
#[derive(Debug)]
pub struct Adafactor {
    config: AdafactorConfig,
    step: u64,
    moments: BTreeMap<String, Second>,
}

impl Adafactor {
    /// An optimizer without history.
    pub fn new(config: AdafactorConfig) -> Self {
        Adafactor {
            config,
            step: 0,
            moments: BTreeMap::new(),
        }
    }

    /// The running mean after `now`. The first value counts in full, as it
    /// does in the paper at update 1.
    fn average(&self, before: Option<Tensor<1>>, now: Tensor<1>) -> Tensor<1> {
        let decay = 1.0 - (self.step as f64).powf(-self.config.decay_exponent);
        match before {
            Some(before) => before.mul_scalar(decay) + now.mul_scalar(1.0 - decay),
            None => now,
        }
    }

    fn squared<const D: usize>(&self, grad: &Tensor<D>) -> Tensor<D> {
        grad.clone().square().add_scalar(self.config.eps)
    }

    fn matrix(
        &self,
        param: Tensor<2>,
        grad: Tensor<2>,
        before: Option<(Tensor<1>, Tensor<1>)>,
        lr: f64,
    ) -> (Tensor<2>, Second) {
        let [rows, columns] = grad.dims();
        let (row_before, column_before) = before.unzip();
        let squared = self.squared(&grad);
        let row_now = squared.clone().mean_dim(1).reshape([rows]);
        let row_means = self.average(row_before, row_now);
        let column_means = self.average(column_before, squared.mean_dim(0).reshape([columns]));
        let row_roots = (row_means.clone() / row_means.clone().mean()).sqrt();
        let column_roots = column_means.clone().sqrt();
        let update = grad / row_roots.reshape([rows, 1]) / column_roots.reshape([1, columns]);
        let moved = self.moved(param, update, lr);
        (moved, Second::Factored(row_means, column_means))
    }

    fn vector(
        &self,
        param: Tensor<1>,
        grad: Tensor<1>,
        before: Option<Tensor<1>>,
        lr: f64,
    ) -> (Tensor<1>, Second) {
        let second = self.average(before, self.squared(&grad));
        let update = grad / second.clone().sqrt();
        (self.moved(param, update, lr), Second::Full(second))
    }

    /// The weights after decay and a clipped update.
    fn moved<const D: usize>(&self, param: Tensor<D>, update: Tensor<D>, lr: f64) -> Tensor<D> {
        let rms = update.clone().square().mean().sqrt();
        let excess = rms.div_scalar(self.config.clip_threshold).clamp_min(1.0);
        let update = update / excess.reshape([1usize; D]);
        param.mul_scalar(1.0 - lr * self.config.weight_decay) - update.mul_scalar(lr)
    }
}

impl Optimizer for Adafactor {
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
        let (updated, second) = match (param, grad, self.moments.remove(name)) {
            (Matrix(p), Matrix(g), before) if p.dims() == g.dims() => {
                let before = factors(name, before, p.dims())?;
                let (updated, second) = self.matrix(p, g, before, lr);
                (Matrix(updated), second)
            }
            (Vector(p), Vector(g), before) if p.dims() == g.dims() => {
                let before = full(name, before, p.dims())?;
                let (updated, second) = self.vector(p, g, before, lr);
                (Vector(updated), second)
            }
            _ => return Err(misshapen("gradient", name)),
        };
        self.moments.insert(name.to_string(), second);
        Ok(updated)
    }

    fn state(&self) -> OptimizerState {
        let mut tensors = Vec::new();
        for (name, second) in &self.moments {
            let mut push = |kind, tensor: &Tensor<1>| {
                let tensor = WeightTensor::Vector(tensor.clone());
                tensors.push((format!("{kind}.{name}"), tensor));
            };
            match second {
                Second::Factored(rows, columns) => {
                    push(ROWS, rows);
                    push(COLUMNS, columns);
                }
                Second::Full(full) => push(FULL, full),
            }
        }
        OptimizerState {
            optimizer: NAME.into(),
            step: self.step,
            tensors,
            codes: Vec::new(),
        }
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<()> {
        let mut saved = Saved::open(state, NAME)?;
        let mut moments = BTreeMap::new();
        for name in saved.parameters(ROWS) {
            let rows = saved.vector(ROWS, &name)?;
            let factored = Second::Factored(rows, saved.vector(COLUMNS, &name)?);
            moments.insert(name, factored);
        }
        for name in saved.parameters(FULL) {
            let full = Second::Full(saved.vector(FULL, &name)?);
            moments.insert(name, full);
        }
        let step = saved.step;
        saved.finish()?;
        (self.step, self.moments) = (step, moments);
        Ok(())
    }
}

/// A matrix's history.
fn factors(
    name: &str,
    before: Option<Second>,
    [rows, columns]: [usize; 2],
) -> Result<Option<(Tensor<1>, Tensor<1>)>> {
    match before {
        None => Ok(None),
        Some(Second::Factored(r, c)) if r.dims() == [rows] && c.dims() == [columns] => {
            Ok(Some((r, c)))
        }
        Some(_) => Err(misshapen("state", name)),
    }
}

/// A vector's history.
fn full(name: &str, before: Option<Second>, dims: [usize; 1]) -> Result<Option<Tensor<1>>> {
    match before {
        None => Ok(None),
        Some(Second::Full(second)) if second.dims() == dims => Ok(Some(second)),
        Some(_) => Err(misshapen("state", name)),
    }
}
