//! Rows of per-token numbers: reduced to the policy's tokens, and back.

use verl_core::Result;
use verl_core::math::runs;
use verl_core::types::{Batch, Column, Trajectory};

/// The entries of a row at the policy's tokens.
pub(crate) fn pick(t: &Trajectory, row: &[f32]) -> Vec<f32> {
    let mut packed = Vec::with_capacity(row.len());
    runs(t.response_mask()).for_each(|run| packed.extend_from_slice(&row[run]));
    packed
}

/// The inverse of [`pick`], with 0 at the other tokens.
pub(crate) fn spread(t: &Trajectory, packed: &[f32]) -> Vec<f32> {
    let mut row = vec![0.0; t.response().len()];
    let mut left = packed;
    for run in runs(t.response_mask()) {
        let (values, rest) = left.split_at(run.len());
        row[run].copy_from_slice(values);
        left = rest;
    }
    row
}

/// `G_t = r_t + gamma G_{t+1}` over the policy's tokens, 0 at the others.
pub(crate) fn discounted(t: &Trajectory, rewards: &[f32], gamma: f32) -> Vec<f32> {
    let mut row = vec![0.0; rewards.len()];
    let (mut ahead, gamma) = (0f64, f64::from(gamma));
    let tokens = t.response_mask().iter().zip(rewards);
    for ((live, reward), result) in tokens.zip(&mut row).rev() {
        if *live {
            ahead = f64::from(*reward) + gamma * ahead;
            *result = ahead as f32;
        }
    }
    row
}

/// The discounted token rewards of every trajectory.
pub(crate) fn returns(batch: &Batch, gamma: f32, requester: &'static str) -> Result<Vec<Vec<f32>>> {
    let row = |t: &Trajectory| {
        let rewards = t.get(Column::TokenRewards, requester)?;
        Ok(discounted(t, rewards, gamma))
    };
    batch.trajectories().map(row).collect()
}

/// Whitens rows over the policy's tokens of the batch; the others become 0.
pub(crate) fn whiten(batch: &Batch, rows: &mut [Vec<f32>]) {
    let masks: Vec<&[bool]> = batch.trajectories().map(|t| t.response_mask()).collect();
    verl_core::math::whiten(rows, &masks);
}
