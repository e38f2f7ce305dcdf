//! AdamW with its moments in 8 bits (arXiv:2110.02861): each block of 256
//! moments is decoded, updated in f32 by [`AdamW`]'s equations and encoded
//! again, the mean with a signed dynamic map, the square with an unsigned one.
//! Two bytes per weight hold the codes and 8 / 256 the blocks' scales.
//!
//! As in bitsandbytes, tensors of fewer than 4096 weights keep moments in f32.
//! One departure: a square that is not 0 never takes the code of 0, which
//! would leave the update without a denominator.

use super::adamw::{AdamW, AdamWConfig};
use super::blocks::Blocks;
use super::dynamic_map::{SIGNED, UNSIGNED};
use super::flat::{Pair, count, misshapen};
use super::saved::Saved;
#[cfg(feature = "flex")]
use crate::host::{self, View};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use verl_core::Result;
use verl_core::optimizer::{Optimizer, OptimizerState};
use verl_core::rollout::WeightTensor;

const NAME: &str = "adamw_8bit";
const CODES: [&str; 2] = ["exp_avg_codes", "exp_avg_sq_codes"];
const SCALES: [&str; 2] = ["exp_avg_scales", "exp_avg_sq_scales"];

/// Settings of [`AdamW8bit`]; the defaults are bitsandbytes'.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW8bitConfig {
    /// The optimizer whose moments are quantised.
    pub adamw: AdamWConfig,
    /// Weights from which on a tensor's moments take 8 bits.
    pub min_weights: usize,
}

impl Default for AdamW8bitConfig {
    fn default() -> Self {
        AdamW8bitConfig {
            adamw: AdamWConfig::default(),
            min_weights: 4096,
        }
    }
}

/// The optimizer: moments of large tensors in 8 bits, of small ones in f32.
#[derive(Debug)]
pub struct AdamW8bit {
    config: AdamW8bitConfig,
    large: BTreeMap<String, Moments>,
    small: AdamW,
}

/// The two moments of one parameter.
#[derive(Debug, Clone)]
struct Moments {
    mean: Blocks,
    square: Blocks,
}

impl AdamW8bit {
    /// An optimizer without history.
    pub fn new(config: AdamW8bitConfig) -> Self {
        AdamW8bit {
            config,
            large: BTreeMap::new(),
            small: AdamW::new(config.adamw),
        }
    }

    fn apply(
        &self,
        param: Tensor<1>,
        grad: Tensor<1>,
        moments: Moments,
        lr: f64,
    ) -> (Tensor<1>, Moments) {
        #[cfg(feature = "flex")]
        if let (Some(values), true) = (View::of(&param), View::of(&grad).is_some()) {
            return self.apply_on_host(&values, grad, moments, lr);
        }
        self.apply_plain(param, grad, &moments, lr)
    }

    fn apply_plain(
        &self,
        param: Tensor<1>,
        grad: Tensor<1>,
        moments: &Moments,
        lr: f64,
    ) -> (Tensor<1>, Moments) {
        let n = param.dims()[0];
        let mean = moments.mean.decode(n, &SIGNED);
        let square = moments.square.decode(n, &UNSIGNED);
        let (updated, mean, square) = self
            .small
            .apply_plain(param, grad, Some((mean, square)), lr);
        let moments = Moments {
            mean: Blocks::encode(mean, &SIGNED),
            square: Blocks::encode(square, &UNSIGNED),
        };
        (updated, moments)
    }

    /// One pass over the weights, a block at a time.
    #[cfg(feature = "flex")]
    fn apply_on_host(
        &self,
        param: &View,
        grad: Tensor<1>,
        moments: Moments,
        lr: f64,
    ) -> (Tensor<1>, Moments) {
        let mut values = host::values(grad);
        let mut mean = HostBlocks::from(moments.mean);
        let mut square = HostBlocks::from(moments.square);
        host::update_8bit(
            self.small.host_step(lr),
            param,
            &mut values,
            mean.coded(&SIGNED),
            square.coded(&UNSIGNED),
        );
        let moments = Moments {
            mean: mean.into(),
            square: square.into(),
        };
        let n = values.len();
        (host::tensor(values, [n]), moments)
    }
}

impl Optimizer for AdamW8bit {
    fn begin_step(&mut self) {
        self.small.begin_step();
    }

