//! Root-mean-square norm: `y = x w / sqrt(mean(x^2) + eps)`.

use super::rows::{dot, for_row_pairs, for_rows, sum_of, vectorised};
use rayon::prelude::*;

/// What the backward pass needs besides the input: one factor per row,
/// `1 / sqrt(mean(x^2) + eps)`.
pub(crate) type Scales = Vec<f32>;

/// The normed rows and their scales. Rows are as wide as the weight.
pub(crate) fn forward(x: &[f32], weight: &[f32], eps: f64) -> (Vec<f32>, Scales) {
    let width = weight.len();
    let mut y = vec![0f32; x.len()];
    let mut scales = vec![0f32; x.len() / width];
    for_row_pairs((&mut y, width), (&mut scales, 1), |first, y, scales| {
        vectorised!({
            let x = x[first * width..].chunks_exact(width);
            for ((y, scale), x) in y.chunks_exact_mut(width).zip(scales.iter_mut()).zip(x) {
                let mean = sum_of(x, |v| v * v) / width as f32;
                *scale = 1.0 / (mean + eps as f32).sqrt();
                apply(y, x, weight, *scale);
            }
        })
    });
    (y, scales)
}

/// The normed rows again.
pub(crate) fn again(x: &[f32], weight: &[f32], scales: &[f32]) -> Vec<f32> {
    let width = weight.len();
    let mut y = vec![0f32; x.len()];
    for_rows(&mut y, width, |first, y| {
        vectorised!({
            let x = x[first * width..].chunks_exact(width);
            for ((y, x), scale) in y.chunks_exact_mut(width).zip(x).zip(&scales[first..]) {
                apply(y, x, weight, *scale);
            }
        })
    });
    y
}

#[inline(always)]
fn apply(y: &mut [f32], x: &[f32], weight: &[f32], scale: f32) {
    for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
        *y = x * scale * w;
    }
}

/// Adds the gradient of the input to `d_x` and that of the weight to
/// `d_weight`, given that of the output.
///
/// With `s` the scale: `d_x = s w d - x s^3 mean(w d x)`, `d_w = sum(d x s)`.
pub(crate) fn backward(
    d: &[f32],
    x: &[f32],
    weight: &[f32],
    scales: &[f32],
    d_x: &mut [f32],
    d_weight: &mut [f32],
) {
    const ROWS: usize = 64;
    let width = weight.len();
    let pieces = d_x.par_chunks_mut(ROWS * width).enumerate();
    let partial: Vec<Vec<f32>> = pieces
        .map(|(i, d_x)| {
            let mut d_weight = vec![0f32; width];
            let at = i * ROWS;
            let rows = d[at * width..]
                .chunks_exact(width)
                .zip(x[at * width..].chunks_exact(width))
                .zip(&scales[at..]);
            vectorised!({
                let mut weighted = vec![0f32; width];
                for (d_x, ((d, x), scale)) in d_x.chunks_exact_mut(width).zip(rows.clone()) {
                    for ((wd, d), w) in weighted.iter_mut().zip(d).zip(weight) {
                        *wd = d * w;
                    }
                    let pull = scale * scale * scale * dot(&weighted, x) / width as f32;
                    for ((d_x, wd), x) in d_x.iter_mut().zip(&weighted).zip(x) {
                        *d_x += scale * wd - pull * x;
                    }
                    for ((dw, d), x) in d_weight.iter_mut().zip(d).zip(x) {
                        *dw += d * x * scale;
                    }
                }
            });
            d_weight
        })
        .collect();
    for part in partial {
        d_weight.iter_mut().zip(part).for_each(|(sum, p)| *sum += p);
    }
}
