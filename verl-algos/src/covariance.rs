//! The covariance of a token's log-prob with its advantage, which drives how
//! the policy's entropy changes (arXiv:2505.22617). Clip-Cov and KL-Cov hold
//! back the tokens where it is large.

use crate::ratio::on_host;
use verl_core::Result;
use verl_core::algorithm::LossInput;
use verl_core::types::Column;

/// Each packed token's part of the covariance,
/// `(A - mean(A)) (log pi - mean(log pi))`.
pub(crate) fn covariances(input: &LossInput<'_>, requester: &'static str) -> Result<Vec<f64>> {
    let advantages = on_host(&input.column_n(Column::Advantages, requester)?);
    let log_probs = on_host(&input.log_probs_n);
    let mean = |values: &[f32]| {
        values.iter().copied().map(f64::from).sum::<f64>() / values.len().max(1) as f64
    };
    let (a, l) = (mean(&advantages), mean(&log_probs));
    let parts = advantages.iter().zip(&log_probs);
    Ok(parts
        .map(|(advantage, log_prob)| (f64::from(*advantage) - a) * (f64::from(*log_prob) - l))
        .collect())
}

/// How many tokens a share of them makes, at least one.
pub(crate) fn count(share: f64, tokens: usize) -> usize {
    ((share * tokens as f64) as usize).max(1)
}
