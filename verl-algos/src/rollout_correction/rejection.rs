//! Tokens and answers that the training policy finds too unlike its own.

use super::config::{bounds, refuse};
use super::figures::{LIMIT, Metrics, Rows, max, mean, min, per_row, share, spread, std, tokens};
use verl_core::Result;

/// Per-token divergence of which a criterion is made, of the log-ratio `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Divergence {
    /// `-d`.
    K1,
    /// `d^2 / 2`.
    K2,
    /// `exp(d) - 1 - d`.
    K3,
}

/// What of an answer is compared with the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Token,
    Sum,
    Mean,
    Max,
}

/// One criterion with the bounds of its statistic.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Criterion {
    name: String,
    divergence: Divergence,
    over: Over,
    bounds: (f64, f64),
}

const KNOWN: &str = "token_k1, token_k2, token_k3, seq_sum_k1, seq_sum_k2, seq_sum_k3, \
                     seq_mean_k1, seq_mean_k2, seq_mean_k3, seq_max_k2, seq_max_k3";

/// Reads `rollout_rs` and `rollout_rs_threshold`.
pub(super) fn criteria(names: &str, thresholds: &str) -> Result<Vec<Criterion>> {
    let listed = |text: &str| -> Vec<String> {
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        parts.map(String::from).collect()
    };
    let (names, thresholds) = (listed(names), listed(thresholds));
    if names.is_empty() {
        return refuse("rollout_rs", format!("names no criterion; known: {KNOWN}"));
    }
    if let Some(twice) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
        return refuse(
            "rollout_rs",
            format!("`{}` stands there twice", names[twice]),
        );
    }
    if thresholds.len() != 1 && thresholds.len() != names.len() {
        let message = format!(
            "{} thresholds for {} criteria; give one for all, or one for each",
            thresholds.len(),
            names.len()
        );
        return refuse("rollout_rs_threshold", message);
    }
    let shared = thresholds.iter().cycle();
    names
        .iter()
        .zip(shared)
        .map(|(name, threshold)| criterion(name, threshold))
        .collect()
}

fn criterion(name: &str, threshold: &str) -> Result<Criterion> {
    let (over, divergence) = match name.rsplit_once('_') {
        Some(("token", kind)) => (Over::Token, kind),
        Some(("seq_sum", kind)) => (Over::Sum, kind),
        Some(("seq_mean", kind)) => (Over::Mean, kind),
        // The largest of a signed quantity says nothing.
        Some(("seq_max", kind)) if kind != "k1" => (Over::Max, kind),
        _ => return unknown(name),
    };
    let divergence = match divergence {
        "k1" => Divergence::K1,
        "k2" => Divergence::K2,
        "k3" => Divergence::K3,
        _ => return unknown(name),
    };
    let (lower, upper) = bounds("rollout_rs_threshold", threshold)?;
    let bounds = match (divergence, lower) {
        // Bounds of the ratio, which is exp(-k1).
        (Divergence::K1, lower) => (-upper.ln(), -lower.unwrap_or(1.0 / upper).ln()),
        (_, None) => (f64::NEG_INFINITY, upper),
        (_, Some(_)) => {
            let message = format!("`{threshold}`: {name} has an upper bound only");
            return refuse("rollout_rs_threshold", message);
        }
    };
    if bounds.0 > bounds.1 {
        let message = format!("`{threshold}`: no ratio lies between these bounds");
        return refuse("rollout_rs_threshold", message);
    }
    Ok(Criterion {
        name: name.into(),
        divergence,
        over,
        bounds,
    })
}

fn unknown<T>(name: &str) -> Result<T> {
    refuse(
        "rollout_rs",
        format!("`{name}` is not a criterion; known: {KNOWN}"),
    )
}

impl Criterion {
    /// Which tokens stay.
    pub(super) fn keep(&self, log_ratios: &Rows) -> (Vec<Vec<bool>>, Metrics) {
        let rows: Vec<Vec<f64>> = log_ratios.iter().map(|row| self.statistic(row)).collect();
        let (lower, upper) = self.bounds;
        let inside = |x: &f64| (lower..=upper).contains(x);
        let keep: Vec<Vec<bool>> = rows
            .iter()
            .map(|row| row.iter().map(inside).collect())
            .collect();
        let metrics = self.metrics(&rows, &keep);
        (keep, metrics)
    }

    /// For each token, what is compared with the bounds.
    fn statistic(&self, row: &[f64]) -> Vec<f64> {
        let divergence = |d: &f64| {
            let d = d.clamp(-LIMIT, LIMIT);
            match self.divergence {
                Divergence::K1 => -d,
                Divergence::K2 => 0.5 * d * d,
                Divergence::K3 => d.exp_m1() - d,
            }
        };
        let each = row.iter().map(divergence);
        let whole = match self.over {
            Over::Token => return each.collect(),
            Over::Sum => each.sum(),
            Over::Mean => mean(each),
            Over::Max => max(each),
        };
        vec![whole; row.len()]
    }

    fn metrics(&self, rows: &Rows, keep: &[Vec<bool>]) -> Metrics {
        let (lower, upper) = self.bounds;
        let of_rows = per_row(rows, |row| mean(row.iter().copied()));
        let answers = || of_rows.iter().copied();
        let by_token = self.over == Over::Token;
        let outside = |high: bool| {
            let is = |x: f64| if high { x > upper } else { x < lower };
            let of_answers = share(answers(), is);
            (
                if by_token {
                    share(tokens(rows), is)
                } else {
                    of_answers
                },
                of_answers,
            )
        };
        let ((above, above_s), (below, below_s)) = (outside(true), outside(false));
        let figures = [
            ("mean", mean(tokens(rows))),
            ("max", max(tokens(rows))),
            ("min", min(tokens(rows))),
            ("fraction_high", above),
            ("fraction_low", below),
            ("std", spread(tokens(rows).map(|x| x.max(lower).min(upper)))),
            ("seq_mean", mean(answers())),
            ("seq_std", std(&of_rows)),
            ("seq_max", max(answers())),
            ("seq_min", min(answers())),
            ("seq_max_deviation", max(answers().map(f64::abs))),
            ("seq_fraction_high", above_s),
            ("seq_fraction_low", below_s),
        ];
        let prefix = format!("rollout_rs_{}", self.name);
        let named = figures.map(|(name, value)| (format!("{prefix}_{name}"), value));
        let mut metrics = Metrics::from(named);
        metrics.extend(masked(&prefix, keep));
        metrics
    }
}

/// Shares of tokens, and of answers with a token, that are taken out.
pub(super) fn masked(prefix: &str, keep: &[Vec<bool>]) -> Metrics {
    let out = |keep: &bool| f64::from(u8::from(!keep));
    let answers = keep
        .iter()
        .map(|row| row.iter().map(out).fold(0.0, f64::max));
    vec![
        (
            format!("{prefix}_masked_fraction"),
            mean(keep.iter().flatten().map(out)),
        ),
        (format!("{prefix}_seq_masked_fraction"), mean(answers)),
    ]
}
