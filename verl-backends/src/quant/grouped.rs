//! Four-bit codes whose inputs share scales and zero points in groups.

use super::{Dequantise, QuantError, check_rows, expect_finite, expect_length, nibbles};
use rayon::prelude::*;
use std::ops::Range;

/// A `[out, in]` projection in 4 bits: `(code - zero) * scale`, with scale and
/// zero point per output and group of inputs.
///
/// Checkpoints store such a matrix column by column ([`super::AwqTensors`],
/// [`super::GptqTensors`]); here it lies row by row, two codes per byte with the
/// first in the high half, so that any rows can be read alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Grouped {
    shape: [usize; 2],
    /// Rows in whole bytes.
    codes: Vec<u8>,
    /// `[out, groups]`.
    scales: Vec<f32>,
    /// `[out, groups]`.
    zeros: Vec<u8>,
    groups: Groups,
}

/// Which group each input belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Groups {
    /// This many consecutive inputs each; the last may have fewer.
    Runs(usize),
    /// The group of each input.
    Listed(Vec<u32>),
}

impl Grouped {
    /// Puts a matrix in order row by row. `scales` are `[groups, out]`, as on
    /// disk; `code` is asked for row and column, `zero` for row and group.
    pub(super) fn new(
        shape: [usize; 2],
        groups: Groups,
        scales: &[f32],
        code: impl Fn(usize, usize) -> u8 + Sync,
        zero: impl Fn(usize, usize) -> u8,
    ) -> Result<Self, QuantError> {
        let [outputs, inputs] = shape;
        let count = scales.len() / outputs.max(1);
        expect_length("scales", count * outputs, scales.len())?;
        expect_finite("scale", scales)?;
        let width = inputs.div_ceil(2);
        let mut codes = vec![0; outputs * width];
        let fill = |(row, bytes): (usize, &mut [u8])| {
            for (i, byte) in bytes.iter_mut().enumerate() {
                let (first, second) = (2 * i, 2 * i + 1);
                *byte = code(row, first) << 4;
                if second < inputs {
                    *byte |= code(row, second);
                }
            }
        };
        codes
            .par_chunks_mut(width.max(1))
            .enumerate()
            .for_each(fill);
        let places = (0..outputs).flat_map(|row| (0..count).map(move |group| (row, group)));
        Ok(Grouped {
            shape,
            codes,
            scales: places
                .clone()
                .map(|(row, group)| scales[group * outputs + row])
                .collect(),
            zeros: places.map(|(row, group)| zero(row, group)).collect(),
            groups,
        })
    }

    /// Number of groups of each row.
    pub fn group_count(&self) -> usize {
        self.scales.len() / self.shape[0].max(1)
    }

    /// Code of a weight, 0 to 15.
    ///
    /// # Panics
    /// When there is no such weight.
    pub fn code(&self, row: usize, col: usize) -> u8 {
        nibbles::code(self.row(row), col)
    }

    /// Zero point of a group, 0 to 15 in AWQ, 1 to 15 in GPTQ.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn zero(&self, row: usize, group: usize) -> u8 {
        self.zeros[row * self.group_count() + group]
    }

    fn row(&self, row: usize) -> &[u8] {
        let width = self.shape[1].div_ceil(2);
        &self.codes[row * width..(row + 1) * width]
    }

    fn dequantise_row(&self, row: usize, out: &mut [f32]) {
        let (codes, count) = (self.row(row), self.group_count());
        let scales = &self.scales[row * count..(row + 1) * count];
        let zeros = &self.zeros[row * count..(row + 1) * count];
        match &self.groups {
            Groups::Runs(size) => {
                let parts = out.chunks_mut(*size).zip(scales.iter().zip(zeros));
                for (group, (part, (scale, zero))) in parts.enumerate() {
                    let value = |code: u8| (f32::from(code) - f32::from(*zero)) * scale;
                    let pair = |byte: u8| [value(byte >> 4), value(byte & 0xF)];
                    nibbles::unpack(codes, group * size, part, pair);
                }
            }
            Groups::Listed(list) => {
                for (col, (value, group)) in out.iter_mut().zip(list).enumerate() {
                    let group = *group as usize;
                    let code = f32::from(nibbles::code(codes, col));
                    *value = (code - f32::from(zeros[group])) * scales[group];
                }
            }
        }
    }
}

impl Dequantise for Grouped {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn bytes(&self) -> usize {
        let listed = match &self.groups {
            Groups::Runs(_) => 0,
            Groups::Listed(list) => 4 * list.len(),
        };
        self.codes.len() + 4 * self.scales.len() + self.zeros.len() + listed
    }

    fn dequantise_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        check_rows(self.shape, &rows, out);
        for (row, out) in rows.zip(out.chunks_mut(self.shape[1].max(1))) {
            self.dequantise_row(row, out);
        }
    }
}
