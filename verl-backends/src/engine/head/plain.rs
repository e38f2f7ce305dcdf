//! The head on burn's operations, a chunk of tokens at a time.
//!
//! With logits `z = x W^T / T`, probabilities `p` and entropy `H`:
//!
//! ```text
//! d log p_t / d z_j = [j = t] - p_j          d H / d z_j = -p_j (log p_j + H)
//! ```

use super::{Ask, HeadScores, ScoreGrads};
use crate::model::id_tensor;
use burn::tensor::activation::log_softmax;
use burn::tensor::{IndexingUpdateOp, Tensor};
use verl_core::types::TokenId;

/// Largest number of logits held at once (128 MiB of f32). Larger chunks pack the
/// weight less often.
const CHUNK_LOGITS: usize = 1 << 25;

/// The head of a causal model, ready to score: `[vocab, hidden]`, without the
/// padding entries of the vocabulary.
pub(super) struct PlainHead {
    weight: Tensor<2>,
    temperature: f32,
}

/// Gradients of the head.
pub(super) struct HeadGrads {
    /// With respect to the hidden states, `[n, hidden]`.
    pub(super) hidden: Tensor<2>,
    /// With respect to the weight, `[vocab, hidden]`, where it was wanted.
    pub(super) weight: Option<Tensor<2>>,
}

impl PlainHead {
    pub(super) fn new(weight: Tensor<2>, temperature: f32) -> Self {
        PlainHead {
            weight,
            temperature,
        }
    }

    /// Log-prob of each target, and what else is asked for.
    pub(super) fn score(&self, hidden: &Tensor<2>, targets: &[TokenId], ask: Ask) -> HeadScores {
        let mut parts: [Vec<Tensor<1>>; 3] = Default::default();
        for (start, targets) in self.chunks(targets) {
            let n = targets.len();
            let log_p = self.log_probs(hidden.clone().narrow(0, start, n));
            let index = id_tensor(targets, &hidden.device()).reshape([n, 1]);
            parts[0].push(log_p.clone().gather(1, index).reshape([n]));
            if ask.entropy {
                parts[1].push(entropy_of(&log_p));
            }
            if ask.sum_pi_squared {
                let squares = log_p.mul_scalar(2.0).exp();
                parts[2].push(squares.sum_dim(1).reshape([n]));
            }
        }
        let [log_probs, entropy, squares] = parts.map(|chunks| match chunks.is_empty() {
            true => Tensor::zeros([0], &hidden.device()),
            false => Tensor::cat(chunks, 0),
        });
        HeadScores {
            log_probs,
            entropy: ask.entropy.then_some(entropy),
            sum_pi_squared: ask.sum_pi_squared.then_some(squares),
            #[cfg(feature = "flex")]
            stats: Vec::new(),
        }
    }

    /// Gradients, given those of the log-probs and of the entropies; the
    /// weight's where it is wanted.
    pub(super) fn backward(
        &self,
        hidden: &Tensor<2>,
        targets: &[TokenId],
        d: &ScoreGrads,
        of_weight: bool,
    ) -> HeadGrads {
        let mut d_weight: Option<Tensor<2>> = None;
        let mut d_hidden = Vec::new();
        for (start, targets) in self.chunks(targets) {
            let n = targets.len();
            let x = hidden.clone().narrow(0, start, n);
            let part = |t: &Tensor<1>| t.clone().narrow(0, start, n).reshape([n, 1]);
            let log_p = self.log_probs(x.clone());
            let p = log_p.clone().exp();
            let g = part(&d.log_probs);
            let mut d_logits = p.clone() * g.clone().neg();
            if let Some(d_entropy) = &d.entropy {
                let h = entropy_of(&log_p).reshape([n, 1]);
                d_logits = d_logits - p * (log_p + h) * part(d_entropy);
            }
            let index = id_tensor(targets, &hidden.device()).reshape([n, 1]);
            let d_logits = d_logits
                .scatter(1, index, g, IndexingUpdateOp::Add)
                .div_scalar(self.temperature);
            d_hidden.push(d_logits.clone().matmul(self.weight.clone()));
            if of_weight {
                let d = d_logits.transpose().matmul(x);
                d_weight = Some(match d_weight {
                    Some(sum) => sum + d,
                    None => d,
                });
            }
        }
        HeadGrads {
            hidden: if d_hidden.is_empty() {
                hidden.zeros_like()
            } else {
                Tensor::cat(d_hidden, 0)
            },
            weight: d_weight,
        }
    }

    fn log_probs(&self, hidden: Tensor<2>) -> Tensor<2> {
        let logits = hidden.matmul(self.weight.clone().transpose());
        log_softmax(
            if self.temperature == 1.0 {
                logits
            } else {
                logits.div_scalar(self.temperature)
            },
            1,
        )
    }

    fn chunks<'t>(&self, targets: &'t [TokenId]) -> impl Iterator<Item = (usize, &'t [TokenId])> {
        let size = (CHUNK_LOGITS / self.weight.dims()[0].max(1)).max(16);
        targets
            .chunks(size)
            .enumerate()
            .map(move |(i, chunk)| (i * size, chunk))
    }
}

fn entropy_of(log_p: &Tensor<2>) -> Tensor<1> {
    let n = log_p.dims()[0];
    (log_p.clone().exp() * log_p.clone())
        .sum_dim(1)
        .neg()
        .reshape([n])
}
