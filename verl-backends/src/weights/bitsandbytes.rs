//! Projections in the NF4 of bitsandbytes.

use super::safetensors::{Shards, Stored};
use crate::quant::{DoubleScales, NF4_LEVELS, Nf4, Scales, dynamic_levels};
use safetensors::Dtype;
use serde::Deserialize;
use verl_core::Result;

/// Levels of a file may differ from the codec's by what rounding does to them.
const LEVEL_TOLERANCE: f32 = 1e-6;

/// The tensors of one projection: codes under the parameter's own name, and
/// what belongs to them under that name and a suffix.
#[derive(Debug)]
pub(super) struct Nf4Tensors<'a> {
    shards: &'a Shards,
    name: String,
}

/// What `quant_state.bitsandbytes__nf4` says, in JSON.
#[derive(Debug, Deserialize)]
struct State {
    quant_type: String,
    blocksize: usize,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

impl<'a> Nf4Tensors<'a> {
    /// The tensors of a parameter, unless it is stored in full.
    pub(super) fn of(shards: &'a Shards, name: &str) -> Option<Self> {
        let tensors = Nf4Tensors {
            shards,
            name: name.to_string(),
        };
        let bytes = shards.get(name).is_some_and(|t| t.dtype() == Dtype::U8);
        let described = shards.get(&tensors.part(STATE)).is_some();
        (bytes || described).then_some(tensors)
    }

    /// Names of all tensors.
    pub(super) fn parts(&self) -> Vec<String> {
        let nested = self.state().is_ok_and(|s| s.nested_blocksize.is_some());
        let nested: &[&str] = if nested { &NESTED } else { &[] };
        let suffixes = [ABSMAX, LEVELS, STATE].into_iter();
        let parts = suffixes.chain(nested.iter().copied());
        let parts = parts.map(|suffix| self.part(suffix));
        std::iter::once(self.name.clone()).chain(parts).collect()
    }

    /// Shape of the projection.
    pub(super) fn shape(&self) -> Result<[usize; 2]> {
        let shape = self.state()?.shape;
        <[usize; 2]>::try_from(shape).map_err(|shape| {
            let message = format!("the shape {shape:?} is not that of a matrix");
            self.fault(message)
        })
    }

    /// Codes and scales.
    pub(super) fn read(&self) -> Result<Nf4> {
        let state = self.state()?;
        self.check_levels(LEVELS, &NF4_LEVELS)?;
        let scales = match state.nested_blocksize {
            None => Scales::Plain(self.get(ABSMAX)?.floats()?),
            Some(_) => Scales::Double(self.double(&state)?),
        };
        let codes = self.shards.want(&self.name)?;
        Nf4::new(codes.octets()?.to_vec(), scales, self.shape()?).map_err(|e| codes.fault(e))
    }

    fn double(&self, state: &State) -> Result<DoubleScales> {
        self.check_levels(NESTED_LEVELS, dynamic_levels())?;
        let offset = state
            .nested_offset
            .ok_or_else(|| self.fault("`nested_offset` is missing"))?;
        let codes = self.get(ABSMAX)?;
        let absmax = self.get(NESTED_ABSMAX)?.floats()?;
        DoubleScales::new(codes.octets()?.to_vec(), absmax, offset).map_err(|e| codes.fault(e))
    }

    fn state(&self) -> Result<State> {
        let stored = self.get(STATE)?;
        let state: State = serde_json::from_slice(stored.octets()?).map_err(|e| stored.fault(e))?;
        let refuse = |what: &str, got: &dyn std::fmt::Debug, want: &str| {
            Err(stored.fault(format!("{what} is {got:?}; only {want} is read")))
        };
        if state.quant_type != "nf4" {
            return refuse("quant_type", &state.quant_type, "nf4");
        }
        if state.blocksize != Nf4::BLOCK {
            return refuse("blocksize", &state.blocksize, "64");
        }
        match state.nested_blocksize {
            Some(size) if size != DoubleScales::BLOCK => refuse("nested_blocksize", &size, "256"),
            _ => Ok(state),
        }
    }

    /// Refuses levels that are not the codec's.
    fn check_levels(&self, suffix: &str, want: &[f32]) -> Result<()> {
        let stored = self.get(suffix)?;
        let levels = stored.floats()?;
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= LEVEL_TOLERANCE;
        match levels.len() == want.len() && levels.iter().zip(want).all(near) {
            true => Ok(()),
            false => Err(stored.fault("other levels than bitsandbytes' own")),
        }
    }

    fn part(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.name)
    }

    fn get(&self, suffix: &str) -> Result<Stored<'a>> {
        self.shards.want(&self.part(suffix))
    }

    fn fault(&self, message: impl std::fmt::Display) -> verl_core::Error {
        match self.get(STATE) {
            Ok(stored) => stored.fault(message),
            Err(error) => error,
        }
    }
}

const STATE: &str = "quant_state.bitsandbytes__nf4";
const ABSMAX: &str = "absmax";
const LEVELS: &str = "quant_map";
const NESTED_ABSMAX: &str = "nested_absmax";
const NESTED_LEVELS: &str = "nested_quant_map";
const NESTED: [&str; 2] = [NESTED_ABSMAX, NESTED_LEVELS];
