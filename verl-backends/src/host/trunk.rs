//! All layers between the embedding and the head.

use super::attention::Span;
use super::elementwise::Rotation;
use super::layer::{Context, HostLayer, Saved, norm_gradient};
use super::norm::{self, Scales};
use super::view::View;
use crate::engine::Gradients;
use crate::model::{Layout, Model, ModelConfig, RopeTable};
use rayon::prelude::*;
use std::sync::Arc;
use verl_core::types::TokenId;

/// A model whose weights lie in this process's memory as f32.
#[derive(Debug)]
pub(crate) struct HostModel {
    config: Arc<ModelConfig>,
    embed: View,
    layers: Vec<HostLayer>,
    norm: View,
}

/// Called with each layer's keys and values, `[n, kv_heads * head_dim]`.
pub(crate) type OnKeys<'a> = &'a mut dyn FnMut(Vec<f32>, Vec<f32>);

impl HostModel {
    /// `None` when a tensor is of another device or type, or a layer has
    /// experts.
    pub(crate) fn of(model: &Model) -> Option<Self> {
        let layers = model.layers.iter().enumerate();
        Some(HostModel {
            config: model.config.clone(),
            embed: View::of(&model.embed)?,
            layers: layers
                .map(|(i, layer)| HostLayer::of(i, layer))
                .collect::<Option<_>>()?,
            norm: View::of(&model.norm)?,
        })
    }

    /// Hidden states after the last norm, `[n, hidden]`. The ids lie within
    /// the vocabulary.
    pub(crate) fn hidden(&self, ids: &[TokenId], layout: &Layout, on_keys: OnKeys<'_>) -> Vec<f32> {
        let frame = Frame::new(&self.config, layout);
        let context = frame.context(&self.config);
        let mut hidden = self.embed(ids);
        for layer in &self.layers {
            let (out, saved) = layer.forward(hidden, &context);
            on_keys(saved.k, saved.v);
            hidden = out;
        }
        self.final_norm(&hidden)
    }

    /// Keeps copies of the layers' weights in 16 bits for decoding.
    pub(crate) fn shorten(&mut self) {
        self.layers.iter_mut().for_each(HostLayer::shorten);
    }

    pub(crate) fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(crate) fn layers(&self) -> &[HostLayer] {
        &self.layers
    }

    /// Keys (or values) that a layer caches of one token.
    pub(crate) fn cached_values(&self) -> usize {
        self.config.kv_heads * self.config.head_dim
    }

    /// The last norm.
    pub(crate) fn final_norm(&self, hidden: &[f32]) -> Vec<f32> {
        norm::forward(hidden, &self.norm, self.config.norm_eps).0
    }

    pub(crate) fn embed(&self, ids: &[TokenId]) -> Vec<f32> {
        let width = self.config.hidden;
        let mut rows = vec![0f32; ids.len() * width];
        rows.par_chunks_exact_mut(width)
            .zip(ids)
            .for_each(|(row, id)| {
                let at = *id as usize * width;
                row.copy_from_slice(&self.embed[at..at + width]);
            });
        rows
    }
}

/// What a layout means to the host's kernels.
struct Frame {
    spans: Vec<Span>,
    rotation: Rotation,
    tokens: usize,
}

impl Frame {
    fn new(config: &ModelConfig, layout: &Layout) -> Self {
        let spans = layout.segments.iter().zip(&layout.prefixes);
        let (cos, sin) = RopeTable::angles(config, &layout.positions);
        Frame {
            spans: spans
                .map(|(own, prefix)| Span {
                    prefix: prefix.clone(),
                    own: own.clone(),
                })
                .collect(),
            rotation: Rotation {
                cos,
                sin,
                half: config.head_dim / 2,
            },
            tokens: layout.tokens(),
        }
    }

    fn context<'a>(&'a self, config: &'a ModelConfig) -> Context<'a> {
        Context {
            config,
            spans: &self.spans,
            rotation: &self.rotation,
            tokens: self.tokens,
        }
    }
}

/// One forward pass that can be run backward.
///
/// The layers are cut into stretches. The last stretch keeps what its backward
/// pass needs; of the others only the input is kept, and they run again.
pub(crate) struct HostPass<'a> {
    model: HostModel,
    ids: &'a [TokenId],
    frame: Frame,
    every: usize,
    /// Inputs of the stretches before the last.
    stored: Vec<Vec<f32>>,
    tail: Vec<Saved>,
    last: Vec<f32>,
    scales: Scales,
}

impl<'a> HostPass<'a> {
    /// Runs the trunk and returns the normed hidden states, `[n, hidden]`.
    /// `every` layers form a stretch; 0 keeps all layers.
    pub(crate) fn run(
        model: HostModel,
        ids: &'a [TokenId],
        layout: &Layout,
        every: usize,
    ) -> (Self, Vec<f32>) {
        let frame = Frame::new(&model.config, layout);
        let every = if every == 0 {
            model.layers.len().max(1)
        } else {
            every
        };
        let mut hidden = model.embed(ids);
        let (mut stored, mut tail) = (Vec::new(), Vec::new());
        let context = frame.context(&model.config);
        let stretches = model.layers.chunks(every);
        let last = stretches.len().saturating_sub(1);
        for (i, stretch) in stretches.enumerate() {
            if i < last {
                stored.push(hidden.clone());
            }
            for layer in stretch {
                let (out, saved) = layer.forward(hidden, &context);
                if i == last {
                    tail.push(saved);
                }
                hidden = out;
            }
        }
        let (normed, scales) = norm::forward(&hidden, &model.norm, model.config.norm_eps);
        let pass = HostPass {
            model,
            ids,
            frame,
            every,
            stored,
            tail,
            last: hidden,
            scales,
        };
        (pass, normed)
    }

    /// Adds all gradients, given that of the normed hidden states.
    pub(crate) fn backward(mut self, d_hidden: &[f32], grads: &mut Gradients) {
        let model = &self.model;
        let context = self.frame.context(&model.config);
        let mut d = vec![0f32; d_hidden.len()];
        norm_gradient(grads, "model.norm.weight", model.norm.len(), |sum| {
            norm::backward(d_hidden, &self.last, &model.norm, &self.scales, &mut d, sum)
        });
        drop(std::mem::take(&mut self.last));
        let mut saved = std::mem::take(&mut self.tail);
        for (i, stretch) in model.layers.chunks(self.every).enumerate().rev() {
            if let Some(input) = self.stored.get_mut(i) {
                let mut hidden = std::mem::take(input);
                for layer in stretch {
                    let (out, kept) = layer.forward(hidden, &context);
                    saved.push(kept);
                    hidden = out;
                }
            }
            for layer in stretch.iter().rev() {
                if let Some(saved) = saved.pop() {
                    d = layer.backward(saved, d, &context, grads);
                }
            }
        }
        self.embed_gradient(&d, grads);
    }

    fn embed_gradient(&self, d: &[f32], grads: &mut Gradients) {
        let width = self.model.config.hidden;
        let dims = [self.model.config.vocab, width];
        grads.in_matrix("model.embed_tokens.weight", dims, |sum| {
            for (id, d) in self.ids.iter().zip(d.chunks_exact(width)) {
                let at = *id as usize * width;
                sum[at..at + width]
                    .iter_mut()
                    .zip(d)
                    .for_each(|(s, d)| *s += d);
            }
        });
    }
}
