//! AdamW in one pass over the weights.

use super::rows::vectorised;
use rayon::prelude::*;

const PIECE: usize = 1 << 14;

/// The constants of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) betas: (f32, f32),
    pub(crate) eps: f32,
    /// `lr / (1 - b1^t)`.
    pub(crate) rate: f32,
    /// `1 / (1 - b2^t)`.
    pub(crate) second_correction: f32,
    /// `1 - lr * weight_decay`.
    pub(crate) keep: f32,
}

/// Updates the moments in place and turns the gradient into the new weights.
pub(crate) fn update(step: Step, param: &[f32], grad: &mut [f32], m: &mut [f32], v: &mut [f32]) {
    grad.par_chunks_mut(PIECE)
        .zip(param.par_chunks(PIECE))
        .zip(m.par_chunks_mut(PIECE).zip(v.par_chunks_mut(PIECE)))
        .for_each(|((grad, param), (m, v))| update_piece(step, param, grad, m, v));
}

/// The same on one thread.
pub(super) fn update_piece(
    step: Step,
    param: &[f32],
    grad: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    let (b1, b2) = step.betas;
    vectorised!({
        let moments = m.iter_mut().zip(v.iter_mut());
        for ((g, p), (m, v)) in grad.iter_mut().zip(param).zip(moments) {
            *m = b1 * *m + (1.0 - b1) * *g;
            *v = b2 * *v + (1.0 - b2) * *g * *g;
            let root = (*v * step.second_correction).sqrt() + step.eps;
            *g = p * step.keep - step.rate * *m / root;
        }
    })
}

/// The sum of the squares, added up in a fixed order.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let pieces: Vec<f64> = values
        .par_chunks(PIECE)
        .map(|piece| vectorised!(super::rows::sum_of(piece, |v| v * v)).into())
        .collect();
    pieces.into_iter().sum()
}
