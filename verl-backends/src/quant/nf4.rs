//! Four-bit normal floats.

use super::{
    Dequantise, DoubleScales, QuantError, Scales, area, check_rows, expect_finite, expect_length,
    largest, nibbles,
};
use std::ops::Range;

/// The 16 levels: quantiles of a normal distribution, scaled to reach -1 and 1,
/// with an exact 0 (QLoRA, arXiv:2305.14314, appendix E).
pub const NF4_LEVELS: [f32; 16] = [
    -1.0,
    -0.6961928,
    -0.52507305,
    -0.3949175,
    -0.28444138,
    -0.18477343,
    -0.091050036,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.33791524,
    0.44070983,
    0.562617,
    0.72295684,
    1.0,
];

/// The levels of both codes of a byte.
static PAIRS: [[f32; 2]; 256] = pairs();

/// Values above `MIDPOINTS[i]` are nearer to level `i + 1` than to level `i`.
const MIDPOINTS: [f32; 15] = midpoints();

/// A matrix in NF4 (QLoRA, arXiv:2305.14314): row-major in blocks of 64, which
/// may cross the borders of rows, each divided by its largest absolute value.
///
/// Two codes per byte, the first in the high half, as bitsandbytes stores them.
#[derive(Debug, Clone, PartialEq)]
pub struct Nf4 {
    shape: [usize; 2],
    codes: Vec<u8>,
    scales: Scales,
}

impl Nf4 {
    /// Values that share a scale.
    pub const BLOCK: usize = 64;

    /// Quantises a `[rows, cols]` row-major matrix, with f32 scales.
    ///
    /// # Errors
    /// When `values` does not have that shape, or one is not finite.
    pub fn quantise(values: &[f32], shape: [usize; 2]) -> Result<Self, QuantError> {
        expect_length("weights", area(shape)?, values.len())?;
        expect_finite("weight", values)?;
        let absmax: Vec<f32> = values.chunks(Self::BLOCK).map(largest).collect();
        let mut codes = Vec::with_capacity(values.len().div_ceil(2));
        for (block, absmax) in values.chunks(Self::BLOCK).zip(&absmax) {
            codes.extend(block.chunks(2).map(|pair| pack(pair, *absmax)));
        }
        Ok(Nf4 {
            shape,
            codes,
            scales: Scales::Plain(absmax),
        })
    }

    /// Quantises a matrix and then its scales: see [`DoubleScales`]. The codes
    /// are those of [`Nf4::quantise`].
    ///
    /// # Errors
    /// As [`Nf4::quantise`].
    pub fn quantise_twice(values: &[f32], shape: [usize; 2]) -> Result<Self, QuantError> {
        let mut once = Self::quantise(values, shape)?;
        if let Scales::Plain(absmax) = &once.scales {
            once.scales = Scales::Double(DoubleScales::quantise(absmax));
        }
        Ok(once)
    }

    /// A matrix that another program quantised.
    ///
    /// # Errors
    /// When there are more or fewer codes or scales than the shape asks for, or
    /// a scale is not finite.
    pub fn new(codes: Vec<u8>, scales: Scales, shape: [usize; 2]) -> Result<Self, QuantError> {
        let count = area(shape)?;
        expect_length("bytes of codes", count.div_ceil(2), codes.len())?;
        expect_length("scales", count.div_ceil(Self::BLOCK), scales.len())?;
        if let Scales::Plain(absmax) = &scales {
            expect_finite("scale", absmax)?;
        }
        Ok(Nf4 {
            shape,
            codes,
            scales,
        })
    }

    /// The codes, two per byte.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The scales of the blocks.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }
}

impl Dequantise for Nf4 {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn bytes(&self) -> usize {
        self.codes.len() + self.scales.bytes()
    }

    fn dequantise_rows(&self, rows: Range<usize>, mut out: &mut [f32]) {
        check_rows(self.shape, &rows, out);
        let mut at = rows.start * self.shape[1];
        while !out.is_empty() {
            let block = at / Self::BLOCK;
            let len = out.len().min((block + 1) * Self::BLOCK - at);
            let (part, rest) = out.split_at_mut(len);
            let scale = self.scales.get(block);
            nibbles::unpack(&self.codes, at, part, |byte| {
                PAIRS[usize::from(byte)].map(|level| level * scale)
            });
            (at, out) = (at + len, rest);
        }
    }
}

/// The byte of one or two values.
fn pack(pair: &[f32], absmax: f32) -> u8 {
    let code = |value: &f32| nearest(if absmax > 0.0 { value / absmax } else { 0.0 });
    code(&pair[0]) << 4 | pair.get(1).map_or(0, code)
}

/// Number of the nearest level.
fn nearest(value: f32) -> u8 {
    MIDPOINTS.iter().map(|m| u8::from(value > *m)).sum()
}

const fn midpoints() -> [f32; 15] {
    let (mut middle, mut i) = ([0.0; 15], 0);
    while i < 15 {
        middle[i] = (NF4_LEVELS[i] + NF4_LEVELS[i + 1]) / 2.0;
        i += 1;
    }
    middle
}

