//! Rollouts: requests in, finished answers out.

use crate::types::{FinishReason, GroupId, TokenId};
use crate::{Error, Result};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How tokens are drawn.
///
/// Filters apply in this order: temperature, top-k, top-p, min-p; each
/// renormalises what is left, and at least one token always stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Keep the `k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of most likely tokens whose probability reaches
    /// `p`, the crossing token included; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this fraction of the most likely one.
    pub min_p: f32,
    /// Most tokens an answer may have.
    pub max_tokens: usize,
    /// Texts that end an answer, wherever token boundaries fall.
    pub stop: Vec<String>,
    /// Ids that end an answer, besides the tokenizer's own.
    pub stop_ids: Vec<TokenId>,
    /// Go on past the tokenizer's stop ids.
    pub ignore_eos: bool,
    /// Also return log-probs at temperature 1 without filters.
    pub untempered_log_probs: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            max_tokens: 256,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_eos: false,
            untempered_log_probs: false,
        }
    }
}

impl SamplingParams {
    /// Greedy decoding of at most `max_tokens`.
    pub fn greedy(max_tokens: usize) -> Self {
        SamplingParams {
            temperature: 0.0,
            max_tokens,
            ..Default::default()
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first value out of range.
    pub fn validate(&self) -> Result<()> {
        let range = |key: &str, ok: bool, want: &str, got: f32| match ok {
            true => Ok(()),
            false => Err(Error::config(
                key,
                format!("{got} is out of range; it must be {want}"),
            )),
        };
        let t = self.temperature;
        range(
            "temperature",
            t.is_finite() && t >= 0.0,
            "0 (greedy) or a positive number",
            t,
        )?;
        range(
            "top_p",
            self.top_p > 0.0 && self.top_p <= 1.0,
            "in (0, 1]",
            self.top_p,
        )?;
        range(
            "min_p",
            (0.0..=1.0).contains(&self.min_p),
            "in [0, 1]",
            self.min_p,
        )?;
        range(
            "max_tokens",
            self.max_tokens > 0,
            "at least 1",
            self.max_tokens as f32,
        )?;
        match self.stop.iter().any(|s| s.is_empty()) {
            true => Err(Error::config(
                "stop",
                "an empty stop string would end every answer at once; remove it",
            )),
            false => Ok(()),
        }
    }
}

/// One answer to be sampled.
#[derive(Debug, Clone)]
pub struct RolloutRequest {
    /// The prompt occurrence.
    pub group: GroupId,
    /// Number of the answer within its group.
    pub sample: usize,
    /// Prompt ids; the answers of a group share one allocation, which lets an
    /// engine encode the prompt once.
    pub prompt: Arc<[TokenId]>,
    /// Seed of this answer's random numbers; see [`sample_seed`].
    pub seed: u64,
    /// How to draw.
    pub params: Arc<SamplingParams>,
}

/// The seed of one answer, from the run's seed, the step, the prompt's place
/// in the step and the sample's number. The same answer comes out whatever
/// batch, worker or order produced it.
pub fn sample_seed(run_seed: u64, step: u64, prompt: u64, sample: u64) -> u64 {
    [step, prompt, sample]
        .into_iter()
        .fold(splitmix64(run_seed), |h, x| splitmix64(h ^ splitmix64(x)))
}

/// One round of SplitMix64 (Steele et al. 2014).
fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// The prompt occurrence.
    pub group: GroupId,
    /// Number of the answer within its group.
    pub sample: usize,
    /// The sampled ids, a stop id included.
    pub tokens: Vec<TokenId>,
    /// Log-prob of each id under the distribution it was drawn from.
    pub log_probs: Vec<f32>,
    /// Log-probs at temperature 1 without filters; empty unless asked for.
    pub untempered_log_probs: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Version of the weights that sampled it.
    pub weight_version: u64,
}

/// One weight tensor.
#[derive(Debug, Clone)]
pub enum WeightTensor {
    /// A norm or a bias.
    Vector(Tensor<1>),
    /// A matrix, `[out, in]`.
    Matrix(Tensor<2>),
}

/// Weights handed from a policy to a rollout engine, by Hugging Face name.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    /// Number of optimizer steps behind them.
    pub version: u64,
    /// Name and tensor.
    pub tensors: Vec<(String, WeightTensor)>,
}

/// Samples answers. Implemented by the native generator and by clients of
/// rollout servers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot sample answers",
    note = "implement `RolloutEngine`"
)]
pub trait RolloutEngine: fmt::Debug + Send + Sync {
    /// Samples every request, handing each answer over as soon as it is
    /// finished, in any order.
    ///
    /// # Errors
    /// When parameters or prompts cannot be used; nothing is sampled then. An
    /// error of `on_finished` stops the engine and is returned.
    fn generate(
        &mut self,
        requests: Vec<RolloutRequest>,
        on_finished: &mut dyn FnMut(Rollout) -> Result<()>,
    ) -> Result<()>;

    /// Takes over new weights; later answers carry their version.
    fn sync_weights(&mut self, weights: &Weights) -> Result<()>;
}

const _: fn(&dyn RolloutEngine) = |_| {};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_in_every_coordinate() {
        let base = sample_seed(1, 2, 3, 4);
        for other in [
            sample_seed(0, 2, 3, 4),
            sample_seed(1, 3, 2, 4),
            sample_seed(1, 2, 4, 3),
            sample_seed(1, 2, 3, 5),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, sample_seed(1, 2, 3, 4));
    }

    #[test]
    fn ranges_are_checked_by_name() {
        let bad = SamplingParams {
            top_p: 0.0,
            ..Default::default()
        };
        assert_eq!(
            bad.validate().unwrap_err().to_string(),
            "top_p: 0 is out of range; it must be in (0, 1]"
        );
    }
}
