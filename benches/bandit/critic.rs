//! A critic with one number for each context, position and previous token.
//!
//! The previous token is what lets it tell a good beginning from a bad one:
//! without it, an advantage that looks one token ahead knows nothing of the
//! token it judges.

use super::table::{Table, row, rows_and_tokens, values};
use super::{STOP, VOCAB};
use std::path::Path;
use verl::core::algorithm::{ValueInput, ValueObjective};
use verl::core::policy::{MetricSum, SequenceRef, Trainable, UpdateReport};
use verl::core::types::{TokenId, Trajectory};
use verl::{Critic, Result};

/// Values of what has been said so far, 0 at first.
#[derive(Debug)]
pub struct TableCritic(Table);

impl TableCritic {
    /// The critic that expects nothing.
    pub fn new(learning_rate: f64) -> Self {
        TableCritic(Table::new(learning_rate))
    }
}

/// The token before a position of an answer; at its start, the stop token.
fn previous(response: &[TokenId], position: usize) -> TokenId {
    position.checked_sub(1).map_or(STOP, |i| response[i])
}

impl Trainable for TableCritic {
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

impl Critic for TableCritic {
    fn values(&self, sequences: &[SequenceRef<'_>]) -> Result<Vec<Vec<f32>>> {
        let table = values(&self.0.weights);
        let value = |s: &SequenceRef<'_>| {
            let at = |i| row(s.prompt, i) * VOCAB + previous(s.response, i) as usize;
            (0..s.response.len()).map(|i| table[at(i)]).collect()
        };
        Ok(sequences.iter().map(value).collect())
    }

    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &ValueObjective<'_>,
    ) -> Result<Vec<MetricSum>> {
        let (rows_n, previous_n) = rows_and_tokens(micro, previous);
        let n = rows_n.dims()[0];
        if n == 0 {
            return Ok(Vec::new());
        }
        let table = self.0.weights.clone().autodiff().require_grad();
        let rows = table.clone().select(0, rows_n);
        let values_n = rows.gather(1, previous_n.reshape([n, 1])).reshape([n]);
        let value = objective.evaluate(&ValueInput::new(micro, values_n)?)?;
        self.0
            .add_gradient(table.grad_remove(&mut value.loss.backward()));
        Ok(value.metrics)
    }
}
