//! KL estimators and the controllers of the KL coefficient.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Per-token estimators of KL(policy, reference) from one sample
/// (<http://joschu.net/blog/kl-approx.html>). With `d = log pi - log ref`:
///
/// ```text
/// k1 = d        k2 = d^2 / 2        k3 = exp(-d) - 1 + d        abs = |d|
/// ```
///
/// `...+` variants are straight-through: the value of the named estimator
/// with the gradient of k2, which is the unbiased gradient of the KL. (k2 has
/// that gradient anyway, so `k2+` is `k2`.)
///
/// `k3` continues its exponential along the tangent above `-d = 6`, so value
/// and gradient stay finite, at a difference of 100 even in f16, and keep
/// pulling the policy back. `low_var_kl` is verl's form: `d` is cut to 20 and the value to 10,
/// so that its gradient is 0 once `-d` exceeds 2.6, where it should pull most.
/// (In verl, `k3` is a second name of that form.)
///
/// # Example
/// ```
/// use verl_core::math::KlEstimator;
/// assert_eq!(KlEstimator::K1.value(-1.0, -2.0), 1.0);
/// assert_eq!(KlEstimator::K2.value(-1.0, -2.0), 0.5);
/// assert!((KlEstimator::K3.value(-1.0, -2.0) - 0.36787945).abs() < 1e-6);
/// assert_eq!(KlEstimator::LowVarKl.value(-101.0, -1.0), 10.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KlEstimator {
    /// `d`.
    #[serde(rename = "k1", alias = "kl")]
    K1,
    /// `|d|`.
    #[serde(rename = "abs")]
    Abs,
    /// `d^2 / 2`.
    #[serde(rename = "k2", alias = "mse", alias = "k2+", alias = "mse+")]
    K2,
    /// `exp(-d) - 1 + d`.
    #[serde(rename = "k3")]
    K3,
    /// k3, cut off as verl does.
    #[serde(rename = "low_var_kl")]
    LowVarKl,
    /// Value of k1, gradient of k2.
    #[serde(rename = "k1+", alias = "kl+")]
    K1StraightThrough,
    /// Value of abs, gradient of k2.
    #[serde(rename = "abs+")]
    AbsStraightThrough,
    /// Value of k3, gradient of k2.
    #[serde(rename = "k3+")]
    K3StraightThrough,
    /// Value of verl's k3, gradient of k2.
    #[serde(rename = "low_var_kl+")]
    LowVarKlStraightThrough,
}

/// Where the exponential of k3 turns into its tangent: k3 is near 400 there, and
/// at a difference of 100 below 65504, the largest f16.
const TANGENT: f32 = 6.0;

impl KlEstimator {
    /// Per-token KL, `[n]`; gradients flow through `log_probs_n`.
    pub fn per_token(self, log_probs_n: Tensor<1>, ref_log_probs_n: Tensor<1>) -> Tensor<1> {
        let d = log_probs_n - ref_log_probs_n;
        match self {
            KlEstimator::K1 => d,
            KlEstimator::Abs => d.abs(),
            KlEstimator::K2 => k2(d),
            KlEstimator::K3 => k3(d),
            KlEstimator::LowVarKl => low_var_kl(d),
            KlEstimator::K1StraightThrough => straight_through(d.clone(), d),
            KlEstimator::AbsStraightThrough => straight_through(d.clone().abs(), d),
            KlEstimator::K3StraightThrough => straight_through(k3(d.clone()), d),
            KlEstimator::LowVarKlStraightThrough => straight_through(low_var_kl(d.clone()), d),
        }
    }

    /// The value alone, on the host.
    pub fn value(self, log_prob: f32, ref_log_prob: f32) -> f32 {
        let d = log_prob - ref_log_prob;
        match self {
            KlEstimator::K1 | KlEstimator::K1StraightThrough => d,
            KlEstimator::Abs | KlEstimator::AbsStraightThrough => d.abs(),
            KlEstimator::K2 => 0.5 * d * d,
            KlEstimator::K3 | KlEstimator::K3StraightThrough => {
                let x = (-d).min(TANGENT);
                x.exp() * (1.0 + (-d - x)) - 1.0 + d
            }
            KlEstimator::LowVarKl | KlEstimator::LowVarKlStraightThrough => {
                let x = (-d).clamp(-20.0, 20.0);
                (x.exp() - x - 1.0).clamp(-10.0, 10.0)
            }
        }
    }
}

fn k2(d: Tensor<1>) -> Tensor<1> {
    d.square().mul_scalar(0.5)
}

fn k3(d: Tensor<1>) -> Tensor<1> {
    let x = d.neg();
    let bounded = x.clone().clamp_max(TANGENT);
    bounded.clone().exp() * (x.clone() - bounded).add_scalar(1.0) - x.add_scalar(1.0)
}

fn low_var_kl(d: Tensor<1>) -> Tensor<1> {
    let x = d.neg().clamp(-20.0, 20.0);
    (x.clone().exp() - x.add_scalar(1.0)).clamp(-10.0, 10.0)
}

