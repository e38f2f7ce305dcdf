//! Decoding on burn's operations: prefill, decode steps, rows that leave and
//! rows that join.

use super::cache::LayerCache;
use super::row::Row;
use crate::model::{Layout, Model, RopeTable, Segment};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use verl_core::Result;
use verl_core::types::TokenId;

/// Rows and their caches. Row `r`'s tokens fill the last `cached` columns.
#[derive(Debug, Default)]
pub(super) struct PlainWave {
    pub(super) rows: Vec<Row>,
    layers: Vec<LayerCache>,
    columns: usize,
}

impl PlainWave {
    /// Drops finished rows and takes new ones in, whose prompts are encoded
    /// (each distinct prompt once). Returns the new rows' logits, `[new, vocab]`.
    pub(super) fn exchange(
        &mut self,
        model: &Model,
        joining: Vec<Row>,
    ) -> Result<Option<Tensor<2>>> {
        let kept: Vec<usize> = (0..self.rows.len())
            .filter(|&i| self.rows[i].finish.is_none())
            .collect();
        let spans = kept
            .iter()
            .map(|&i| self.rows[i].cached())
            .chain(joining.iter().map(|r| r.request.prompt.len()));
        self.columns = spans.max().unwrap_or(0);
        let prefill = if joining.is_empty() {
            None
        } else {
            Some(Prefill::run(model, &joining, self.columns)?)
        };
        let index =
            (!kept.is_empty()).then(|| indices(kept.iter().map(|i| *i as i64).collect(), model));
        let (logits, mut fresh) = match prefill {
            Some(p) => (Some(p.logits), p.layers.into_iter().map(Some).collect()),
            None => (None, Vec::new()),
        };
        fresh.resize_with(model.layers.len(), || None);
        if self.layers.is_empty() {
            self.layers = fresh.into_iter().flatten().collect();
        } else {
            for (layer, more) in self.layers.iter_mut().zip(fresh) {
                layer.rebuild(index.as_ref(), self.columns, more);
            }
        }
        self.rows.retain(|r| r.finish.is_none());
        self.rows.extend(joining);
        Ok(logits)
    }

    /// Feeds every row's newest token; returns the logits, `[rows, vocab]`.
    pub(super) fn step(&mut self, model: &Model) -> Result<Tensor<2>> {
        let config = &model.config;
        let device = model.device();
        let positions: Vec<usize> = self.rows.iter().map(Row::cached).collect();
        let ids: Vec<TokenId> = self.rows.iter().map(Row::newest).collect();
        let rope = RopeTable::new(config, &positions, &device);
        let live = self
            .rows
            .iter()
            .zip(&positions)
            .filter(|(r, _)| r.finish.is_none())
            .map(|(_, p)| *p);
        let span = live.max().unwrap_or(0).min(self.columns);
        self.columns += 1;
        let first = self.columns - 1 - span;
        let mut hidden = model.embed(&ids)?;
        let mut masks = Masks::new(self, positions, first);
        for (i, layer) in model.layers.iter().enumerate() {
            let (q, k, v) = layer.qkv(config, hidden.clone(), &rope);
            self.layers[i].push(k.unsqueeze_dim(2), v.unsqueeze_dim(2));
            let (keys, values) = self.layers[i].view(first);
            let attended = attend(q, keys, values, masks.of(config.windows[i], model));
            hidden = layer.finish(config, hidden, attended);
        }
        Ok(model.output(model.final_norm(hidden)))
    }
}

/// One query per row over its cached columns: `[rows, heads * d]`.
fn attend(
    q: Tensor<3>,
    keys: Tensor<4>,
    values: Tensor<4>,
    mask: Option<Tensor<2, Bool>>,
) -> Tensor<2> {
    let [rows, heads, d] = q.dims();
    let [_, kv, columns, _] = keys.dims();
    let mut scores = q
        .reshape([rows, kv, heads / kv, d])
        .matmul(keys.swap_dims(2, 3));
    if let Some(mask) = mask {
        let mask = mask
            .reshape([rows, 1, 1, columns])
            .expand([rows, kv, heads / kv, columns]);
        scores = scores.mask_fill(mask, -1e30);
    }
    softmax(scores, 3).matmul(values).reshape([rows, heads * d])
}

/// The columns each row must not see, per window size.
struct Masks {
    positions: Vec<usize>,
    columns: usize,
    made: Vec<(Option<usize>, Option<Tensor<2, Bool>>)>,
}

impl Masks {
    fn new(wave: &PlainWave, positions: Vec<usize>, first: usize) -> Self {
        Masks {
            positions,
            columns: wave.columns - first,
            made: Vec::new(),
        }
    }

    fn of(&mut self, window: Option<usize>, model: &Model) -> Option<Tensor<2, Bool>> {
        if let Some((_, mask)) = self.made.iter().find(|(w, _)| *w == window) {
            return mask.clone();
        }
        // A row at position p sees p + 1 columns, itself included.
        let seen = |p: usize| (p + 1).min(window.unwrap_or(usize::MAX)).min(self.columns);
        let mask = self
            .positions
            .iter()
            .any(|p| seen(*p) < self.columns)
            .then(|| {
                let hidden = |p: &usize| {
                    let from = self.columns - seen(*p);
                    (0..self.columns).map(move |c| c < from)
                };
                let values: Vec<bool> = self.positions.iter().flat_map(hidden).collect();
                Tensor::from_data(
                    TensorData::new(values, [self.positions.len(), self.columns]),
                    &model.device(),
                )
            });
        self.made.push((window, mask.clone()));
        mask
    }
}

/// Encoded prompts of joining rows.
struct Prefill {
    logits: Tensor<2>,
    layers: Vec<LayerCache>,
}

impl Prefill {
    fn run(model: &Model, rows: &[Row], columns: usize) -> Result<Self> {
        let mut ids: Vec<TokenId> = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        // For each row, where its prompt ends in the packed tokens.
        let mut ends: Vec<usize> = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let prompt = &row.request.prompt;
            if i == 0 || rows[i - 1].request.prompt != *prompt {
                ids.extend(prompt.iter());
                segments.push(Segment::whole(prompt.len()));
            }
            ends.push(ids.len());
        }
        let layout = Layout::new(&segments, &model.device());
        // Packed row for each row and column; columns before the prompt repeat
        // its first token and are never seen.
        let place = |(row, end): (&Row, &usize)| {
            let (n, end) = (row.request.prompt.len(), *end);
            (0..columns).map(move |c| (end - n + (c + n).saturating_sub(columns)) as i64)
        };
        let places = indices(rows.iter().zip(&ends).flat_map(place).collect(), model);
        let arrange = |packed: Tensor<3>| {
            let [_, heads, d] = packed.dims();
            let rows = packed
                .select(0, places.clone())
                .reshape([rows.len(), columns, heads, d]);
            rows.swap_dims(1, 2)
        };
        let mut layers = Vec::with_capacity(model.layers.len());
        let hidden = model.hidden_with(&ids, &layout, &mut |k, v| {
            layers.push(LayerCache::new(arrange(k), arrange(v)))
        })?;
        let last = indices(ends.iter().map(|e| *e as i64 - 1).collect(), model);
        Ok(Prefill {
            logits: model.output(hidden.select(0, last)),
            layers,
        })
    }
}

fn indices(values: Vec<i64>, model: &Model) -> Tensor<1, Int> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), &model.device())
}