    fn update(
        &mut self,
        name: &str,
        param: WeightTensor,
        grad: WeightTensor,
        lr: f64,
    ) -> Result<WeightTensor> {
        if count(&param) < self.config.min_weights {
            return self.small.update(name, param, grad, lr);
        }
        let pair = Pair::new(name, param, grad)?;
        let moments = match self.large.remove(name) {
            Some(moments) => moments,
            None => Moments::zeros(pair.len(), &pair.param),
        };
        if !(moments.mean.holds(pair.len()) && moments.square.holds(pair.len())) {
            return Err(misshapen("state", name));
        }
        let (updated, moments) = self.apply(pair.param, pair.grad, moments, lr);
        self.large.insert(name.to_string(), moments);
        Ok(pair.form.restore(updated))
    }

    fn state(&self) -> OptimizerState {
        let mut state = self.small.state();
        state.optimizer = NAME.into();
        for (name, moments) in &self.large {
            let both = [&moments.mean, &moments.square];
            for (blocks, (codes, scales)) in both.into_iter().zip(CODES.iter().zip(SCALES)) {
                let words = (format!("{codes}.{name}"), blocks.words.clone());
                let scale = WeightTensor::Vector(blocks.scales.clone());
                state.codes.push(words);
                state.tensors.push((format!("{scales}.{name}"), scale));
            }
        }
        state
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<()> {
        let mut saved = Saved::open(state, NAME)?;
        let mut large = BTreeMap::new();
        for name in saved.parameters(SCALES[0]) {
            let moments = Moments {
                mean: Blocks::restored(&mut saved, 0, &name)?,
                square: Blocks::restored(&mut saved, 1, &name)?,
            };
            large.insert(name, moments);
        }
        let small = AdamW::restored(self.config.adamw, &mut saved)?;
        saved.finish()?;
        (self.large, self.small) = (large, small);
        Ok(())
    }
}

impl Moments {
    /// Those of `n` weights before the first update, where `like` is.
    fn zeros(n: usize, like: &Tensor<1>) -> Self {
        let device = like.device();
        Moments {
            mean: Blocks::zeros(n, &device),
            square: Blocks::zeros(n, &device),
        }
    }
}

impl Blocks {
    /// The mean (0) or the square (1) of a parameter.
    fn restored(saved: &mut Saved, moment: usize, name: &str) -> Result<Self> {
        Ok(Blocks {
            words: saved.codes(CODES[moment], name)?,
            scales: saved.vector(SCALES[moment], name)?,
        })
    }
}

/// [`Blocks`] whose values lie in vectors.
#[cfg(feature = "flex")]
struct HostBlocks {
    words: Vec<i32>,
    scales: Vec<f32>,
}

#[cfg(feature = "flex")]
impl HostBlocks {
    fn coded<'a>(&'a mut self, map: &'a super::dynamic_map::DynamicMap) -> host::Coded<'a> {
        host::Coded {
            map,
            words: &mut self.words,
            scales: &mut self.scales,
        }
    }
}

#[cfg(feature = "flex")]
impl From<Blocks> for HostBlocks {
    fn from(blocks: Blocks) -> Self {
        HostBlocks {
            words: host::integers(blocks.words),
            scales: host::values(blocks.scales),
        }
    }
}

#[cfg(feature = "flex")]
impl From<HostBlocks> for Blocks {
    fn from(blocks: HostBlocks) -> Self {
        let count = blocks.scales.len();
        Blocks {
            words: host::integer_tensor(blocks.words),
            scales: host::tensor(blocks.scales, [count]),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn both_ways_of_updating_agree() {
        let n = 5_000;
        let series = |a: usize, b: usize| -> Tensor<1> {
            let value = |i: usize| ((i * a + b) % 997) as f32 / 997.0 - 0.5;
            let values: Vec<f32> = (0..n).map(value).collect();
            Tensor::from_floats(&values[..], &Device::flex())
        };
        let mut adam = AdamW8bit::new(AdamW8bitConfig::default());
        let start = series(7, 0);
        let zeros = || Moments::zeros(n, &start);
        let (mut host, mut plain) = ((start.clone(), zeros()), (start.clone(), zeros()));
        for step in 0..3 {
            adam.begin_step();
            let grad = series(31 + step, step);
            host = adam.apply(host.0, grad.clone(), host.1, 1e-2);
            plain = adam.apply_plain(plain.0, grad, &plain.1, 1e-2);
        }
        // A moment at a border may fall on either side of it.
        let gap = (host.0 - plain.0).abs();
        assert!(gap.clone().mean().into_scalar::<f32>() < 1e-6);
        assert!(gap.max().into_scalar::<f32>() < 1e-3);
    }
}
