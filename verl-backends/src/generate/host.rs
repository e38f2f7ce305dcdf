//! Decoding on the CPU's own kernels.

use super::row::Row;
use crate::host::{Cache, HostModel, View, project, shortened};
use crate::model::Model;
use half::bf16;
use verl_core::config::Dtype;
use verl_core::types::TokenId;

/// Rows and their caches, one by one: a row comes and goes without touching
/// the others.
#[derive(Debug)]
pub(super) struct HostWave {
    model: HostModel,
    head: HeadWeight,
    vocab: usize,
    pub(super) rows: Vec<Row>,
    caches: Vec<Cache>,
}

/// The head's matrix, `[vocab, hidden]`.
#[derive(Debug)]
enum HeadWeight {
    Full(View),
    Short(Vec<bf16>),
}

impl HostWave {
    /// `None` when the kernels cannot serve the model.
    pub(super) fn new(model: &Model, dtype: Dtype) -> Option<Self> {
        let (mut host, head) = (model.host()?, View::of(model.lm_head()?)?);
        let head = match dtype {
            Dtype::Bfloat16 => {
                host.shorten();
                HeadWeight::Short(shortened(&head))
            }
            _ => HeadWeight::Full(head),
        };
        Some(HostWave {
            head,
            model: host,
            vocab: model.config.vocab,
            rows: Vec::new(),
            caches: Vec::new(),
        })
    }

    /// Drops finished rows and takes new ones in, whose prompts are encoded
    /// (each distinct prompt once). Returns the new rows' logits.
    pub(super) fn exchange(&mut self, joining: Vec<Row>) -> Vec<f32> {
        self.drop_finished();
        let groups: Vec<&[Row]> = joining
            .chunk_by(|a, b| a.request.prompt == b.request.prompt)
            .collect();
        let prompts: Vec<&[TokenId]> = groups.iter().map(|g| &g[0].request.prompt[..]).collect();
        let mut last = Vec::new();
        if !prompts.is_empty() {
            for (group, encoded) in groups.iter().zip(self.model.encode(&prompts)) {
                for row in *group {
                    let room = row.request.params.max_tokens * self.model.cached_values();
                    self.caches.push(Cache::new(encoded.keys.clone(), room));
                    last.extend_from_slice(&encoded.last);
                }
            }
        }
        self.rows.extend(joining);
        self.logits(&last)
    }

    /// Feeds every unfinished row's newest token; returns their logits.
    pub(super) fn step(&mut self) -> Vec<f32> {
        self.drop_finished();
        let positions: Vec<usize> = self.rows.iter().map(Row::cached).collect();
        let ids: Vec<TokenId> = self.rows.iter().map(Row::newest).collect();
        let mut caches: Vec<&mut Cache> = self.caches.iter_mut().collect();
        let hidden = self.model.decode(&ids, &positions, &mut caches);
        self.logits(&hidden)
    }

    /// Logits, `[n, vocab]`, of normed hidden states.
    fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        let n = hidden.len() / self.model.config().hidden;
        match &self.head {
            HeadWeight::Full(weight) => project(hidden, n, &weight[..], self.vocab),
            HeadWeight::Short(weight) => project(hidden, n, weight, self.vocab),
        }
    }

    fn drop_finished(&mut self) {
        let live: Vec<bool> = self.rows.iter().map(|r| r.finish.is_none()).collect();
        let mut flags = live.iter();
        self.rows.retain(|_| flags.next() == Some(&true));
        let mut flags = live.iter();
        self.caches.retain(|_| flags.next() == Some(&true));
    }
}
