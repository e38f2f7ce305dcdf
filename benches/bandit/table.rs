//! A trainable table: one row for each context and position of an answer.

use super::{MAX_TOKENS, VOCAB, WORDS};
use serde_json::{Value, json};
use std::path::Path;
use verl::backends::burn::tensor::{Device, Int, Tensor, TensorData};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::core::optimizer::{Optimizer, OptimizerState};
use verl::core::policy::UpdateReport;
use verl::core::rollout::{WeightTensor, Weights};
use verl::core::types::{TokenId, Trajectory};
use verl::{Error, Result};

/// Name of the only tensor.
const NAME: &str = "table";

/// Weights, their gradient, and the optimizer.
#[derive(Debug)]
pub(super) struct Table {
    /// A column for each token.
    pub(super) weights: Tensor<2>,
    gradient: Tensor<2>,
    optimizer: AdamW,
    learning_rate: f64,
    updates: u64,
}

/// The row of an answer's position.
pub(super) fn row(prompt: &[TokenId], position: usize) -> usize {
    prompt[0] as usize * MAX_TOKENS + position
}

/// Rows of the policy's tokens of several answers, `[n]`, and a token for each,
/// chosen from the answer by its position.
pub(super) fn rows_and_tokens(
    answers: &[&Trajectory],
    choose: impl Fn(&[TokenId], usize) -> TokenId,
) -> (Tensor<1, Int>, Tensor<1, Int>) {
    let (mut rows, mut tokens) = (Vec::new(), Vec::new());
    for t in answers {
        for i in t.policy_positions() {
            rows.push(row(t.prompt(), i) as i64);
            tokens.push(i64::from(choose(t.response(), i)));
        }
    }
    let tensor = |values: Vec<i64>| {
        let n = values.len();
        Tensor::from_data(TensorData::new(values, [n]), &Device::flex())
    };
    (tensor(rows), tensor(tokens))
}

/// Probabilities of each token at each row, from a table of logits.
pub(super) fn probabilities(weights: &Weights) -> Result<Vec<[f64; VOCAB]>> {
    match weights.tensors.first() {
        Some((_, WeightTensor::Matrix(logits))) => Ok(softmax(&values(logits), 1.0)),
        _ => Err(Error::invalid("the weights hold no table")),
    }
}

/// Row by row, logits divided by a temperature.
pub(super) fn softmax(logits: &[f32], temperature: f32) -> Vec<[f64; VOCAB]> {
    let row = |logits: &[f32]| {
        let logit = |i: usize| f64::from(logits[i]) / f64::from(temperature);
        let top = (0..VOCAB).map(logit).fold(f64::NEG_INFINITY, f64::max);
        let powers: [f64; VOCAB] = std::array::from_fn(|i| (logit(i) - top).exp());
        let total: f64 = powers.iter().sum();
        powers.map(|p| p / total)
    };
    logits.chunks_exact(VOCAB).map(row).collect()
}

/// The numbers of a tensor.
pub(super) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().iter::<f32>().collect()
}

impl Table {
    /// All zeros.
    pub(super) fn new(learning_rate: f64) -> Self {
        let zeros = Tensor::zeros([WORDS.len() * MAX_TOKENS, VOCAB], &Device::flex());
        Table {
            weights: zeros.clone(),
            gradient: zeros,
            optimizer: AdamW::new(AdamWConfig {
                weight_decay: 0.0,
                ..Default::default()
            }),
            learning_rate,
            updates: 0,
        }
    }

    pub(super) fn weights(&self) -> Weights {
        let tensor = WeightTensor::Matrix(self.weights.clone());
        Weights {
            version: self.updates,
            tensors: vec![(NAME.into(), tensor)],
        }
    }

    pub(super) fn add_gradient(&mut self, gradient: Option<Tensor<2>>) {
        if let Some(gradient) = gradient {
            self.gradient = self.gradient.clone() + gradient;
        }
    }

    pub(super) fn discard_gradients(&mut self) {
        self.gradient = self.gradient.zeros_like();
    }

