//! Projections kept as codes under an adapter (QLoRA, arXiv:2305.14314).

use super::linear::Weight;
use super::params::Model;
use crate::quant::{Int8, Nf4, QuantError, Quantised};
use std::sync::Arc;
use verl_core::{Error, Result};

/// How a frozen projection is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// 4-bit normal floats in blocks of 64: 4.5 bits per weight.
    Nf4,
    /// The same with the blocks' scales quantised too: 4.13 bits per weight.
    Nf4Double,
    /// 8-bit integers with a scale per output.
    Int8,
}

impl Coding {
    /// Quantises a matrix, `[out, in]` row after row.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn quantise(self, values: &[f32], dims: [usize; 2]) -> Result<Quantised, QuantError> {
        match self {
            Coding::Nf4 => Nf4::quantise(values, dims).map(Quantised::Nf4),
            Coding::Nf4Double => Nf4::quantise_twice(values, dims).map(Quantised::Nf4),
            Coding::Int8 => Int8::quantise(values, dims).map(Quantised::Int8),
        }
    }

    /// As [`Coding::quantise`], with an error that names the projection.
    pub(crate) fn weight(self, name: &str, values: &[f32], dims: [usize; 2]) -> Result<Weight> {
        let coded = self.quantise(values, dims).map_err(|e| Error::Weights {
            place: name.into(),
            message: e.to_string(),
        })?;
        Ok(Weight::Coded(Arc::new(coded)))
    }
}

impl Model {
    /// Keeps every projection of the layers as codes. They are frozen from
    /// here on: training needs an adapter. The embedding, the head and the
    /// norms stay as they are.
    ///
    /// # Errors
    /// [`Error::Weights`] naming the first projection with a value that is not
    /// finite.
    pub fn quantise(&mut self, coding: Coding) -> Result<()> {
        let mut failed = None;
        self.each_linear(&mut |name, linear| {
            let (None, Some(weight)) = (&failed, linear.weight.full()) else {
                return;
            };
            let values: Vec<f32> = weight.to_data().iter::<f32>().collect();
            match coding.weight(name, &values, weight.dims()) {
                Ok(coded) => linear.weight = coded,
                Err(error) => failed = Some(error),
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Whether projections are kept as codes.
    pub fn is_quantised(&self) -> bool {
        let mut coded = false;
        self.clone()
            .each_linear(&mut |_, linear| coded |= linear.weight.full().is_none());
        coded
    }
}
