//! Keys and values of the rows being decoded.
//!
//! All rows write at the same column: a row's tokens end at the current
//! column, and what lies before its first token is never looked at. So one
//! assignment stores a step's keys for all rows, whatever their lengths.

use burn::tensor::{Int, Tensor};

/// Columns added at a time.
const BLOCK: usize = 64;

/// One layer's keys and values, `[rows, kv_heads, columns, head_dim]`.
#[derive(Debug)]
pub(super) struct LayerCache {
    keys: Tensor<4>,
    values: Tensor<4>,
    used: usize,
}

impl LayerCache {
    /// A cache whose columns are all filled.
    pub(super) fn new(keys: Tensor<4>, values: Tensor<4>) -> Self {
        let used = keys.dims()[2];
        LayerCache { keys, values, used }
    }

    /// Appends one column, `[rows, kv_heads, 1, head_dim]`.
    pub(super) fn push(&mut self, keys: Tensor<4>, values: Tensor<4>) {
        let [rows, heads, columns, d] = self.keys.dims();
        if self.used == columns {
            self.keys.inplace(grown);
            self.values.inplace(grown);
        }
        let at = self.used;
        self.keys
            .inplace(|t| t.slice_assign([0..rows, 0..heads, at..at + 1, 0..d], keys));
        self.values
            .inplace(|t| t.slice_assign([0..rows, 0..heads, at..at + 1, 0..d], values));
        self.used += 1;
    }

    /// Keys and values of the filled columns from `first` on.
    pub(super) fn view(&self, first: usize) -> (Tensor<4>, Tensor<4>) {
        let columns = self.used - first;
        (
            self.keys.clone().narrow(2, first, columns),
            self.values.clone().narrow(2, first, columns),
        )
    }

    /// Keeps some rows, their last `columns` columns (with empty ones in front
    /// if there are fewer), and puts `more` rows under them.
    pub(super) fn rebuild(
        &mut self,
        kept: Option<&Tensor<1, Int>>,
        columns: usize,
        more: Option<LayerCache>,
    ) {
        let mut parts: Vec<(Tensor<4>, Tensor<4>)> = Vec::new();
        if let Some(kept) = kept {
            let align = |t: &Tensor<4>| {
                last_columns(
                    t.clone().narrow(2, 0, self.used).select(0, kept.clone()),
                    columns,
                )
            };
            parts.push((align(&self.keys), align(&self.values)));
        }
        parts.extend(more.map(|m| {
            (
                last_columns(m.keys, columns),
                last_columns(m.values, columns),
            )
        }));
        let (keys, values): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        if !keys.is_empty() {
            (self.keys, self.values, self.used) =
                (Tensor::cat(keys, 0), Tensor::cat(values, 0), columns);
        }
    }
}

fn last_columns(t: Tensor<4>, columns: usize) -> Tensor<4> {
    let [rows, heads, have, d] = t.dims();
    match have >= columns {
        true => t.narrow(2, have - columns, columns),
        false => {
            let empty = Tensor::zeros([rows, heads, columns - have, d], &t.device());
            Tensor::cat(vec![empty, t], 2)
        }
    }
}

fn grown(t: Tensor<4>) -> Tensor<4> {
    let [rows, heads, _, d] = t.dims();
    let empty = Tensor::zeros([rows, heads, BLOCK, d], &t.device());
    Tensor::cat(vec![t, empty], 2)
}
