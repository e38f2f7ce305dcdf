//! The rollout engine that runs the model in this process.

use super::row::Row;
use super::wave::Wave;
use crate::model::Model;
use rayon::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use verl_core::config::Dtype;
use verl_core::rollout::{Rollout, RolloutEngine, RolloutRequest, Weights};
use verl_core::text::Tokenizer;
use verl_core::types::TokenId;
use verl_core::{Error, Result};

/// How the generator works.
#[derive(Debug, Clone)]
pub struct GeneratorOptions {
    /// Most answers decoded together.
    pub max_rows: usize,
    /// Ids the tokenizer knows; what lies above in the model's vocabulary is
    /// padding and never sampled. `None` samples the whole vocabulary.
    pub vocab: Option<usize>,
    /// Ids that end every answer.
    pub stop_ids: Vec<TokenId>,
    /// Number format of the weights that tokens are sampled with. `Bfloat16` reads
    /// half the memory per token on the CPU's kernels; the answers are then those
    /// of rounded weights, and their log-probs are reported as such.
    pub dtype: Dtype,
    /// Needed for stop strings.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        GeneratorOptions {
            max_rows: 64,
            vocab: None,
            stop_ids: Vec::new(),
            dtype: Dtype::Float32,
            tokenizer: None,
        }
    }
}

/// Samples from a [`Model`] on its own device.
#[derive(Debug)]
pub struct NativeGenerator {
    model: Model,
    options: GeneratorOptions,
    version: u64,
}

impl NativeGenerator {
    /// A generator over a model.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the model has a score head,
    /// [`Error::Config`] when `max_rows` is 0.
    pub fn new(model: Model, options: GeneratorOptions) -> Result<Self> {
        if model.lm_head().is_none() {
            return Err(Error::Unsupported(
                "only a causal language model can generate; this one has a score head".into(),
            ));
        }
        let short = options.dtype == Dtype::Bfloat16 && model.decodes_on_host();
        if options.dtype != Dtype::Float32 && !short {
            let message = "only dense models on the CPU's own kernels sample with other than float32 weights, and only with bfloat16";
            return Err(Error::config("rollout.dtype", message));
        }
        if options.max_rows == 0 {
            return Err(Error::config("max_rows", "must be at least 1"));
        }
        Ok(NativeGenerator {
            model,
            options,
            version: 0,
        })
    }

    fn vocab(&self) -> usize {
        self.options
            .vocab
            .unwrap_or(usize::MAX)
            .min(self.model.config.vocab)
    }

    fn check(&self, request: &RolloutRequest) -> Result<()> {
        request.params.validate()?;
        let place = || {
            format!(
                "prompt of group {}, sample {}",
                request.group.0, request.sample
            )
        };
        if request.prompt.is_empty() {
            return Err(Error::invalid(format!("{}: it is empty", place())));
        }
        if let Some(id) = request
            .prompt
            .iter()
            .find(|id| **id as usize >= self.model.config.vocab)
        {
            let vocab = self.model.config.vocab;
            return Err(Error::invalid(format!(
                "{}: id {id} is outside the vocabulary of {vocab}",
                place()
            )));
        }
        let total = request.prompt.len() + request.params.max_tokens;
        if total > self.model.config.max_positions {
            return Err(Error::invalid(format!(
                "{}: {} prompt tokens and up to {} answer tokens exceed the model's {} positions",
                place(),
                request.prompt.len(),
                request.params.max_tokens,
                self.model.config.max_positions
            )));
        }
        match (request.params.stop.is_empty(), &self.options.tokenizer) {
            (false, None) => Err(Error::config(
                "stop",
                "stop strings need a generator that was given a tokenizer",
            )),
            _ => Ok(()),
        }
    }

    /// Lets each row draw from its logits.
    fn draw(&self, rows: &mut [Row], logits: &[f32]) -> Result<()> {
        let width = self.model.config.vocab;
        let vocab = self.vocab();
        let options = &self.options;
        rows.par_iter_mut()
            .zip(logits.par_chunks(width))
            .try_for_each(|(row, logits)| match row.finish {
                Some(_) => Ok(()),
                None => row.draw(
                    &logits[..vocab],
                    &options.stop_ids,
                    options.tokenizer.as_ref(),
                ),
            })
    }
}

/// Hands over the answers finished since the last call; returns how many rows
/// go on. Finished rows stay in the wave, computed along, until an exchange
/// drops them.
fn hand_over(
    rows: &mut [Row],
    version: u64,
    on_finished: &mut dyn FnMut(Rollout) -> Result<()>,
) -> Result<usize> {
    for row in rows.iter_mut() {
        if let Some(rollout) = row.take_finished(version) {
            on_finished(rollout)?;
        }
    }
    Ok(rows.iter().filter(|r| r.finish.is_none()).count())
}

impl RolloutEngine for NativeGenerator {
    fn generate(
        &mut self,
        requests: Vec<RolloutRequest>,
        on_finished: &mut dyn FnMut(Rollout) -> Result<()>,
    ) -> Result<()> {
        requests.iter().try_for_each(|r| self.check(r))?;
        let mut waiting: VecDeque<Row> = requests.into_iter().map(Row::new).collect();
        let mut wave = Wave::new(&self.model, self.options.dtype);
        let mut live = 0;
        while live > 0 || !waiting.is_empty() {
            let free = self.options.max_rows - live;
            let join = if free * 4 >= self.options.max_rows {
                free.min(waiting.len())
            } else {
                0
            };
            let held = wave.rows().len();
            let sparse = live * 4 <= held * 3;
            if join > 0 || (live > 0 && sparse && live < held) {
                let joining: Vec<Row> = waiting.drain(..join).collect();
                let old = live;
                let logits = wave.exchange(&self.model, joining)?;
                if !logits.is_empty() {
                    self.draw(&mut wave.rows()[old..], &logits)?;
                    live = hand_over(wave.rows(), self.version, on_finished)?;
                    continue;
                }
            }
            let logits = wave.step(&self.model)?;
            self.draw(wave.rows(), &logits)?;
            live = hand_over(wave.rows(), self.version, on_finished)?;
        }
        Ok(())
    }

    fn sync_weights(&mut self, weights: &Weights) -> Result<()> {
        let mut new: HashMap<&str, _> = weights
            .tensors
            .iter()
            .map(|(n, t)| (n.as_str(), t))
            .collect();
        let mut faults = Vec::new();
        let mut model = self.model.clone();
        model.each(&mut |name, param| match new.remove(name) {
            Some(tensor) => {
                let dims = param.dims();
                if !param.replace(tensor.clone()) {
                    faults.push(format!("{name} has another rank than {dims:?}"));
                }
            }
            None => faults.push(format!("{name} is missing")),
        });
        faults.extend(new.keys().map(|name| format!("{name} is not used")));
        if !faults.is_empty() {
            return Err(Error::Weights {
                place: "weights for the generator".into(),
                message: faults.join("; "),
            });
        }
        (self.model, self.version) = (model, weights.version);
        Ok(())
    }
}
