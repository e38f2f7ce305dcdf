//! The language-model loss on correct answers, added to any policy loss
//! (VAPO: positive-example LM loss).
//!
//! ```text
//! L = inner - positive_lm_coef log pi      at the tokens of correct answers
//! L = inner                                elsewhere
//! ```
//!
//! # Paper
//! VAPO, arXiv:2504.05118, section 4.3, with its weight of 0.1. Not in verl.
//!
//! # Differences from the paper
//! The paper averages the added term over the tokens of correct answers
//! alone. Here all of the loss has one denominator, that of `loss_agg_mode`:
//! with `token-mean` the term is the paper's times the share of tokens that
//! belong to correct answers. So a single correct answer does not outweigh a
//! batch, and micro-batches add up. Divide the weight by the share of correct
//! answers you expect where the paper's scale matters.
//!
//! # Metrics
//! Those of the inner loss, and `actor/positive_lm_loss`, the mean of
//! `-log pi` over the policy's tokens, 0 at those of other answers.

use crate::options::require;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;
use verl_core::{Error, Result};

/// Options of the added term.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PositiveLmConfig {
    /// Its weight.
    pub positive_lm_coef: f32,
    /// Answers that score higher are correct.
    pub positive_lm_score: f32,
}

impl Default for PositiveLmConfig {
    fn default() -> Self {
        PositiveLmConfig {
            positive_lm_coef: 0.1,
            positive_lm_score: 0.0,
        }
    }
}

impl PositiveLmConfig {
    /// Adds the term to a loss.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(&self, inner: Box<dyn PolicyLoss>) -> Result<PositiveLm> {
        let (coef, above) = (self.positive_lm_coef, self.positive_lm_score);
        let in_range = coef.is_finite() && coef >= 0.0;
        require("positive_lm_coef", coef, in_range, "0 or positive")?;
        require("positive_lm_score", above, above.is_finite(), "a number")?;
        let mut needs = inner.needs().to_vec();
        if !needs.contains(&Column::TokenRewards) {
            needs.push(Column::TokenRewards);
        }
        Ok(PositiveLm {
            inner,
            coef,
            above,
            needs,
        })
    }
}

/// A loss with the term added.
///
/// # Example
/// Two answers of one token, the first correct:
/// ```
/// use burn::tensor::Device;
/// use verl_algos::policy_gradient::PolicyGradientLoss;
/// use verl_algos::positive_lm::PositiveLmConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answers = [1.0, 0.0].map(|score| Answer {
///     score,
///     advantage: 2.0,
///     log_probs: vec![-1.0],
///     ..Answer::default()
/// });
/// let config = PositiveLmConfig { positive_lm_coef: 0.5, ..Default::default() };
/// let loss = config.build(Box::new(PolicyGradientLoss))?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// assert_eq!(probed.loss_n, [2.5, 2.0]);
/// assert_eq!(probed.gradient_n, [-2.5, -2.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug)]
pub struct PositiveLm {
    inner: Box<dyn PolicyLoss>,
    coef: f32,
    above: f32,
    needs: Vec<Column>,
}

const NAME: &str = "positive-example LM loss";

impl PolicyLoss for PositiveLm {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn needs(&self) -> &[Column] {
        &self.needs
    }

    fn requirements(&self) -> Requirements {
        self.inner.requirements()
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let mut correct_n = Vec::with_capacity(input.tokens());
        for (t, segment) in input.trajectories.iter().zip(&input.segments) {
            let score = t.score().ok_or(Error::MissingColumn {
                column: "score",
                requester: NAME,
                remedy: Column::TokenRewards.remedy(),
            })?;
            let correct = f32::from(u8::from(score > self.above));
            correct_n.resize(segment.end, correct);
        }
        let data = TensorData::new(correct_n, [input.tokens()]);
        let correct = Tensor::<1>::from_data(data, &input.log_probs_n.device().inner());
        let nll = (input.log_probs_n.clone() * correct).neg();
        let mut output = self.inner.per_token(input)?;
        output.loss_n = output.loss_n + nll.clone().mul_scalar(self.coef);
        output
            .metrics_n
            .push(("actor/positive_lm_loss", nll.inner()));
        Ok(output)
    }
}
