//! The packing of GPTQ checkpoints.

use super::grouped::{Groups, in_runs};
use super::{Grouped, QuantError, area, expect_length};

/// A projection as a GPTQ checkpoint stores it (arXiv:2210.17323, format
/// `gptq`): transposed, eight inputs per word, zero points less 1.
#[derive(Debug, Clone, Copy)]
pub struct GptqTensors<'a> {
    /// Rows (outputs) and columns (inputs) of the projection.
    pub shape: [usize; 2],
    /// Inputs that share a scale.
    pub group_size: usize,
    /// `[in / 8, out]`, codes; the first input in the low end.
    pub qweight: &'a [u32],
    /// `[groups, out / 8]`, zero points less 1; the first output in the low end.
    pub qzeros: &'a [u32],
    /// `[groups, out]`.
    pub scales: &'a [f32],
    /// The group of each input; without it, consecutive inputs are a group.
    pub g_idx: Option<&'a [u32]>,
}

impl GptqTensors<'_> {
    /// Puts the codes in order.
    ///
    /// # Errors
    /// When the number of inputs or outputs is no multiple of 8, a list has not
    /// the length that the shape asks for, an input names a group that does not
    /// exist, a scale is not finite, or a zero point is ambiguous.
    pub fn unpack(&self) -> Result<Grouped, QuantError> {
        let [outputs, inputs] = self.shape;
        for (what, size) in [
            ("the number of outputs", outputs),
            ("the number of inputs", inputs),
        ] {
            if !size.is_multiple_of(8) {
                return Err(QuantError::NotPacked { what, size });
            }
        }
        area(self.shape)?;
        let mut matrix = Grouped::blank(self.shape, self.groups()?, self.scales)?;
        let (words, groups) = (inputs / 8, matrix.group_count());
        expect_length("words of qweight", words * outputs, self.qweight.len())?;
        expect_length("words of qzeros", groups * outputs / 8, self.qzeros.len())?;
        for output in 0..outputs {
            for word in 0..words {
                let codes = self.qweight[word * outputs + output];
                (0..8).for_each(|k| matrix.set_code(output, 8 * word + k, nibble(codes, k)));
            }
            for group in 0..groups {
                let zeros = self.qzeros[(group * outputs + output) / 8];
                match nibble(zeros, output % 8) {
                    15 => return Err(QuantError::AmbiguousZero { group, output }),
                    less => matrix.set_zero(output, group, less + 1),
                }
            }
        }
        Ok(matrix)
    }

    /// A list that only says what the group size does is not kept.
    fn groups(&self) -> Result<Groups, QuantError> {
        let count = match self.group_size {
            0 => return Err(QuantError::EmptyGroup),
            size => self.shape[1].div_ceil(size),
        };
        expect_length("scales", count * self.shape[0], self.scales.len())?;
        Ok(match self.g_idx {
            Some(list) if !in_runs(list, self.group_size) => Groups::Listed(list.to_vec()),
            Some(list) => {
                expect_length("g_idx", self.shape[1], list.len())?;
                Groups::Runs(self.group_size)
            }
            None => Groups::Runs(self.group_size),
        })
    }
}

/// Nibble `k` of a word, from the low end.
fn nibble(word: u32, k: usize) -> u8 {
    (word >> (4 * k) & 0xF) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Dequantise;

    const LAYER: GptqTensors<'_> = GptqTensors {
        shape: [8, 8],
        group_size: 4,
        qweight: &[0x7654_3210, 0, 0, 0, 0, 0, 0, 0xFFFF_FFFF],
        qzeros: &[0x1000_0000, 0x7000_0002],
        scales: &[
            1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0,
        ],
        g_idx: None,
    };

    #[test]
    fn inputs_come_back_in_order_with_their_groups() {
        let values = LAYER.unpack().unwrap().dequantise();
        assert_eq!(values[..8], [-1.0, 0.0, 1.0, 2.0, 2.0, 4.0, 6.0, 8.0]);
        let last = [13.0, 13.0, 13.0, 13.0, 14.0, 14.0, 14.0, 14.0];
        assert_eq!(values[56..], last);
    }

    #[test]
    fn a_list_of_groups_is_followed_and_left_out_where_it_says_nothing() {
        let plain = LAYER.unpack().unwrap();
        let in_order = Some(&[0, 0, 0, 0, 1, 1, 1, 1][..]);
        let same = GptqTensors {
            g_idx: in_order,
            ..LAYER
        };
        assert_eq!(same.unpack().unwrap(), plain);
        let g_idx = Some(&[1, 0, 1, 0, 1, 0, 1, 0][..]);
        let mixed = GptqTensors { g_idx, ..LAYER }.unpack().unwrap();
        assert_eq!(mixed.dequantise()[..8], [-6.0, 0.0, -2.0, 2.0, 2.0, 4.0, 6.0, 6.0]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let message = |layer: GptqTensors<'_>| layer.unpack().unwrap_err().to_string();
        let (short, far) = (Some(&[0; 7][..]), Some(&[0, 0, 0, 0, 1, 1, 1, 2][..]));
        assert_eq!(
            [
                message(GptqTensors {
                    qweight: &LAYER.qweight[1..],
                    ..LAYER
                }),
                message(GptqTensors {
                    qzeros: &LAYER.qzeros[1..],
                    ..LAYER
                }),
                message(GptqTensors {
                    scales: &LAYER.scales[8..],
                    ..LAYER
                }),
                message(GptqTensors {
                    g_idx: short,
                    ..LAYER
                }),
                message(GptqTensors {
                    g_idx: far,
                    ..LAYER
                }),
                message(GptqTensors {
                    shape: [8, 12],
                    ..LAYER
                }),
                message(GptqTensors {
                    group_size: 0,
                    ..LAYER
                }),
            ],
            [
                "words of qweight: expected 8 values, got 7",
                "words of qzeros: expected 2 values, got 1",
                "scales: expected 16 values, got 8",
                "g_idx: expected 8 values, got 7",
                "g_idx puts input 7 into group 2, but there are 2 groups",
                "the number of inputs is 12, which is no multiple of 8",
                "a group size of 0 leaves no weight a scale",
            ]
        );
    }

    #[test]
    fn a_zero_point_that_readers_disagree_about_is_refused() {
        let qzeros = &[0x0000_00F0, 0];
        let error = GptqTensors { qzeros, ..LAYER }.unpack().unwrap_err();
        let (group, output) = (0, 1);
        assert_eq!(error, QuantError::AmbiguousZero { group, output });
    }
}