const fn pairs() -> [[f32; 2]; 256] {
    let (mut pairs, mut byte) = ([[0.0; 2]; 256], 0);
    while byte < 256 {
        pairs[byte] = [NF4_LEVELS[byte >> 4], NF4_LEVELS[byte & 0xF]];
        byte += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Half of the widest gap between levels.
    const WORST: f32 = (1.0 - 0.6961928) / 2.0;

    /// Half of the widest gap between second-level levels.
    const WORST_SECOND: f32 = 0.9 / 64.0 / 2.0;

    fn matrix() -> impl Strategy<Value = (Vec<f32>, [usize; 2])> {
        (1..9usize, 1..80usize, -12..12i32).prop_flat_map(|(rows, cols, exponent)| {
            let range = 10f32.powi(exponent);
            let values = proptest::collection::vec(-range..range, rows * cols);
            (values, Just([rows, cols]))
        })
    }

    proptest! {
        #[test]
        fn errors_stay_within_half_a_gap_of_each_block((values, shape) in matrix()) {
            let quantised = Nf4::quantise(&values, shape).unwrap();
            let back = quantised.dequantise();
            for (block, (was, is)) in values.chunks(64).zip(back.chunks(64)).enumerate() {
                let bound = quantised.scales().get(block) * (WORST + 1e-6);
                for (was, is) in was.iter().zip(is) {
                    prop_assert!((was - is).abs() <= bound, "{was} became {is}, bound {bound}");
                }
            }
        }

        #[test]
        fn double_quantisation_adds_the_error_of_the_scale((values, shape) in matrix()) {
            let once = Nf4::quantise(&values, shape).unwrap();
            let twice = Nf4::quantise_twice(&values, shape).unwrap();
            prop_assert_eq!(once.codes(), twice.codes());
            let Scales::Double(scales) = twice.scales() else { panic!("scales in f32") };
            let bound = scales.absmax()[0] * (WORST_SECOND + 1e-6) + scales.offset() * 1e-6;
            for (a, b) in once.dequantise().iter().zip(twice.dequantise()) {
                prop_assert!((a - b).abs() <= bound, "{a} became {b}, bound {bound}");
            }
        }

        #[test]
        fn quantised_values_keep_their_codes((values, shape) in matrix()) {
            let once = Nf4::quantise(&values, shape).unwrap();
            let again = Nf4::quantise(&once.dequantise(), shape).unwrap();
            prop_assert_eq!(again, once);
        }

        #[test]
        fn rows_are_parts_of_the_whole((values, shape) in matrix(), from in 0..9usize, len in 0..9usize) {
            let quantised = Nf4::quantise_twice(&values, shape).unwrap();
            let (from, cols) = (from.min(shape[0]), shape[1]);
            let to = (from + len).min(shape[0]);
            let mut out = vec![f32::NAN; (to - from) * cols];
            quantised.dequantise_rows(from..to, &mut out);
            prop_assert_eq!(&out[..], &quantised.dequantise()[from * cols..to * cols]);
        }
    }

    #[test]
    fn a_block_of_zeros_stays_zero_beside_others() {
        let mut values = vec![0.0; 128];
        values[64..].fill(3.0);
        let back = Nf4::quantise_twice(&values, [2, 64]).unwrap().dequantise();
        assert_eq!(back[..64], values[..64]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let faults = [
            Nf4::quantise(&[1.0; 5], [2, 3]),
            Nf4::quantise(&[1.0, f32::NAN], [1, 2]),
            Nf4::quantise(&[], [usize::MAX, 2]),
            Nf4::new(vec![0; 31], Scales::Plain(vec![1.0]), [1, 64]),
            Nf4::new(vec![0; 32], Scales::Plain(vec![]), [1, 64]),
            Nf4::new(vec![0; 32], Scales::Plain(vec![f32::INFINITY]), [1, 64]),
        ];
        let messages = faults.map(|fault| fault.unwrap_err().to_string());
        assert_eq!(
            messages,
            [
                "weights: expected 6 values, got 5".to_string(),
                "weight 1 is NaN; only finite numbers can be used".to_string(),
                format!("a matrix of {} x 2 values fits into no memory", usize::MAX),
                "bytes of codes: expected 32 values, got 31".to_string(),
                "scales: expected 1 values, got 0".to_string(),
                "scale 0 is inf; only finite numbers can be used".to_string(),
            ]
        );
    }

    #[test]
    fn memory_is_what_the_codes_and_scales_take() {
        let values = vec![1.0; 256 * 256];
        let once = Nf4::quantise(&values, [256, 256]).unwrap();
        let twice = Nf4::quantise_twice(&values, [256, 256]).unwrap();
        assert_eq!(once.bytes(), 256 * 128 + 4 * 1024);
        assert_eq!(twice.bytes(), 256 * 128 + 1024 + 4 * 4 + 4);
    }
}
