//! Matrix multiplication on slices, by the `gemm` crate.

/// A matrix in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    /// Distance between rows and between columns.
    strides: (usize, usize),
}

impl<'a> Mat<'a> {
    /// `rows` rows, one after another.
    pub(crate) fn new(data: &'a [f32], rows: usize) -> Self {
        let cols = data.len() / rows.max(1);
        Mat {
            data,
            rows,
            cols,
            strides: (cols, 1),
        }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Mat {
            rows: self.cols,
            cols: self.rows,
            strides: (self.strides.1, self.strides.0),
            ..self
        }
    }

    /// Values from the first to the last element.
    fn span(&self) -> usize {
        match (self.rows, self.cols) {
            (0, _) | (_, 0) => 0,
            (r, c) => (r - 1) * self.strides.0 + (c - 1) * self.strides.1 + 1,
        }
    }
}

/// Whether a product may use all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One: the caller is one of many tasks.
    One,
    /// All.
    All,
}

/// What happens to the values already in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// They are replaced.
    Replace,
    /// The product is added to them.
    Add,
}

/// Products below this many multiplications are not worth a second thread.
const PARALLEL: usize = 1 << 21;

/// `c = a b` or `c += a b`; `c` is `[a.rows, b.cols]`, row after row.
#[allow(unsafe_code)]
pub(crate) fn matmul(c: &mut [f32], a: Mat<'_>, b: Mat<'_>, write: Write, threads: Threads) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert_eq!(k, b.rows, "inner dimensions");
    assert_eq!(c.len(), m * n, "output");
    assert!(a.span() <= a.data.len() && b.span() <= b.data.len());
    let parallelism = match threads {
        Threads::All if m * n * k >= PARALLEL => gemm::Parallelism::Rayon(0),
        _ => gemm::Parallelism::None,
    };
    let stride = |s: usize| s as isize;
    // SAFETY: the spans of `a` and `b` lie within their slices and `c` holds
    // m * n values, as asserted; `c` is borrowed exclusively.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            stride(n),
            write == Write::Add,
            a.data.as_ptr(),
            stride(a.strides.1),
            stride(a.strides.0),
            b.data.as_ptr(),
            stride(b.strides.1),
            stride(b.strides.0),
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_and_sums() {
        let a = [1., 2., 3., 4., 5., 6.];
        let b = [1., 0., 2., 1., 1., 1.];
        let mut c = [10.; 4];
        // [2, 3] x [3, 2]
        matmul(
            &mut c,
            Mat::new(&a, 2),
            Mat::new(&b, 3),
            Write::Add,
            Threads::One,
        );
        assert_eq!(c, [18., 15., 30., 21.]);
        // a^T [3, 2] x [2, 3]
        let mut c = [0.; 9];
        let (a, b) = (Mat::new(&a, 2).t(), Mat::new(&b, 2));
        matmul(&mut c, a, b, Write::Replace, Threads::All);
        assert_eq!(c, [5., 4., 6., 7., 5., 9., 9., 6., 12.]);
    }
}
