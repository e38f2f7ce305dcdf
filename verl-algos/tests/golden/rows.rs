//! Padded reference tensors as a batch of trajectories, and back.

use crate::reference::{Case, Table};
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use verl_core::algorithm::{LossInput, Objective, ObjectiveValue, ValueInput, ValueObjective};
use verl_core::math::Denominators;
use verl_core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

/// The rows of a case. Masked positions stay part of the responses, and their
/// columns hold NaN there: nothing may read them.
pub(crate) struct Rows {
    pub(crate) batch: Batch,
    /// For each row of the batch, its row in the file.
    order: Vec<usize>,
    width: usize,
}

impl Rows {
    /// Groups the rows by `ids`; without ids, each is a group of its own.
    pub(crate) fn new(mask: &Table, ids: Option<&[i64]>) -> Self {
        let own: Vec<i64> = (0..mask.shape[0] as i64).collect();
        let mut members = BTreeMap::<i64, Vec<usize>>::new();
        for (row, id) in ids.unwrap_or(&own).iter().enumerate() {
            members.entry(*id).or_default().push(row);
        }
        let masks: Vec<&[f32]> = mask.rows().collect();
        let group = |(id, rows): (&i64, &Vec<usize>)| {
            let id = GroupId(*id as u64);
            let member = |(sample, row): (usize, &usize)| trajectory(id, sample, masks[*row]);
            Group::new(id, rows.iter().enumerate().map(member).collect()).unwrap()
        };
        Rows {
            batch: Batch::new(members.iter().map(group).collect()),
            order: members.values().flatten().copied().collect(),
            width: mask.width(),
        }
    }

    /// Rows and mask of a case without groups.
    pub(crate) fn of(case: &Case) -> Self {
        Rows::new(&case.input("response_mask"), None)
    }

    /// Stores a column.
    pub(crate) fn set(&mut self, column: Column, values: &Table) {
        let rows: Vec<&[f32]> = values.rows().collect();
        for (t, row) in self.batch.trajectories_mut().zip(&self.order) {
            let live = t.response_mask().iter().zip(rows[*row]);
            let poisoned = live.map(|(live, v)| if *live { *v } else { f32::NAN });
            let poisoned = poisoned.collect();
            t.set(column, poisoned).unwrap();
        }
    }

    /// Stores the scores.
    pub(crate) fn set_scores(&mut self, scores: &[f32]) {
        for (t, row) in self.batch.trajectories_mut().zip(&self.order) {
            t.set_score(scores[*row]).unwrap();
        }
    }

    /// Stores a named sub-score, beside those there are.
    pub(crate) fn set_part(&mut self, name: &str, values: &[f32]) {
        for (t, row) in self.batch.trajectories_mut().zip(&self.order) {
            let mut parts = t.parts().to_vec();
            parts.push((name.into(), values[*row]));
            t.set_parts(parts).unwrap();
        }
    }

    /// Rows in batch order, as the file orders them.
    pub(crate) fn restore(&self, rows: &[Vec<f32>]) -> Vec<f32> {
        let mut data = vec![0.0; rows.len() * self.width];
        for (values, row) in rows.iter().zip(&self.order) {
            data[row * self.width..][..self.width].copy_from_slice(values);
        }
        data
    }

    /// A column as the file orders it, masked positions as they are.
    pub(crate) fn column(&self, column: Column) -> Vec<f32> {
        let get = |t: &Trajectory| t.get(column, "test").unwrap().to_vec();
        self.restore(&self.batch.trajectories().map(get).collect::<Vec<_>>())
    }

    /// Policy tokens of a padded tensor with `features` values per position.
    pub(crate) fn pack<'a>(&self, values: &'a Table, features: usize) -> Vec<&'a [f32]> {
        let row = |(t, row): (&Trajectory, &usize)| -> Vec<&'a [f32]> {
            let start = row * self.width;
            let at = |i| &values.data[(start + i) * features..][..features];
            t.policy_positions().map(at).collect()
        };
        self.batch
            .trajectories()
            .zip(&self.order)
            .flat_map(row)
            .collect()
    }

    /// The inverse of [`Rows::pack`], with 0 at masked positions.
    pub(crate) fn unpack(&self, packed: &[f32], features: usize) -> Vec<f32> {
        let mut data = vec![0.0; self.order.len() * self.width * features];
        let mut values = packed.chunks(features);
        for (t, row) in self.batch.trajectories().zip(&self.order) {
            for i in t.policy_positions() {
                data[(row * self.width + i) * features..][..features]
                    .copy_from_slice(values.next().unwrap());
            }
        }
        data
    }

    /// Policy tokens of a padded tensor, as a leaf that gradients are taken of.
    pub(crate) fn leaf(&self, values: &Table) -> Tensor<1> {
        let packed = self.pack(values, 1).concat();
        let n = packed.len();
        let device = Device::flex().autodiff();
        Tensor::from_data(TensorData::new(packed, [n]), &device).require_grad()
    }

    /// Sizes of the mini-batch: those of a larger one where the case says so,
    /// of which these rows are then one rank's share.
    pub(crate) fn denominators(&self, tokens: Option<f64>, sequences: Option<f64>) -> Denominators {
        let mut sizes = Denominators::count(self.lengths());
        sizes.tokens = tokens.map_or(sizes.tokens, |n| n as usize);
        sizes.sequences = sequences.map_or(sizes.sequences, |n| n as usize);
        sizes
    }

    /// Policy tokens of each row.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.batch.trajectories().map(|t| t.policy_tokens())
    }

    /// Evaluates the policy objective.
    pub(crate) fn policy(
        &self,
        objective: &Objective<'_>,
        log_probs_n: Tensor<1>,
        entropy_n: Option<Tensor<1>>,
    ) -> ObjectiveValue {
        let trajectories: Vec<&Trajectory> = self.batch.trajectories().collect();
        let input = LossInput::new(&trajectories, log_probs_n, entropy_n).unwrap();
        objective.evaluate(&input).unwrap()
    }

    /// Evaluates the critic's objective.
    pub(crate) fn critic(
        &self,
        objective: &ValueObjective<'_>,
        values_n: Tensor<1>,
    ) -> ObjectiveValue {
        let trajectories: Vec<&Trajectory> = self.batch.trajectories().collect();
        let input = ValueInput::new(&trajectories, values_n).unwrap();
        objective.evaluate(&input).unwrap()
    }
}

/// Gradient of `loss` with respect to a leaf.
pub(crate) fn gradient<const D: usize>(loss: &Tensor<1>, leaf: &Tensor<D>) -> Vec<f32> {
    let gradients = loss.clone().backward();
    let gradient = leaf.grad(&gradients).unwrap();
    gradient.into_data().try_to_vec::<f32>().unwrap()
}

fn trajectory(group: GroupId, sample: usize, mask: &[f32]) -> Trajectory {
    Trajectory::new(TrajectoryParts {
        group,
        sample,
        prompt: vec![1].into(),
        response: vec![7; mask.len()],
        response_mask: mask.iter().map(|m| *m != 0.0).collect(),
        finish: FinishReason::Stop,
        weight_version: 0,
    })
    .unwrap()
}
