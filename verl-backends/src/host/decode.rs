//! One token for each of several sequences.

use super::attention::Heads;
use super::cache::{Cache, Keys};
use super::elementwise::Rotation;
use super::rows::{dot, exp, max_of, sum_of, vectorised};
use super::trunk::HostModel;
use crate::model::{Layout, RopeTable, Segment};
use burn::tensor::Device;
use rayon::prelude::*;
use std::sync::Arc;
use verl_core::types::TokenId;

/// A prompt that has been run through the model.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) keys: Arc<Vec<Keys>>,
    /// Normed hidden state of its last token.
    pub(crate) last: Vec<f32>,
}

impl HostModel {
    /// Runs prompts through the model, packed.
    pub(crate) fn encode(&self, prompts: &[&[TokenId]]) -> Vec<Encoded> {
        let segments: Vec<Segment> = prompts.iter().map(|p| Segment::whole(p.len())).collect();
        let layout = Layout::new(&segments, &Device::flex());
        let mut keys: Vec<Vec<Keys>> = prompts.iter().map(|_| Vec::new()).collect();
        let hidden = self.hidden(&prompts.concat(), &layout, &mut |k, v| {
            let width = k.len() / layout.tokens();
            for (keys, rows) in keys.iter_mut().zip(&layout.segments) {
                let at = rows.start * width..rows.end * width;
                keys.push(Keys {
                    k: k[at.clone()].to_vec(),
                    v: v[at].to_vec(),
                });
            }
        });
        let width = self.config().hidden;
        let encoded = keys.into_iter().zip(&layout.segments);
        encoded
            .map(|(keys, rows)| Encoded {
                keys: Arc::new(keys),
                last: hidden[(rows.end - 1) * width..rows.end * width].to_vec(),
            })
            .collect()
    }

    /// Feeds one token to each sequence, whose positions are given; returns
    /// the normed hidden states, `[n, hidden]`. A sequence's result does not
    /// depend on the others.
    pub(crate) fn decode(
        &self,
        ids: &[TokenId],
        positions: &[usize],
        caches: &mut [&mut Cache],
    ) -> Vec<f32> {
        let config = self.config();
        let (cos, sin) = RopeTable::angles(config, positions);
        let rotation = Rotation {
            cos,
            sin,
            half: config.head_dim / 2,
        };
        let width = config.kv_heads * config.head_dim;
        let mut hidden = self.embed(ids);
        for (i, layer) in self.layers().iter().enumerate() {
            let (q, k, v) = layer.decode_qkv(config, &hidden, ids.len(), &rotation);
            let rows = k.chunks_exact(width).zip(v.chunks_exact(width));
            for (cache, (k, v)) in caches.iter_mut().zip(rows) {
                cache.push(i, k, v);
            }
            let attended = attend(&q, caches, i, layer.heads(config));
            hidden = layer.decode_finish(config, hidden, &attended, ids.len());
        }
        self.final_norm(&hidden)
    }
}

/// One query per sequence over its cache: `[n, query * width]`.
fn attend(q: &[f32], caches: &[&mut Cache], layer: usize, heads: Heads) -> Vec<f32> {
    let mut out = vec![0f32; q.len()];
    let group = heads.query / heads.key * heads.width;
    out.par_chunks_mut(group)
        .zip(q.par_chunks(group))
        .enumerate()
        .for_each(|(i, (out, q))| {
            let (row, head) = (i / heads.key, i % heads.key);
            let keys = caches[row].layer(layer);
            vectorised!(attend_one(out, q, keys, heads, head));
        });
    out
}

/// The query heads that share one key head.
#[inline(always)]
fn attend_one(out: &mut [f32], q: &[f32], keys: [&Keys; 2], heads: Heads, head: usize) {
    let (width, stride) = (heads.width, heads.key * heads.width);
    let tokens: usize = keys.iter().map(|k| k.k.len() / stride).sum();
    let mut hidden = tokens.saturating_sub(heads.window.unwrap_or(tokens));
    let per_key = heads.query / heads.key;
    let seen = tokens - hidden;
    let mut scores = vec![0f32; per_key * seen];
    // Each part's rows that are seen, and the first one's number.
    let mut parts = [(&[][..], &[][..], 0); 2];
    let mut first = 0;
    for (part, keys) in parts.iter_mut().zip(keys) {
        let skip = hidden.min(keys.k.len() / stride);
        *part = (&keys.k[skip * stride..], &keys.v[skip * stride..], first);
        first += part.0.len() / stride;
        hidden -= skip;
    }
    let at = head * width;
    for (k, _, first) in parts {
        for (i, row) in k.chunks_exact(stride).enumerate() {
            for (j, q) in q.chunks_exact(width).enumerate() {
                scores[j * seen + first + i] = dot(q, &row[at..at + width]);
            }
        }
    }
    for scores in scores.chunks_exact_mut(seen) {
        softmax(scores);
    }
    for (_, v, first) in parts {
        for (i, row) in v.chunks_exact(stride).enumerate() {
            for (j, out) in out.chunks_exact_mut(width).enumerate() {
                let weight = scores[j * seen + first + i];
                for (o, v) in out.iter_mut().zip(&row[at..at + width]) {
                    *o += weight * v;
                }
            }
        }
    }
}

#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let largest = max_of(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let scale = 1.0 / sum_of(scores, |s| s);
    for score in scores.iter_mut() {
        *score *= scale;
    }
}
