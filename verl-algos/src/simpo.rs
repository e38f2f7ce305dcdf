//! SimPO and CPO: preference optimisation without a reference policy.
//!
//! Within a group the answer with the best score is compared with the one with
//! the worst:
//!
//! ```text
//! simpo:  L = -log s(b (mean log pi(chosen) - mean log pi(rejected)) - gamma)
//! cpo:    L = -log s(b (sum  log pi(chosen) - sum  log pi(rejected)))
//! both:   L - cpo_alpha mean log pi(chosen)
//! ```
//!
//! Meant for `loss_agg_mode: seq-mean-token-mean`, with whole groups in a
//! micro-batch, like [DPO](crate::dpo); groups of equal scores have loss 0.
//!
//! # Paper
//! SimPO: arXiv:2405.14734, eq. 6. CPO: arXiv:2401.08417. Not in verl.
//!
//! # Metrics
//! None of its own.

use crate::options::require;
use crate::pairs::{Pairs, nothing};
use burn::tensor::activation::log_sigmoid;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;
use verl_core::{Error, Result};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimpoLossType {
    /// Mean log-probs, with a margin.
    Simpo,
    /// Sums of log-probs.
    Cpo,
}

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimpoConfig {
    /// What is compared.
    pub loss_type: SimpoLossType,
    /// Scale of the difference; 2 with `simpo` and 0.1 with `cpo` unless set.
    pub beta: Option<f32>,
    /// Margin asked for, `simpo` only; 1 unless set.
    pub gamma: Option<f32>,
    /// Weight of the language-model loss on the better answer; 0 with `simpo`
    /// and 1 with `cpo` unless set.
    pub cpo_alpha: Option<f32>,
}

impl Default for SimpoConfig {
    fn default() -> Self {
        SimpoConfig {
            loss_type: SimpoLossType::Simpo,
            beta: None,
            gamma: None,
            cpo_alpha: None,
        }
    }
}

impl SimpoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range or has no
    /// effect.
    pub fn build(&self) -> Result<SimpoLoss> {
        let (kind, gamma) = (self.loss_type, self.gamma);
        let (beta, margin, alpha) = match kind {
            SimpoLossType::Simpo => (2.0, 1.0, 0.0),
            SimpoLossType::Cpo => (0.1, 0.0, 1.0),
        };
        if kind == SimpoLossType::Cpo && gamma.is_some_and(|gamma| gamma != 0.0) {
            let message = "has an effect with loss_type: simpo only; drop it";
            return Err(Error::config("algorithm.gamma", message));
        }
        let beta = self.beta.unwrap_or(beta);
        let (gamma, alpha) = (gamma.unwrap_or(margin), self.cpo_alpha.unwrap_or(alpha));
        require("beta", beta, beta.is_finite() && beta > 0.0, "positive")?;
        require(
            "gamma",
            gamma,
            gamma.is_finite() && gamma >= 0.0,
            "0 or positive",
        )?;
        let in_range = alpha.is_finite() && alpha >= 0.0;
        require("cpo_alpha", alpha, in_range, "0 or positive")?;
        Ok(SimpoLoss {
            kind,
            beta,
            gamma,
            alpha,
        })
    }
}

/// The loss.
///
/// # Example
/// The answers' tokens have log-probs 1/2 apart, just the margin at `beta` 2:
/// `-log s(0)`.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::probe::{Answer, probe};
/// use verl_algos::simpo::SimpoConfig;
///
/// let answers = [(1.0, vec![-1.0, -1.0]), (0.0, vec![-1.5])].map(
///     |(score, log_probs)| Answer { score, log_probs, ..Answer::default() },
/// );
/// let loss = SimpoConfig::default().build()?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// assert!(probed.loss_n.iter().all(|l| (l - 2f32.ln()).abs() < 1e-6));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimpoLoss {
    kind: SimpoLossType,
    beta: f32,
    gamma: f32,
    alpha: f32,
}

const NAME: &str = "SimPO loss";

impl PolicyLoss for SimpoLoss {
    fn name(&self) -> &str {
        match self.kind {
            SimpoLossType::Simpo => "simpo",
            SimpoLossType::Cpo => "cpo",
        }
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        crate::pairs::requirements()
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let pairs = Pairs::find(input, NAME)?;
        if pairs.is_empty() {
            return Ok(LossOutput {
                loss_n: nothing(input),
                metrics_n: Vec::new(),
            });
        }
        let sums = input.sequence_sum_s(input.log_probs_n.clone());
        let means = sums.clone() / input.lengths_s();
        let (chosen, rejected) = pairs.split(match self.kind {
            SimpoLossType::Simpo => means.clone(),
            SimpoLossType::Cpo => sums,
        });
        let margin = (chosen - rejected)
            .mul_scalar(self.beta)
            .sub_scalar(self.gamma);
        let mut losses = log_sigmoid(margin).neg();
        if self.alpha > 0.0 {
            losses = losses - pairs.split(means).0.mul_scalar(self.alpha);
        }
        Ok(LossOutput {
            loss_n: pairs.spread(input, losses),
            metrics_n: Vec::new(),
        })
    }
}
