//! Statistics over the policy's tokens of ragged rows.

/// Mean and standard deviation (with `n - 1`), summed in f64. The deviation
/// of fewer than two values is 0, and so is that of exactly equal values.
pub fn mean_and_std(values: impl Iterator<Item = f32> + Clone) -> (f64, f64) {
    let n = values.clone().count();
    if n == 0 {
        return (0.0, 0.0);
    }
    let mean = values.clone().map(f64::from).sum::<f64>() / n as f64;
    let mut all = values.clone();
    let first = all.next();
    if n < 2 || all.all(|v| Some(v) == first) {
        return (first.map_or(mean, f64::from), 0.0);
    }
    let square = values.map(|v| (f64::from(v) - mean).powi(2)).sum::<f64>();
    (mean, (square / (n - 1) as f64).sqrt())
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
    let pick = |(r, row): (usize, &Vec<f32>)| -> Vec<f32> {
        row.iter()
            .enumerate()
            .filter(|(t, _)| live(r, *t))
            .map(|(_, v)| *v)
            .collect()
    };
    let values: Vec<f32> = rows.iter().enumerate().flat_map(pick).collect();
    let (mean, std) = mean_and_std(values.iter().copied());
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
