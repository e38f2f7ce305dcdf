//! Bypass mode: two policies instead of three.

use super::RolloutCorrection;
use super::metrics::log_ratios;
use crate::ratio::{cut, log_ratio_n, on_host};
use burn::tensor::{Bool, Tensor, TensorData};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;

/// A loss whose old log-probs are the sampler's, with weights and rejection
/// taken of the current policy at each update, as constants for the gradient.
///
/// Rejected tokens have loss 0. Unlike those that
/// [`RolloutCorrection::apply`] takes out they still count in the
/// mini-batch's size, which must not depend on the policy. The mean that
/// `rollout_is_batch_normalize` divides by runs over a micro-batch.
///
/// # Metrics
/// Those of the loss, 0 at rejected tokens, and means over the policy's tokens:
///
/// ```text
/// rollout_corr/kl                          -d        d = log pi - log pi_rollout
/// rollout_corr/k3_kl                       exp(d) - 1 - d
/// rollout_corr/chi2_token                  exp(d)^2 - 1
/// rollout_corr/rollout_is_mean             the weight, if any
/// rollout_corr/rollout_rs_masked_fraction  1 where rejected
/// ```
#[derive(Debug)]
pub struct Bypass {
    inner: Box<dyn PolicyLoss>,
    correction: RolloutCorrection,
    needs: Vec<Column>,
}

const NAME: &str = "rollout correction in bypass mode";

impl Bypass {
    /// Wraps a loss.
    pub(super) fn new(inner: Box<dyn PolicyLoss>, correction: RolloutCorrection) -> Self {
        let mut needs = inner.needs().to_vec();
        if !needs.contains(&Column::OldLogProbs) {
            needs.push(Column::OldLogProbs);
        }
        Bypass {
            inner,
            correction,
            needs,
        }
    }
}

impl PolicyLoss for Bypass {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn needs(&self) -> &[Column] {
        &self.needs
    }

    fn requirements(&self) -> Requirements {
        self.inner.requirements().rollout_log_probs_as_old(true)
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let old = input.column_n(Column::OldLogProbs, NAME)?;
        let rows = |values: &Tensor<1>| -> Vec<Vec<f64>> {
            let values = on_host(values);
            let answered = input.segments.iter().filter(|segment| !segment.is_empty());
            let row = |range: &std::ops::Range<usize>| {
                values[range.clone()]
                    .iter()
                    .copied()
                    .map(f64::from)
                    .collect()
            };
            answered.map(row).collect()
        };
        let log_ratios = log_ratios(&rows(&input.log_probs_n), &rows(&old));
        let decision = self.correction.decide(&log_ratios);
        let device = input.log_probs_n.device().inner();
        let rejected: Vec<bool> = decision.keep.iter().flatten().map(|keep| !keep).collect();
        let rejected = TensorData::new(rejected, [input.tokens()]);
        let rejected = Tensor::<1, Bool>::from_data(rejected, &device);

        let mut output = self.inner.per_token(input)?;
        let masked = |values: Tensor<1>| values.mask_fill(rejected.clone(), 0.0);
        for (_, values) in &mut output.metrics_n {
            *values = masked(values.clone());
        }
        let d = cut(log_ratio_n(input, NAME)?.inner());
        let ratio = d.clone().exp();
        output.metrics_n.extend([
            ("rollout_corr/kl", d.clone().neg()),
            ("rollout_corr/k3_kl", ratio.clone().sub_scalar(1.0) - d),
            ("rollout_corr/chi2_token", ratio.square().sub_scalar(1.0)),
            (
                "rollout_corr/rollout_rs_masked_fraction",
                rejected.clone().float(),
            ),
        ]);
        if let Some(weights) = decision.weights {
            let weights: Vec<f32> = weights.into_iter().flatten().map(|w| w as f32).collect();
            let weights = TensorData::new(weights, [input.tokens()]);
            let weights = Tensor::<1>::from_data(weights, &device);
            output
                .metrics_n
                .push(("rollout_corr/rollout_is_mean", weights.clone()));
            output.loss_n = output.loss_n * weights;
        }
        output.loss_n = masked(output.loss_n);
        Ok(output)
    }
}
