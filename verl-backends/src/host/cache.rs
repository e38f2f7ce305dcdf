//! Keys and values of the sequences being decoded.

use std::sync::Arc;

/// A layer's keys and values, `[tokens, kv_heads * head_dim]` each.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

/// A sequence's keys and values, layer by layer: those of a prompt, which all
/// answers to it share, and its own, for which room is set aside at the start.
#[derive(Debug)]
pub(crate) struct Cache {
    prompt: Arc<Vec<Keys>>,
    own: Vec<Keys>,
}

impl Cache {
    /// A cache after a prompt, with room for `room` values per layer.
    pub(crate) fn new(prompt: Arc<Vec<Keys>>, room: usize) -> Self {
        let own = prompt.iter().map(|_| Keys {
            k: Vec::with_capacity(room),
            v: Vec::with_capacity(room),
        });
        Cache {
            own: own.collect(),
            prompt,
        }
    }

    /// Appends one token's keys and values.
    pub(crate) fn push(&mut self, layer: usize, k: &[f32], v: &[f32]) {
        let keys = &mut self.own[layer];
        keys.k.extend_from_slice(k);
        keys.v.extend_from_slice(v);
    }

    /// The prompt's part and the sequence's own.
    pub(crate) fn layer(&self, layer: usize) -> [&Keys; 2] {
        [&self.prompt[layer], &self.own[layer]]
    }
}
