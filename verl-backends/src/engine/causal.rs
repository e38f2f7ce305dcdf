//! The policy: a causal language model in training.

use super::head::{Ask, Head, ScoreGrads, floats, lm_head, vector};
use super::pack::{Packed, chunks, split_rows};
use super::pass::Pass;
use super::state::{EngineOptions, State};
use crate::model::Model;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use std::path::Path;
use verl_core::algorithm::{LossInput, Objective};
use verl_core::optimizer::Optimizer;
use verl_core::policy::{
    LogProbModel, MetricSum, Policy, ScoreOptions, SequenceRef, TokenScores, Trainable,
    UpdateReport,
};
use verl_core::rollout::Weights;
use verl_core::types::Trajectory;
use verl_core::{Error, Result};

/// A causal language model with its optimizer.
#[derive(Debug)]
pub struct CausalPolicy {
    state: State,
}

impl CausalPolicy {
    /// Puts a model into training.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the model has a score head.
    pub fn new(
        model: Model,
        optimizer: Box<dyn Optimizer>,
        options: EngineOptions,
    ) -> Result<Self> {
        lm_head(&model)?;
        Ok(CausalPolicy {
            state: State::new(model, optimizer, options),
        })
    }

    /// The model as it stands.
    pub fn model(&self) -> &Model {
        &self.state.model
    }

    /// The gradients accumulated so far.
    pub fn gradients(&self) -> &super::Gradients {
        &self.state.grads
    }
}

