//! Complex numbers, as far as the comparison of answers needs them.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A complex number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) const I: Complex = Complex { re: 0.0, im: 1.0 };

    pub(super) fn real(re: f64) -> Self {
        Complex { re, im: 0.0 }
    }

    pub(super) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }

    pub(super) fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    /// The value, where it is a whole number of at most `limit`.
    pub(super) fn as_natural(self, limit: u32) -> Option<u32> {
        let natural = self.im == 0.0 && self.re.fract() == 0.0;
        (natural && (0.0..=f64::from(limit)).contains(&self.re)).then_some(self.re as u32)
    }

    pub(super) fn exp(self) -> Self {
        let (sin, cos) = self.im.sin_cos();
        let radius = self.re.exp();
        Complex {
            re: radius * cos,
            im: if self.im == 0.0 { 0.0 } else { radius * sin },
        }
    }

    pub(super) fn ln(self) -> Self {
        Complex {
            re: self.abs().ln(),
            im: self.im.atan2(self.re),
        }
    }

    /// The principal power; exact for whole exponents of reals.
    pub(super) fn pow(self, exponent: Complex) -> Self {
        let real = self.im == 0.0 && exponent.im == 0.0;
        if real && (self.re >= 0.0 || exponent.re.fract() == 0.0) {
            return Complex::real(self.re.powf(exponent.re));
        }
        if exponent == Complex::real(0.5) {
            return self.sqrt();
        }
        (self.ln() * exponent).exp()
    }

    pub(super) fn sqrt(self) -> Self {
        if self.im == 0.0 && self.re < 0.0 {
            return Complex {
                re: 0.0,
                im: (-self.re).sqrt(),
            };
        }
        if self.im == 0.0 {
            return Complex::real(self.re.sqrt());
        }
        (self.ln() * Complex::real(0.5)).exp()
    }

    pub(super) fn sin(self) -> Self {
        let (sin, cos) = self.re.sin_cos();
        Complex {
            re: sin * self.im.cosh(),
            im: cos * self.im.sinh(),
        }
    }

    pub(super) fn cos(self) -> Self {
        let (sin, cos) = self.re.sin_cos();
        Complex {
            re: cos * self.im.cosh(),
            im: -sin * self.im.sinh(),
        }
    }
}

impl Add for Complex {
    type Output = Complex;
    fn add(self, other: Complex) -> Complex {
        Complex {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl Neg for Complex {
    type Output = Complex;
    fn neg(self) -> Complex {
        Complex {
            re: -self.re,
            im: 0.0 - self.im,
        }
    }
}

impl Sub for Complex {
    type Output = Complex;
    fn sub(self, other: Complex) -> Complex {
        self + -other
    }
}

impl Mul for Complex {
    type Output = Complex;
    fn mul(self, other: Complex) -> Complex {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl Div for Complex {
    type Output = Complex;
    fn div(self, other: Complex) -> Complex {
        if self.im == 0.0 && other.im == 0.0 {
            return Complex::real(self.re / other.re);
        }
        let scale = other.re * other.re + other.im * other.im;
        Complex {
            re: (self.re * other.re + self.im * other.im) / scale,
            im: (self.im * other.re - self.re * other.im) / scale,
        }
    }
}
