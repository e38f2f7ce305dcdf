//! Causal grouped-query attention over a packed layout.

use super::layout::{AttentionUnit, Layout};
use burn::tensor::{Tensor, activation::softmax};

/// A score that the softmax turns into 0. Finite, so that no row of masked
/// scores can become NaN.
const HIDDEN: f32 = -1e30;

/// Attends within each sequence of the layout.
///
/// # Shapes
/// `q` is `[n, heads, d]`, already scaled by `1 / sqrt(d)`; `k` and `v` are
/// `[n, kv_heads, d]`; the result is `[n, heads * d]`.
pub(super) fn attend(
    q: Tensor<3>,
    k: Tensor<3>,
    v: Tensor<3>,
    layout: &Layout,
    window: Option<usize>,
) -> Tensor<2> {
    let outputs: Vec<Tensor<2>> = layout
        .units
        .iter()
        .map(|unit| attend_unit(&q, &k, &v, unit, window))
        .collect();
    let rows = if outputs.len() == 1 {
        outputs.into_iter().next()
    } else {
        Some(Tensor::cat(outputs, 0))
    };
    match (rows, &layout.unpack) {
        (Some(rows), Some(unpack)) => rows.select(0, unpack.clone()),
        (Some(rows), None) => rows,
        (None, _) => q.flatten(1, 2),
    }
}

/// One rectangle: `[batch * len, heads * d]`.
fn attend_unit(
    q: &Tensor<3>,
    k: &Tensor<3>,
    v: &Tensor<3>,
    unit: &AttentionUnit,
    window: Option<usize>,
) -> Tensor<2> {
    let ([_, heads, d], kv) = (q.dims(), k.dims()[1]);
    let (b, t, p, per_kv) = (unit.batch, unit.len, unit.prefix.len(), heads / kv);
    // Query heads that share a key head become rows of one matrix.
    let queries = unit
        .take(q)
        .reshape([b, t, kv, per_kv, d])
        .permute([2, 0, 3, 1, 4]);
    let queries = queries.reshape([kv, b, per_kv * t, d]).swap_dims(0, 1);
    let keys = unit.take(k).permute([0, 2, 3, 1]);
    let values = unit.take(v).permute([0, 2, 1, 3]);
    let mut scores = queries.clone().matmul(keys);
    if p > 0 {
        scores = Tensor::cat(vec![prefix_scores(queries, k, unit), scores], 3);
    }
    let mut scores = scores.reshape([b * kv, per_kv, t, p + t]);
    if let Some(mask) = unit.mask(window) {
        scores = scores.mask_fill(
            mask.reshape([1, 1, t, p + t])
                .expand([b * kv, per_kv, t, p + t]),
            HIDDEN,
        );
    }
    let weights = softmax(scores, 3).reshape([b, kv, per_kv * t, p + t]);
    let mut mixed = match p {
        0 => weights.clone().matmul(values),
        _ => weights.clone().narrow(3, p, t).matmul(values),
    };
    if p > 0 {
        mixed = mixed + prefix_mix(weights.narrow(3, 0, p), v, unit);
    }
    mixed
        .reshape([b, heads, t, d])
        .swap_dims(1, 2)
        .reshape([b * t, heads * d])
}

/// Scores against the shared prefix: one matrix product for all sequences.
fn prefix_scores(queries: Tensor<4>, k: &Tensor<3>, unit: &AttentionUnit) -> Tensor<4> {
    let [b, kv, rows, d] = queries.dims();
    let p = unit.prefix.len();
    let keys = k.clone().narrow(0, unit.prefix.start, p).permute([1, 2, 0]);
    let queries = queries.swap_dims(0, 1).reshape([kv, b * rows, d]);
    queries
        .matmul(keys)
        .reshape([kv, b, rows, p])
        .swap_dims(0, 1)
}

/// The prefix's share of the output.
fn prefix_mix(weights: Tensor<4>, v: &Tensor<3>, unit: &AttentionUnit) -> Tensor<4> {
    let [b, kv, rows, p] = weights.dims();
    let values = v.clone().narrow(0, unit.prefix.start, p).permute([1, 0, 2]);
    let d = v.dims()[2];
    let weights = weights.swap_dims(0, 1).reshape([kv, b * rows, p]);
    weights
        .matmul(values)
        .reshape([kv, b, rows, d])
        .swap_dims(0, 1)
}
