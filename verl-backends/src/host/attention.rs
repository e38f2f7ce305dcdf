//! Causal grouped-query attention, tiled: scores exist for one tile of
//! queries and keys at a time, and the backward pass computes them again
//! (FlashAttention-2, arXiv:2307.08691).
//!
//! A task is one sequence and one key head. The query heads that share it
//! become rows of one matrix, a token's next to each other.

use super::gemm::{Mat, Threads, Write, matmul};
use super::rows::{dot, exp, max_of, sum_of, vectorised};
use rayon::prelude::*;
use std::ops::Range;

/// Query rows and keys of one tile.
const QUERY_ROWS: usize = 192;
const KEYS: usize = 256;

/// The packed tokens of one sequence: its own, and those of a prefix that it
/// may share with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) prefix: Range<usize>,
    pub(crate) own: Range<usize>,
}

/// Shape of the heads, and how far a query sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) key: usize,
    pub(crate) width: usize,
    /// Keys a query sees, itself included, when limited.
    pub(crate) window: Option<usize>,
}

impl Heads {
    fn per_key(&self) -> usize {
        self.query / self.key
    }
}

/// Packed queries (scaled), keys and values, `[n, heads * width]` each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Qkv<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
}

/// The attended values, `[n, query * width]`, and for each row and query head
/// the logarithm of its softmax's denominator, `[n, query]`.
///
/// The spans' own tokens lie one after another and cover all rows.
pub(crate) fn forward(qkv: Qkv<'_>, spans: &[Span], heads: Heads) -> (Vec<f32>, Vec<f32>) {
    let rows = qkv.q.len() / (heads.query * heads.width).max(1);
    let mut out = vec![0f32; qkv.q.len()];
    let mut denominators = vec![0f32; rows * heads.query];
    let pieces = split(&mut out, spans, heads.query * heads.width)
        .into_iter()
        .zip(split(&mut denominators, spans, heads.query));
    let work: Vec<_> = spans.iter().zip(pieces).collect();
    work.into_par_iter()
        .for_each(|(span, (out, denominators))| {
            let parts: Vec<_> = (0..heads.key)
                .into_par_iter()
                .map(|head| Task::new(qkv, span, heads, head).forward())
                .collect();
            for (head, (o, l)) in parts.iter().enumerate() {
                place(out, o, head, heads.key, span.own.len());
                place(denominators, l, head, heads.key, span.own.len());
            }
        });
    (out, denominators)
}

/// Gradients of queries, keys and values.
#[derive(Debug)]
pub(crate) struct Grads {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

/// What [`forward`] returned, and the gradient of its output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attended<'a> {
    pub(crate) out: &'a [f32],
    pub(crate) denominators: &'a [f32],
    pub(crate) d_out: &'a [f32],
}

/// The backward pass of [`forward`].
pub(crate) fn backward(
    qkv: Qkv<'_>,
    attended: Attended<'_>,
    spans: &[Span],
    heads: Heads,
) -> Grads {
    let mut grads = Grads {
        q: vec![0f32; qkv.q.len()],
        k: vec![0f32; qkv.k.len()],
        v: vec![0f32; qkv.v.len()],
    };
    let pieces = split(&mut grads.q, spans, heads.query * heads.width);
    let work: Vec<_> = spans.iter().zip(pieces).collect();
    let parts: Vec<Vec<TaskGrads>> = work
        .into_par_iter()
        .map(|(span, d_q)| {
            let parts: Vec<TaskGrads> = (0..heads.key)
                .into_par_iter()
                .map(|head| Task::new(qkv, span, heads, head).backward(attended))
                .collect();
            for (head, part) in parts.iter().enumerate() {
                place(d_q, &part.q, head, heads.key, span.own.len());
            }
            parts
        })
        .collect();
    // Several sequences may add to the keys of one prefix.
    for (span, parts) in spans.iter().zip(&parts) {
        for (head, part) in parts.iter().enumerate() {
            add_keys(&mut grads.k, &part.k, span, head, heads);
            add_keys(&mut grads.v, &part.v, span, head, heads);
        }
    }
    grads
}

/// The rows of each span, in order.
fn split<'a>(matrix: &'a mut [f32], spans: &[Span], width: usize) -> Vec<&'a mut [f32]> {
    let mut rest = matrix;
    let take = |span: &Span| {
        let (piece, tail) = std::mem::take(&mut rest).split_at_mut(span.own.len() * width);
        rest = tail;
        piece
    };
    spans.iter().map(take).collect()
}

/// Writes one key head's share of every token's row.
fn place(rows: &mut [f32], part: &[f32], head: usize, heads: usize, tokens: usize) {
    let (row, share) = (rows.len() / tokens.max(1), part.len() / tokens.max(1));
    debug_assert_eq!(row, share * heads);
    for (row, part) in rows.chunks_exact_mut(row).zip(part.chunks_exact(share)) {
        row[head * share..(head + 1) * share].copy_from_slice(part);
    }
}

