//! Blockwise quantisation to 8 bits (arXiv:2110.02861, section 2.1): blocks of
//! 256 values, each divided by its largest magnitude and stored as the nearest
//! values of a [`DynamicMap`].
//!
//! Four codes share a 32-bit integer, the lowest byte first: the one integer
//! type that every device has.

use super::dynamic_map::DynamicMap;
use burn::tensor::{DType, Device, Int, Tensor};

/// Values per block.
pub(crate) const BLOCK: usize = 256;

/// Integers per block.
pub(crate) const WORDS: usize = BLOCK / 4;

/// A vector in 8 bits. The last block is filled up with zeros.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// `[blocks * WORDS]`.
    pub(super) words: Tensor<1, Int>,
    /// Largest magnitude of each block, `[blocks]`.
    pub(super) scales: Tensor<1>,
}

impl Blocks {
    /// `n` zeros.
    pub(super) fn zeros(n: usize, device: &Device) -> Self {
        let blocks = n.div_ceil(BLOCK);
        Blocks {
            words: Tensor::zeros([blocks * WORDS], (device, DType::I32)),
            scales: Tensor::zeros([blocks], (device, DType::F32)),
        }
    }

    /// Whether this has the blocks of `n` values.
    pub(super) fn holds(&self, n: usize) -> bool {
        let blocks = n.div_ceil(BLOCK);
        self.words.dims() == [blocks * WORDS] && self.scales.dims() == [blocks]
    }

    /// The nearest codes of the values.
    pub(super) fn encode(values: Tensor<1>, map: &DynamicMap) -> Self {
        let n = values.dims()[0];
        let blocks = n.div_ceil(BLOCK);
        let values = filled_up(values, blocks * BLOCK - n).reshape([blocks, BLOCK]);
        let scales = values.clone().max_abs_dim(1);
        let unit = values / scales.clone().clamp_min(f32::MIN_POSITIVE);
        Blocks {
            words: pack(nearest(unit.reshape([blocks * BLOCK]), map)),
            scales: scales.reshape([blocks]),
        }
    }

    /// The first `n` values.
    pub(super) fn decode(&self, n: usize, map: &DynamicMap) -> Tensor<1> {
        let [blocks] = self.scales.dims();
        let table = Tensor::<1>::from_floats(map.values, &self.scales.device());
        let unit = table.select(0, unpack(self.words.clone()));
        let scales = self.scales.clone().reshape([blocks, 1]);
        let values = unit.reshape([blocks, BLOCK]) * scales;
        values.reshape([blocks * BLOCK]).narrow(0, 0, n)
    }
}

/// The values with `missing` zeros behind them.
fn filled_up(values: Tensor<1>, missing: usize) -> Tensor<1> {
    if missing == 0 {
        return values;
    }
    let zeros = Tensor::zeros([missing], (&values.device(), values.dtype()));
    Tensor::cat(vec![values, zeros], 0)
}

/// The code of the value nearest to each number: a binary search for the last
/// border that is not above it, all numbers together.
fn nearest(x: Tensor<1>, map: &DynamicMap) -> Tensor<1, Int> {
    let device = x.device();
    let borders = Tensor::<1>::from_floats(map.borders, &device);
    let mut code = Tensor::zeros(x.dims(), (&device, DType::I32));
    for bit in (0..8).rev() {
        let higher = code.clone().add_scalar(1 << bit);
        let border = borders.clone().select(0, higher.clone());
        code = code.mask_where(x.clone().greater_equal(border), higher);
    }
    code
}

fn pack(codes: Tensor<1, Int>) -> Tensor<1, Int> {
    let words = codes.dims()[0] / 4;
    let codes = codes.reshape([words, 4]);
    let byte = |i: usize| {
        let column = codes.clone().slice([0..words, i..i + 1]).reshape([words]);
        column.bitwise_left_shift_scalar(8 * i as i32)
    };
    byte(0)
        .bitwise_or(byte(1))
        .bitwise_or(byte(2))
        .bitwise_or(byte(3))
}

fn unpack(words: Tensor<1, Int>) -> Tensor<1, Int> {
    let [n] = words.dims();
    let byte = |i: usize| {
        let shifted = words.clone().bitwise_right_shift_scalar(8 * i as i32);
        shifted.bitwise_and_scalar(0xFF).reshape([n, 1])
    };
    Tensor::cat((0..4).map(byte).collect(), 1).reshape([4 * n])
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::super::dynamic_map::{SIGNED, UNSIGNED};
    use super::*;

    fn series(n: usize) -> Vec<f32> {
        let value = |i: usize| (i * 7919 % 2003) as f32 / 2003.0 - 0.5;
        (0..n).map(|i| value(i).powi(5)).collect()
    }

    #[test]
    fn every_number_becomes_the_nearest_value_of_its_block() {
        let values = series(700);
        let device = Device::flex();
        for (map, values) in [
            (&*SIGNED, values.clone()),
            (&*UNSIGNED, values.iter().map(|v| v.abs()).collect()),
        ] {
            let blocks = Blocks::encode(Tensor::from_floats(&values[..], &device), map);
            assert!(blocks.holds(700) && !blocks.holds(800));
            let back: Vec<f32> = blocks.decode(700, map).into_data().iter().collect();
            for (block, (values, back)) in values.chunks(BLOCK).zip(back.chunks(BLOCK)).enumerate()
            {
                let scale = values.iter().fold(0f32, |most, v| most.max(v.abs()));
                for (value, back) in values.iter().zip(back) {
                    let code = usize::from(map.nearest(value / scale));
                    assert_eq!(*back, map.values[code] * scale, "block {block}");
                }
            }
        }
    }

    #[test]
    fn bytes_survive_packing() {
        let codes: Vec<i32> = (0..256).collect();
        let codes = Tensor::<1, Int>::from_data(codes.as_slice(), (&Device::flex(), DType::I32));
        let same = unpack(pack(codes.clone())).equal(codes).all();
        assert!(same.into_scalar::<bool>());
    }

    #[test]
    fn zeros_are_zeros() {
        let blocks = Blocks::zeros(300, &Device::flex());
        assert!(blocks.holds(300));
        let values: Vec<f32> = blocks.decode(300, &SIGNED).into_data().iter().collect();
        assert!(values.iter().all(|v| *v == 0.0));
        let again = Blocks::encode(blocks.decode(300, &SIGNED), &SIGNED);
        let values: Vec<f32> = again.decode(300, &SIGNED).into_data().iter().collect();
        assert!(values.iter().all(|v| *v == 0.0));
    }
}
