//! Log-probs, entropies and their gradients, a tile of the vocabulary at a
//! time: logits `[tokens, vocab]` never exist.
//!
//! With logits `z = x W^T / T`, probabilities `p` and entropy `H`:
//!
//! ```text
//! d log p_t / d z_j = [j = t] - p_j          d H / d z_j = -p_j (log p_j + H)
//! ```

use super::gemm::{Mat, Threads, Write, matmul};
use super::rows::{exp, max_of, vectorised};
use rayon::prelude::*;
use std::ops::Range;
use verl_core::types::TokenId;

/// Logits held at once (16 MiB of f32).
const TILE: usize = 1 << 22;
/// Tokens that go through the vocabulary together.
const TOKENS: usize = 8192;
/// Rows per task.
const ROWS: usize = 16;

/// The head of a causal model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostHead<'a> {
    /// `[vocab, hidden]`, without padding entries.
    pub(crate) weight: &'a [f32],
    /// Number of vocabulary entries.
    pub(crate) vocab: usize,
    /// Divides the logits.
    pub(crate) temperature: f32,
}

/// The distribution at one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TokenStats {
    pub(crate) log_prob: f32,
    pub(crate) entropy: f32,
    pub(crate) sum_pi_squared: f32,
    /// Logarithm of the softmax's denominator.
    log_sum: f32,
}

/// Gradients of the two outputs of one token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenGrad {
    pub(crate) log_prob: f32,
    pub(crate) entropy: f32,
}

impl HostHead<'_> {
    fn width(&self) -> usize {
        self.weight.len() / self.vocab.max(1)
    }

    fn tiles(&self, tokens: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (vocab, step) = (self.vocab, (TILE / tokens.max(1)).max(64));
        (0..vocab)
            .step_by(step)
            .map(move |v| v..(v + step).min(vocab))
    }

    fn tile_weight(&self, tile: &Range<usize>) -> Mat<'_> {
        let width = self.width();
        Mat::new(
            &self.weight[tile.start * width..tile.end * width],
            tile.len(),
        )
    }

    /// Statistics of each target, given hidden states `[n, hidden]`.
    pub(crate) fn score(&self, hidden: &[f32], targets: &[TokenId]) -> Vec<TokenStats> {
        let width = self.width();
        hidden
            .chunks(TOKENS * width)
            .zip(targets.chunks(TOKENS))
            .flat_map(|(hidden, targets)| self.score_chunk(hidden, targets))
            .collect()
    }

    fn score_chunk(&self, hidden: &[f32], targets: &[TokenId]) -> Vec<TokenStats> {
        let n = targets.len();
        let mut running = vec![Running::default(); n];
        let mut logits = Vec::new();
        for tile in self.tiles(n) {
            let v = tile.len();
            logits.resize(n * v, 0f32);
            let weight = self.tile_weight(&tile).t();
            matmul(
                &mut logits,
                Mat::new(hidden, n),
                weight,
                Write::Replace,
                Threads::All,
            );
            logits
                .par_chunks_mut(ROWS * v)
                .zip(running.par_chunks_mut(ROWS))
                .zip(targets.par_chunks(ROWS))
                .for_each(|((logits, running), targets)| {
                    vectorised!({
                        let rows = logits
                            .chunks_exact_mut(v)
                            .zip(running.iter_mut())
                            .zip(targets);
                        for ((logits, running), target) in rows {
                            self.temper(logits);
                            running.take(logits, (*target as usize).wrapping_sub(tile.start));
                        }
                    })
                });
        }
        running.into_iter().map(Running::finish).collect()
    }

    #[inline(always)]
    fn temper(&self, logits: &mut [f32]) {
        if self.temperature != 1.0 {
            let scale = 1.0 / self.temperature;
            logits.iter_mut().for_each(|z| *z *= scale);
        }
    }

    /// Adds the gradients of the hidden states and, where it is wanted, of the
    /// weight, given what [`HostHead::score`] returned and the gradients of its
    /// outputs.
    pub(crate) fn backward(
        &self,
        hidden: &[f32],
        tokens: &[(TokenId, TokenStats, TokenGrad)],
        d_hidden: &mut [f32],
        mut d_weight: Option<&mut [f32]>,
    ) {
        let width = self.width();
        let chunks = hidden
            .chunks(TOKENS * width)
            .zip(d_hidden.chunks_mut(TOKENS * width))
            .zip(tokens.chunks(TOKENS));
        let mut logits = Vec::new();
        for ((hidden, d_hidden), tokens) in chunks {
            let n = tokens.len();
            let x = Mat::new(hidden, n);
            for tile in self.tiles(n) {
                let v = tile.len();
                logits.resize(n * v, 0f32);
                let weight = self.tile_weight(&tile);
                matmul(&mut logits, x, weight.t(), Write::Replace, Threads::All);
                logits
                    .par_chunks_mut(ROWS * v)
                    .zip(tokens.par_chunks(ROWS))
                    .for_each(|(logits, tokens)| {
                        vectorised!({
                            for (logits, token) in logits.chunks_exact_mut(v).zip(tokens) {
                                self.temper(logits);
                                self.logit_gradients(logits, token, tile.start);
                            }
                        })
                    });
                let d_logits = Mat::new(&logits, n);
                matmul(d_hidden, d_logits, weight, Write::Add, Threads::All);
                if let Some(d_weight) = &mut d_weight {
                    let d_weight = &mut d_weight[tile.start * width..tile.end * width];
                    matmul(d_weight, d_logits.t(), x, Write::Add, Threads::All);
                }
            }
        }
    }

    /// Turns tempered logits into their gradients.
    #[inline(always)]
    fn logit_gradients(
        &self,
        logits: &mut [f32],
        (target, stats, grad): &(TokenId, TokenStats, TokenGrad),
        first: usize,
    ) {
        let scale = 1.0 / self.temperature;
        let (d_log_prob, d_entropy) = (grad.log_prob * scale, grad.entropy * scale);
        if d_entropy == 0.0 {
            for z in logits.iter_mut() {
                *z = -d_log_prob * exp(*z - stats.log_sum);
            }
        } else {
            for z in logits.iter_mut() {
                let log_p = *z - stats.log_sum;
                *z = -exp(log_p) * (d_log_prob + d_entropy * (log_p + stats.entropy));
            }
        }
        if let Some(z) = logits.get_mut((*target as usize).wrapping_sub(first)) {
            *z += d_log_prob;
        }
    }
}

