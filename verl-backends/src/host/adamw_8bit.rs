//! AdamW on moments in 8 bits, a block at a time.

use super::adamw::{Step, update_piece};
use crate::optim::{BLOCK, DynamicMap, WORDS};
use rayon::prelude::*;

/// Blocks per task.
const TASK: usize = 64;

/// A moment in 8 bits.
pub(crate) struct Coded<'a> {
    pub(crate) map: &'a DynamicMap,
    /// Four codes each, `WORDS` per block.
    pub(crate) words: &'a mut [i32],
    /// One per block.
    pub(crate) scales: &'a mut [f32],
}

/// One block of a moment.
struct Block<'a> {
    map: &'a DynamicMap,
    words: &'a mut [i32],
    scale: &'a mut f32,
}

/// Updates the moments in place and turns the gradient into the new weights.
pub(crate) fn update_8bit(
    step: Step,
    param: &[f32],
    grad: &mut [f32],
    mean: Coded<'_>,
    square: Coded<'_>,
) {
    grad.par_chunks_mut(BLOCK)
        .zip(param.par_chunks(BLOCK))
        .zip(mean.blocks().zip(square.blocks()))
        .with_min_len(TASK)
        .for_each(|((grad, param), (mut mean, mut square))| {
            let (mut m, mut v) = (mean.decode(), square.decode());
            let n = grad.len();
            update_piece(step, param, grad, &mut m[..n], &mut v[..n]);
            mean.encode(&m);
            square.encode(&v);
        });
}

impl<'a> Coded<'a> {
    fn blocks(self) -> impl IndexedParallelIterator<Item = Block<'a>> {
        let map = self.map;
        let words = self.words.par_chunks_mut(WORDS);
        words
            .zip(self.scales.par_iter_mut())
            .map(move |(words, scale)| Block { map, words, scale })
    }
}

impl Block<'_> {
    fn decode(&self) -> [f32; BLOCK] {
        let mut values = [0f32; BLOCK];
        for (four, word) in values.chunks_exact_mut(4).zip(self.words.iter()) {
            for (value, code) in four.iter_mut().zip(word.to_le_bytes()) {
                *value = self.map.values[usize::from(code)] * *self.scale;
            }
        }
        values
    }

    fn encode(&mut self, values: &[f32; BLOCK]) {
        *self.scale = values.iter().fold(0f32, |most, v| most.max(v.abs()));
        let divisor = self.scale.max(f32::MIN_POSITIVE);
        for (word, four) in self.words.iter_mut().zip(values.chunks_exact(4)) {
            let code = |i: usize| self.map.nearest(four[i] / divisor);
            *word = i32::from_le_bytes(std::array::from_fn(code));
        }
    }
}
