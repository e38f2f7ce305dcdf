//! Numbers over ragged rows of live tokens.

/// Live tokens of each row; rows without any are left out beforehand.
pub(super) type Rows = [Vec<f64>];

/// Named numbers to log.
pub(super) type Metrics = Vec<(String, f64)>;

/// Beyond this, a log-ratio is cut before the exponential.
pub(super) const LIMIT: f64 = 20.0;

pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values {
        (sum, count) = (sum + value, count + 1);
    }
    sum / count.max(1) as f64
}

pub(super) fn max(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

pub(super) fn min(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// With `n - 1`; 0 for a single value.
pub(super) fn std(values: &[f64]) -> f64 {
    let center = mean(values.iter().copied());
    let square: f64 = values.iter().map(|v| (v - center).powi(2)).sum();
    (square / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

/// With `n`.
pub(super) fn spread(values: impl IntoIterator<Item = f64> + Clone) -> f64 {
    let center = mean(values.clone());
    mean(values.into_iter().map(|v| (v - center).powi(2))).sqrt()
}

/// Share of values for which `is` holds.
pub(super) fn share(values: impl IntoIterator<Item = f64>, is: impl Fn(f64) -> bool) -> f64 {
    mean(values.into_iter().map(|v| f64::from(u8::from(is(v)))))
}

/// All tokens, row after row.
pub(super) fn tokens(rows: &Rows) -> impl Iterator<Item = f64> + Clone + '_ {
    rows.iter().flatten().copied()
}

/// One number per row.
pub(super) fn per_row(rows: &Rows, of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    rows.iter().map(|row| of(row)).collect()
}
