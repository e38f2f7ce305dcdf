//! Projections in the packings of AWQ and GPTQ.

use super::safetensors::{Shards, Stored};
use crate::quant::{AwqTensors, GptqTensors, Grouped};
use verl_core::Result;

/// Codes in a word.
const PER_WORD: usize = 8;

/// The tensors of one projection, which stand in place of its `weight`.
#[derive(Debug)]
pub(super) struct PackedTensors<'a> {
    shards: &'a Shards,
    packing: Packing,
    /// Inputs that share a scale; all of them without it.
    group_size: Option<usize>,
    /// The projection's name.
    base: String,
}

/// Who packed the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Awq,
    Gptq {
        /// Whether the groups must be listed.
        by_activation: bool,
    },
}

impl<'a> PackedTensors<'a> {
    /// The tensors of a parameter, unless it is stored in full.
    pub(super) fn of(
        shards: &'a Shards,
        packing: Packing,
        group_size: Option<usize>,
        name: &str,
    ) -> Option<Self> {
        let base = name.strip_suffix(".weight")?.to_string();
        let tensors = PackedTensors {
            shards,
            packing,
            group_size,
            base,
        };
        let found = |part: &str| shards.get(&tensors.part(part)).is_some();
        ALWAYS.into_iter().any(found).then_some(tensors)
    }

    /// Names of all tensors.
    pub(super) fn parts(&self) -> Vec<String> {
        let mut parts = ALWAYS.to_vec();
        if self.listed() {
            parts.push(GROUPS);
        }
        parts.into_iter().map(|part| self.part(part)).collect()
    }

    /// Shape of the projection, as the model has it.
    pub(super) fn shape(&self) -> Result<[usize; 2]> {
        let stored = self.get(CODES)?;
        let shape = match (stored.shape(), self.packing) {
            ([inputs, words], Packing::Awq) => words
                .checked_mul(PER_WORD)
                .map(|outputs| [outputs, *inputs]),
            ([words, outputs], _) => words.checked_mul(PER_WORD).map(|inputs| [*outputs, inputs]),
            _ => None,
        };
        shape.ok_or_else(|| stored.fault(format!("the shape {:?} is wrong", stored.shape())))
    }

    /// Codes, scales and zero points.
    pub(super) fn read(&self) -> Result<Grouped> {
        let shape = self.shape()?;
        let [outputs, inputs] = shape;
        let group_size = self.group_size.unwrap_or(inputs).max(1);
        let groups = inputs.div_ceil(group_size);
        let codes = self.get(CODES)?;
        let qweight = &codes.words()?;
        let qzeros = &self.shaped(ZEROS, [groups, outputs / PER_WORD])?.words()?;
        let scales = &self.shaped(SCALES, [groups, outputs])?.floats()?;
        let listed = self.listed().then(|| self.get(GROUPS)?.words());
        let g_idx = listed.transpose()?;
        let matrix = match self.packing {
            Packing::Awq => AwqTensors {
                shape,
                group_size,
                qweight,
                qzeros,
                scales,
            }
            .unpack(),
            Packing::Gptq { .. } => GptqTensors {
                shape,
                group_size,
                qweight,
                qzeros,
                scales,
                g_idx: g_idx.as_deref(),
            }
            .unpack(),
        };
        matrix.map_err(|e| codes.fault(e))
    }

    /// Whether a list tells the groups of the inputs, or must.
    fn listed(&self) -> bool {
        match self.packing {
            Packing::Awq => false,
            Packing::Gptq { by_activation } => by_activation || self.get(GROUPS).is_ok(),
        }
    }

    /// A tensor of a given shape.
    fn shaped(&self, part: &str, want: [usize; 2]) -> Result<Stored<'a>> {
        let stored = self.get(part)?;
        match stored.shape() == want {
            true => Ok(stored),
            false => {
                let got = stored.shape();
                Err(stored.fault(format!("the shape is {got:?}, expected {want:?}")))
            }
        }
    }

    fn part(&self, part: &str) -> String {
        format!("{}.{part}", self.base)
    }

    fn get(&self, part: &str) -> Result<Stored<'a>> {
        self.shards.want(&self.part(part))
    }
}

const CODES: &str = "qweight";
const ZEROS: &str = "qzeros";
const SCALES: &str = "scales";
const GROUPS: &str = "g_idx";
const ALWAYS: [&str; 3] = [CODES, ZEROS, SCALES];