fn add_keys(sum: &mut [f32], part: &[f32], span: &Span, head: usize, heads: Heads) {
    let (width, stride) = (heads.width, heads.key * heads.width);
    let rows = span.prefix.clone().chain(span.own.clone());
    for (row, part) in rows.zip(part.chunks_exact(width)) {
        let at = row * stride + head * width;
        sum[at..at + width]
            .iter_mut()
            .zip(part)
            .for_each(|(s, p)| *s += p);
    }
}

/// One sequence under one key head.
struct Task<'a> {
    qkv: Qkv<'a>,
    span: &'a Span,
    heads: Heads,
    head: usize,
    /// Keys and values of the prefix and the sequence, `[keys, width]`.
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Gradients of one task: of its queries, `[tokens, per_key * width]`, and of
/// its keys and values, prefix included.
struct TaskGrads {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// A tile of queries: tokens of the sequence.
type Tokens = Range<usize>;

impl<'a> Task<'a> {
    fn new(qkv: Qkv<'a>, span: &'a Span, heads: Heads, head: usize) -> Self {
        let (width, stride) = (heads.width, heads.key * heads.width);
        let gather = |packed: &[f32]| -> Vec<f32> {
            let rows = span.prefix.clone().chain(span.own.clone());
            let mut all = Vec::with_capacity((span.prefix.len() + span.own.len()) * width);
            for row in rows {
                let at = row * stride + head * width;
                all.extend_from_slice(&packed[at..at + width]);
            }
            all
        };
        Task {
            keys: gather(qkv.k),
            values: gather(qkv.v),
            qkv,
            span,
            heads,
            head,
        }
    }

    fn query_tiles(&self) -> impl Iterator<Item = Tokens> {
        let (all, step) = (
            self.span.own.len(),
            (QUERY_ROWS / self.heads.per_key()).max(1),
        );
        (0..all).step_by(step).map(move |t| t..(t + step).min(all))
    }

    /// Key tiles that any query of the tile sees.
    fn key_tiles(&self, tokens: &Tokens) -> impl Iterator<Item = Range<usize>> + use<> {
        let first = self.seen(tokens.start).start;
        let end = self.seen(tokens.end - 1).end;
        (first..end)
            .step_by(KEYS)
            .map(move |k| k..(k + KEYS).min(end))
    }

    /// Keys that the sequence's token sees.
    fn seen(&self, token: usize) -> Range<usize> {
        let end = self.span.prefix.len() + token + 1;
        end.saturating_sub(self.heads.window.unwrap_or(end))..end
    }

    /// Rows of a packed `[n, query * share]` matrix that belong to a tile,
    /// `[tokens * per_key, share]`.
    fn rows_of(&self, packed: &[f32], share: usize, tokens: &Tokens) -> Vec<f32> {
        let (group, stride) = (self.heads.per_key() * share, self.heads.query * share);
        let mut rows = Vec::with_capacity(tokens.len() * group);
        for token in tokens.clone() {
            let at = (self.span.own.start + token) * stride + self.head * group;
            rows.extend_from_slice(&packed[at..at + group]);
        }
        rows
    }

    /// Scores of a tile, `[rows, keys]`.
    fn scores(&self, queries: &[f32], keys: &Range<usize>) -> Vec<f32> {
        let (rows, width) = (queries.len() / self.heads.width, self.heads.width);
        let mut scores = vec![0f32; rows * keys.len()];
        let keys = Mat::new(&self.keys[keys.start * width..keys.end * width], keys.len());
        let queries = Mat::new(queries, rows);
        matmul(&mut scores, queries, keys.t(), Write::Replace, Threads::One);
        scores
    }

    /// The columns of a score tile that the row's token sees.
    fn columns(&self, tokens: &Tokens, row: usize, keys: &Range<usize>) -> Range<usize> {
        let seen = self.seen(tokens.start + row / self.heads.per_key());
        let column = |key: usize| key.clamp(keys.start, keys.end) - keys.start;
        column(seen.start)..column(seen.end)
    }

    fn forward(&self) -> (Vec<f32>, Vec<f32>) {
        let width = self.heads.width;
        let rows = self.span.own.len() * self.heads.per_key();
        let (mut out, mut denominators) = (Vec::with_capacity(rows * width), Vec::new());
        for tokens in self.query_tiles() {
            let queries = self.rows_of(self.qkv.q, width, &tokens);
            let rows = queries.len() / width;
            let mut running = Running::new(rows, width);
            for keys in self.key_tiles(&tokens) {
                let mut scores = self.scores(&queries, &keys);
                vectorised!({
                    for (row, scores) in scores.chunks_exact_mut(keys.len()).enumerate() {
                        running.take(row, scores, self.columns(&tokens, row, &keys));
                    }
                });
                let values = &self.values[keys.start * width..keys.end * width];
                let values = Mat::new(values, keys.len());
                let weights = Mat::new(&scores, rows);
                matmul(
                    &mut running.mixed,
                    weights,
                    values,
                    Write::Add,
                    Threads::One,
                );
            }
            let (mixed, logs) = running.finish();
            out.extend(mixed);
            denominators.extend(logs);
        }
        (out, denominators)
    }

