//! DPO: direct preference optimisation, and IPO, its squared form.
//!
//! Within a group the answer with the best score is compared with the one with
//! the worst:
//!
//! ```text
//! h = log(pi / pi_ref)(chosen) - log(pi / pi_ref)(rejected)
//!
//! sigmoid:  L = -(1 - e) log s(b h) - e log s(-b h)          s: the sigmoid
//! robust:   L = (-(1 - e) log s(b h) + e log s(-b h)) / (1 - 2e)
//! hinge:    L = max(0, 1 - b h)
//! ipo:      L = (h - 1 / (2b))^2
//! ```
//!
//! with `b` = `beta`, `e` = `label_smoothing`, and log-probs of whole answers.
//! Pairs given in a data set are groups of two answers with scores 1 and 0;
//! answers sampled and scored by the run make it online DPO.
//!
//! Meant for `loss_agg_mode: seq-mean-token-mean`: both answers carry the loss
//! such that the mean over answers is the mean over groups. A group of equal
//! scores has loss 0; with more than two answers, the others have no gradient.
//! A micro-batch must hold all answers to a prompt.
//!
//! # Paper
//! DPO: arXiv:2305.18290, eq. 7; label smoothing: its repository. IPO:
//! arXiv:2310.12036, eq. 17. Hinge: arXiv:2305.10425. Robust:
//! arXiv:2403.00409. Online: arXiv:2402.04792.
//!
//! # Metrics
//! Means over the policy's tokens, 0 at answers that are not compared:
//! `actor/dpo_margin`, `beta h`, and `actor/dpo_accuracy`, 1 where `h > 0`.

use crate::options::require;
use crate::pairs::{Pairs, nothing};
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;
use verl_core::{Error, Result};

/// What a pair's margin becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DpoLossType {
    /// DPO.
    Sigmoid,
    /// DPO that is unbiased where a share of the labels is flipped.
    Robust,
    /// A hinge at margin 1.
    Hinge,
    /// IPO.
    Ipo,
}

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DpoConfig {
    /// Weight of the reference policy.
    pub beta: f32,
    /// What a pair's margin becomes.
    pub loss_type: DpoLossType,
    /// Share of labels that may be wrong, `sigmoid` and `robust` only.
    pub label_smoothing: f32,
    /// Leave the reference policy out.
    pub reference_free: bool,
    /// Divide an answer's log-probs by its length.
    pub average_log_prob: bool,
}

impl Default for DpoConfig {
    fn default() -> Self {
        DpoConfig {
            beta: 0.1,
            loss_type: DpoLossType::Sigmoid,
            label_smoothing: 0.0,
            reference_free: false,
            average_log_prob: false,
        }
    }
}

impl DpoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range or has no
    /// effect.
    pub fn build(&self) -> Result<DpoLoss> {
        let (beta, smoothing) = (self.beta, self.label_smoothing);
        require("beta", beta, beta.is_finite() && beta > 0.0, "positive")?;
        let in_range = (0.0..0.5).contains(&smoothing);
        require("label_smoothing", smoothing, in_range, "in [0, 0.5)")?;
        let smooth = matches!(self.loss_type, DpoLossType::Sigmoid | DpoLossType::Robust);
        if smoothing > 0.0 && !smooth {
            let message = "has an effect with loss_type sigmoid or robust only; drop it";
            return Err(Error::config("algorithm.label_smoothing", message));
        }
        Ok(DpoLoss {
            config: self.clone(),
            name: "dpo",
        })
    }
}

/// The loss.
///
/// # Example
/// The better answer has become twice as likely as under the reference, the
/// worse one half as likely: `h = log 4`, and with `beta` 1 `s(h) = 4 / 5`.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::dpo::DpoConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answers = [(1.0, 0.5f32), (0.0, 0.125)].map(|(score, p)| Answer {
///     score,
///     log_probs: vec![p.ln()],
///     ref_log_probs: vec![0.25f32.ln()],
///     ..Answer::default()
/// });
/// let loss = DpoConfig { beta: 1.0, ..Default::default() }.build()?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// let want = -(0.8f32.ln());
/// assert!(probed.loss_n.iter().all(|l| (l - want).abs() < 1e-6));
/// // Both answers carry the loss, so that the mean over them is the pair's.
/// assert!((probed.gradient_n[0] / 2.0 + 0.2).abs() < 1e-6);
/// assert!((probed.gradient_n[1] / 2.0 - 0.2).abs() < 1e-6);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DpoLoss {
    config: DpoConfig,
    name: &'static str,
}

const NAME: &str = "DPO loss";

impl DpoLoss {
    /// The same loss under another name.
    pub(crate) fn named(self, name: &'static str) -> Self {
        DpoLoss { name, ..self }
    }

    /// The loss of pairs with margins `h`.
    ///
    /// # Shapes
    /// `[p] -> [p]`
    pub fn of_margins(&self, h_p: Tensor<1>) -> Tensor<1> {
        let (beta, e) = (self.config.beta, self.config.label_smoothing);
        let scaled = h_p.clone().mul_scalar(beta);
        let right = |x: &Tensor<1>| log_sigmoid(x.clone()).mul_scalar(-(1.0 - e));
        let wrong = |x: &Tensor<1>| log_sigmoid(x.clone().neg()).mul_scalar(-e);
        match self.config.loss_type {
            DpoLossType::Sigmoid if e == 0.0 => right(&scaled),
            DpoLossType::Sigmoid => right(&scaled) + wrong(&scaled),
            DpoLossType::Robust => (right(&scaled) - wrong(&scaled)).div_scalar(1.0 - 2.0 * e),
            DpoLossType::Hinge => scaled.neg().add_scalar(1.0).clamp_min(0.0),
            DpoLossType::Ipo => h_p.sub_scalar(0.5 / beta).square(),
        }
    }
}

impl PolicyLoss for DpoLoss {
    fn name(&self) -> &str {
        self.name
    }

    fn needs(&self) -> &[Column] {
        match self.config.reference_free {
            true => &[Column::TokenRewards],
            false => &[Column::TokenRewards, Column::RefLogProbs],
        }
    }

    fn requirements(&self) -> Requirements {
        crate::pairs::requirements()
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let pairs = Pairs::find(input, NAME)?;
        if pairs.is_empty() {
            let loss_n = nothing(input);
            let zero = loss_n.clone().inner();
            let metrics_n = vec![
                ("actor/dpo_margin", zero.clone()),
                ("actor/dpo_accuracy", zero),
            ];
            return Ok(LossOutput { loss_n, metrics_n });
        }
        let mut log_ratio = input.log_probs_n.clone();
        if !self.config.reference_free {
            log_ratio = log_ratio - input.column_n(Column::RefLogProbs, NAME)?;
        }
        let mut log_ratio = input.sequence_sum_s(log_ratio);
        if self.config.average_log_prob {
            log_ratio = log_ratio / input.lengths_s();
        }
        let (chosen, rejected) = pairs.split(log_ratio);
        let h = chosen - rejected;
        let margin = h.clone().inner().mul_scalar(self.config.beta);
        let right = margin.clone().greater_scalar(0.0).float();
        Ok(LossOutput {
            loss_n: pairs.spread(input, self.of_margins(h)),
            metrics_n: vec![
                ("actor/dpo_margin", pairs.both(input, margin)),
                ("actor/dpo_accuracy", pairs.both(input, right)),
            ],
        })
    }
}
