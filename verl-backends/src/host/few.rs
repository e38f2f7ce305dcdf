//! Projections of few rows, as decoding needs them: every weight is read once,
//! from where it lies, and a row's result does not depend on its company.

use super::rows::vectorised;
use crate::quant::{Dequantise, Quantised};
use half::bf16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Values of the weight a task reads at a time.
const TASK: usize = 1 << 16;

/// How a weight is kept.
pub(crate) trait Stored: Copy + Sync {
    /// Rows as f32: the values themselves, or unpacked into `scratch`.
    fn unpack<'a>(rows: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32];
}

impl Stored for f32 {
    #[inline(always)]
    fn unpack<'a>(rows: &'a [f32], _: &'a mut Vec<f32>) -> &'a [f32] {
        rows
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn unpack<'a>(rows: &'a [bf16], scratch: &'a mut Vec<f32>) -> &'a [f32] {
        scratch.clear();
        scratch.resize(rows.len(), 0.0);
        for (value, bits) in scratch.iter_mut().zip(rows) {
            *value = f32::from_bits(u32::from(bits.to_bits()) << 16);
        }
        scratch
    }
}

/// `y = x W^T`: `[n, in]` times `[out, in]` gives `[n, out]`.
pub(crate) fn project<T: Stored>(x: &[f32], n: usize, weight: &[T], outputs: usize) -> Vec<f32> {
    if n == 0 {
        return Vec::new();
    }
    let width = weight.len() / outputs.max(1);
    let step = (TASK / width.max(1)).max(4);
    // Output after output, as the tasks produce them.
    let mut columns = vec![0f32; outputs * n];
    columns
        .par_chunks_mut(step * n)
        .zip(weight.par_chunks(step * width))
        .for_each(|(out, weight)| {
            Arch::new().dispatch(Products {
                x,
                weight,
                width,
                out,
                n,
                scratch: Vec::new(),
            })
        });
    match n {
        1 => columns,
        _ => transposed(&columns, outputs, n),
    }
}

/// As [`project`], with a weight kept as codes: each task dequantises its own
/// rows.
pub(crate) fn project_coded(x: &[f32], n: usize, weight: &Quantised) -> Vec<f32> {
    if n == 0 {
        return Vec::new();
    }
    let [outputs, width] = weight.shape();
    let step = (TASK / width.max(1)).max(4);
    let mut columns = vec![0f32; outputs * n];
    let tasks = columns.par_chunks_mut(step * n).enumerate();
    tasks.for_each_init(Vec::new, |values, (i, out)| {
        let rows = out.len() / n;
        values.resize(rows * width, 0f32);
        weight.dequantise_rows(i * step..i * step + rows, values);
        Arch::new().dispatch(Products {
            x,
            weight: values,
            width,
            out,
            n,
            scratch: Vec::new(),
        });
    });
    match n {
        1 => columns,
        _ => transposed(&columns, outputs, n),
    }
}

/// `[rows, n] -> [n, rows]`.
fn transposed(columns: &[f32], rows: usize, n: usize) -> Vec<f32> {
    const BLOCK: usize = 512;
    let mut out = vec![0f32; columns.len()];
    let mut pieces: Vec<Vec<&mut [f32]>> = (0..rows.div_ceil(BLOCK)).map(|_| Vec::new()).collect();
    for row in out.chunks_mut(rows) {
        for (block, piece) in pieces.iter_mut().zip(row.chunks_mut(BLOCK)) {
            block.push(piece);
        }
    }
    pieces
        .into_par_iter()
        .zip(columns.par_chunks(BLOCK * n))
        .for_each(|(mut pieces, columns)| {
            vectorised!({
                for (j, piece) in pieces.iter_mut().enumerate() {
                    for (value, column) in piece.iter_mut().zip(columns.chunks_exact(n)) {
                        *value = column[j];
                    }
                }
            })
        });
    out
}

/// The products of some rows of the weight with all rows of `x`.
struct Products<'a, T> {
    x: &'a [f32],
    weight: &'a [T],
    width: usize,
    /// `[weight rows, n]`.
    out: &'a mut [f32],
    n: usize,
    scratch: Vec<f32>,
}

impl<T: Stored> WithSimd for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // As many running sums as the registers hold.
        match S::REGISTER_COUNT > 16 {
            true => self.tiles::<S, 6, 4>(simd),
            false => self.tiles::<S, 3, 3>(simd),
        }
    }
}

