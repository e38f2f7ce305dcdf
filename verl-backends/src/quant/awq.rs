//! The packing of AWQ checkpoints.

use super::grouped::Groups;
use super::{Grouped, QuantError, area, expect_length, group_count, words};

/// Which nibble of a word, from the low end, holds each of its eight outputs.
const NIBBLE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// A projection as an AWQ checkpoint stores it (arXiv:2306.00978, version
/// `gemm`): transposed, eight outputs per word in an order of its own.
#[derive(Debug, Clone, Copy)]
pub struct AwqTensors<'a> {
    /// Rows (outputs) and columns (inputs) of the projection.
    pub shape: [usize; 2],
    /// Consecutive inputs that share a scale.
    pub group_size: usize,
    /// `[in, out / 8]`, codes.
    pub qweight: &'a [u32],
    /// `[groups, out / 8]`, zero points.
    pub qzeros: &'a [u32],
    /// `[groups, out]`.
    pub scales: &'a [f32],
}

impl AwqTensors<'_> {
    /// Puts the codes in order.
    ///
    /// # Errors
    /// When the number of outputs is no multiple of 8, a list has not the length
    /// that the shape asks for, or a scale is not finite.
    pub fn unpack(&self) -> Result<Grouped, QuantError> {
        let [outputs, inputs] = self.shape;
        area(self.shape)?;
        let width = words("the number of outputs", outputs)?;
        let groups = group_count(inputs, self.group_size)?;
        expect_length("words of qweight", inputs * width, self.qweight.len())?;
        expect_length("words of qzeros", groups * width, self.qzeros.len())?;
        expect_length("scales", groups * outputs, self.scales.len())?;
        let nibble = |words: &[u32], line: usize, output: usize| {
            let word = words[line * width + output / 8];
            (word >> (4 * NIBBLE[output % 8]) & 0xF) as u8
        };
        Grouped::new(
            self.shape,
            Groups::Runs(self.group_size),
            self.scales,
            |output, input| nibble(self.qweight, input, output),
            |output, group| nibble(self.qzeros, group, output),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Dequantise;

    const LAYER: AwqTensors<'_> = AwqTensors {
        shape: [8, 3],
        group_size: 2,
        qweight: &[0x7531_6420, 0xFFFF_FFFF, 0x0000_0001],
        qzeros: &[0x0000_0000, 0x1111_1111],
        scales: &[
            1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0,
        ],
    };

    #[test]
    fn outputs_come_back_in_order_with_their_groups() {
        let matrix = LAYER.unpack().unwrap();
        let values = matrix.dequantise();
        let first: Vec<f32> = (0..8).map(|row| values[3 * row]).collect();
        assert_eq!(first, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 3.5]);
        assert_eq!(values[21..], [3.5, 7.5, -2.0], "row 7");
        assert_eq!(values[2], 0.0, "(1 - 1) * 2");
        assert_eq!(matrix.bytes(), 8 * 2 + 16 * 4 + 16);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let message = |layer: AwqTensors<'_>| layer.unpack().unwrap_err().to_string();
        let (qweight, qzeros) = (&LAYER.qweight[1..], &LAYER.qzeros[1..]);
        let (scales, group_size) = (&LAYER.scales[1..], 0);
        let (shape, nan) = ([7, 3], &[f32::NAN; 16]);
        assert_eq!(
            [
                message(AwqTensors { qweight, ..LAYER }),
                message(AwqTensors { qzeros, ..LAYER }),
                message(AwqTensors { scales, ..LAYER }),
                message(AwqTensors {
                    group_size,
                    ..LAYER
                }),
                message(AwqTensors { shape, ..LAYER }),
                message(AwqTensors {
                    scales: nan,
                    ..LAYER
                }),
            ],
            [
                "words of qweight: expected 3 values, got 2",
                "words of qzeros: expected 2 values, got 1",
                "scales: expected 16 values, got 15",
                "a group size of 0 leaves no weight a scale",
                "the number of outputs is 7, which is no multiple of 8",
                "scale 0 is NaN; only finite numbers can be used",
            ]
        );
    }
}
