//! Passes over the rows of a matrix, on all threads and in vector instructions.

use rayon::prelude::*;

/// Values a task works on at a time.
const TASK: usize = 1 << 14;

/// Runs an expression compiled for the machine's widest vector instructions.
///
/// What it calls must be `#[inline(always)]` to be compiled along with it.
macro_rules! vectorised {
    ($work:expr) => {
        pulp::Arch::new().dispatch($crate::host::rows::Vectorised(
            #[inline(always)]
            || $work,
        ))
    };
}
pub(crate) use vectorised;

/// Work to be compiled several times, for each set of instructions.
///
/// `FnMut`, because calling such a closure as `FnOnce` goes through a shim that
/// is not inlined, and so not vectorised.
pub(crate) struct Vectorised<F>(pub(crate) F);

impl<R, F: FnMut() -> R> pulp::WithSimd for Vectorised<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}

/// Calls `work(first row, rows)` on pieces of a matrix with rows of `width`.
pub(crate) fn for_rows(matrix: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    let rows = rows_per_task(width);
    matrix
        .par_chunks_mut(rows * width)
        .enumerate()
        .for_each(|(i, piece)| work(i * rows, piece));
}

/// As [`for_rows`], with a second matrix of as many rows.
pub(crate) fn for_row_pairs(
    (a, a_width): (&mut [f32], usize),
    (b, b_width): (&mut [f32], usize),
    work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let rows = rows_per_task(a_width.max(b_width));
    a.par_chunks_mut(rows * a_width)
        .zip(b.par_chunks_mut(rows * b_width))
        .enumerate()
        .for_each(|(i, (a, b))| work(i * rows, a, b));
}

fn rows_per_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// The sum of a function of the values, in sixteen running sums.
#[inline(always)]
pub(crate) fn sum_of(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0f32; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f(*value);
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|v| f(*v)).sum::<f32>()
}

/// The inner product, in sixteen running sums.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = [0f32; 16];
    for (a, b) in a.iter().zip(b) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

/// The largest value; negative infinity of none.
#[inline(always)]
pub(crate) fn max_of(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = values.as_chunks::<16>();
    let mut largest = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (largest, value) in largest.iter_mut().zip(chunk) {
            *largest = larger(*largest, *value);
        }
    }
    largest
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |a, b| larger(a, *b))
}

/// `e^x` to within two units in the last place, in a form that loops over it
/// can be vectorised; below -87 it is a normal number near 1e-38, above 88 it
/// is finite.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n in the
    // low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_66,
        0.5,
    ] {
        p = p * r + coefficient;
    }
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    (p * r * r + r + 1.0) * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_that_of_the_standard_library() {
        for i in -8700..8800 {
            let x = i as f32 * 0.01 + 0.0037;
            let (got, want) = (exp(x), x.exp());
            assert!((got - want).abs() <= want * 2.5e-7, "{x}: {got} {want}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e30) < 2e-38 && exp(1e30).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_take_every_value_once() {
        for n in [0usize, 1, 15, 16, 17, 100] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let total = (n * n.saturating_sub(1) / 2) as f32;
            assert_eq!(sum_of(&values, |v| v), total);
            assert_eq!(dot(&values, &vec![2.0; n]), 2.0 * total);
            let want = if n == 0 {
                f32::NEG_INFINITY
            } else {
                n as f32 - 1.0
            };
            assert_eq!(max_of(&values), want);
        }
        let mut matrix = vec![0f32; 5 * 20_000];
        for_rows(&mut matrix, 5, |first, rows| {
            for (i, row) in rows.chunks_mut(5).enumerate() {
                row.fill((first + i) as f32);
            }
        });
        assert!(
            matrix
                .chunks(5)
                .enumerate()
                .all(|(i, r)| r == [i as f32; 5])
        );
    }
}
