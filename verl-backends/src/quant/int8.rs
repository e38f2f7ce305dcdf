//! Whole numbers of eight bits, a scale per row.

use super::{Dequantise, QuantError, area, check_rows, expect_finite, expect_length, largest};
use std::ops::Range;

/// A matrix in 8 bits (LLM.int8, arXiv:2208.07339, section 2.1): each row
/// divided by a 127th of its largest absolute value and rounded, half to even.
#[derive(Debug, Clone, PartialEq)]
pub struct Int8 {
    shape: [usize; 2],
    codes: Vec<i8>,
    /// What a code of 1 is worth, one per row.
    scales: Vec<f32>,
}

impl Int8 {
    /// Quantises a `[rows, cols]` row-major matrix.
    ///
    /// # Errors
    /// When `values` does not have that shape, or one is not finite.
    pub fn quantise(values: &[f32], shape: [usize; 2]) -> Result<Self, QuantError> {
        expect_length("weights", area(shape)?, values.len())?;
        expect_finite("weight", values)?;
        let (mut codes, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
        for row in values.chunks(shape[1].max(1)) {
            let absmax = largest(row);
            let code = |value: &f32| (value / absmax * 127.0).round_ties_even() as i8;
            codes.extend(row.iter().map(code));
            scales.push(absmax / 127.0);
        }
        scales.resize(shape[0], 0.0);
        Ok(Int8 {
            shape,
            codes,
            scales,
        })
    }

    /// A matrix that another program quantised. `scales` are what a code of 1
    /// is worth in each row: a 127th of bitsandbytes' `SCB`.
    ///
    /// # Errors
    /// When there are more or fewer codes or scales than the shape asks for, or
    /// a scale is not finite.
    pub fn new(codes: Vec<i8>, scales: Vec<f32>, shape: [usize; 2]) -> Result<Self, QuantError> {
        expect_length("codes", area(shape)?, codes.len())?;
        expect_length("scales", shape[0], scales.len())?;
        expect_finite("scale", &scales)?;
        Ok(Int8 {
            shape,
            codes,
            scales,
        })
    }

    /// The codes, `[rows, cols]`.
    pub fn codes(&self) -> &[i8] {
        &self.codes
    }

    /// What a code of 1 is worth, one per row.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }
}

impl Dequantise for Int8 {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn bytes(&self) -> usize {
        self.codes.len() + 4 * self.scales.len()
    }

    fn dequantise_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        check_rows(self.shape, &rows, out);
        let cols = self.shape[1].max(1);
        let codes = &self.codes[rows.start * self.shape[1]..rows.end * self.shape[1]];
        let lines = out.chunks_mut(cols).zip(codes.chunks(cols));
        for ((out, codes), scale) in lines.zip(&self.scales[rows]) {
            for (value, code) in out.iter_mut().zip(codes) {
                *value = f32::from(*code) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matrix() -> impl Strategy<Value = (Vec<f32>, [usize; 2])> {
        (1..6usize, 1..40usize, -12..12i32).prop_flat_map(|(rows, cols, exponent)| {
            let range = 10f32.powi(exponent);
            let values = proptest::collection::vec(-range..range, rows * cols);
            (values, Just([rows, cols]))
        })
    }

    proptest! {
        #[test]
        fn errors_stay_within_half_a_step_of_each_row((values, shape) in matrix()) {
            let quantised = Int8::quantise(&values, shape).unwrap();
            let back = quantised.dequantise();
            let rows = values.chunks(shape[1]).zip(back.chunks(shape[1]));
            for ((was, is), step) in rows.zip(quantised.scales()) {
                for (was, is) in was.iter().zip(is) {
                    prop_assert!((was - is).abs() <= step * 0.5001, "{was} became {is}, step {step}");
                }
            }
        }

        #[test]
        fn quantised_values_keep_their_codes((values, shape) in matrix()) {
            let once = Int8::quantise(&values, shape).unwrap();
            let again = Int8::quantise(&once.dequantise(), shape).unwrap();
            prop_assert_eq!(again.codes(), once.codes());
        }

        #[test]
        fn rows_are_parts_of_the_whole((values, shape) in matrix(), from in 0..6usize) {
            let quantised = Int8::quantise(&values, shape).unwrap();
            let from = from.min(shape[0]);
            let mut out = vec![f32::NAN; (shape[0] - from) * shape[1]];
            quantised.dequantise_rows(from..shape[0], &mut out);
            prop_assert_eq!(&out[..], &quantised.dequantise()[from * shape[1]..]);
        }
    }

    #[test]
    fn rows_of_zeros_and_empty_matrices_are_no_special_case() {
        let zeros = Int8::quantise(&[0.0; 4], [2, 2]).unwrap();
        assert_eq!(zeros.dequantise(), [0.0; 4]);
        for shape in [[3, 0], [0, 3]] {
            let empty = Int8::quantise(&[], shape).unwrap();
            assert!(empty.dequantise().is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let short = Int8::new(vec![0; 5], vec![1.0; 2], [2, 3]).unwrap_err();
        assert_eq!(short.to_string(), "codes: expected 6 values, got 5");
        let scales = Int8::new(vec![0; 6], vec![1.0], [2, 3]).unwrap_err();
        assert_eq!(scales.to_string(), "scales: expected 2 values, got 1");
        assert!(Int8::quantise(&[f32::INFINITY], [1, 1]).is_err());
    }
}
