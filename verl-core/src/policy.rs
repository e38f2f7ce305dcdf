//! Models as reinforcement learning sees them: something that gives log-probs,
//! takes gradients of a loss, and can be saved.

use crate::Result;
use crate::algorithm::{Objective, ValueObjective};
use crate::rollout::Weights;
use crate::types::{TokenId, Trajectory};
use std::fmt;
use std::path::Path;

/// A prompt and a response to be scored under it.
#[derive(Debug, Clone, Copy)]
pub struct SequenceRef<'a> {
    /// Prompt ids, at least one.
    pub prompt: &'a [TokenId],
    /// Response ids.
    pub response: &'a [TokenId],
}

impl<'a> From<&'a Trajectory> for SequenceRef<'a> {
    fn from(t: &'a Trajectory) -> Self {
        SequenceRef {
            prompt: t.prompt(),
            response: t.response(),
        }
    }
}

/// What to compute when scoring sequences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreOptions {
    /// Logits are divided by this before the softmax; the temperature of the
    /// rollout, so that sampler and trainer speak of one distribution.
    pub temperature: f32,
    /// Also return the entropy at each position.
    pub entropy: bool,
    /// Also return the sum of squared probabilities at each position.
    pub sum_pi_squared: bool,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        ScoreOptions {
            temperature: 1.0,
            entropy: false,
            sum_pi_squared: false,
        }
    }
}

/// Per-token scores of one response, each as long as the response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenScores {
    /// Log-prob of each response token given everything before it.
    pub log_probs: Vec<f32>,
    /// Entropy in nats of the distribution each token was drawn from; empty
    /// unless asked for.
    pub entropy: Vec<f32>,
    /// Sum over the vocabulary of the squared probabilities; empty unless
    /// asked for.
    pub sum_pi_squared: Vec<f32>,
}

/// Gives log-probs of given sequences. A frozen reference policy is one, and
/// every [`Policy`] is one.
pub trait LogProbModel: fmt::Debug + Send + Sync {
    /// Scores of each sequence's response, in input order. The result does not
    /// depend on how the sequences are batched.
    ///
    /// # Errors
    /// When a prompt is empty or an id lies outside the vocabulary.
    fn log_probs(
        &self,
        sequences: &[SequenceRef<'_>],
        options: ScoreOptions,
    ) -> Result<Vec<TokenScores>>;
}

/// What an optimizer step did.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateReport {
    /// Global L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate the step used.
    pub lr: f64,
    /// Why nothing was updated, naming the first non-finite tensor; `None`
    /// when the update was applied.
    pub skipped: Option<String>,
}

/// The part that trainable models share: accumulated gradients become an
/// update, and everything can be saved and restored exactly.
pub trait Trainable: fmt::Debug + Send + Sync {
    /// Clips the accumulated gradient to the global norm, updates the weights
    /// at the scheduled learning rate and clears the gradient. A non-finite
    /// gradient updates nothing and is reported.
    fn optimizer_step(&mut self) -> Result<UpdateReport>;

    /// Drops the accumulated gradient without an update.
    fn discard_gradients(&mut self);

    /// Writes a model folder that other tools load.
    fn save_pretrained(&self, dir: &Path) -> Result<()>;

    /// Writes weights and optimizer state for an exact resume.
    fn save_state(&self, dir: &Path) -> Result<()>;

    /// Restores what [`Trainable::save_state`] wrote.
    fn load_state(&mut self, dir: &Path) -> Result<()>;
}

/// A per-token quantity logged while training, already summed over a
/// micro-batch with the weights that make it a mean over the mini-batch.
pub type MetricSum = (String, f64);

/// A trainable language model.
///
/// The trainer uses nothing but these methods, and so can a loop of your own:
/// score, `forward_backward` once per micro-batch, `optimizer_step`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be trained as a policy",
    note = "implement `Policy` (and its supertraits `LogProbModel` and `Trainable`)"
)]
pub trait Policy: LogProbModel + Trainable {
    /// Adds the gradient of `objective` on `micro` to the accumulated one.
    ///
    /// The objective holds the mini-batch's denominators, so any split of a
    /// mini-batch into micro-batches accumulates the same gradient. The
    /// returned sums add up over micro-batches to mini-batch means.
    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &Objective<'_>,
    ) -> Result<Vec<MetricSum>>;

    /// The current weights, for a rollout engine. Cheap: nothing is copied
    /// until one side changes.
    fn weights(&self) -> Weights;

    /// A frozen copy of the current weights to serve as reference policy.
    fn frozen(&self) -> Box<dyn LogProbModel>;
}

/// A trainable value model.
pub trait Critic: Trainable {
    /// The value before each response token, in input order: entry `t` is the
    /// value of the state from which token `t` was drawn.
    fn values(&self, sequences: &[SequenceRef<'_>]) -> Result<Vec<Vec<f32>>>;

    /// Adds the gradient of `objective` on `micro` to the accumulated one.
    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &ValueObjective<'_>,
    ) -> Result<Vec<MetricSum>>;
}

const _: fn(&dyn Policy, &dyn Critic, &dyn LogProbModel) = |_, _, _| {};
