//! Matrices kept in four or eight bits, and their values again.
//!
//! A codec turns a `[rows, cols]` matrix of f32 weights into codes and scales,
//! or takes codes and scales that another program wrote; [`Dequantise`] gives
//! the f32 values back, all of them or some rows at a time.
//!
//! | codec | bits per weight | value of a code | source |
//! |---|---|---|---|
//! | [`Nf4`] | 4.5 (4.127 with [`DoubleScales`]) | `level[code] * absmax[block]` | QLoRA, arXiv:2305.14314 |
//! | [`Int8`] | 8 and 32 per row | `code * scale[row]` | LLM.int8, arXiv:2208.07339 |
//! | [`Grouped`] | 4 and 40 per group | `(code - zero[group]) * scale[group]` | AWQ, arXiv:2306.00978; GPTQ, arXiv:2210.17323 |
//!
//! [`AwqTensors`] and [`GptqTensors`] are the two packings of [`Grouped`] that
//! checkpoints use.

mod awq;
mod double;
mod dynamic;
mod error;
mod gptq;
mod grouped;
mod int8;
mod nf4;
mod nibbles;

pub use awq::AwqTensors;
pub use double::{DoubleScales, Scales};
pub use dynamic::dynamic_levels;
pub use error::QuantError;
pub use gptq::GptqTensors;
pub use grouped::Grouped;
pub use int8::Int8;
pub use nf4::{NF4_LEVELS, Nf4};

use std::ops::Range;

/// A matrix kept as codes and scales.
pub trait Dequantise {
    /// Rows (outputs of a projection) and columns (inputs).
    fn shape(&self) -> [usize; 2];

    /// Bytes that codes, scales and zero points take in memory.
    fn bytes(&self) -> usize;

    /// Writes the values of some rows, `[rows.len(), cols]` row-major, without
    /// allocating.
    ///
    /// # Panics
    /// As slices do: when `rows` reaches beyond the matrix, or when `out` is
    /// not as long as the rows are together.
    fn dequantise_rows(&self, rows: Range<usize>, out: &mut [f32]);

    /// All values, `[rows, cols]` row-major.
    fn dequantise(&self) -> Vec<f32> {
        let [rows, cols] = self.shape();
        let mut out = vec![0.0; rows * cols];
        self.dequantise_rows(0..rows, &mut out);
        out
    }
}

/// A matrix in any of the codecs.
#[derive(Debug, Clone, PartialEq)]
pub enum Quantised {
    /// Normal floats in blocks.
    Nf4(Nf4),
    /// Whole numbers, a scale per row.
    Int8(Int8),
    /// Four bits with a scale and a zero point per group.
    Grouped(Grouped),
}

impl Quantised {
    fn codec(&self) -> &dyn Dequantise {
        match self {
            Quantised::Nf4(m) => m,
            Quantised::Int8(m) => m,
            Quantised::Grouped(m) => m,
        }
    }
}

impl Dequantise for Quantised {
    fn shape(&self) -> [usize; 2] {
        self.codec().shape()
    }

    fn bytes(&self) -> usize {
        self.codec().bytes()
    }

    fn dequantise_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        self.codec().dequantise_rows(rows, out);
    }
}

/// Panics unless `rows` lies inside a matrix and fills `out`.
fn check_rows([height, cols]: [usize; 2], rows: &Range<usize>, out: &[f32]) {
    assert!(
        rows.start <= rows.end && rows.end <= height,
        "rows {rows:?} of a matrix of {height} rows"
    );
    assert_eq!(
        out.len(),
        rows.len() * cols,
        "space for {} rows of {cols} values",
        rows.len()
    );
}

/// Number of values of a matrix.
fn area([rows, cols]: [usize; 2]) -> Result<usize, QuantError> {
    let size = std::mem::size_of::<f32>();
    rows.checked_mul(cols)
        .filter(|count| count.checked_mul(size).is_some())
        .ok_or(QuantError::TooLarge { rows, cols })
}

/// Words of eight codes that hold `size` codes.
fn words(what: &'static str, size: usize) -> Result<usize, QuantError> {
    match size.is_multiple_of(8) {
        true => Ok(size / 8),
        false => Err(QuantError::NotPacked { what, size }),
    }
}

/// Groups of `size` that hold all inputs.
fn group_count(inputs: usize, size: usize) -> Result<usize, QuantError> {
    match size {
        0 => Err(QuantError::EmptyGroup),
        size => Ok(inputs.div_ceil(size)),
    }
}

/// Refuses a list of the wrong length.
fn expect_length(what: &'static str, expected: usize, got: usize) -> Result<(), QuantError> {
    match expected == got {
        true => Ok(()),
        false => Err(QuantError::Length {
            what,
            expected,
            got,
        }),
    }
}

/// Refuses NaN and infinities.
fn expect_finite(what: &'static str, values: &[f32]) -> Result<(), QuantError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(index) => Err(QuantError::NotFinite {
            what,
            index,
            value: values[index],
        }),
    }
}

/// Largest absolute value; 0 of nothing.
fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}
