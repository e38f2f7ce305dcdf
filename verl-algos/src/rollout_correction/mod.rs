//! Rollout correction: the policy that sampled is not the one that is trained.
//!
//! A sampler in lower precision, or with older weights, draws from another
//! distribution than the trainer scores. With the ratio `r = exp(d)`, `d = log
//! pi_old - log pi_rollout`, of each token:
//!
//! - **weights** multiply the loss: `min(r, upper)` per token, per answer
//!   (the product) or its geometric mean; with two bounds (IcePop) a weight
//!   outside them is 0;
//! - **rejection** takes tokens or whole answers out of the loss whose
//!   divergence is outside its bounds: `token_`, `seq_sum_`, `seq_mean_` (k1
//!   of it is the geometric mean) or `seq_max_`, with `k1 = -d`, `k2 = d^2/2`
//!   or `k3 = exp(d) - 1 - d`; a **veto** takes out answers with a token whose
//!   ratio is below a threshold;
//! - **metrics** tell how far the two lie apart, whether or not anything is
//!   corrected.
//!
//! In **bypass mode** the sampler's log-probs stand in for the old ones, which
//! are not computed; see [`Bypass`].
//!
//! # Paper
//! Liu et al. 2025, "When speed kills stability",
//! <https://richardli.xyz/rl-collapse>; IcePop: the report of Ring-1T.
//!
//! # Differences from verl
//! - Bounds of the `k1` criteria are bounds of the ratio, as verl documents
//!   them. Its code applies them to `1/r`: where it is given `l_u`, write
//!   `1/u_1/l`. Symmetric bounds such as `0.5_2` mean the same.
//! - Answers without a token count in no mean; verl counts them as weight 0,
//!   perplexity 1.
//! - After a rejection the loss divides by what is left; verl does so only
//!   where it does not know the size of the whole mini-batch.
//! - `k3_kl` stays finite (verl: overflows at a log-ratio of 88), and the
//!   effective sample size is 0 when every weight is (verl: division by zero).
//! - An option that would have no effect is refused.
//! - `geometric` weights, and the veto of earlier versions of verl.
//!
//! # Metrics
//! verl's names, with the prefix `rollout_corr/`.

mod bypass;
mod config;
mod corrected;
mod figures;
mod metrics;
mod rejection;
#[cfg(test)]
mod tests;
mod weights;

pub use bypass::Bypass;
pub use config::{BypassLossType, RolloutCorrectionConfig, Threshold};
pub use corrected::Corrected;
pub use weights::WeightLevel;

use crate::policy_gradient::PolicyGradientLoss;
use figures::{Metrics, Rows};
use rejection::Criterion;
use verl_core::Result;
use verl_core::algorithm::{BatchHook, Figures, PolicyLoss};
use verl_core::types::{Batch, Column, Trajectory};
use weights::Weights;

const NAME: &str = "rollout correction";

/// What is done about the difference of the two policies.
///
/// # Example
/// The second token is three times as likely in training as it was when
/// sampled; its weight stops at 2.
/// ```
/// use verl_algos::rollout_correction::{RolloutCorrectionConfig, WeightLevel};
/// use verl_core::types::*;
///
/// let mut t = Trajectory::new(TrajectoryParts {
///     group: GroupId(0),
///     sample: 0,
///     prompt: vec![1].into(),
///     response: vec![7, 8],
///     response_mask: vec![true, true],
///     finish: FinishReason::Stop,
///     weight_version: 0,
/// })?;
/// t.set(Column::RolloutLogProbs, vec![0.5f32.ln(), 0.25f32.ln()])?;
/// t.set(Column::OldLogProbs, vec![0.5f32.ln(), 0.75f32.ln()])?;
/// let mut batch = Batch::new(vec![Group::new(GroupId(0), vec![t])?]);
///
/// let config = RolloutCorrectionConfig {
///     rollout_is: Some(WeightLevel::Token),
///     ..Default::default()
/// };
/// let metrics = config.build()?.apply(&mut batch)?;
/// let t = batch.trajectories().next().unwrap();
/// assert_eq!(t.get(Column::ImportanceWeights, "doctest")?, [1.0, 2.0]);
/// assert!(metrics.contains(&("rollout_corr/rollout_is_mean".into(), 1.5)));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutCorrection {
    weights: Option<Weights>,
    criteria: Vec<Criterion>,
    /// Log of the smallest ratio an answer's tokens may have.
    veto: Option<f64>,
    bypass: Option<BypassLossType>,
}

/// What becomes of the tokens of rows.
struct Decision {
    weights: Option<Vec<Vec<f64>>>,
    keep: Vec<Vec<bool>>,
    metrics: Metrics,
}

impl RolloutCorrection {
    /// Columns that [`RolloutCorrection::apply`] reads.
    pub fn needs(&self) -> &[Column] {
        match self.bypass {
            Some(_) => &[],
            None => &[Column::OldLogProbs, Column::RolloutLogProbs],
        }
    }

