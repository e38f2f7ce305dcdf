//! Scales of blocks, themselves quantised or not.

use super::dynamic::{dynamic_levels, nearest};
use super::{QuantError, expect_finite, expect_length, largest};

/// The largest absolute value of each block of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// In f32, one per block.
    Plain(Vec<f32>),
    /// In 8 bits.
    Double(DoubleScales),
}

impl Scales {
    /// Number of blocks.
    pub fn len(&self) -> usize {
        match self {
            Scales::Plain(absmax) => absmax.len(),
            Scales::Double(scales) => scales.codes.len(),
        }
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Scale of a block.
    ///
    /// # Panics
    /// When there is no such block.
    #[inline]
    pub fn get(&self, block: usize) -> f32 {
        match self {
            Scales::Plain(absmax) => absmax[block],
            Scales::Double(scales) => scales.get(block),
        }
    }

    /// Bytes they take in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Scales::Plain(absmax) => 4 * absmax.len(),
            Scales::Double(scales) => scales.codes.len() + 4 * scales.absmax.len() + 4,
        }
    }
}

/// Scales in 8 bits: "double quantisation" (QLoRA, arXiv:2305.14314, section 3).
///
/// The mean of all scales is taken off; the rest is quantised in blocks of 256
/// with the levels of [`dynamic_levels`].
#[derive(Debug, Clone, PartialEq)]
pub struct DoubleScales {
    codes: Vec<u8>,
    absmax: Vec<f32>,
    offset: f32,
}

impl DoubleScales {
    /// Scales that share one second-level scale.
    pub const BLOCK: usize = 256;

    /// Quantises the scales of all blocks of a matrix.
    pub fn quantise(scales: &[f32]) -> Self {
        let sum: f64 = scales.iter().map(|s| f64::from(*s)).sum();
        let offset = (sum / scales.len().max(1) as f64) as f32;
        let centred: Vec<f32> = scales.iter().map(|s| s - offset).collect();
        let absmax: Vec<f32> = centred.chunks(Self::BLOCK).map(largest).collect();
        let code = |(i, value): (usize, &f32)| match absmax[i / Self::BLOCK] {
            0.0 => nearest(0.0),
            absmax => nearest(value / absmax),
        };
        DoubleScales {
            codes: centred.iter().enumerate().map(code).collect(),
            absmax,
            offset,
        }
    }

    /// Scales that another program quantised: a code per scale, the second-level
    /// scale of each 256 of them, and the mean.
    ///
    /// # Errors
    /// When there are more or fewer second-level scales, or one is not finite.
    pub fn new(codes: Vec<u8>, absmax: Vec<f32>, offset: f32) -> Result<Self, QuantError> {
        let blocks = codes.len().div_ceil(Self::BLOCK);
        expect_length("second-level scales", blocks, absmax.len())?;
        expect_finite("second-level scale", &absmax)?;
        expect_finite("offset", &[offset])?;
        Ok(DoubleScales {
            codes,
            absmax,
            offset,
        })
    }

    /// One code per scale.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The second-level scales, one per [`DoubleScales::BLOCK`] codes.
    pub fn absmax(&self) -> &[f32] {
        &self.absmax
    }

    /// The mean that was taken off.
    pub fn offset(&self) -> f32 {
        self.offset
    }

    #[inline]
    fn get(&self, block: usize) -> f32 {
        let level = dynamic_levels()[usize::from(self.codes[block])];
        level * self.absmax[block / Self::BLOCK] + self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scales_come_back_exactly() {
        let scales = Scales::Double(DoubleScales::quantise(&[0.25; 300]));
        assert_eq!(scales.len(), 300);
        assert!((0..300).all(|block| scales.get(block) == 0.25));
        assert_eq!(scales.bytes(), 300 + 2 * 4 + 4);
    }

    #[test]
    fn a_second_level_scale_too_few_is_an_error() {
        let error = DoubleScales::new(vec![0; 257], vec![1.0], 0.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "second-level scales: expected 2 values, got 1"
        );
    }
}
