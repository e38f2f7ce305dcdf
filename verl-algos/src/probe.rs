//! Evaluating a loss on a few numbers, to check it by hand.

use burn::tensor::{Device, Tensor, TensorData};
use verl_core::Result;
use verl_core::algorithm::{LossInput, PolicyLoss};
use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

/// An answer, reduced to what losses read of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Which prompt it answers.
    pub group: u64,
    /// Its score.
    pub score: f32,
    /// Its advantage, at every token.
    pub advantage: f32,
    /// Log-probs of its tokens under the policy.
    pub log_probs: Vec<f32>,
    /// Under the old policy; empty when the loss does not read them.
    pub old_log_probs: Vec<f32>,
    /// Under the reference policy; empty when the loss does not read them.
    pub ref_log_probs: Vec<f32>,
    /// Importance weights; empty when the loss does not read them.
    pub importance_weights: Vec<f32>,
}

impl Answer {
    fn trajectory(&self, sample: usize) -> Result<Trajectory> {
        let n = self.log_probs.len();
        let mut t = Trajectory::new(TrajectoryParts {
            group: GroupId(self.group),
            sample,
            prompt: vec![0].into(),
            response: vec![0; n],
            response_mask: vec![true; n],
            finish: FinishReason::Stop,
            weight_version: 0,
        })?;
        t.set_score(self.score)?;
        t.set(Column::Advantages, vec![self.advantage; n])?;
        for (column, values) in [
            (Column::OldLogProbs, &self.old_log_probs),
            (Column::RefLogProbs, &self.ref_log_probs),
            (Column::ImportanceWeights, &self.importance_weights),
        ] {
            if !values.is_empty() {
                t.set(column, values.clone())?;
            }
        }
        Ok(t)
    }
}

/// What a loss makes of the answers' tokens, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Probed {
    /// The loss of each token.
    pub loss_n: Vec<f32>,
    /// Gradient of their sum with respect to each token's log-prob.
    pub gradient_n: Vec<f32>,
}

/// Evaluates `loss` and its gradient on a device with autodiff.
///
/// # Errors
/// What the loss refuses, and log-probs of different lengths.
///
/// # Example
/// The plain policy gradient, `-A log pi`:
/// ```
/// use burn::tensor::Device;
/// use verl_algos::policy_gradient::PolicyGradientLoss;
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer { advantage: 2.0, log_probs: vec![-0.5], ..Answer::default() };
/// let probed = probe(&PolicyGradientLoss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!((probed.loss_n, probed.gradient_n), (vec![1.0], vec![-2.0]));
/// # Ok::<(), verl_core::Error>(())
/// ```
pub fn probe(loss: &dyn PolicyLoss, answers: &[Answer], device: &Device) -> Result<Probed> {
    let numbered = answers.iter().enumerate();
    let trajectories = numbered.map(|(i, answer)| answer.trajectory(i));
    let trajectories: Vec<Trajectory> = trajectories.collect::<Result<_>>()?;
    let rows: Vec<&Trajectory> = trajectories.iter().collect();
    let packed: Vec<f32> = answers.iter().flat_map(|a| a.log_probs.clone()).collect();
    let n = packed.len();
    let leaf = Tensor::<1>::from_data(TensorData::new(packed, [n]), device).require_grad();
    let loss_n = loss
        .per_token(&LossInput::new(&rows, leaf.clone(), None)?)?
        .loss_n;
    let gradient = leaf.grad(&loss_n.clone().sum().backward());
    let numbers = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect();
    Ok(Probed {
        loss_n: numbers(loss_n),
        gradient_n: gradient.map_or(vec![0.0; n], numbers),
    })
}
