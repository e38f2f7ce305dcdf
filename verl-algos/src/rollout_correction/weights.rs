//! Truncated importance weights.

use super::figures::{LIMIT, Metrics, Rows, max, mean, min, per_row, share, spread, std, tokens};
use serde::{Deserialize, Serialize};

/// What one importance weight is taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightLevel {
    /// Each token: little variance, some bias.
    Token,
    /// The whole answer, the product of its tokens' ratios: no bias before
    /// truncation, much variance.
    Sequence,
    /// The geometric mean of the answer's ratios.
    Geometric,
}

/// How weights are made of log-ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weights {
    pub(super) level: WeightLevel,
    pub(super) upper: f64,
    /// Where set, weights outside the bounds become 0 instead of being cut.
    pub(super) lower: Option<f64>,
    pub(super) normalize: bool,
}

impl Weights {
    /// Weights of all tokens.
    pub(super) fn of(&self, log_ratios: &Rows) -> (Vec<Vec<f64>>, Metrics) {
        let raw = self.raw(log_ratios);
        let mut weights: Vec<Vec<f64>> = raw.iter().map(|row| self.bounded(row)).collect();
        let mut metrics = self.metrics(log_ratios, &raw, &weights);
        if self.normalize {
            let center = match self.level {
                WeightLevel::Token => mean(tokens(&weights)),
                _ => mean(row_means(&weights)),
            };
            let factor = if center > 1e-8 { center } else { 1.0 };
            weights.iter_mut().flatten().for_each(|w| *w /= factor);
            metrics.push(("rollout_is_batch_norm_factor".into(), factor));
        }
        (weights, metrics)
    }

    fn raw(&self, log_ratios: &Rows) -> Vec<Vec<f64>> {
        let of_row = |row: &Vec<f64>| -> Vec<f64> {
            let weight = |log_ratio: f64| log_ratio.clamp(-LIMIT, LIMIT).exp();
            match self.level {
                WeightLevel::Token => row.iter().map(|r| weight(*r)).collect(),
                level => vec![weight(of_answer(level, row)); row.len()],
            }
        };
        log_ratios.iter().map(of_row).collect()
    }

    fn bounded(&self, raw: &[f64]) -> Vec<f64> {
        let bound = |w: &f64| match self.lower {
            None => w.min(self.upper),
            Some(lower) if (lower..=self.upper).contains(w) => *w,
            Some(_) => 0.0,
        };
        raw.iter().map(bound).collect()
    }

    fn metrics(&self, log_ratios: &Rows, raw: &Rows, weights: &Rows) -> Metrics {
        let upper = self.upper;
        let lower = self.lower.unwrap_or(1.0 / upper);
        // Of the ratios for answers, of the bounded weights for tokens.
        let (highest, lowest, above, below) = match self.level {
            WeightLevel::Token => (
                max(tokens(weights)),
                min(tokens(weights)),
                share(tokens(raw), |w| w > upper),
                share(tokens(raw), |w| w < lower),
            ),
            level => {
                let log_ratio = per_row(log_ratios, |row| of_answer(level, row));
                let all = || log_ratio.iter().copied();
                (
                    max(all()).min(LIMIT).exp(),
                    min(all()).exp(),
                    share(all(), |r| r > upper.ln()),
                    share(all(), |r| r < lower.ln()),
                )
            }
        };
        let center = mean(tokens(weights));
        let square = mean(tokens(weights).map(|w| (w / (center + 1e-8)).powi(2)));
        let of_rows = row_means(weights);
        let rows = || of_rows.iter().copied();
        let raw_rows = row_means(raw);
        let figures = [
            ("mean", center),
            ("ratio_fraction_high", above),
            ("ratio_fraction_low", below),
            ("max", highest),
            ("min", lowest),
            ("std", spread(tokens(weights))),
            // No sample counts when every weight is 0.
            (
                "eff_sample_size",
                if square > 0.0 { 1.0 / square } else { 0.0 },
            ),
            ("seq_mean", mean(rows())),
            ("seq_std", std(&of_rows)),
            ("seq_max", max(rows())),
            ("seq_min", min(rows())),
            ("seq_max_deviation", max(rows().map(|w| (w - 1.0).abs()))),
            (
                "seq_fraction_high",
                share(raw_rows.iter().copied(), |w| w > upper),
            ),
            (
                "seq_fraction_low",
                share(raw_rows.iter().copied(), |w| w < lower),
            ),
        ];
        let named = figures.map(|(name, value)| (format!("rollout_is_{name}"), value));
        let mut metrics = Metrics::from(named);
        if let Some(lower) = self.lower {
            let outside = share(tokens(raw), |w| w < lower || w > upper);
            metrics.push(("rollout_is_oob_ratio".into(), outside));
        }
        metrics
    }
}

fn row_means(rows: &Rows) -> Vec<f64> {
    per_row(rows, |row| mean(row.iter().copied()))
}

/// Log of an answer's ratio.
fn of_answer(level: WeightLevel, row: &[f64]) -> f64 {
    match level {
        WeightLevel::Geometric => mean(row.iter().copied()),
        _ => row.iter().sum(),
    }
}
