//! A projection `y = x W^T + b` on slices.

use super::adapter::HostAdapter;
use super::elementwise::{add_bias, add_column_sums};
use super::few;
use super::gemm::{Mat, Threads, Write, matmul};
use super::view::View;
use crate::model::{Linear, Weight};
use crate::quant::{Dequantise, Quantised};
use half::bf16;
use rayon::prelude::*;
use std::sync::Arc;

/// A projection's weight, where it lies.
#[derive(Debug)]
enum HostWeight {
    Full(View),
    Coded(Arc<Quantised>),
}

impl HostWeight {
    /// Shows the values, `[out, in]`; those of codes exist meanwhile.
    fn read<R>(&self, outputs: usize, read: impl FnOnce(Mat<'_>) -> R) -> R {
        match self {
            HostWeight::Full(weight) => read(Mat::new(weight, outputs)),
            HostWeight::Coded(weight) => read(Mat::new(&dequantised(weight), outputs)),
        }
    }
}

/// All values, on all threads.
fn dequantised(weight: &Quantised) -> Vec<f32> {
    const ROWS: usize = 32;
    let [rows, width] = weight.shape();
    let mut values = vec![0f32; rows * width];
    let pieces = values.par_chunks_mut((ROWS * width).max(1)).enumerate();
    pieces.for_each(|(i, piece)| {
        let first = i * ROWS;
        weight.dequantise_rows(first..first + piece.len() / width, piece);
    });
    values
}

/// A projection's weights, in place.
#[derive(Debug)]
pub(crate) struct HostLinear {
    weight: HostWeight,
    bias: Option<View>,
    outputs: usize,
    /// The weight as decoding reads it, when in another format.
    short: Option<Vec<bf16>>,
    adapter: Option<HostAdapter>,
}

impl HostLinear {
    pub(crate) fn of(linear: &Linear) -> Option<Self> {
        let bias = match &linear.bias {
            Some(bias) => Some(View::of(bias)?),
            None => None,
        };
        let adapter = match &linear.adapter {
            Some(adapter) => Some(HostAdapter::of(adapter)?),
            None => None,
        };
        Some(HostLinear {
            weight: match &linear.weight {
                Weight::Full(weight) => HostWeight::Full(View::of(weight)?),
                Weight::Coded(weight) => HostWeight::Coded(weight.clone()),
            },
            bias,
            outputs: linear.weight.dims()[0],
            short: None,
            adapter,
        })
    }

    /// Keeps a copy of the weight in 16 bits for decoding.
    pub(crate) fn shorten(&mut self) {
        self.short = Some(match &self.weight {
            HostWeight::Full(weight) => shortened(weight),
            HostWeight::Coded(weight) => shortened(&dequantised(weight)),
        });
    }

    /// `[n, in] -> [n, out]`.
    pub(crate) fn forward(&self, x: &[f32], n: usize) -> Vec<f32> {
        let mut y = vec![0f32; n * self.outputs];
        self.weight.read(self.outputs, |weight| {
            let x = Mat::new(x, n);
            matmul(&mut y, x, weight.t(), Write::Replace, Threads::All);
        });
        if let Some(bias) = &self.bias {
            add_bias(&mut y, bias);
        }
        if let Some(adapter) = &self.adapter {
            adapter.forward(x, n, &mut y);
        }
        y
    }

    /// As [`HostLinear::forward`], for decoding: a row's result does not depend
    /// on the other rows.
    pub(crate) fn decode(&self, x: &[f32], n: usize) -> Vec<f32> {
        let mut y = match (&self.short, &self.weight) {
            (Some(short), _) => few::project(x, n, short, self.outputs),
            (None, HostWeight::Full(weight)) => few::project(x, n, &weight[..], self.outputs),
            (None, HostWeight::Coded(weight)) => few::project_coded(x, n, weight),
        };
        if let Some(bias) = &self.bias {
            add_bias(&mut y, bias);
        }
        if let Some(adapter) = &self.adapter {
            adapter.decode(x, n, &mut y);
        }
        y
    }

    /// Adds the gradient of the input, given that of the output.
    pub(crate) fn backward(&self, d: &[f32], n: usize, d_x: &mut [f32]) {
        self.weight.read(self.outputs, |weight| {
            matmul(d_x, Mat::new(d, n), weight, Write::Add, Threads::All);
        });
        if let Some(adapter) = &self.adapter {
            adapter.backward(d, n, d_x);
        }
    }

    /// Adds the gradient of the weight.
    pub(crate) fn weight_gradient(d: &[f32], x: &[f32], n: usize, d_weight: &mut [f32]) {
        matmul(
            d_weight,
            Mat::new(d, n).t(),
            Mat::new(x, n),
            Write::Add,
            Threads::All,
        );
    }

    /// Adds the gradient of the bias.
    pub(crate) fn bias_gradient(d: &[f32], d_bias: &mut [f32]) {
        add_column_sums(d, d_bias);
    }

    pub(crate) fn has_bias(&self) -> bool {
        self.bias.is_some()
    }

    pub(crate) fn adapter(&self) -> Option<&HostAdapter> {
        self.adapter.as_ref()
    }
}

/// The values rounded to 16 bits.
pub(crate) fn shortened(values: &[f32]) -> Vec<bf16> {
    values.par_iter().map(|v| bf16::from_f32(*v)).collect()
}
