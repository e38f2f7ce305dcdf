//! The packing of GPTQ checkpoints.

use super::grouped::Groups;
use super::{Grouped, QuantError, area, expect_length, group_count, words};

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
        area(self.shape)?;
        let height = words("the number of inputs", inputs)?;
        let width = words("the number of outputs", outputs)?;
        let groups = group_count(inputs, self.group_size)?;
        expect_length("words of qweight", height * outputs, self.qweight.len())?;
        expect_length("words of qzeros", groups * width, self.qzeros.len())?;
        expect_length("scales", groups * outputs, self.scales.len())?;
        self.check_zeros()?;
        Grouped::new(
            self.shape,
            self.groups(groups)?,
            self.scales,
            |output, input| nibble(self.qweight[input / 8 * outputs + output], input),
            |output, group| nibble(self.qzeros[group * width + output / 8], output) + 1,
        )
    }

    /// Refuses zero points that are stored as 15.
    fn check_zeros(&self) -> Result<(), QuantError> {
        let outputs = self.shape[0];
        let ambiguous = |at: &usize| nibble(self.qzeros[at / 8], *at) == 15;
        match (0..8 * self.qzeros.len()).find(ambiguous) {
            None => Ok(()),
            Some(at) => Err(QuantError::AmbiguousZero {
                group: at / outputs,
                output: at % outputs,
            }),
        }
    }

    /// Which input belongs where. A list that only says what the group size
    /// does is not kept.
    fn groups(&self, count: usize) -> Result<Groups, QuantError> {
        let Some(list) = self.g_idx else {
            return Ok(Groups::Runs(self.group_size));
        };
        expect_length("g_idx", self.shape[1], list.len())?;
        if let Some(input) = list.iter().position(|group| *group as usize >= count) {
            return Err(QuantError::NoSuchGroup {
                input,
                group: list[input],
                groups: count,
            });
        }
        let in_order = |(input, group): (usize, &u32)| input / self.group_size == *group as usize;
        Ok(match list.iter().enumerate().all(in_order) {
            true => Groups::Runs(self.group_size),
            false => Groups::Listed(list.to_vec()),
        })
    }
}

/// Nibble `k % 8` of a word, from the low end.
fn nibble(word: u32, k: usize) -> u8 {
    (word >> (4 * (k % 8)) & 0xF) as u8
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
        assert_eq!(
            mixed.dequantise()[..8],
            [-6.0, 0.0, -2.0, 2.0, 2.0, 4.0, 6.0, 6.0]
        );
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
