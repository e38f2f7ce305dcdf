//! What policy and critic share: weights, gradients, optimizer, schedule.

use super::grads::Gradients;
use crate::model::Model;
use crate::weights::{
    load_trained, load_weights, read_state, save_adapter, save_pretrained, write_state,
};
use burn::tensor::Tensor;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use verl_core::optimizer::Optimizer;
use verl_core::policy::UpdateReport;
use verl_core::rollout::{WeightTensor, sample_seed};
use verl_core::{Error, Result};

/// Learning rate of the update with this number (from 0).
#[derive(Clone)]
pub struct Schedule(Arc<dyn Fn(u64) -> f64 + Send + Sync>);

impl Schedule {
    /// A schedule from a function.
    pub fn new(lr_at: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Self {
        Schedule(Arc::new(lr_at))
    }

    /// Always the same rate.
    pub fn constant(lr: f64) -> Self {
        Schedule::new(move |_| lr)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule(first rate {})", (self.0)(0))
    }
}

/// How the engine trains.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The learning rate.
    pub schedule: Schedule,
    /// Largest global gradient norm; larger gradients are scaled down to it.
    pub grad_clip: f64,
    /// Layers recorded at a time in the backward pass. Fewer take less memory
    /// and run part of the forward pass twice; 0 records all and repeats none.
    pub checkpoint_every: usize,
    /// Most tokens in one forward pass when scoring without gradients.
    pub score_tokens: usize,
    /// Prompt tokens that sharing must save for the answers of a group to share
    /// their prompt: below it, encoding the prompt with each answer is faster.
    pub share_prompt_tokens: usize,
    /// Ids the tokenizer knows; what lies above in the model's vocabulary is
    /// padding that takes no probability. `None` uses the whole vocabulary.
    pub vocab: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            schedule: Schedule::constant(1e-6),
            grad_clip: 1.0,
            checkpoint_every: 0,
            score_tokens: 8192,
            share_prompt_tokens: 128,
            vocab: None,
        }
    }
}

/// Weights in training.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) grads: Gradients,
    pub(super) options: EngineOptions,
    optimizer: Box<dyn Optimizer>,
    /// Updates applied to the weights.
    pub(super) updates: u64,
    /// Micro-batches since the last update.
    passes: u64,
}

impl State {
    pub(super) fn new(model: Model, optimizer: Box<dyn Optimizer>, options: EngineOptions) -> Self {
        State {
            grads: Gradients::of(&model),
            model,
            options,
            optimizer,
            updates: 0,
            passes: 0,
        }
    }

    /// The model as the next training pass runs it, where it differs: with what
    /// the adapter's dropout takes away, drawn by update and micro-batch.
    pub(super) fn dropping(&mut self) -> Option<Model> {
        self.passes += 1;
        self.model
            .dropping(sample_seed(self.updates, self.passes, 0, 0))
    }

    /// Drops the accumulated gradient.
    pub(super) fn discard(&mut self) {
        self.grads.clear();
        self.passes = 0;
    }

    /// Clips, updates and clears; see `Trainable::optimizer_step`.
    pub(super) fn step(&mut self) -> Result<UpdateReport> {
        let lr = (self.options.schedule.0)(self.updates);
        let grad_norm = match self.grads.global_norm() {
            Ok(norm) => norm,
            Err(Error::NotFinite { value, place, .. }) => {
                self.discard();
                let skipped = Some(format!("the gradient of {place} is {value}"));
                return Ok(UpdateReport {
                    grad_norm: f64::NAN,
                    lr,
                    skipped,
                });
            }
            Err(other) => return Err(other),
        };
        let scale = if grad_norm > self.options.grad_clip {
            self.options.grad_clip / (grad_norm + 1e-6)
        } else {
            1.0
        };
        self.apply(lr, scale)?;
        self.updates += 1;
        Ok(UpdateReport {
            grad_norm,
            lr,
            skipped: None,
        })
    }

    fn apply(&mut self, lr: f64, scale: f64) -> Result<()> {
        self.optimizer.begin_step();
        let (grads, optimizer) = (&mut self.grads, &mut self.optimizer);
        let mut failed = None;
        self.model.each(&mut |name, param| {
            let Some(grad) = grads.take(name) else { return };
            match optimizer.update(name, param.tensor(), scaled(grad, scale), lr) {
                Ok(updated) => {
                    param.replace(updated);
                }
                Err(error) => failed = failed.take().or(Some(error)),
            }
        });
        self.discard();
        failed.map_or(Ok(()), Err)
    }

    /// Writes the model, or its adapter when it has one.
    pub(super) fn save_pretrained(&self, dir: &Path) -> Result<()> {
        match self.model.lora {
            Some(_) => save_adapter(&self.model, dir),
            None => save_pretrained(&self.model, dir),
        }
    }

    pub(super) fn save_state(&self, dir: &Path) -> Result<()> {
        self.save_pretrained(dir)?;
        let mut state = self.optimizer.state();
        let numbers = Tensor::from_data(
            split(state.step)
                .into_iter()
                .chain(split(self.updates))
                .collect::<Vec<_>>()
                .as_slice(),
            &self.model.device(),
        );
        state
            .tensors
            .push((COUNTERS.to_string(), WeightTensor::Vector(numbers)));
        write_state(state, &dir.join(OPTIMIZER_FILE))
    }

    pub(super) fn load_state(&mut self, dir: &Path) -> Result<()> {
        let device = self.model.device();
        let model = self.saved_model(dir)?;
        let mut state = read_state(&dir.join(OPTIMIZER_FILE), &device)?;
        let counters = state
            .tensors
            .iter()
            .position(|(name, _)| name == COUNTERS)
            .map(|i| state.tensors.swap_remove(i).1);
        let Some(WeightTensor::Vector(counters)) = counters else {
            return Err(Error::malformed(
                dir.join(OPTIMIZER_FILE),
                format!("`{COUNTERS}` is missing"),
            ));
        };
        let numbers: Vec<f32> = counters.into_data().iter::<f32>().collect();
        let [a, b, c, d] = numbers[..] else {
            return Err(Error::malformed(
                dir.join(OPTIMIZER_FILE),
                format!("`{COUNTERS}` does not hold 4 numbers"),
            ));
        };
        state.step = join(a, b);
        self.optimizer.load_state(state)?;
        (self.model, self.updates) = (model, join(c, d));
        self.discard();
        Ok(())
    }
}

impl State {
    /// The model as [`State::save_state`] wrote it; an adapter's base is the
    /// one that is loaded.
    fn saved_model(&self, dir: &Path) -> Result<Model> {
        if self.model.lora.is_none() {
            let mut model =
                load_weights(self.model.config.clone(), None, dir, &self.model.device())?;
            model.kernels = self.model.kernels;
            return Ok(model);
        }
        let mut model = self.model.clone();
        load_trained(&mut model, dir)?;
        Ok(model)
    }
}

const OPTIMIZER_FILE: &str = "optimizer.safetensors";
const COUNTERS: &str = "counters";

/// A counter as two floats that hold it exactly.
fn split(n: u64) -> [f32; 2] {
    [(n >> 20) as f32, (n & 0xF_FFFF) as f32]
}

fn join(high: f32, low: f32) -> u64 {
    ((high as u64) << 20) | low as u64
}

fn scaled(grad: WeightTensor, scale: f64) -> WeightTensor {
    match grad {
        grad if scale == 1.0 => grad,
        WeightTensor::Vector(t) => WeightTensor::Vector(t.mul_scalar(scale)),
        WeightTensor::Matrix(t) => WeightTensor::Matrix(t.mul_scalar(scale)),
    }
}
