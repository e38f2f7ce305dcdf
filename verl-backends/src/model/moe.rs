//! Mixture of experts: every token goes through its few best experts.

use super::config::MoeConfig;
use super::params::Mlp;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData, activation::softmax};

/// Routes tokens `[n, hidden]` to their top-k experts and sums what the experts
/// return, weighted by the router's probabilities.
pub(super) fn forward(
    config: &MoeConfig,
    router: &Tensor<2>,
    experts: &[Mlp],
    hidden: Tensor<2>,
) -> Tensor<2> {
    let device = hidden.device().inner();
    let [n, width] = hidden.dims();
    let probs = softmax(hidden.clone().matmul(router.clone().transpose()), 1);
    let (_, chosen) = probs.clone().inner().topk_with_indices(config.top_k, 1);
    let mut weights = probs.gather(1, chosen.clone());
    if config.norm_top_k {
        weights = weights.clone() / weights.sum_dim(1);
    }
    let weights = weights.reshape([n * config.top_k]);
    let chosen: Vec<usize> = chosen
        .into_data()
        .iter::<i64>()
        .map(|e| e as usize)
        .collect();
    let mut out = Tensor::<2>::zeros([n, width], &hidden.device());
    for (e, expert) in experts.iter().enumerate() {
        let slots: Vec<i64> = (0..chosen.len())
            .filter(|&i| chosen[i] == e)
            .map(|i| i as i64)
            .collect();
        if slots.is_empty() {
            continue;
        }
        let count = slots.len();
        let rows: Vec<i64> = slots.iter().map(|s| s / config.top_k as i64).collect();
        let index = |values: Vec<i64>| {
            Tensor::<1, Int>::from_data(TensorData::new(values, [count]), &device)
        };
        let rows = index(rows);
        let weight = weights.clone().select(0, index(slots)).reshape([count, 1]);
        let output = expert.forward(hidden.clone().select(0, rows.clone()), None) * weight;
        out = out.select_assign(0, rows, output, IndexingUpdateOp::Add);
    }
    out
}