    pub(super) fn step(&mut self) -> Result<UpdateReport> {
        let gradient = self.gradient.clone();
        self.discard_gradients();
        let square = |g: &f32| f64::from(*g) * f64::from(*g);
        let norm = values(&gradient).iter().map(square).sum::<f64>().sqrt();
        let report = |skipped| UpdateReport {
            grad_norm: norm,
            lr: self.learning_rate,
            skipped,
        };
        if !norm.is_finite() {
            return Ok(report(Some(format!("the gradient of `{NAME}` is {norm}"))));
        }
        let report = report(None);
        let (weights, gradient) = (self.weights.clone(), gradient);
        self.optimizer.begin_step();
        let updated = self.optimizer.update(
            NAME,
            WeightTensor::Matrix(weights),
            WeightTensor::Matrix(gradient),
            self.learning_rate,
        )?;
        self.weights = matrix(updated)?;
        self.updates += 1;
        Ok(report)
    }

    /// Writes the weights.
    pub(super) fn save(&self, dir: &Path) -> Result<()> {
        write(&dir.join("table.json"), &numbers(&self.weights))
    }

    /// Writes weights and the optimizer's memory.
    pub(super) fn save_state(&self, dir: &Path) -> Result<()> {
        let state = self.optimizer.state();
        let mut moments = serde_json::Map::new();
        for (name, tensor) in state.tensors {
            moments.insert(name, numbers(&matrix(tensor)?));
        }
        let all = json!({
            "weights": numbers(&self.weights), "moments": moments,
            "step": state.step, "updates": self.updates,
        });
        write(&dir.join("state.json"), &all)
    }

    /// Reads what [`Table::save_state`] wrote.
    pub(super) fn load_state(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("state.json");
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let broken = || Error::invalid(format!("{} is not a saved table", path.display()));
        let all: Value = serde_json::from_str(&text).map_err(|_| broken())?;
        let count = |key: &str| all[key].as_u64().ok_or_else(broken);
        let shape = self.weights.dims();
        let tensor = |value: &Value| {
            let numbers = value.as_array().ok_or_else(broken)?.iter();
            let numbers: Vec<f32> = numbers.filter_map(|v| Some(v.as_f64()? as f32)).collect();
            match numbers.len() == shape[0] * shape[1] {
                true => Ok(Tensor::from_data(
                    TensorData::new(numbers, shape),
                    &Device::flex(),
                )),
                false => Err(broken()),
            }
        };
        let mut state = OptimizerState {
            step: count("step")?,
            ..Default::default()
        };
        for (name, value) in all["moments"].as_object().ok_or_else(broken)? {
            let moment = WeightTensor::Matrix(tensor(value)?);
            state.tensors.push((name.clone(), moment));
        }
        (self.weights, self.updates) = (tensor(&all["weights"])?, count("updates")?);
        self.optimizer.load_state(state)
    }
}

fn numbers(tensor: &Tensor<2>) -> Value {
    json!(values(tensor))
}

fn write(path: &Path, value: &Value) -> Result<()> {
    std::fs::write(path, value.to_string()).map_err(Error::io(path))
}

fn matrix(tensor: WeightTensor) -> Result<Tensor<2>> {
    match tensor {
        WeightTensor::Matrix(matrix) => Ok(matrix),
        WeightTensor::Vector(_) => Err(Error::invalid("a table is a matrix")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(table: &mut Table) {
        let gradient = table.weights.clone().add_scalar(1.0);
        table.add_gradient(Some(gradient));
        table.step().unwrap();
    }

    #[test]
    fn a_saved_table_goes_on_as_before() {
        let dir = std::env::temp_dir().join(format!("verl-bandit-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut table = Table::new(0.1);
        (0..3).for_each(|_| step(&mut table));
        table.save_state(&dir).unwrap();
        let mut again = Table::new(0.1);
        again.load_state(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        step(&mut table);
        step(&mut again);
        assert_eq!(values(&again.weights), values(&table.weights));
        assert_eq!(again.weights().version, 4);
    }

    #[test]
    fn a_broken_gradient_changes_nothing() {
        let mut table = Table::new(0.1);
        table.add_gradient(Some(table.weights.clone().add_scalar(f32::NAN)));
        assert!(table.step().unwrap().skipped.is_some());
        assert_eq!(values(&table.weights), vec![0.0; 80]);
    }
}
