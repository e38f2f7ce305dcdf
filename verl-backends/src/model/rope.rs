//! Rotary position embeddings.

use super::config::{ModelConfig, RopeScaling};
use burn::tensor::{Device, Tensor, TensorData};
use std::f64::consts::PI;

/// cos and sin for the packed tokens of one forward pass.
///
/// The sine carries the sign of the rotation: a head `x = [x1, x2]` becomes
/// `x * cos + [x2, x1] * sin`, with `sin = [-s, s]`.
#[derive(Debug, Clone)]
pub struct RopeTable {
    cos: Tensor<3>,
    sin: Tensor<3>,
}

impl RopeTable {
    /// Tables for tokens at the given positions, `[n, 1, head_dim]` each.
    pub fn new(config: &ModelConfig, positions: &[usize], device: &Device) -> Self {
        let (cos, sin) = RopeTable::angles(config, positions);
        let (n, half) = (positions.len(), config.head_dim / 2);
        let tensor = |values: &[f32], first: f32| {
            let rows = values.chunks_exact(half.max(1));
            let doubled = rows.flat_map(|row| {
                let turned = row.iter().map(move |v| first * v);
                turned.chain(row.iter().copied())
            });
            let values: Vec<f32> = doubled.collect();
            Tensor::from_data(TensorData::new(values, [n, 1, 2 * half]), device)
        };
        RopeTable {
            cos: tensor(&cos, 1.0),
            sin: tensor(&sin, -1.0),
        }
    }

    /// cos and sin of the angles by which tokens at the given positions are
    /// turned, `[n, head_dim / 2]` each.
    pub(crate) fn angles(config: &ModelConfig, positions: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let longest = positions.iter().max().map_or(0, |p| p + 1);
        let frequencies = inverse_frequencies(config, longest);
        let scale = attention_factor(config);
        let angle = |position: usize, frequency: f64| {
            // transformers multiplies in f32; the same rounding keeps long
            // positions equal to it.
            let angle = f64::from(position as f32 * frequency as f32);
            let (sin, cos) = angle.sin_cos();
            ((cos * scale) as f32, (sin * scale) as f32)
        };
        positions
            .iter()
            .flat_map(|p| frequencies.iter().map(move |f| angle(*p, *f)))
            .unzip()
    }

    /// Rotates heads, `[n, heads, head_dim]`.
    pub fn apply(&self, heads: Tensor<3>) -> Tensor<3> {
        let half = heads.dims()[2] / 2;
        let swapped = Tensor::cat(
            vec![
                heads.clone().narrow(2, half, half),
                heads.clone().narrow(2, 0, half),
            ],
            2,
        );
        heads * self.cos.clone() + swapped * self.sin.clone()
    }
}

fn attention_factor(config: &ModelConfig) -> f64 {
    match config.rope.scaling {
        RopeScaling::Yarn {
            attention_factor, ..
        } => attention_factor,
        _ => 1.0,
    }
}

/// The rotation frequencies of the dimension pairs, for sequences of up to
/// `longest` tokens (only dynamic scaling depends on it).
fn inverse_frequencies(config: &ModelConfig, longest: usize) -> Vec<f64> {
    let d = config.head_dim as f64;
    let with_base = |base: f64| -> Vec<f64> {
        (0..config.head_dim / 2)
            .map(|i| base.powf(-2.0 * i as f64 / d))
            .collect()
    };
    let theta = config.rope.theta;
    let plain = with_base(theta);
    match config.rope.scaling {
        RopeScaling::Default => plain,
        RopeScaling::Linear { factor } => plain.into_iter().map(|f| f / factor).collect(),
        RopeScaling::Dynamic {
            factor,
            original_max,
        } => {
            let length = longest.max(original_max) as f64;
            let growth = factor * length / original_max as f64 - (factor - 1.0);
            with_base(theta * growth.powf(d / (d - 2.0)))
        }
        RopeScaling::Llama3 {
            factor,
            low_freq,
            high_freq,
            original_max,
        } => {
            let band = |f: f64| {
                let turns = original_max as f64 * f / (2.0 * PI);
                let smooth = ((turns - low_freq) / (high_freq - low_freq)).clamp(0.0, 1.0);
                (1.0 - smooth) * f / factor + smooth * f
            };
            plain.into_iter().map(band).collect()
        }
        RopeScaling::Yarn {
            factor,
            original_max,
            beta_fast,
            beta_slow,
            truncate,
            ..
        } => {
            let dim_of = |turns: f64| {
                d * (original_max as f64 / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln())
            };
            let (mut low, mut high) = (dim_of(beta_fast), dim_of(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, high) = (low.max(0.0), high.min(d - 1.0));
            let span = if high == low { 0.001 } else { high - low };
            let blend = |(i, f): (usize, f64)| {
                let interpolate = ((i as f64 - low) / span).clamp(0.0, 1.0);
                f / factor * interpolate + f * (1.0 - interpolate)
            };
            plain.into_iter().enumerate().map(blend).collect()
        }
    }
}