    fn backward(&self, attended: Attended<'_>) -> TaskGrads {
        let width = self.heads.width;
        let mut grads = TaskGrads {
            q: Vec::with_capacity(self.span.own.len() * self.heads.per_key() * width),
            k: vec![0f32; self.keys.len()],
            v: vec![0f32; self.values.len()],
        };
        for tokens in self.query_tiles() {
            let queries = self.rows_of(self.qkv.q, width, &tokens);
            let d_out = self.rows_of(attended.d_out, width, &tokens);
            let out = self.rows_of(attended.out, width, &tokens);
            let logs = self.rows_of(attended.denominators, 1, &tokens);
            let mut pull = vec![0f32; logs.len()];
            vectorised!({
                let rows = d_out.chunks_exact(width).zip(out.chunks_exact(width));
                for (pull, (d, out)) in pull.iter_mut().zip(rows) {
                    *pull = dot(d, out);
                }
            });
            let rows = logs.len();
            let mut d_q = vec![0f32; queries.len()];
            for keys in self.key_tiles(&tokens) {
                let at = keys.start * width..keys.end * width;
                let n = keys.len();
                let mut weights = self.scores(&queries, &keys);
                let mut d_scores = vec![0f32; weights.len()];
                let (d_out_rows, values) = (
                    Mat::new(&d_out, rows),
                    Mat::new(&self.values[at.clone()], n),
                );
                matmul(
                    &mut d_scores,
                    d_out_rows,
                    values.t(),
                    Write::Replace,
                    Threads::One,
                );
                vectorised!({
                    let rows = weights
                        .chunks_exact_mut(n)
                        .zip(d_scores.chunks_exact_mut(n));
                    for (row, (weights, d_scores)) in rows.enumerate() {
                        let seen = self.columns(&tokens, row, &keys);
                        score_gradients(weights, d_scores, seen, logs[row], pull[row]);
                    }
                });
                let (weights, d_scores) = (Mat::new(&weights, rows), Mat::new(&d_scores, rows));
                matmul(
                    &mut grads.v[at.clone()],
                    weights.t(),
                    d_out_rows,
                    Write::Add,
                    Threads::One,
                );
                let keys = Mat::new(&self.keys[at.clone()], n);
                matmul(&mut d_q, d_scores, keys, Write::Add, Threads::One);
                let queries = Mat::new(&queries, rows);
                matmul(
                    &mut grads.k[at],
                    d_scores.t(),
                    queries,
                    Write::Add,
                    Threads::One,
                );
            }
            grads.q.extend(d_q);
        }
        grads
    }
}

/// Turns a row of scores into weights and the gradient of the weights into
/// that of the scores: `p (d - pull)`.
#[inline(always)]
fn score_gradients(
    weights: &mut [f32],
    d_scores: &mut [f32],
    seen: Range<usize>,
    log: f32,
    pull: f32,
) {
    for hidden in [0..seen.start, seen.end..weights.len()] {
        weights[hidden.clone()].fill(0.0);
        d_scores[hidden].fill(0.0);
    }
    for (p, d) in weights[seen.clone()].iter_mut().zip(&mut d_scores[seen]) {
        *p = exp(*p - log);
        *d = *p * (*d - pull);
    }
}

/// The softmax over keys seen so far.
struct Running {
    largest: Vec<f32>,
    sums: Vec<f32>,
    /// Weighted values, `[rows, width]`.
    mixed: Vec<f32>,
    width: usize,
}

impl Running {
    fn new(rows: usize, width: usize) -> Self {
        Running {
            largest: vec![f32::NEG_INFINITY; rows],
            sums: vec![0f32; rows],
            mixed: vec![0f32; rows * width],
            width,
        }
    }

    /// Turns a row of scores into weights relative to the largest score so
    /// far, to which what was summed before is brought.
    #[inline(always)]
    fn take(&mut self, row: usize, scores: &mut [f32], seen: Range<usize>) {
        let before = self.largest[row];
        let largest = max_of(&scores[seen.clone()]).max(before);
        scores[..seen.start].fill(0.0);
        scores[seen.end..].fill(0.0);
        if largest == f32::NEG_INFINITY {
            // Nothing seen yet.
            return scores[seen].fill(0.0);
        }
        for score in &mut scores[seen.clone()] {
            *score = exp(*score - largest);
        }
        self.largest[row] = largest;
        if before != f32::NEG_INFINITY && largest > before {
            let shrink = exp(before - largest);
            self.sums[row] *= shrink;
            let mixed = &mut self.mixed[row * self.width..(row + 1) * self.width];
            mixed.iter_mut().for_each(|v| *v *= shrink);
        }
        self.sums[row] += sum_of(&scores[seen], |p| p);
    }

    /// The mixed values and the logarithms of the denominators.
    fn finish(mut self) -> (Vec<f32>, Vec<f32>) {
        for (mixed, sum) in self.mixed.chunks_exact_mut(self.width).zip(&self.sums) {
            let scale = 1.0 / sum;
            mixed.iter_mut().for_each(|v| *v *= scale);
        }
        let logs = self.sums.iter().zip(&self.largest);
        let logs = logs.map(|(sum, largest)| sum.ln() + largest).collect();
        (self.mixed, logs)
    }
}
