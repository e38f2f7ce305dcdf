//! Projections, and the low-rank adapters that may sit on them.

use super::params::{ParamMut, Visit};
use crate::quant::{Dequantise, Quantised};
use burn::tensor::{Device, Tensor, TensorData};
use std::sync::Arc;

/// A projection's weight, `[out, in]`.
#[derive(Debug, Clone)]
pub enum Weight {
    /// In full precision on the model's device.
    Full(Tensor<2>),
    /// As codes in this process's memory; frozen, and dequantised whenever it
    /// is used (QLoRA, arXiv:2305.14314).
    Coded(Arc<Quantised>),
}

impl Weight {
    /// `[out, in]`.
    pub fn dims(&self) -> [usize; 2] {
        match self {
            Weight::Full(weight) => weight.dims(),
            Weight::Coded(weight) => weight.shape(),
        }
    }

    /// The tensor, unless the weight is kept as codes.
    pub fn full(&self) -> Option<&Tensor<2>> {
        match self {
            Weight::Full(weight) => Some(weight),
            Weight::Coded(_) => None,
        }
    }

    /// The values as a tensor on `device`.
    pub fn tensor(&self, device: &Device) -> Tensor<2> {
        match self {
            Weight::Full(weight) => weight.clone(),
            Weight::Coded(weight) => {
                Tensor::from_data(TensorData::new(weight.dequantise(), weight.shape()), device)
            }
        }
    }
}

/// A projection `y = x W^T + b`; the weight is `[out, in]` as on disk.
#[derive(Debug, Clone)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Weight,
    /// `[out]`.
    pub bias: Option<Tensor<1>>,
    /// What is added to the weight.
    pub adapter: Option<Adapter>,
}

/// A low-rank update of a projection: `y += scale * drop(x) A^T B^T`
/// (LoRA, arXiv:2106.09685, section 4.1).
#[derive(Debug, Clone)]
pub struct Adapter {
    /// `A`, `[rank, in]`.
    pub a: Tensor<2>,
    /// `B`, `[out, rank]`.
    pub b: Tensor<2>,
    /// `alpha / rank`, or `alpha / sqrt(rank)` when stabilised
    /// (rsLoRA, arXiv:2312.03732).
    pub scale: f64,
    /// What is dropped of the input; set for the length of a training pass.
    pub drop: Option<Drop>,
}

/// Dropout whose mask is a function of a seed and the place, so that a layer
/// that runs again drops the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drop {
    /// Probability of an input being dropped.
    pub rate: f32,
    /// Which mask.
    pub seed: u64,
}

impl Drop {
    /// Factor on the input number `i` of a pass: 0, or `1 / (1 - rate)`.
    pub fn factor(self, i: usize) -> f32 {
        let mut z = self
            .seed
            .wrapping_add((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let uniform = (z >> 40) as f32 / (1u64 << 24) as f32;
        match uniform < self.rate {
            true => 0.0,
            false => 1.0 / (1.0 - self.rate),
        }
    }

    fn apply(self, x: Tensor<2>) -> Tensor<2> {
        let [n, width] = x.dims();
        let factors: Vec<f32> = (0..n * width).map(|i| self.factor(i)).collect();
        let factors = Tensor::from_data(TensorData::new(factors, [n, width]), &x.device().inner());
        x * factors
    }
}

impl Adapter {
    /// What it adds to the weight, `[out, in]`.
    pub fn delta(&self) -> Tensor<2> {
        self.b.clone().matmul(self.a.clone()).mul_scalar(self.scale)
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = match self.drop {
            Some(drop) => drop.apply(x),
            None => x,
        };
        x.matmul(self.a.clone().transpose())
            .matmul(self.b.clone().transpose())
            .mul_scalar(self.scale)
    }
}

impl Linear {
    /// A projection without adapter.
    pub fn new(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Linear {
            weight: Weight::Full(weight),
            bias,
            adapter: None,
        }
    }

    /// `[n, in] -> [n, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let mut y = x
            .clone()
            .matmul(self.weight.tensor(&x.device()).transpose());
        if let Some(bias) = &self.bias {
            y = y + bias.clone().unsqueeze();
        }
        match &self.adapter {
            Some(adapter) => y + adapter.forward(x),
            None => y,
        }
    }

    /// Visits the parameters; an adapter's are `NAME.lora_A.weight` and
    /// `NAME.lora_B.weight`. A weight kept as codes is passed over.
    pub(super) fn each(&mut self, name: &str, visit: Visit<'_>) {
        if let Weight::Full(weight) = &mut self.weight {
            visit(&format!("{name}.weight"), ParamMut::Matrix(weight));
        }
        if let Some(bias) = &mut self.bias {
            visit(&format!("{name}.bias"), ParamMut::Vector(bias));
        }
        if let Some(adapter) = &mut self.adapter {
            visit(
                &format!("{name}.lora_A.weight"),
                ParamMut::Matrix(&mut adapter.a),
            );
            visit(
                &format!("{name}.lora_B.weight"),
                ParamMut::Matrix(&mut adapter.b),
            );
        }
    }
}
