//! A low-rank adapter `s x A^T B^T` on slices.

use super::few;
use super::gemm::{Mat, Threads, Write, matmul};
use super::view::View;
use crate::model::{Adapter, Drop};
use rayon::prelude::*;
use std::borrow::Cow;

/// An adapter's weights, in place.
#[derive(Debug)]
pub(crate) struct HostAdapter {
    a: View,
    b: View,
    rank: usize,
    outputs: usize,
    scale: f32,
    drop: Option<Drop>,
}

impl HostAdapter {
    pub(super) fn of(adapter: &Adapter) -> Option<Self> {
        Some(HostAdapter {
            a: View::of(&adapter.a)?,
            b: View::of(&adapter.b)?,
            rank: adapter.a.dims()[0],
            outputs: adapter.b.dims()[0],
            scale: adapter.scale as f32,
            drop: adapter.drop,
        })
    }

    /// `[rank, in]`.
    fn a(&self) -> Mat<'_> {
        Mat::new(&self.a, self.rank)
    }

    /// `[out, rank]`.
    fn b(&self) -> Mat<'_> {
        Mat::new(&self.b, self.outputs)
    }

    /// Adds to the projection's output, `[n, out]`.
    pub(super) fn forward(&self, x: &[f32], n: usize, y: &mut [f32]) {
        let inner = self.inner(&self.dropped(x), n);
        matmul(
            y,
            Mat::new(&inner, n),
            self.b().t(),
            Write::Add,
            Threads::All,
        );
    }

    /// As [`HostAdapter::forward`], for decoding: a row's result does not
    /// depend on the other rows.
    pub(super) fn decode(&self, x: &[f32], n: usize, y: &mut [f32]) {
        let mut inner = few::project(x, n, &self.a[..], self.rank);
        inner.iter_mut().for_each(|v| *v *= self.scale);
        let added = few::project(&inner, n, &self.b[..], self.outputs);
        y.iter_mut().zip(added).for_each(|(y, v)| *y += v);
    }

    /// Adds the gradient of the input, given that of the output.
    pub(super) fn backward(&self, d: &[f32], n: usize, d_x: &mut [f32]) {
        let d_inner = self.d_inner(d, n);
        let Some(drop) = self.drop else {
            matmul(
                d_x,
                Mat::new(&d_inner, n),
                self.a(),
                Write::Add,
                Threads::All,
            );
            return;
        };
        let mut d_dropped = vec![0f32; d_x.len()];
        let d_inner = Mat::new(&d_inner, n);
        matmul(
            &mut d_dropped,
            d_inner,
            self.a(),
            Write::Replace,
            Threads::All,
        );
        let with_factors = d_x.par_iter_mut().zip(d_dropped).enumerate();
        with_factors.for_each(|(i, (d_x, d))| *d_x += d * drop.factor(i));
    }

    /// Adds the gradient of `A`, `[rank, in]`.
    pub(crate) fn a_gradient(&self, d: &[f32], x: &[f32], n: usize, d_a: &mut [f32]) {
        let d_inner = self.d_inner(d, n);
        let x = self.dropped(x);
        let d_inner = Mat::new(&d_inner, n).t();
        matmul(d_a, d_inner, Mat::new(&x, n), Write::Add, Threads::All);
    }

    /// Adds the gradient of `B`, `[out, rank]`.
    pub(crate) fn b_gradient(&self, d: &[f32], x: &[f32], n: usize, d_b: &mut [f32]) {
        let inner = self.inner(&self.dropped(x), n);
        let d = Mat::new(d, n).t();
        matmul(d_b, d, Mat::new(&inner, n), Write::Add, Threads::All);
    }

    /// Shapes of `A` and `B`.
    pub(crate) fn dims(&self) -> [[usize; 2]; 2] {
        let inputs = self.a.len() / self.rank.max(1);
        [[self.rank, inputs], [self.outputs, self.rank]]
    }

    /// `s x A^T`, `[n, rank]`.
    fn inner(&self, x: &[f32], n: usize) -> Vec<f32> {
        let mut inner = vec![0f32; n * self.rank];
        let (x, a) = (Mat::new(x, n), self.a().t());
        matmul(&mut inner, x, a, Write::Replace, Threads::All);
        inner.iter_mut().for_each(|v| *v *= self.scale);
        inner
    }

    /// `s d B`, `[n, rank]`.
    fn d_inner(&self, d: &[f32], n: usize) -> Vec<f32> {
        let mut d_inner = vec![0f32; n * self.rank];
        let d = Mat::new(d, n);
        matmul(&mut d_inner, d, self.b(), Write::Replace, Threads::All);
        d_inner.iter_mut().for_each(|v| *v *= self.scale);
        d_inner
    }

    /// The input as the adapter sees it.
    fn dropped<'x>(&self, x: &'x [f32]) -> Cow<'x, [f32]> {
        let Some(drop) = self.drop else {
            return Cow::Borrowed(x);
        };
        let kept = x.par_iter().enumerate().map(|(i, x)| x * drop.factor(i));
        Cow::Owned(kept.collect())
    }
}
