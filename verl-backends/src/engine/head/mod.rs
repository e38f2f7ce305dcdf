//! Log-probs, entropies and their gradients without `[tokens, vocab]` logits.

mod plain;

use super::Gradients;
#[cfg(feature = "flex")]
use crate::host::{HostHead, TokenGrad, TokenStats, View};
use crate::model::{Kernels, Model};
use burn::tensor::{Tensor, TensorData};
use plain::PlainHead;
use verl_core::types::TokenId;
use verl_core::{Error, Result};

/// What to compute besides log-probs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ask {
    pub(super) entropy: bool,
    pub(super) sum_pi_squared: bool,
}

/// Scores of `n` targets, `[n]` each.
pub(super) struct HeadScores {
    pub(super) log_probs: Tensor<1>,
    pub(super) entropy: Option<Tensor<1>>,
    pub(super) sum_pi_squared: Option<Tensor<1>>,
    /// What the backward pass of the CPU's own kernels needs.
    #[cfg(feature = "flex")]
    stats: Vec<TokenStats>,
}

/// Gradients of what the head returned, `[n]` each.
pub(super) struct ScoreGrads {
    pub(super) log_probs: Tensor<1>,
    pub(super) entropy: Option<Tensor<1>>,
}

/// The head of a causal model, ready to score.
pub(super) struct Head<'a> {
    model: &'a Model,
    /// `[vocab, hidden]`, without the padding entries of the vocabulary: they
    /// are never sampled and take no probability here either.
    weight: Tensor<2>,
    temperature: f32,
}

impl<'a> Head<'a> {
    /// # Errors
    /// [`Error::Unsupported`] when the model has a score head.
    pub(super) fn new(model: &'a Model, vocab: usize, temperature: f32) -> Result<Self> {
        let weight = lm_head(model)?;
        let vocab = vocab.min(weight.dims()[0]);
        Ok(Head {
            model,
            weight: weight.clone().narrow(0, 0, vocab),
            temperature,
        })
    }

    /// Log-prob of each target, and what else is asked for, given hidden
    /// states `[n, hidden]`.
    pub(super) fn score(&self, hidden: &Tensor<2>, targets: &[TokenId], ask: Ask) -> HeadScores {
        #[cfg(feature = "flex")]
        if let (Some(weight), Some(hidden)) = (self.host_weight(), View::of(hidden)) {
            return HeadScores::of(self.host(&weight).score(&hidden, targets), ask);
        }
        self.plain().score(hidden, targets, ask)
    }

    /// Adds the weight's gradient and returns that of the hidden states, given
    /// what [`Head::score`] returned and its gradients.
    pub(super) fn backward(
        &self,
        hidden: &Tensor<2>,
        targets: &[TokenId],
        scores: &HeadScores,
        d: &ScoreGrads,
        grads: &mut Gradients,
    ) -> Tensor<2> {
        let config = &self.model.config;
        let name = match config.tied() {
            true => "model.embed_tokens.weight",
            false => "lm_head.weight",
        };
        let dims = [config.vocab, config.hidden];
        #[cfg(feature = "flex")]
        if let (Some(weight), Some(x)) = (self.host_weight(), View::of(hidden)) {
            let tokens = tokens(targets, scores, d);
            let mut d_hidden = vec![0f32; x.len()];
            let mut backward = |d_weight: Option<&mut [f32]>| {
                self.host(&weight)
                    .backward(&x, &tokens, &mut d_hidden, d_weight);
            };
            match grads.wants(name) {
                true => grads.in_matrix(name, dims, |sum| backward(Some(&mut sum[..weight.len()]))),
                false => backward(None),
            }
            return crate::host::tensor(d_hidden, hidden.dims());
        }
        let plain = self.plain();
        let found = plain.backward(hidden, targets, d, grads.wants(name));
        if let Some(weight) = found.weight {
            grads.add_matrix(name, padded(weight, dims));
        }
        found.hidden
    }

    fn plain(&self) -> PlainHead {
        PlainHead::new(self.weight.clone(), self.temperature)
    }

    #[cfg(feature = "flex")]
    fn host_weight(&self) -> Option<View> {
        match self.model.kernels {
            Kernels::Fused => View::of(&self.weight),
            Kernels::Plain => None,
        }
    }

    #[cfg(feature = "flex")]
    fn host<'w>(&self, weight: &'w View) -> HostHead<'w> {
        HostHead {
            weight,
            vocab: self.weight.dims()[0],
            temperature: self.temperature,
        }
    }
}

/// The matrix of a causal model's head.
///
/// # Errors
/// [`Error::Unsupported`] when the model has a score head.
pub(super) fn lm_head(model: &Model) -> Result<&Tensor<2>> {
    let message = "a policy needs a causal language model; this one has a score head";
    model
        .lm_head()
        .ok_or_else(|| Error::Unsupported(message.into()))
}

/// The gradient of the whole matrix: that of its padding entries is 0.
fn padded(grad: Tensor<2>, [rows, cols]: [usize; 2]) -> Tensor<2> {
    match rows - grad.dims()[0] {
        0 => grad,
        missing => {
            let padding = Tensor::zeros([missing, cols], &grad.device());
            Tensor::cat(vec![grad, padding], 0)
        }
    }
}

#[cfg(feature = "flex")]
impl HeadScores {
    fn of(stats: Vec<TokenStats>, ask: Ask) -> Self {
        let column = |value: fn(&TokenStats) -> f32| {
            crate::host::tensor(stats.iter().map(value).collect(), [stats.len()])
        };
        HeadScores {
            log_probs: column(|s| s.log_prob),
            entropy: ask.entropy.then(|| column(|s| s.entropy)),
            sum_pi_squared: ask.sum_pi_squared.then(|| column(|s| s.sum_pi_squared)),
            stats,
        }
    }
}

#[cfg(feature = "flex")]
fn tokens(
    targets: &[TokenId],
    scores: &HeadScores,
    d: &ScoreGrads,
) -> Vec<(TokenId, TokenStats, TokenGrad)> {
    let d_log_probs = floats(d.log_probs.clone());
    let d_entropy = d.entropy.clone().map(floats);
    let grad = |i: usize| TokenGrad {
        log_prob: d_log_probs[i],
        entropy: d_entropy.as_ref().map_or(0.0, |d| d[i]),
    };
    let with_stats = targets.iter().zip(&scores.stats).enumerate();
    with_stats.map(|(i, (t, s))| (*t, *s, grad(i))).collect()
}

/// A vector's values.
pub(super) fn floats(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Values on a tensor's device, `[n]`.
pub(super) fn vector(values: Vec<f32>, like: &Tensor<1>) -> Tensor<1> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), &like.device())
}
