//! Statistics over the policy's tokens of ragged rows.

use std::ops::Range;

/// Mean and standard deviation (with `n - 1`), summed in f64. The deviation
/// of fewer than two values is 0, and so is that of exactly equal values.
pub fn mean_and_std(values: impl Iterator<Item = f32>) -> (f64, f64) {
    let values: Vec<f32> = values.collect();
    let mut moments = Moments::default();
    moments.add(&values, &vec![true; values.len()]);
    moments.mean_and_std()
}

/// Sum of a row's live entries, in f64.
///
/// # Example
/// ```
/// let sum = verl_core::math::masked_sum(&[1.0, f32::NAN, 2.0], &[true, false, true]);
/// assert_eq!(sum, 3.0);
/// ```
pub fn masked_sum(row: &[f32], mask: &[bool]) -> f64 {
    let mut sums = [0f64; LANES];
    in_lanes(row, mask, |lane, value| {
        sums[lane] += f64::from(value.unwrap_or(0.0))
    });
    sums.iter().sum()
}

/// Lanes of a sum, so that no addition waits for the one before and the
/// compiler can make several at once.
const LANES: usize = 8;

/// Hands a row's entries to their lanes, `None` where the mask is off.
#[inline(always)]
fn in_lanes(row: &[f32], mask: &[bool], mut each: impl FnMut(usize, Option<f32>)) {
    let (rows, masks) = (row.chunks_exact(LANES), mask.chunks_exact(LANES));
    let rest = rows.remainder().iter().zip(masks.remainder());
    for (lane, (value, live)) in rest.enumerate() {
        each(lane, live.then_some(*value));
    }
    for (values, live) in rows.zip(masks) {
        for lane in 0..LANES {
            each(lane, live[lane].then_some(values[lane]));
        }
    }
}

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
    fn add(&mut self, row: &[f32], mask: &[bool]) {
        let Some(start) = mask.iter().position(|live| *live) else {
            return;
        };
        if self.n == 0 {
            self.first = f64::from(row[start]);
        }
        let first = self.first;
        let (mut sums, mut squares) = ([0f64; LANES], [0f64; LANES]);
        in_lanes(row, mask, |lane, value| {
            let d = value.map_or(0.0, |v| f64::from(v) - first);
            sums[lane] += d;
            squares[lane] += d * d;
        });
        self.n += live(mask);
        self.sum += sums.iter().sum::<f64>();
        self.squares += squares.iter().sum::<f64>();
    }

    fn mean_and_std(&self) -> (f64, f64) {
        let n = self.n.max(1) as f64;
        let square = (self.squares - self.sum * self.sum / n).max(0.0);
        let std = (square / (n - 1.0).max(1.0)).sqrt();
        (self.first + self.sum / n, std)
    }
}

/// Number of live entries of a mask.
pub fn live(mask: &[bool]) -> usize {
    // Bytes are counted in bytes, many at once.
    let part = |part: &[bool]| part.iter().map(|live| u8::from(*live)).sum::<u8>();
    mask.chunks(255).map(|c| usize::from(part(c))).sum()
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
        moments.add(row, mask);
    }
    let (mean, std) = moments.mean_and_std();
    let scale = 1.0 / (std * std + 1e-8).sqrt();
    for (row, mask) in rows.iter_mut().zip(masks) {
        for (value, live) in row.iter_mut().zip(*mask) {
            let white = ((f64::from(*value) - mean) * scale) as f32;
            *value = if *live { white } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of up to 19 values, so that lanes are full, part full and empty.
    fn row(length: usize) -> (Vec<f32>, Vec<bool>) {
        let value = |i: usize| 1000.0 + (i * 7 % 5) as f32;
        let (row, mask) = (0..length).map(|i| (value(i), i % 3 != 0)).unzip();
        (row, mask)
    }

    #[test]
    fn moments_are_those_of_two_passes() {
        for length in 0..20 {
            let (row, mask) = row(length);
            let live = row.iter().zip(&mask).filter(|(_, m)| **m);
            let live: Vec<f64> = live.map(|(v, _)| f64::from(*v)).collect();
            let n = live.len() as f64;
            let sum: f64 = live.iter().sum();
            assert_eq!(masked_sum(&row, &mask), sum);
            assert_eq!(super::live(&mask), live.len());
            let mut moments = Moments::default();
            moments.add(&row, &mask);
            let (mean, std) = moments.mean_and_std();
            if n > 1.0 {
                let square: f64 = live.iter().map(|v| (v - sum / n).powi(2)).sum();
                assert!((mean - sum / n).abs() < 1e-9);
                assert!((std - (square / (n - 1.0)).sqrt()).abs() < 1e-9, "{length}");
            }
        }
    }

    #[test]
    fn long_masks_are_counted() {
        assert_eq!(live(&[true; 1000]), 1000);
        assert_eq!(live(&[]), 0);
    }

    #[test]
    fn an_offset_costs_no_digits_and_equal_values_none() {
        let spread = |offset: f32| mean_and_std([0.0, 0.5, 1.0].map(|v| v + offset).into_iter()).1;
        assert!((spread(1e6) - 0.5).abs() < 1e-12);
        assert_eq!(mean_and_std([0.3; 9].into_iter()), (f64::from(0.3f32), 0.0));
        assert_eq!(mean_and_std([7.0].into_iter()), (7.0, 0.0));
        assert_eq!(mean_and_std(std::iter::empty()), (0.0, 0.0));
    }

    #[test]
    fn poison_under_the_mask_is_not_read() {
        let (mut values, mask) = row(19);
        let mut clean = vec![values.clone()];
        whiten(&mut clean, &[&mask]);
        for (value, live) in values.iter_mut().zip(&mask) {
            *value = if *live { *value } else { f32::NAN };
        }
        let mut poisoned = vec![values.clone()];
        whiten(&mut poisoned, &[&mask]);
        assert_eq!(poisoned, clean);
        assert!(masked_sum(&values, &mask).is_finite());
    }
}
