//! The softmax policy of a table of logits.

use super::table::{Table, row, rows_and_tokens, softmax, values};
use std::path::Path;
use verl::backends::burn::tensor::activation::log_softmax;
use verl::core::algorithm::{LossInput, Objective};
use verl::core::policy::{
    LogProbModel, MetricSum, ScoreOptions, SequenceRef, TokenScores, Trainable, UpdateReport,
};
use verl::core::rollout::Weights;
use verl::core::types::Trajectory;
use verl::{Policy, Result};

/// A policy whose distribution at each context and position is a row of
/// logits. It begins uniform.
#[derive(Debug)]
pub struct TablePolicy(Table);

/// A policy as it once was.
#[derive(Debug, Clone)]
pub struct FrozenTable {
    logits: Vec<f32>,
}

impl TablePolicy {
    /// The uniform policy.
    pub fn new(learning_rate: f64) -> Self {
        TablePolicy(Table::new(learning_rate))
    }

    fn snapshot(&self) -> FrozenTable {
        FrozenTable {
            logits: values(&self.0.weights),
        }
    }
}

impl LogProbModel for FrozenTable {
    fn log_probs(
        &self,
        sequences: &[SequenceRef<'_>],
        options: ScoreOptions,
    ) -> Result<Vec<TokenScores>> {
        let table = softmax(&self.logits, options.temperature);
        let score = |s: &SequenceRef<'_>| {
            let mut scores = TokenScores::default();
            for (i, token) in s.response.iter().enumerate() {
                let row = &table[row(s.prompt, i)];
                scores.log_probs.push(row[*token as usize].ln() as f32);
                if options.entropy {
                    let entropy: f64 = row.iter().map(|p| -p * p.ln()).sum();
                    scores.entropy.push(entropy as f32);
                }
                if options.sum_pi_squared {
                    let squares: f64 = row.iter().map(|p| p * p).sum();
                    scores.sum_pi_squared.push(squares as f32);
                }
            }
            scores
        };
        Ok(sequences.iter().map(score).collect())
    }
}

impl LogProbModel for TablePolicy {
    fn log_probs(
        &self,
        sequences: &[SequenceRef<'_>],
        options: ScoreOptions,
    ) -> Result<Vec<TokenScores>> {
        self.snapshot().log_probs(sequences, options)
    }
}

impl Trainable for TablePolicy {
    fn optimizer_step(&mut self) -> Result<UpdateReport> {
        self.0.step()
    }
    fn discard_gradients(&mut self) {
        self.0.discard_gradients();
    }
    fn save_pretrained(&self, dir: &Path) -> Result<()> {
        self.0.save(dir)
    }
    fn save_state(&self, dir: &Path) -> Result<()> {
        self.0.save_state(dir)
    }
    fn load_state(&mut self, dir: &Path) -> Result<()> {
        self.0.load_state(dir)
    }
}

impl Policy for TablePolicy {
    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &Objective<'_>,
    ) -> Result<Vec<MetricSum>> {
        let (rows_n, tokens_n) = rows_and_tokens(micro, |response, i| response[i]);
        let n = tokens_n.dims()[0];
        if n == 0 {
            return Ok(Vec::new());
        }
        let table = self.0.weights.clone().autodiff().require_grad();
        let logits = table.clone().select(0, rows_n);
        let all = log_softmax(logits.div_scalar(objective.temperature), 1);
        let entropy_n = objective.needs_entropy().then(|| {
            (all.clone().exp() * all.clone())
                .sum_dim(1)
                .neg()
                .reshape([n])
        });
        let log_probs_n = all.gather(1, tokens_n.reshape([n, 1])).reshape([n]);
        let value = objective.evaluate(&LossInput::new(micro, log_probs_n, entropy_n)?)?;
        self.0
            .add_gradient(table.grad_remove(&mut value.loss.backward()));
        Ok(value.metrics)
    }

    fn weights(&self) -> Weights {
        self.0.weights()
    }

    fn frozen(&self) -> Box<dyn LogProbModel> {
        Box::new(self.snapshot())
    }
}
