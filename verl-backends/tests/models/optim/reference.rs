//! The optimizers once more, in f64 and loops, from the papers' equations.

use std::collections::HashMap;

/// A matrix or, with one row, a vector.
#[derive(Debug, Clone)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) vector: bool,
    pub(super) values: Vec<f64>,
}

/// One update of one parameter; `t` counts from 1.
pub(super) trait Reference {
    fn update(&mut self, t: i32, param: &mut Param, grad: &[f64], lr: f64);
}

type Memory = HashMap<&'static str, Vec<f64>>;

fn memory<'a>(all: &'a mut Memory, name: &'static str, n: usize) -> &'a mut Vec<f64> {
    all.entry(name).or_insert_with(|| vec![0.0; n])
}

pub(super) struct AdamW {
    weight_decay: f64,
    first: Memory,
    second: Memory,
}

impl AdamW {
    pub(super) fn new(weight_decay: f64) -> Self {
        AdamW {
            weight_decay,
            first: Memory::new(),
            second: Memory::new(),
        }
    }
}

impl Reference for AdamW {
    fn update(&mut self, t: i32, param: &mut Param, grad: &[f64], lr: f64) {
        let (b1, b2) = (0.9f64, 0.999f64);
        let n = grad.len();
        let (m, v) = (
            memory(&mut self.first, param.name, n),
            memory(&mut self.second, param.name, n),
        );
        for ((w, g), (m, v)) in param.values.iter_mut().zip(grad).zip(m.iter_mut().zip(v)) {
            *m = b1 * *m + (1.0 - b1) * g;
            *v = b2 * *v + (1.0 - b2) * g * g;
            let (mean, square) = (*m / (1.0 - b1.powi(t)), *v / (1.0 - b2.powi(t)));
            *w -= lr * (self.weight_decay * *w + mean / (square.sqrt() + 1e-8));
        }
    }
}

/// The paper's Algorithms 4 and 5, with sums over rows and columns.
#[derive(Default)]
pub(super) struct Adafactor {
    row_sums: Memory,
    column_sums: Memory,
    full: Memory,
}

impl Reference for Adafactor {
    fn update(&mut self, t: i32, param: &mut Param, grad: &[f64], lr: f64) {
        let (rows, columns) = (param.rows, param.columns);
        let decay = 1.0 - f64::from(t).powf(-0.8);
        let squared: Vec<f64> = grad.iter().map(|g| g * g + 1e-30).collect();
        let second: Vec<f64> = if param.vector {
            let v = memory(&mut self.full, param.name, columns);
            for (v, s) in v.iter_mut().zip(&squared) {
                *v = decay * *v + (1.0 - decay) * s;
            }
            v.clone()
        } else {
            let r = memory(&mut self.row_sums, param.name, rows);
            let c = memory(&mut self.column_sums, param.name, columns);
            r.iter_mut().for_each(|r| *r *= decay);
            c.iter_mut().for_each(|c| *c *= decay);
            for (i, s) in squared.iter().enumerate() {
                r[i / columns] += (1.0 - decay) * s;
                c[i % columns] += (1.0 - decay) * s;
            }
            let total: f64 = r.iter().sum();
            (0..grad.len())
                .map(|i| r[i / columns] * c[i % columns] / total)
                .collect()
        };
        let update: Vec<f64> = grad.iter().zip(second).map(|(g, v)| g / v.sqrt()).collect();
        let rms = (update.iter().map(|u| u * u).sum::<f64>() / update.len() as f64).sqrt();
        for (w, u) in param.values.iter_mut().zip(update) {
            *w -= lr * u / rms.max(1.0);
        }
    }
}

#[derive(Default)]
pub(super) struct Lion {
    momentum: Memory,
}

impl Reference for Lion {
    fn update(&mut self, _: i32, param: &mut Param, grad: &[f64], lr: f64) {
        let m = memory(&mut self.momentum, param.name, grad.len());
        for ((w, g), m) in param.values.iter_mut().zip(grad).zip(m) {
            let c = 0.9 * *m + 0.1 * g;
            *w -= lr * c.signum();
            *m = 0.99 * *m + 0.01 * g;
        }
    }
}

pub(super) struct Muon {
    momentum: Memory,
    adamw: AdamW,
}

impl Muon {
    pub(super) fn new() -> Self {
        Muon {
            momentum: Memory::new(),
            adamw: AdamW::new(0.1),
        }
    }
}

impl Reference for Muon {
    fn update(&mut self, t: i32, param: &mut Param, grad: &[f64], lr: f64) {
        if param.vector || param.name.contains("embed") {
            return self.adamw.update(t, param, grad, lr);
        }
        let m = memory(&mut self.momentum, param.name, grad.len());
        for (m, g) in m.iter_mut().zip(grad) {
            *m = 0.95 * *m + g;
        }
        let nesterov: Vec<f64> = grad.iter().zip(m).map(|(g, m)| g + 0.95 * *m).collect();
        let direction = newton_schulz(&nesterov, param.rows, param.columns);
        let scale = 0.2 * (param.rows.max(param.columns) as f64).sqrt();
        for (w, o) in param.values.iter_mut().zip(direction) {
            *w -= lr * (0.1 * *w + scale * o);
        }
    }
}

/// `X (a + b A + c A^2)` with `A = X^T X`: from the right, unlike the code
/// under test, which is the same polynomial of the singular values.
fn newton_schulz(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let norm = matrix.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
    let mut x: Vec<f64> = matrix.iter().map(|v| v / norm).collect();
    for _ in 0..5 {
        let gram = product(&transpose(&x, rows, columns), &x, columns, rows, columns);
        let square = product(&gram, &gram, columns, columns, columns);
        let polynomial: Vec<f64> = gram
            .iter()
            .zip(square)
            .map(|(a, aa)| -4.7750 * a + 2.0315 * aa)
            .collect();
        let change = product(&x, &polynomial, rows, columns, columns);
        for (x, change) in x.iter_mut().zip(change) {
            *x = 3.4445 * *x + change;
        }
    }
    x
}

pub(super) fn transpose(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..rows * columns)
        .map(|i| x[i % rows * columns + i / rows])
        .collect()
}

pub(super) fn product(a: &[f64], b: &[f64], rows: usize, inner: usize, columns: usize) -> Vec<f64> {
    let entry = |i: usize| -> f64 {
        let (row, column) = (i / columns, i % columns);
        (0..inner)
            .map(|k| a[row * inner + k] * b[k * columns + column])
            .sum()
    };
    (0..rows * columns).map(entry).collect()
}

/// The eigenvalues of a symmetric matrix, by Jacobi's rotations.
pub(super) fn eigenvalues(mut a: Vec<f64>, n: usize) -> Vec<f64> {
    for _ in 0..30 {
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, n, p, q);
            }
        }
    }
    (0..n).map(|i| a[i * n + i]).collect()
}

/// Makes the entry `(p, q)` zero.
fn rotate(a: &mut [f64], n: usize, p: usize, q: usize) {
    if a[p * n + q].abs() < 1e-14 {
        return;
    }
    let angle = 0.5 * (2.0 * a[p * n + q]).atan2(a[q * n + q] - a[p * n + p]);
    let (sin, cos) = angle.sin_cos();
    for k in 0..n {
        let (x, y) = (a[k * n + p], a[k * n + q]);
        (a[k * n + p], a[k * n + q]) = (cos * x - sin * y, sin * x + cos * y);
    }
    for k in 0..n {
        let (x, y) = (a[p * n + k], a[q * n + k]);
        (a[p * n + k], a[q * n + k]) = (cos * x - sin * y, sin * x + cos * y);
    }
}