fn straight_through(value: Tensor<1>, d: Tensor<1>) -> Tensor<1> {
    let k2 = k2(d);
    k2.clone() - k2.detach() + value.detach()
}

/// Where the coefficient of the KL in the reward comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum KlControl {
    /// A constant.
    Fixed {
        /// The coefficient.
        kl_coef: f64,
    },
    /// Proportional control towards a target (arXiv:1909.08593, section 2.2).
    Adaptive {
        /// The first coefficient.
        kl_coef: f64,
        /// The KL to hold.
        target_kl: f64,
        /// Samples over which a deviation of 20 % is corrected.
        horizon: f64,
    },
}

/// The controller's state: the current coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KlController {
    control: KlControl,
    coef: f64,
}

impl KlController {
    /// Starts at the configured coefficient.
    pub fn new(control: KlControl) -> Self {
        let (KlControl::Fixed { kl_coef } | KlControl::Adaptive { kl_coef, .. }) = control;
        KlController {
            control,
            coef: kl_coef,
        }
    }

    /// The same controller at another coefficient: that of a checkpoint.
    pub fn with_coef(self, coef: f64) -> Self {
        KlController { coef, ..self }
    }

    /// The coefficient in force.
    pub fn coef(&self) -> f64 {
        self.coef
    }

    /// Takes the KL measured over `samples` sequences into account.
    pub fn update(&mut self, current_kl: f64, samples: usize) {
        if let KlControl::Adaptive {
            target_kl, horizon, ..
        } = self.control
        {
            let error = (current_kl / target_kl - 1.0).clamp(-0.2, 0.2);
            self.coef *= 1.0 + error * samples as f64 / horizon;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn with_gradient(estimator: KlEstimator, log_prob: f32, reference: f32) -> (f32, f32) {
        let device = Device::flex();
        let x = Tensor::<1>::from_floats([log_prob], &device.clone().autodiff()).require_grad();
        let kl = estimator.per_token(x.clone(), Tensor::from_floats([reference], &device));
        let mut grads = kl.clone().backward();
        let grad = x
            .grad_remove(&mut grads)
            .map_or(0.0, |g| g.into_scalar::<f32>());
        (kl.into_scalar::<f32>(), grad)
    }

    #[test]
    fn values_in_the_normal_range() {
        for (estimator, value) in [
            (KlEstimator::K1, 1.0),
            (KlEstimator::K2, 0.5),
            (KlEstimator::K3, 0.3679),
            (KlEstimator::LowVarKl, 0.3679),
        ] {
            assert!(
                (with_gradient(estimator, -1.0, -2.0).0 - value).abs() < 1e-4,
                "{estimator:?}"
            );
            assert!(
                (estimator.value(-1.0, -2.0) - value).abs() < 1e-4,
                "{estimator:?}"
            );
        }
    }

    #[test]
    fn k3_stays_finite_and_keeps_pulling_far_from_the_reference() {
        let (value, grad) = with_gradient(KlEstimator::K3, -101.0, -1.0);
        assert!(value.is_finite() && value > 1e4);
        assert!(
            grad.is_finite() && grad < -100.0,
            "the gradient must raise the log-prob, not lower it: {grad}"
        );
        assert!((KlEstimator::K3.value(-101.0, -1.0) / value - 1.0).abs() < 1e-5);
        let (value, grad) = with_gradient(KlEstimator::K3, -1.0, -101.0);
        assert!((value - 99.0).abs() < 1e-3 && (grad - 1.0).abs() < 1e-5);
    }

    #[test]
    fn k3_is_finite_in_half_precision() {
        use burn::tensor::FloatDType;
        let device = Device::flex();
        for dtype in [FloatDType::F16, FloatDType::BF16] {
            let x = Tensor::<1>::from_floats([-101.0], &device.clone().autodiff()).require_grad();
            let reference = Tensor::<1>::from_floats([-1.0], &device).cast(dtype);
            let kl = KlEstimator::K3.per_token(x.clone().cast(dtype), reference);
            let grad = x.grad(&kl.clone().backward()).unwrap();
            let (value, grad) = (kl.cast(FloatDType::F32), grad.cast(FloatDType::F32));
            let (value, grad) = (value.into_scalar::<f32>(), grad.into_scalar::<f32>());
            assert!(value.is_finite() && value > 1e4, "{dtype:?}: {value}");
            assert!(grad.is_finite() && grad < -100.0, "{dtype:?}: {grad}");
        }
    }

    #[test]
    fn adaptive_control_moves_towards_the_target() {
        let mut c = KlController::new(KlControl::Adaptive {
            kl_coef: 0.1,
            target_kl: 1.0,
            horizon: 100.0,
        });
        c.update(10.0, 50);
        assert!(
            (c.coef() - 0.1 * 1.1).abs() < 1e-12,
            "the error is clipped to 0.2"
        );
    }
}
