//! The log-ratio to the old policy, as most losses start from it.

use burn::tensor::Tensor;
use verl_core::Result;
use verl_core::algorithm::LossInput;
use verl_core::types::Column;

/// Log-ratios are cut to this in both directions, so that their exponential
/// does not overflow; beyond, there is no gradient.
const LIMIT: f32 = 20.0;

/// `log pi - log pi_old`, `[n]`, not cut.
pub(crate) fn log_ratio_n(input: &LossInput<'_>, requester: &'static str) -> Result<Tensor<1>> {
    Ok(input.log_probs_n.clone() - input.column_n(Column::OldLogProbs, requester)?)
}

/// Log-ratios within the range of the exponential.
pub(crate) fn cut(log_ratio: Tensor<1>) -> Tensor<1> {
    log_ratio.clamp(-LIMIT, LIMIT)
}

/// The metric `actor/ppo_kl`, the mean of `-(log pi - log pi_old)`.
pub(crate) fn ppo_kl(log_ratio: &Tensor<1>) -> (&'static str, Tensor<1>) {
    ("actor/ppo_kl", log_ratio.clone().inner().neg())
}

/// The numbers of a packed tensor, on the host.
pub(crate) fn on_host(values_n: &Tensor<1>) -> Vec<f32> {
    let data = values_n.clone().inner().into_data();
    data.iter::<f32>().collect()
}
