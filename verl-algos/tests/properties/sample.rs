//! Random batches.

use proptest::collection::vec;
use proptest::prelude::*;
use verl_core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

/// One response token: whether the policy produced it, and its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) live: bool,
    pub(crate) log_prob: f32,
    pub(crate) old: f32,
    pub(crate) reference: f32,
    pub(crate) value: f32,
    pub(crate) reward: f32,
    pub(crate) advantage: f32,
}

/// A token of the policy.
pub(crate) const LIVE: Token = Token {
    live: true,
    log_prob: -1.0,
    old: -1.0,
    reference: -1.0,
    value: 0.0,
    reward: 0.0,
    advantage: 0.0,
};

/// One answer.
pub(crate) type Row = Vec<Token>;

/// An answer of up to six tokens, possibly none, some of them masked.
/// Rewards are multiples of 1/8, so that sums of them are exact.
pub(crate) fn row() -> impl Strategy<Value = Row> {
    let log_prob = || -6.0f32..0.0;
    let token = (
        any::<bool>(),
        (log_prob(), log_prob(), log_prob()),
        -2.0f32..2.0,
        -16i8..16,
        -3.0f32..3.0,
    );
    let token = token.prop_map(
        |(live, (log_prob, old, reference), value, reward, advantage)| Token {
            live,
            log_prob,
            old,
            reference,
            value,
            reward: f32::from(reward) / 8.0,
            advantage,
        },
    );
    vec(token, 0..6)
}

/// Groups of two to four answers.
pub(crate) fn groups() -> impl Strategy<Value = Vec<Vec<Row>>> {
    vec(vec(row(), 2..5), 1..4)
}

/// A batch whose masked tokens hold `masked` instead of their numbers.
pub(crate) fn batch(groups: &[Vec<Row>], masked: Option<f32>) -> Batch {
    let group = |(id, rows): (usize, &Vec<Row>)| {
        let id = GroupId(id as u64);
        let member = |(sample, row): (usize, &Row)| trajectory(id, sample, row, masked);
        let mut group = Group::new(id, rows.iter().enumerate().map(member).collect()).unwrap();
        let rewards = group.trajectories().iter().map(|t| t.total_reward());
        let best = rewards.fold(f32::NEG_INFINITY, f32::max);
        group.set_baseline(best).unwrap();
        group
    };
    Batch::new(groups.iter().enumerate().map(group).collect())
}

type Get = fn(&Token) -> f32;

fn trajectory(group: GroupId, sample: usize, row: &Row, masked: Option<f32>) -> Trajectory {
    let mut t = Trajectory::new(TrajectoryParts {
        group,
        sample,
        prompt: vec![1].into(),
        response: vec![7; row.len()],
        response_mask: row.iter().map(|token| token.live).collect(),
        finish: FinishReason::Stop,
        weight_version: 0,
    })
    .unwrap();
    let score = row
        .iter()
        .filter(|token| token.live)
        .map(|token| token.reward);
    let score = score.sum::<f32>();
    t.set_score(score).unwrap();
    t.set_parts(vec![
        ("first".into(), score),
        ("second".into(), 2.0 * score),
    ])
    .unwrap();
    let columns: [(Column, Get); 9] = [
        (Column::OldLogProbs, |token| token.old),
        (Column::RefLogProbs, |token| token.reference),
        (Column::Values, |token| token.value),
        (Column::TokenRewards, |token| token.reward),
        (Column::Advantages, |token| token.advantage),
        (Column::Returns, |token| token.value + token.advantage),
        (Column::ImportanceWeights, |token| token.value.exp()),
        (Column::ImplicitRewards, |token| {
            token.log_prob - token.reference
        }),
        (Column::SumPiSquared, |token| token.old.exp().powi(2)),
    ];
    for (column, get) in columns {
        let value = |token: &Token| match masked {
            Some(masked) if !token.live => masked,
            _ => get(token),
        };
        t.set(column, row.iter().map(value).collect()).unwrap();
    }
    t
}

/// A quantity of the policy's tokens, packed.
pub(crate) fn packed(rows: &[&Row], get: impl Fn(&Token) -> f32) -> Vec<f32> {
    let live = rows.iter().flat_map(|row| row.iter()).filter(|t| t.live);
    live.map(get).collect()
}

/// Equal up to rounding.
pub(crate) fn close(a: &[f32], b: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 + 1e-4 * b.abs();
    a.len() == b.len() && a.iter().zip(b).all(near)
}
