//! Per-token losses on packed tensors.
//!
//! Only tokens the policy produced are packed, sequence after sequence, so a
//! loss never sees a mask and nothing masked can reach it.

use super::Requirements;
use crate::types::{Column, Trajectory};
use crate::{Error, Result};
use burn::tensor::{Int, Tensor, TensorData};
use std::fmt;
use std::ops::Range;

/// What a [`PolicyLoss`] reads: `n` packed policy tokens of `s` sequences.
#[derive(Debug)]
#[non_exhaustive]
pub struct LossInput<'a> {
    /// Log-probs under the current policy, `[n]`; gradients flow through it.
    pub log_probs_n: Tensor<1>,
    /// Entropies in nats, `[n]`, when the objective asked for them.
    pub entropy_n: Option<Tensor<1>>,
    /// The sequences the tokens come from.
    pub trajectories: &'a [&'a Trajectory],
    /// Where each sequence's tokens lie in the packed tensors.
    pub segments: Vec<Range<usize>>,
}

impl<'a> LossInput<'a> {
    /// Joins the policy's outputs with the trajectories they belong to.
    ///
    /// # Errors
    /// [`Error::Length`] when the tensors do not hold one value for each
    /// policy token.
    pub fn new(
        trajectories: &'a [&'a Trajectory],
        log_probs_n: Tensor<1>,
        entropy_n: Option<Tensor<1>>,
    ) -> Result<Self> {
        let segments = segments(trajectories);
        let expected = segments.last().map_or(0, |s| s.end);
        for (what, tensor) in [
            ("log_probs_n", Some(&log_probs_n)),
            ("entropy_n", entropy_n.as_ref()),
        ] {
            match tensor.map(|t| t.dims()[0]) {
                Some(got) if got != expected => {
                    return Err(Error::Length {
                        what: what.into(),
                        expected,
                        got,
                    });
                }
                _ => {}
            }
        }
        Ok(LossInput {
            log_probs_n,
            entropy_n,
            trajectories,
            segments,
        })
    }

    /// Number of packed tokens.
    pub fn tokens(&self) -> usize {
        self.segments.last().map_or(0, |s| s.end)
    }

    /// A column of the trajectories, packed to `[n]`, a constant for the
    /// gradient.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] in the name of `requester`.
    pub fn column_n(&self, column: Column, requester: &'static str) -> Result<Tensor<1>> {
        packed_column(self.trajectories, column, requester, &self.log_probs_n)
    }

    /// For each packed token, the number of its sequence, `[n]`.
    pub fn segment_ids_n(&self) -> Tensor<1, Int> {
        let ids: Vec<i64> = self
            .segments
            .iter()
            .enumerate()
            .flat_map(|(s, r)| r.clone().map(move |_| s as i64))
            .collect();
        let n = ids.len();
        Tensor::from_data(
            TensorData::new(ids, [n]),
            &self.log_probs_n.device().inner(),
        )
    }

    /// Sum of a packed tensor over each sequence, `[n] -> [s]`, differentiable.
    pub fn sequence_sum_s(&self, values_n: Tensor<1>) -> Tensor<1> {
        let s = self.segments.len();
        Tensor::<1>::zeros([s], &values_n.device()).select_assign(
            0,
            self.segment_ids_n(),
            values_n,
            burn::tensor::IndexingUpdateOp::Add,
        )
    }

    /// One value per sequence, given to each of its tokens, `[s] -> [n]`,
    /// differentiable.
    pub fn spread_n(&self, values_s: Tensor<1>) -> Tensor<1> {
        values_s.select(0, self.segment_ids_n())
    }

    /// Policy tokens of each sequence, at least 1, `[s]`.
    pub fn lengths_s(&self) -> Tensor<1> {
        let lengths = self.segments.iter().map(|r| r.len().max(1) as f32);
        let lengths: Vec<f32> = lengths.collect();
        let s = lengths.len();
        Tensor::from_data(
            TensorData::new(lengths, [s]),
            &self.log_probs_n.device().inner(),
        )
    }

    /// Mean of a packed tensor over each sequence, spread back over its
    /// tokens: `[n] -> [n]`, differentiable. Sequence-level ratios (GSPO,
    /// GMPO) are made of it.
    pub fn sequence_mean_n(&self, values_n: Tensor<1>) -> Tensor<1> {
        self.spread_n(self.sequence_sum_s(values_n) / self.lengths_s())
    }
}