/// A softmax over the logits seen so far, relative to the largest.
#[derive(Debug, Clone, Copy)]
struct Running {
    largest: f32,
    sum: f32,
    /// Sum of `e^z z` and of `e^(2 z)`, the latter relative to twice the largest.
    weighted: f32,
    squares: f32,
    target: f32,
}

impl Default for Running {
    fn default() -> Self {
        Running {
            largest: f32::NEG_INFINITY,
            sum: 0.0,
            weighted: 0.0,
            squares: 0.0,
            target: f32::NEG_INFINITY,
        }
    }
}

impl Running {
    /// Takes in a tile of logits, of which `target` may be one.
    #[inline(always)]
    fn take(&mut self, logits: &[f32], target: usize) {
        if let Some(z) = logits.get(target) {
            self.target = *z;
        }
        let largest = max_of(logits).max(self.largest);
        if self.sum > 0.0 {
            let shrink = exp(self.largest - largest);
            self.sum *= shrink;
            self.weighted *= shrink;
            self.squares *= shrink * shrink;
        }
        self.largest = largest;
        let (chunks, rest) = logits.as_chunks::<16>();
        let mut sums = [[0f32; 16]; 3];
        for chunk in chunks {
            for (i, z) in chunk.iter().enumerate() {
                let e = exp(z - largest);
                sums[0][i] += e;
                sums[1][i] += e * z;
                sums[2][i] += e * e;
            }
        }
        let mut totals = sums.map(|s| s.iter().sum::<f32>());
        for z in rest {
            let e = exp(z - largest);
            totals = [totals[0] + e, totals[1] + e * z, totals[2] + e * e];
        }
        self.sum += totals[0];
        self.weighted += totals[1];
        self.squares += totals[2];
    }

    fn finish(self) -> TokenStats {
        let log_sum = self.largest + self.sum.ln();
        TokenStats {
            log_prob: self.target - log_sum,
            entropy: log_sum - self.weighted / self.sum,
            sum_pi_squared: self.squares / (self.sum * self.sum),
            log_sum,
        }
    }
}