    /// Whether the sampler's log-probs are to be used as the old ones, as the
    /// loss that [`RolloutCorrection::wrap`] makes then asks of the run.
    pub fn is_bypass(&self) -> bool {
        self.bypass.is_some()
    }

    /// The loss with its correction: weights, or what bypass mode does. There
    /// `loss_type: reinforce` takes the place of the given loss.
    pub fn wrap(&self, loss: Box<dyn PolicyLoss>) -> Box<dyn PolicyLoss> {
        match self.bypass {
            Some(BypassLossType::PpoClip) => Box::new(Bypass::new(loss, self.clone())),
            Some(BypassLossType::Reinforce) => {
                Box::new(Bypass::new(Box::new(PolicyGradientLoss), self.clone()))
            }
            None if self.weights.is_some() => Box::new(Corrected::new(loss)),
            None => loss,
        }
    }

    /// Writes the weights into the batch, takes rejected tokens out of its
    /// response masks, and returns the metrics. To be called once advantages
    /// are there: the reward of a rejected token should still count in them.
    /// In bypass mode nothing is done here.
    ///
    /// # Errors
    /// [`verl_core::Error::MissingColumn`] without old log-probs or those of
    /// the sampler.
    pub fn apply(&self, batch: &mut Batch) -> Result<Figures> {
        if self.is_bypass() {
            return Ok(Vec::new());
        }
        let rows = |column| -> Result<Vec<Vec<f64>>> {
            let answered = batch.trajectories().filter(|t| t.policy_tokens() > 0);
            answered.map(|t| live(t, column)).collect()
        };
        let (training, rollout) = (rows(Column::OldLogProbs)?, rows(Column::RolloutLogProbs)?);
        let mut decision = self.decide(&metrics::log_ratios(&training, &rollout));
        if !training.is_empty() {
            decision
                .metrics
                .extend(metrics::off_policy(&training, &rollout));
        }
        let mut keep = decision.keep.into_iter();
        let mut weights = decision.weights.map(Vec::into_iter);
        for t in batch.trajectories_mut() {
            let positions: Vec<usize> = t.policy_positions().collect();
            let answered = !positions.is_empty();
            if let Some(weights) = &mut weights {
                let row = if answered { weights.next() } else { None };
                let mut column = vec![0.0; t.response().len()];
                let placed = positions.iter().zip(row.unwrap_or_default());
                placed.for_each(|(i, weight)| column[*i] = weight as f32);
                t.set(Column::ImportanceWeights, column)?;
            }
            let row = if answered { keep.next() } else { None };
            let mut mask = vec![true; t.response().len()];
            let placed = positions.iter().zip(row.unwrap_or_default());
            placed.for_each(|(i, keep)| mask[*i] = keep);
            t.restrict_mask(&mask)?;
        }
        let prefixed = |(name, value)| (format!("rollout_corr/{name}"), value);
        Ok(decision.metrics.into_iter().map(prefixed).collect())
    }

    /// Weights and rejection of rows, none of them empty.
    fn decide(&self, log_ratios: &Rows) -> Decision {
        let mut keep: Vec<Vec<bool>> = log_ratios.iter().map(|row| vec![true; row.len()]).collect();
        let mut metrics = Metrics::new();
        if log_ratios.is_empty() {
            let weights = self.weights.map(|_| Vec::new());
            return Decision {
                weights,
                keep,
                metrics,
            };
        }
        let weights = self.weights.map(|weights| {
            let (weights, figures) = weights.of(log_ratios);
            metrics.extend(figures);
            weights
        });
        let mut restrict = |more: &[Vec<bool>]| {
            let all = keep.iter_mut().flatten().zip(more.iter().flatten());
            all.for_each(|(keep, more)| *keep &= more);
        };
        for criterion in &self.criteria {
            let (more, figures) = criterion.keep(log_ratios);
            restrict(&more);
            metrics.extend(figures);
        }
        if let Some(least) = self.veto {
            let fine = |row: &Vec<f64>| vec![row.iter().all(|d| *d >= least); row.len()];
            let more: Vec<Vec<bool>> = log_ratios.iter().map(fine).collect();
            restrict(&more);
            metrics.extend(rejection::masked("rollout_rs_veto", &more));
        }
        if !self.criteria.is_empty() || self.veto.is_some() {
            metrics.extend(rejection::masked("rollout_rs", &keep));
        }
        Decision {
            weights,
            keep,
            metrics,
        }
    }
}

impl BatchHook for RolloutCorrection {
    fn before_updates(&self, batch: &mut Batch, _seed: u64) -> Result<Figures> {
        self.apply(batch)
    }
}

/// A column at the policy's tokens.
fn live(t: &Trajectory, column: Column) -> Result<Vec<f64>> {
    let row = t.get(column, NAME)?;
    Ok(t.policy_positions().map(|i| f64::from(row[i])).collect())
}
