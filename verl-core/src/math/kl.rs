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
/// with the gradient of k2, which is the unbiased gradient of the KL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KlEstimator {
    /// `d`.
    #[serde(rename = "k1", alias = "kl")]
    K1,
    /// `|d|`.
    #[serde(rename = "abs")]
    Abs,
    /// `d^2 / 2`.
    #[serde(rename = "k2", alias = "mse")]
    K2,
    /// `exp(-d) - 1 + d`.
    #[serde(rename = "k3", alias = "low_var_kl")]
    K3,
    /// Value of k1, gradient of k2.
    #[serde(rename = "k1+", alias = "kl+")]
    K1StraightThrough,
    /// Value of k3, gradient of k2.
    #[serde(rename = "k3+", alias = "low_var_kl+")]
    K3StraightThrough,
}

impl KlEstimator {
    /// Per-token KL, `[n]`; gradients flow through `log_probs_n`.
    pub fn per_token(self, log_probs_n: Tensor<1>, ref_log_probs_n: Tensor<1>) -> Tensor<1> {
        let d = log_probs_n - ref_log_probs_n;
        match self {
            KlEstimator::K1 => d,
            KlEstimator::Abs => d.abs(),
            KlEstimator::K2 => d.square().mul_scalar(0.5),
            KlEstimator::K3 => k3(d),
            KlEstimator::K1StraightThrough => straight_through(d.clone(), d),
            KlEstimator::K3StraightThrough => straight_through(k3(d.clone()), d),
        }
    }
}

fn k3(d: Tensor<1>) -> Tensor<1> {
    d.clone().neg().clamp(-20.0, 20.0).exp().sub_scalar(1.0) + d
}

fn straight_through(value: Tensor<1>, d: Tensor<1>) -> Tensor<1> {
    let k2 = d.square().mul_scalar(0.5);
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
