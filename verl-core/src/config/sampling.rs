//! `rollout`: how answers are sampled, for training and for validation.

use super::Dtype;
use crate::rollout::SamplingParams;
use serde::{Deserialize, Serialize};

/// How answers are sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Samples per prompt.
    pub n: usize,
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keep the `k` most likely tokens; 0 or -1 keeps all.
    pub top_k: i64,
    /// Keep the smallest set of tokens whose probability reaches `p`.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one.
    pub min_p: f32,
    /// Most tokens per answer.
    pub response_length: usize,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Answers sampled at the same time.
    pub max_num_seqs: usize,
    /// Number format of the weights that answers are sampled with.
    pub dtype: Dtype,
    /// Largest gap at which the sampler's log-probs stand for the policy's own.
    pub reuse_log_probs: Option<f32>,
    /// What differs in validation.
    pub val_kwargs: ValSamplingConfig,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        RolloutConfig {
            n: 8,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            response_length: 256,
            stop: Vec::new(),
            max_num_seqs: 64,
            dtype: Dtype::Float32,
            reuse_log_probs: Some(1e-3),
            val_kwargs: ValSamplingConfig::default(),
        }
    }
}

/// Sampling in validation; greedy unless a temperature is given. Response
/// length and stop texts are those of training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValSamplingConfig {
    /// Samples per prompt.
    pub n: usize,
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keep the `k` most likely tokens; 0 or -1 keeps all.
    pub top_k: i64,
    /// Keep the smallest set of tokens whose probability reaches `p`.
    pub top_p: f32,
    /// `false` is greedy whatever the temperature; `None` goes by the
    /// temperature.
    pub do_sample: Option<bool>,
}

impl Default for ValSamplingConfig {
    fn default() -> Self {
        ValSamplingConfig {
            n: 1,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            do_sample: None,
        }
    }
}

impl RolloutConfig {
    /// Sampling of training answers.
    pub fn sampling(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_k: keep(self.top_k),
            top_p: self.top_p,
            min_p: self.min_p,
            max_tokens: self.response_length,
            stop: self.stop.clone(),
            ..SamplingParams::default()
        }
    }

    /// Sampling of validation answers.
    pub fn val_sampling(&self) -> SamplingParams {
        let val = &self.val_kwargs;
        SamplingParams {
            temperature: if val.do_sample == Some(false) {
                0.0
            } else {
                val.temperature
            },
            top_k: keep(val.top_k),
            top_p: val.top_p,
            min_p: 0.0,
            ..self.sampling()
        }
    }
}

/// Tokens to keep, where 0 stands for all of them.
fn keep(top_k: i64) -> usize {
    usize::try_from(top_k).unwrap_or(0)
}
