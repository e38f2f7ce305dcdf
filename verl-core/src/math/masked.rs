//! Statistics over the policy's tokens of ragged rows.

use std::ops::Range;

/// Mean and standard deviation (with `n - 1`), summed in f64. The deviation
/// of fewer than two values is 0, and so is that of exactly equal values.
pub fn mean_and_std(values: impl Iterator<Item = f32>) -> (f64, f64) {
    moments(&[&values.collect::<Vec<_>>()])
}

/// Mean and deviation of all values of several slices.
fn moments(parts: &[&[f32]]) -> (f64, f64) {
    let values = || parts.iter().copied().flatten();
    let Some(first) = values().next() else {
        return (0.0, 0.0);
    };
    if values().all(|v| v == first) {
        return (f64::from(*first), 0.0);
    }
    let n = parts.iter().map(|part| part.len()).sum::<usize>() as f64;
    let mean = parts.iter().map(|part| sum(part, |v| v)).sum::<f64>() / n;
    let square = |v: f64| (v - mean) * (v - mean);
    let square = parts.iter().map(|part| sum(part, square)).sum::<f64>();
    (mean, (square / (n - 1.0)).sqrt())
}

/// Sums in eight lanes, so that no addition waits for the one before.
fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let chunks = values.chunks_exact(8);
    let rest = chunks.remainder().iter().map(|v| term(f64::from(*v)));
    let rest = rest.sum::<f64>();
    let mut lanes = [0f64; 8];
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += term(f64::from(*v));
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// Where the live entries of a mask stand together.
///
/// # Example
/// ```
/// let runs = verl_core::math::runs(&[true, true, false, true]);
/// assert_eq!(runs.collect::<Vec<_>>(), [0..2, 3..4]);
/// ```
pub fn runs(mask: &[bool]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut end = 0;
    mask.chunk_by(|a, b| a == b).filter_map(move |run| {
        let start = end;
        end += run.len();
        run[0].then_some(start..end)
    })
}

/// Whitens rows over their live entries: `(x - mean) / sqrt(var + 1e-8)`, the
/// variance with `n - 1`. Other entries become 0.
///
/// # Example
/// ```
/// let mut rows = vec![vec![1.0, 3.0], vec![99.0]];
/// verl_core::math::whiten(&mut rows, &[&[true, true], &[false]]);
/// assert_eq!(rows[1], [0.0]);
/// assert!((rows[0][1] - 0.70710677).abs() < 1e-6);
/// ```
pub fn whiten(rows: &mut [Vec<f32>], masks: &[&[bool]]) {
    let mut parts: Vec<&[f32]> = Vec::new();
    for (row, mask) in rows.iter().zip(masks) {
        parts.extend(runs(mask).map(|run| &row[run]));
    }
    let (mean, std) = moments(&parts);
    let scale = 1.0 / (std * std + 1e-8).sqrt();
    for (row, mask) in rows.iter_mut().zip(masks) {
        let mut end = 0;
        for run in runs(mask) {
            row[end..run.start].fill(0.0);
            end = run.end;
            for value in &mut row[run] {
                *value = ((f64::from(*value) - mean) * scale) as f32;
            }
        }
        row[end..].fill(0.0);
    }
}
