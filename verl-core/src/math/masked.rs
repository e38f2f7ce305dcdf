//! Statistics over the policy's tokens of ragged rows.

use std::ops::Range;

/// Mean and standard deviation (with `n - 1`), summed in f64. The deviation
/// of fewer than two values is 0, and so is that of exactly equal values.
pub fn mean_and_std(values: impl Iterator<Item = f32>) -> (f64, f64) {
    let mut moments = Moments::default();
    moments.add(&values.collect::<Vec<_>>());
    moments.mean_and_std()
}

/// Mean of a row's live entries; `None` where there are none.
pub fn masked_mean(row: &[f32], mask: &[bool]) -> Option<f64> {
    let mut moments = Moments::default();
    runs(mask).for_each(|run| moments.add(&row[run]));
    (moments.n > 0).then(|| moments.mean_and_std().0)
}

/// Lanes of a sum, so that no addition waits for the one before.
const LANES: usize = 8;

/// Sums from which mean and deviation follow, taken in one pass.
///
/// They are sums of differences to the first value: equal values have sums of
/// exactly 0, and a common offset costs no digits.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    n: usize,
    first: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, values: &[f32]) {
        if let (0, Some(first)) = (self.n, values.first()) {
            self.first = f64::from(*first);
        }
        let first = self.first;
        let chunks = values.chunks_exact(LANES);
        let (mut sums, mut squares) = ([0f64; LANES], [0f64; LANES]);
        for (i, v) in chunks.remainder().iter().enumerate() {
            let d = f64::from(*v) - first;
            (sums[i], squares[i]) = (d, d * d);
        }
        for chunk in chunks {
            for i in 0..LANES {
                let d = f64::from(chunk[i]) - first;
                sums[i] += d;
                squares[i] += d * d;
            }
        }
        self.n += values.len();
        self.sum += sums.iter().sum::<f64>();
        self.squares += squares.iter().sum::<f64>();
    }

    fn mean_and_std(&self) -> (f64, f64) {
        let n = self.n as f64;
        let mean = self.first + self.sum / n.max(1.0);
        let square = self.squares - self.sum * self.sum / n.max(1.0);
        (mean, (square.max(0.0) / (n - 1.0).max(1.0)).sqrt())
    }
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
    let mut moments = Moments::default();
    for (row, mask) in rows.iter().zip(masks) {
        runs(mask).for_each(|run| moments.add(&row[run]));
    }
    let (mean, std) = moments.mean_and_std();
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
