//! What the implicit reward model is trained on.
//!
//! The sum of its process rewards is the log-odds of the answer being right:
//!
//! ```text
//! Q_i = beta sum_t(log pi_phi - log pi_ref)
//! L_i = -o_i log sigmoid(Q_i) - (1 - o_i) log(1 - sigmoid(Q_i))
//! ```
//!
//! Every token of answer `i` carries `L_i`, so that `seq-mean-token-mean`
//! makes the mean over answers of it. The log-probs of the loss are those of
//! the reward model.
//!
//! # Metrics
//! `reward_model/accuracy`, whether `Q` is positive where the outcome is above
//! 0.5 and negative elsewhere, averaged over tokens.

use super::outcome;
use crate::options::require;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::{Column, Trajectory};
use verl_core::{Error, Result};

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImplicitRewardLossConfig {
    /// Factor of the log-ratio.
    pub beta_train: f32,
}

impl Default for ImplicitRewardLossConfig {
    fn default() -> Self {
        ImplicitRewardLossConfig { beta_train: 0.05 }
    }
}

impl ImplicitRewardLossConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`Error::Config`] when `beta_train` is out of range.
    pub fn build(&self) -> Result<ImplicitRewardLoss> {
        let ok = self.beta_train.is_finite() && self.beta_train > 0.0;
        require("beta_train", self.beta_train, ok, "positive")?;
        Ok(ImplicitRewardLoss {
            beta: self.beta_train,
        })
    }
}

/// The reward model's cross entropy.
///
/// # Example
/// A model that is still its reference gives even odds:
/// ```
/// use burn::tensor::{Device, Tensor};
/// use verl_algos::prime::ImplicitRewardLoss;
/// use verl_core::algorithm::{LossInput, PolicyLoss};
/// use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};
///
/// let mut t = Trajectory::new(TrajectoryParts {
///     group: GroupId(0),
///     sample: 0,
///     prompt: vec![1].into(),
///     response: vec![7],
///     response_mask: vec![true],
///     finish: FinishReason::Stop,
///     weight_version: 0,
/// })?;
/// t.set_score(1.0)?;
/// t.set(Column::RefLogProbs, vec![-1.5])?;
///
/// let device = Device::flex().autodiff();
/// let log_probs_n = Tensor::<1>::from_floats([-1.5], &device).require_grad();
/// let rows = [&t];
/// let input = LossInput::new(&rows, log_probs_n.clone(), None)?;
/// let loss = ImplicitRewardLoss { beta: 1.0 }.per_token(&input)?.loss_n.sum();
/// assert!((loss.clone().into_scalar::<f32>() - 2f32.ln()).abs() < 1e-6);
/// let gradient = log_probs_n.grad(&loss.backward()).unwrap();
/// assert!((gradient.into_scalar::<f32>() + 0.5).abs() < 1e-6);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImplicitRewardLoss {
    /// Factor of the log-ratio.
    pub beta: f32,
}

const NAME: &str = "implicit reward loss";

/// An outcome that can be a probability.
fn label(t: &Trajectory) -> Result<f32> {
    let label = outcome(t, NAME)?;
    match (0.0..=1.0).contains(&label) {
        true => Ok(label),
        false => Err(Error::invalid(format!(
            "{NAME}: the score of {} is {label}; outcomes must be in [0, 1]",
            t.place()
        ))),
    }
}

impl PolicyLoss for ImplicitRewardLoss {
    fn name(&self) -> &str {
        "implicit_reward"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards, Column::RefLogProbs]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let device = input.log_probs_n.device().inner();
        let packed = |values: Vec<f32>| {
            let n = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [n]), &device)
        };
        let (mut labels, mut lengths) = (Vec::new(), Vec::new());
        for (t, segment) in input.trajectories.iter().zip(&input.segments) {
            labels.resize(segment.end, label(t)?);
            lengths.resize(segment.end, segment.len() as f32);
        }
        let (labels_n, lengths_n) = (packed(labels), packed(lengths));
        let q_n = input.log_probs_n.clone() - input.column_n(Column::RefLogProbs, NAME)?;
        let log_odds_n = (input.sequence_mean_n(q_n) * lengths_n).mul_scalar(self.beta);
        let loss_n =
            (log_sigmoid(log_odds_n.clone().neg()) + labels_n.clone() * log_odds_n.clone()).neg();
        let predicted = log_odds_n.inner().greater_scalar(0.0);
        let right = predicted.equal(labels_n.greater_scalar(0.5)).float();
        Ok(LossOutput {
            loss_n,
            metrics_n: vec![("reward_model/accuracy", right)],
        })
    }
}
