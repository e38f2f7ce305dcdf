//! From per-token losses to the number whose gradient is taken.

use super::{LossInput, PolicyLoss, ValueInput, ValueLoss};
use crate::math::{Denominators, KlEstimator, LossAggregation};
use crate::policy::MetricSum;
use crate::types::Column;
use crate::{Error, Result};
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// A KL term added to the loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KlLoss {
    /// Its coefficient.
    pub coef: f32,
    /// How KL(policy, reference) is estimated per token.
    pub estimator: KlEstimator,
}

/// The whole policy objective of a mini-batch:
///
/// ```text
/// J = agg(loss_n) - entropy_coeff * agg(entropy_n) + kl.coef * agg(kl_n)
/// ```
///
/// `agg` divides by the mini-batch's denominators, so that the micro-batches'
/// objectives add up to it.
#[derive(Debug, Clone, Copy)]
pub struct Objective<'a> {
    /// The per-token loss.
    pub loss: &'a dyn PolicyLoss,
    /// How per-token losses become one number.
    pub aggregation: LossAggregation,
    /// Token and sequence counts of the whole mini-batch, over all ranks.
    pub denominators: Denominators,
    /// Weight of the entropy bonus.
    pub entropy_coeff: f32,
    /// The KL term, if any.
    pub kl: Option<KlLoss>,
    /// Temperature at which log-probs are taken.
    pub temperature: f32,
}

/// A scalar to differentiate, and what to log.
#[derive(Debug)]
pub struct ObjectiveValue {
    /// `[1]`.
    pub loss: Tensor<1>,
    /// Sums that add up to mini-batch means.
    pub metrics: Vec<MetricSum>,
}

impl Objective<'_> {
    /// Whether entropies must be computed for the loss.
    pub fn needs_entropy(&self) -> bool {
        self.entropy_coeff != 0.0
    }

    /// Evaluates the objective on one micro-batch.
    ///
    /// # Errors
    /// [`Error::MissingColumn`], or [`Error::Invalid`] when entropies are
    /// needed and absent.
    pub fn evaluate(&self, input: &LossInput<'_>) -> Result<ObjectiveValue> {
        let output = self.loss.per_token(input)?;
        let weights_n = self.weights(input);
        let means_n = constant(
            vec![1.0 / self.denominators.tokens.max(1) as f32; input.tokens()],
            &input.log_probs_n,
        );
        let mut loss = (output.loss_n * weights_n.clone()).sum();
        let mut metrics = vec![("actor/pg_loss".to_string(), scalar(loss.clone()))];
        for (name, values_n) in output.metrics_n {
            metrics.push((name.to_string(), scalar((values_n * means_n.clone()).sum())));
        }
        if self.needs_entropy() {
            let entropy_n = input.entropy_n.clone().ok_or_else(|| {
                Error::invalid(
                    "the objective has an entropy bonus, but the policy returned no entropies",
                )
            })?;
            let bonus = (entropy_n * weights_n.clone()).sum();
            metrics.push(("actor/entropy_loss".into(), scalar(bonus.clone())));
            loss = loss - bonus.mul_scalar(self.entropy_coeff);
        }
        if let Some(kl) = &self.kl {
            let ref_n = input.column_n(Column::RefLogProbs, "the KL loss")?;
            let term = (kl.estimator.per_token(input.log_probs_n.clone(), ref_n) * weights_n).sum();
            metrics.push(("actor/kl_loss".into(), scalar(term.clone())));
            loss = loss + term.mul_scalar(kl.coef);
        }
        Ok(ObjectiveValue { loss, metrics })
    }

    fn weights(&self, input: &LossInput<'_>) -> Tensor<1> {
        let lengths: Vec<usize> = input.segments.iter().map(|s| s.len()).collect();
        constant(
            self.aggregation.token_weights(&lengths, &self.denominators),
            &input.log_probs_n,
        )
    }
}

/// The critic's objective on a mini-batch.
#[derive(Debug, Clone, Copy)]
pub struct ValueObjective<'a> {
    /// The per-token loss.
    pub loss: &'a dyn ValueLoss,
    /// How per-token losses become one number.
    pub aggregation: LossAggregation,
    /// Token and sequence counts of the whole mini-batch.
    pub denominators: Denominators,
}

impl ValueObjective<'_> {
    /// Evaluates the objective on one micro-batch.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] when the loss reads what is not there.
    pub fn evaluate(&self, input: &ValueInput<'_>) -> Result<ObjectiveValue> {
        let output = self.loss.per_token(input)?;
        let lengths: Vec<usize> = input
            .trajectories
            .iter()
            .map(|t| t.policy_tokens())
            .collect();
        let weights_n = constant(
            self.aggregation.token_weights(&lengths, &self.denominators),
            &input.values_n,
        );
        let n = lengths.iter().sum();
        let means_n = constant(
            vec![1.0 / self.denominators.tokens.max(1) as f32; n],
            &input.values_n,
        );
        let loss = (output.loss_n * weights_n).sum();
        let mut metrics = vec![("critic/vf_loss".to_string(), scalar(loss.clone()))];
        for (name, values_n) in output.metrics_n {
            metrics.push((name.to_string(), scalar((values_n * means_n.clone()).sum())));
        }
        Ok(ObjectiveValue { loss, metrics })
    }
}

fn constant(values: Vec<f32>, like: &Tensor<1>) -> Tensor<1> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), &like.device().inner())
}

fn scalar(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}