/// What a loss returns.
#[derive(Debug)]
pub struct LossOutput {
    /// Loss of each packed token, `[n]`, not reduced.
    pub loss_n: Tensor<1>,
    /// Named per-token quantities, `[n]` each; they are averaged over the
    /// mini-batch's tokens and logged.
    pub metrics_n: Vec<(&'static str, Tensor<1>)>,
}

/// A policy loss: packed tensors in, one loss per token out.
///
/// # Example
/// The plain policy gradient, `-A log pi`:
/// ```
/// use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
/// use verl_core::types::Column;
///
/// #[derive(Debug)]
/// struct PolicyGradient;
///
/// impl PolicyLoss for PolicyGradient {
///     fn name(&self) -> &str {
///         "policy_gradient"
///     }
///     fn needs(&self) -> &[Column] {
///         &[Column::Advantages]
///     }
///     fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
///         let advantages_n = input.column_n(Column::Advantages, "policy_gradient")?;
///         let loss_n = (input.log_probs_n.clone() * advantages_n).neg();
///         Ok(LossOutput { loss_n, metrics_n: vec![] })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy loss",
    note = "implement `PolicyLoss`; see its example"
)]
pub trait PolicyLoss: fmt::Debug + Send + Sync {
    /// The registry key.
    fn name(&self) -> &str;

    /// Columns read, checked before the first rollout.
    fn needs(&self) -> &[Column];

    /// What else the run must have; columns speak for themselves.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// The loss of each packed token.
    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput>;
}

/// What a [`ValueLoss`] reads: `n` packed policy tokens.
#[derive(Debug)]
#[non_exhaustive]
pub struct ValueInput<'a> {
    /// Values under the current critic, `[n]`; gradients flow through it.
    pub values_n: Tensor<1>,
    /// The sequences the tokens come from.
    pub trajectories: &'a [&'a Trajectory],
}

impl<'a> ValueInput<'a> {
    /// Joins the critic's outputs with the trajectories they belong to.
    ///
    /// # Errors
    /// [`Error::Length`] when there is not one value for each policy token.
    pub fn new(trajectories: &'a [&'a Trajectory], values_n: Tensor<1>) -> Result<Self> {
        let expected = trajectories.iter().map(|t| t.policy_tokens()).sum();
        let got = values_n.dims()[0];
        match expected == got {
            true => Ok(ValueInput {
                values_n,
                trajectories,
            }),
            false => Err(Error::Length {
                what: "values_n".into(),
                expected,
                got,
            }),
        }
    }

    /// A column of the trajectories, packed to `[n]`.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] in the name of `requester`.
    pub fn column_n(&self, column: Column, requester: &'static str) -> Result<Tensor<1>> {
        packed_column(self.trajectories, column, requester, &self.values_n)
    }
}

/// A critic's loss: one per token.
pub trait ValueLoss: fmt::Debug + Send + Sync {
    /// Columns read, checked before the first rollout.
    fn needs(&self) -> &[Column];

    /// The loss of each packed token.
    fn per_token(&self, input: &ValueInput<'_>) -> Result<LossOutput>;
}

const _: fn(&dyn PolicyLoss, &dyn ValueLoss) = |_, _| {};

fn segments(trajectories: &[&Trajectory]) -> Vec<Range<usize>> {
    let mut start = 0;
    let next = |t: &&Trajectory| {
        let segment = start..start + t.policy_tokens();
        start = segment.end;
        segment
    };
    trajectories.iter().map(next).collect()
}

fn packed_column(
    trajectories: &[&Trajectory],
    column: Column,
    requester: &'static str,
    like: &Tensor<1>,
) -> Result<Tensor<1>> {
    let mut packed = Vec::new();
    for t in trajectories {
        let row = t.get(column, requester)?;
        packed.extend(t.policy_positions().map(|i| row[i]));
    }
    let n = packed.len();
    Ok(Tensor::from_data(
        TensorData::new(packed, [n]),
        &like.device().inner(),
    ))
}
