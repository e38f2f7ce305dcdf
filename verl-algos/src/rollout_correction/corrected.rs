//! A loss whose tokens are weighted.

use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;

/// Any policy loss, each token multiplied by its importance weight.
///
/// # Example
/// ```
/// use burn::tensor::Device;
/// use verl_algos::policy_gradient::PolicyGradientLoss;
/// use verl_algos::probe::{Answer, probe};
/// use verl_algos::rollout_correction::Corrected;
///
/// let answer = Answer {
///     advantage: 1.0,
///     log_probs: vec![-1.0, -1.0],
///     importance_weights: vec![2.0, 0.5],
///     ..Answer::default()
/// };
/// let loss = Corrected::new(Box::new(PolicyGradientLoss));
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!(probed.gradient_n, [-2.0, -0.5]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Corrected {
    inner: Box<dyn PolicyLoss>,
    needs: Vec<Column>,
}

impl Corrected {
    /// Wraps a loss.
    pub fn new(inner: Box<dyn PolicyLoss>) -> Self {
        let mut needs = inner.needs().to_vec();
        needs.push(Column::ImportanceWeights);
        Corrected { inner, needs }
    }
}

impl PolicyLoss for Corrected {
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
        let weights = input.column_n(Column::ImportanceWeights, "rollout correction")?;
        let mut output = self.inner.per_token(input)?;
        output.loss_n = output.loss_n * weights;
        Ok(output)
    }
}
