//! The small operations between the matrix products.

use super::rows::{exp, for_row_pairs, for_rows, vectorised};
use rayon::prelude::*;

/// Values per task of a flat pass.
const PIECE: usize = 1 << 14;

/// `silu(gate) * up`.
pub(crate) fn swiglu(gate: &[f32], up: &[f32]) -> Vec<f32> {
    let mut out = vec![0f32; gate.len()];
    for_rows(&mut out, 1, |at, out| {
        vectorised!({
            for ((out, g), u) in out.iter_mut().zip(&gate[at..]).zip(&up[at..]) {
                *out = g * u / (1.0 + exp(-g));
            }
        })
    });
    out
}

/// Turns `gate` and `up` into their own gradients, given that of
/// [`swiglu`]'s result.
pub(crate) fn swiglu_backward(d: &[f32], gate: &mut [f32], up: &mut [f32]) {
    for_row_pairs((gate, 1), (up, 1), |at, gate, up| {
        vectorised!({
            for ((g, u), d) in gate.iter_mut().zip(up.iter_mut()).zip(&d[at..]) {
                let sigmoid = 1.0 / (1.0 + exp(-*g));
                let silu = *g * sigmoid;
                *g = d * *u * (sigmoid + silu * (1.0 - sigmoid));
                *u = d * silu;
            }
        })
    });
}

/// `a += b`.
pub(crate) fn add(a: &mut [f32], b: &[f32]) {
    for_rows(a, 1, |at, a| {
        vectorised!({
            for (a, b) in a.iter_mut().zip(&b[at..]) {
                *a += b;
            }
        })
    });
}

/// Adds a bias to every row.
pub(crate) fn add_bias(rows: &mut [f32], bias: &[f32]) {
    for_rows(rows, bias.len(), |_, rows| {
        vectorised!({
            for row in rows.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        })
    });
}

/// Adds the rows up into `sums`.
pub(crate) fn add_column_sums(rows: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    let partial: Vec<Vec<f32>> = rows
        .par_chunks((PIECE / width).max(1) * width)
        .map(|rows| {
            let mut sums = vec![0f32; width];
            for row in rows.chunks_exact(width) {
                sums.iter_mut().zip(row).for_each(|(s, v)| *s += v);
            }
            sums
        })
        .collect();
    for part in partial {
        sums.iter_mut().zip(part).for_each(|(s, p)| *s += p);
    }
}

/// cos and sin of the rotary embedding, `[n, half]` each, for heads of width
/// `2 * half`.
#[derive(Debug)]
pub(crate) struct Rotation {
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
    pub(crate) half: usize,
}

/// Which way heads are turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As in the forward pass.
    Forward,
    /// Back: the gradient of a turn.
    Back,
}

impl Rotation {
    /// Turns all heads of all rows in place and multiplies them by `scale`.
    /// Rows hold `heads` heads.
    pub(crate) fn apply(&self, rows: &mut [f32], heads: usize, scale: f32, turn: Turn) {
        let half = self.half;
        let sign = if turn == Turn::Forward { scale } else { -scale };
        for_rows(rows, heads * 2 * half, |first, rows| {
            vectorised!({
                for (i, row) in rows.chunks_exact_mut(heads * 2 * half).enumerate() {
                    let at = (first + i) * half..(first + i + 1) * half;
                    let (cos, sin) = (&self.cos[at.clone()], &self.sin[at]);
                    for head in row.chunks_exact_mut(2 * half) {
                        let (a, b) = head.split_at_mut(half);
                        for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                            let (x, y) = (*a, *b);
                            *a = x * c * scale - y * s * sign;
                            *b = y * c * scale + x * s * sign;
                        }
                    }
                }
            })
        });
    }
}