impl LogProbModel for CausalPolicy {
    fn log_probs(
        &self,
        sequences: &[SequenceRef<'_>],
        options: ScoreOptions,
    ) -> Result<Vec<TokenScores>> {
        score(&self.state.model, &self.state.options, sequences, options)
    }
}

/// Frozen weights that give log-probs.
#[derive(Debug)]
struct Frozen {
    model: Model,
    options: EngineOptions,
}

impl LogProbModel for Frozen {
    fn log_probs(
        &self,
        sequences: &[SequenceRef<'_>],
        options: ScoreOptions,
    ) -> Result<Vec<TokenScores>> {
        score(&self.model, &self.options, sequences, options)
    }
}

fn score(
    model: &Model,
    engine: &EngineOptions,
    sequences: &[SequenceRef<'_>],
    options: ScoreOptions,
) -> Result<Vec<TokenScores>> {
    let vocab = engine.vocab.unwrap_or(model.config.vocab);
    let head = Head::new(model, vocab, options.temperature)?;
    let mut all = Vec::with_capacity(sequences.len());
    for chunk in chunks(sequences, engine.score_tokens) {
        let packed = Packed::new(chunk, engine.share_prompt_tokens, &model.device())?;
        check_targets(&packed, vocab)?;
        let hidden = model
            .hidden(&packed.ids, &packed.layout)?
            .select(0, row_tensor(&packed.rows, model));
        let ask = Ask {
            entropy: options.entropy,
            sum_pi_squared: options.sum_pi_squared,
        };
        let scores = head.score(&hidden, &packed.targets, ask);
        let rows = |values: Option<Tensor<1>>| match values {
            Some(values) => split_rows(&floats(values), chunk),
            None => vec![Vec::new(); chunk.len()],
        };
        let log_probs = rows(Some(scores.log_probs));
        let others = rows(scores.entropy)
            .into_iter()
            .zip(rows(scores.sum_pi_squared));
        all.extend(log_probs.into_iter().zip(others).map(
            |(log_probs, (entropy, sum_pi_squared))| TokenScores {
                log_probs,
                entropy,
                sum_pi_squared,
            },
        ));
    }
    Ok(all)
}

fn check_targets(packed: &Packed, vocab: usize) -> Result<()> {
    match packed.targets.iter().find(|id| **id as usize >= vocab) {
        Some(id) => Err(Error::invalid(format!(
            "a response holds id {id}, outside the vocabulary of {vocab}"
        ))),
        None => Ok(()),
    }
}

fn row_tensor(rows: &[usize], model: &Model) -> Tensor<1, Int> {
    let values: Vec<i64> = rows.iter().map(|r| *r as i64).collect();
    Tensor::from_data(TensorData::new(values, [rows.len()]), &model.device())
}

impl Policy for CausalPolicy {
    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &Objective<'_>,
    ) -> Result<Vec<MetricSum>> {
        let dropping = self.state.dropping();
        let State {
            model,
            grads,
            options,
            ..
        } = &mut self.state;
        let model = dropping.as_ref().unwrap_or(model);
        let sequences: Vec<SequenceRef<'_>> = micro.iter().map(|t| SequenceRef::from(*t)).collect();
        let mut packed = Packed::new(&sequences, options.share_prompt_tokens, &model.device())?;
        keep_policy_tokens(&mut packed, micro);
        if packed.targets.is_empty() {
            return Ok(Vec::new());
        }
        let vocab = options.vocab.unwrap_or(model.config.vocab);
        check_targets(&packed, vocab)?;
        let pass = Pass::run(model, &packed.ids, &packed.layout, options.checkpoint_every)?;
        let all_hidden = pass.hidden();
        let rows = row_tensor(&packed.rows, model);
        let hidden = all_hidden.clone().select(0, rows.clone());
        let head = Head::new(model, vocab, objective.temperature)?;
        let ask = Ask {
            entropy: objective.needs_entropy(),
            ..Ask::default()
        };
        let scores = head.score(&hidden, &packed.targets, ask);
        // The loss sees log-probs and entropies as leaves; the head's gradient
        // is continued by hand from theirs.
        let log_probs = scores.log_probs.clone().autodiff().require_grad();
        let entropy = scores.entropy.clone();
        let entropy = entropy.map(|e| e.autodiff().require_grad());
        let input = LossInput::new(micro, log_probs.clone(), entropy.clone())?;
        let value = objective.evaluate(&input)?;
        let mut recorded = value.loss.backward();
        let d = ScoreGrads {
            log_probs: match log_probs.grad_remove(&mut recorded) {
                Some(d) => d,
                None => vector(vec![0.0; packed.targets.len()], &log_probs.inner()),
            },
            entropy: entropy.and_then(|e| e.grad_remove(&mut recorded)),
        };
        let d_selected = head.backward(&hidden, &packed.targets, &scores, &d, grads);
        let d_hidden =
            all_hidden
                .zeros_like()
                .select_assign(0, rows, d_selected, IndexingUpdateOp::Add);
        drop(all_hidden);
        pass.backward(d_hidden, grads);
        Ok(value.metrics)
    }

    fn weights(&self) -> Weights {
        Weights {
            version: self.state.updates,
            tensors: self.state.model.tensors(),
        }
    }

    fn frozen(&self) -> Box<dyn LogProbModel> {
        Box::new(Frozen {
            model: self.state.model.without_lora(),
            options: self.state.options.clone(),
        })
    }
}

/// Drops the response tokens that the policy did not produce.
fn keep_policy_tokens(packed: &mut Packed, micro: &[&Trajectory]) {
    let live: Vec<bool> = micro
        .iter()
        .flat_map(|t| t.response_mask())
        .copied()
        .collect();
    let mut flags = live.iter();
    packed.rows.retain(|_| *flags.next().unwrap_or(&false));
    let mut flags = live.iter();
    packed.targets.retain(|_| *flags.next().unwrap_or(&false));
}

impl Trainable for CausalPolicy {
    fn optimizer_step(&mut self) -> Result<UpdateReport> {
        self.state.step()
    }

    fn discard_gradients(&mut self) {
        self.state.discard();
    }

    fn save_pretrained(&self, dir: &Path) -> Result<()> {
        self.state.save_pretrained(dir)
    }

    fn save_state(&self, dir: &Path) -> Result<()> {
        self.state.save_state(dir)
    }

    fn load_state(&mut self, dir: &Path) -> Result<()> {
        self.state.load_state(dir)
    }
}
