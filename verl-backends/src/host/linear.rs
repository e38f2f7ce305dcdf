//! A projection `y = x W^T + b` on slices.

use super::adapter::HostAdapter;
use super::elementwise::{add_bias, add_column_sums};
use super::few;
use super::gemm::{Mat, Threads, Write, matmul};
use super::view::View;
use crate::model::Linear;
use half::bf16;
use rayon::prelude::*;

/// A projection's weights, in place.
#[derive(Debug)]
pub(crate) struct HostLinear {
    weight: View,
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
            weight: View::of(&linear.weight)?,
            bias,
            outputs: linear.weight.dims()[0],
            short: None,
            adapter,
        })
    }

    /// Keeps a copy of the weight in 16 bits for decoding.
    pub(crate) fn shorten(&mut self) {
        self.short = Some(shortened(&self.weight));
    }

    /// `[out, in]`.
    pub(crate) fn weight(&self) -> Mat<'_> {
        Mat::new(&self.weight, self.outputs)
    }

    /// `[n, in] -> [n, out]`.
    pub(crate) fn forward(&self, x: &[f32], n: usize) -> Vec<f32> {
        let mut y = vec![0f32; n * self.outputs];
        matmul(
            &mut y,
            Mat::new(x, n),
            self.weight().t(),
            Write::Replace,
            Threads::All,
        );
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
        let mut y = match &self.short {
            Some(short) => few::project(x, n, short, self.outputs),
            None => few::project(x, n, &self.weight, self.outputs),
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
        matmul(d_x, Mat::new(d, n), self.weight(), Write::Add, Threads::All);
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
