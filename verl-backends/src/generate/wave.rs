//! The rows being decoded together, on either kind of kernels.

#[cfg(feature = "flex")]
use super::host::HostWave;
use super::plain::PlainWave;
use super::row::Row;
use crate::model::Model;
use burn::tensor::Tensor;
use verl_core::config::Dtype;
use verl_core::{Error, Result};

/// Rows and what is cached for them.
#[derive(Debug)]
pub(super) enum Wave {
    /// On burn's operations.
    Plain(PlainWave),
    /// On the CPU's own kernels.
    #[cfg(feature = "flex")]
    Host(Box<HostWave>),
}

impl Wave {
    /// A wave without rows.
    pub(super) fn new(model: &Model, dtype: Dtype) -> Self {
        #[cfg(feature = "flex")]
        if let Some(wave) = HostWave::new(model, dtype) {
            return Wave::Host(Box::new(wave));
        }
        let _ = (model, dtype);
        Wave::Plain(PlainWave::default())
    }

    /// The rows: those of the newest logits come last.
    pub(super) fn rows(&mut self) -> &mut Vec<Row> {
        match self {
            Wave::Plain(wave) => &mut wave.rows,
            #[cfg(feature = "flex")]
            Wave::Host(wave) => &mut wave.rows,
        }
    }

    /// Drops finished rows and takes new ones in. Returns the new rows'
    /// logits, row after row; none when there are no new rows.
    pub(super) fn exchange(&mut self, model: &Model, joining: Vec<Row>) -> Result<Vec<f32>> {
        match self {
            Wave::Plain(wave) => match wave.exchange(model, joining)? {
                Some(logits) => values(logits),
                None => Ok(Vec::new()),
            },
            #[cfg(feature = "flex")]
            Wave::Host(wave) => Ok(wave.exchange(joining)),
        }
    }

    /// Feeds every row's newest token; returns the logits, row after row.
    pub(super) fn step(&mut self, model: &Model) -> Result<Vec<f32>> {
        match self {
            Wave::Plain(wave) => values(wave.step(model)?),
            #[cfg(feature = "flex")]
            Wave::Host(wave) => Ok(wave.step()),
        }
    }
}

fn values(logits: Tensor<2>) -> Result<Vec<f32>> {
    logits
        .into_data_as::<f32>()
        .try_into_vec()
        .map_err(|e| Error::invalid(format!("logits: {e:?}")))
}
