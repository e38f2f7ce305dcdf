//! Advantages that an answer owes to the rewards of its group.

use crate::grpo::Singleton;
use verl_core::types::{Batch, Group};

/// Total rewards of a group's answers.
pub(crate) fn rewards(group: &Group) -> Vec<f32> {
    let all = group.trajectories().iter();
    all.map(|t| t.total_reward()).collect()
}

/// One advantage per trajectory, from the rewards of its group alone.
pub(crate) fn by_rewards(batch: &Batch, advantages: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
    let group = |group| advantages(&rewards(group));
    batch.groups().iter().flat_map(group).collect()
}

/// What the baseline of an answer that is alone in its group must be, for it
/// to get the advantage that `singleton` says.
pub(crate) fn lone_baseline(reward: f32, singleton: Singleton) -> f64 {
    match singleton {
        Singleton::Zero => f64::from(reward),
        Singleton::Raw => 0.0,
    }
}

/// Rewards less a baseline.
pub(crate) fn less(rewards: &[f32], baseline: f64) -> Vec<f32> {
    let less = |r: &f32| (f64::from(*r) - baseline) as f32;
    rewards.iter().map(less).collect()
}

/// Rewards less their mean.
pub(crate) fn centred(rewards: &[f32], singleton: Singleton) -> Vec<f32> {
    let baseline = match rewards {
        [alone] => lone_baseline(*alone, singleton),
        _ => verl_core::math::mean_and_std(rewards.iter().copied()).0,
    };
    less(rewards, baseline)
}