impl<T: Stored> Products<'_, T> {
    #[inline(always)]
    fn tiles<S: Simd, const W: usize, const X: usize>(&mut self, simd: S) {
        let rows = self.weight.len() / self.width;
        let mut first = 0;
        while first + W <= rows {
            self.strip::<S, W, X>(simd, first);
            first += W;
        }
        while first < rows {
            self.strip::<S, 1, X>(simd, first);
            first += 1;
        }
    }

    /// `W` rows of the weight with all rows of `x`.
    #[inline(always)]
    fn strip<S: Simd, const W: usize, const X: usize>(&mut self, simd: S, first: usize) {
        let at = first * self.width..(first + W) * self.width;
        let weight = T::unpack(&self.weight[at], &mut self.scratch);
        let tiles = Tiles {
            x: self.x,
            weight,
            width: self.width,
            n: self.n,
        };
        tiles.all::<S, W, X>(simd, &mut self.out[first * self.n..(first + W) * self.n]);
    }
}

/// `W` rows of the weight and all rows of `x`.
struct Tiles<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    width: usize,
    n: usize,
}

impl Tiles<'_> {
    /// Fills `[W, n]`.
    #[inline(always)]
    fn all<S: Simd, const W: usize, const X: usize>(&self, simd: S, out: &mut [f32]) {
        let mut row = 0;
        while row + X <= self.n {
            self.tile::<S, W, X>(simd, row, out);
            row += X;
        }
        while row + 2 <= self.n {
            self.tile::<S, W, 2>(simd, row, out);
            row += 2;
        }
        if row < self.n {
            self.tile::<S, W, 1>(simd, row, out);
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const W: usize, const X: usize>(&self, simd: S, row: usize, out: &mut [f32]) {
        let width = self.width;
        let (mut w, mut x) = ([&[][..]; W], [&[][..]; X]);
        for (i, w) in w.iter_mut().enumerate() {
            *w = &self.weight[i * width..][..width];
        }
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.x[(row + i) * width..][..width];
        }
        let products = products::<S, W, X>(simd, w, x);
        for (i, products) in products.iter().enumerate() {
            let at = i * self.n + row;
            out[at..at + X].copy_from_slice(products);
        }
    }
}

/// All inner products of `W` and `X` rows of equal length.
#[inline(always)]
fn products<S: Simd, const W: usize, const X: usize>(
    simd: S,
    w: [&[f32]; W],
    x: [&[f32]; X],
) -> [[f32; X]; W] {
    let vectors = w[0].len() / S::F32_LANES;
    let whole = vectors * S::F32_LANES;
    let (mut wide_w, mut wide_x) = ([&[][..]; W], [&[][..]; X]);
    for (wide, w) in wide_w.iter_mut().zip(w) {
        *wide = &S::as_simd_f32s(w).0[..vectors];
    }
    for (wide, x) in wide_x.iter_mut().zip(x) {
        *wide = &S::as_simd_f32s(x).0[..vectors];
    }
    let mut sums = [[simd.splat_f32s(0.0); X]; W];
    for i in 0..vectors {
        for r in 0..W {
            let w = wide_w[r][i];
            for c in 0..X {
                sums[r][c] = simd.mul_add_f32s(w, wide_x[c][i], sums[r][c]);
            }
        }
    }
    let mut products = [[0f32; X]; W];
    for r in 0..W {
        for c in 0..X {
            let mut rest = 0.0;
            for (w, x) in w[r][whole..].iter().zip(&x[c][whole..]) {
                rest += w * x;
            }
            products[r][c] = simd.reduce_sum_f32s(sums[r][c]) + rest;
        }
    }
    products
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_do_not_depend_on_the_number_of_rows() {
        for (width, outputs) in [(1, 1), (37, 9), (160, 700)] {
            let value = |i: usize| ((i * 7919) % 211) as f32 / 211.0 - 0.5;
            let weight: Vec<f32> = (0..width * outputs).map(value).collect();
            let x: Vec<f32> = (0..23 * width).map(|i| value(i + 5)).collect();
            let all = project(&x, 23, &weight, outputs);
            let short: Vec<bf16> = weight.iter().map(|w| bf16::from_f32(*w)).collect();
            let rounded: Vec<f32> = short.iter().map(|w| w.to_f32()).collect();
            let want = project(&x, 23, &rounded, outputs);
            assert_eq!(project(&x, 23, &short, outputs), want);
            for (x, y) in x.chunks(width).zip(all.chunks(outputs)) {
                assert_eq!(project(x, 1, &weight, outputs), y);
                for (w, y) in weight.chunks(width).zip(y) {
                    let want: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).sum();
                    assert!((want - f64::from(*y)).abs() < 1e-5, "{want} {y}");
                }
            }
        }
    }
}
