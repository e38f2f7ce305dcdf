//! Statistics over the policy's tokens of ragged rows.

/// Mean and standard deviation (with `n - 1`), summed in f64. The deviation
/// of fewer than two values is 0, and so is that of exactly equal values.
pub fn mean_and_std(values: impl Iterator<Item = f32>) -> (f64, f64) {
    moments(&values.collect::<Vec<_>>())
}

fn moments(values: &[f32]) -> (f64, f64) {
    let Some(first) = values.first() else {
        return (0.0, 0.0);
    };
    if values.iter().all(|v| v == first) {
        return (f64::from(*first), 0.0);
    }
    let n = values.len() as f64;
    let mean = sum(values, |v| v) / n;
    let square = sum(values, |v| (v - mean) * (v - mean));
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

/// Whitens rows over their live entries: `(x - mean) / sqrt(var + 1e-8)`, the
/// variance with `n - 1`. Other entries become 0.
///
/// # Example
/// ```
/// let mut rows = vec![vec![1.0, 3.0], vec![99.0]];
/// verl_core::math::whiten(&mut rows, |row, _| row == 0);
/// assert_eq!(rows[1], [0.0]);
/// assert!((rows[0][1] - 0.70710677).abs() < 1e-6);
/// ```
pub fn whiten(rows: &mut [Vec<f32>], live: impl Fn(usize, usize) -> bool) {
    let mut values = Vec::with_capacity(rows.iter().map(Vec::len).sum());
    for (r, row) in rows.iter().enumerate() {
        let row = row.iter().enumerate().filter(|(t, _)| live(r, *t));
        values.extend(row.map(|(_, v)| *v));
    }
    let (mean, std) = moments(&values);
    let scale = 1.0 / (std * std + 1e-8).sqrt();
    for (r, row) in rows.iter_mut().enumerate() {
        for (t, value) in row.iter_mut().enumerate() {
            *value = if live(r, t) {
                ((f64::from(*value) - mean) * scale) as f32
            } else {
                0.0
            };
        }
    }
}
