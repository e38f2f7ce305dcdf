//! A large batch for advantage estimators, and all of them with options under
//! which verl's functions compute the same.

use std::sync::Arc;
use verl::algos::Gae;
use verl::algos::gdpo::GdpoConfig;
use verl::algos::gpg::{AlphaCounts, GpgConfig};
use verl::algos::grpo::{GroupRelative, GrpoConfig};
use verl::algos::grpo_passk::GrpoPasskConfig;
use verl::algos::opo::OpoConfig;
use verl::algos::optimal_token_baseline::OptimalTokenBaselineConfig;
use verl::algos::prime::PrimeConfig;
use verl::algos::reinforce_plus_plus::ReinforcePlusPlusConfig;
use verl::algos::reinforce_plus_plus_baseline::ReinforcePlusPlusBaselineConfig;
use verl::algos::remax::RemaxAdvantage;
use verl::algos::rloo::RlooConfig;
use verl::algos::vapo::VapoConfig;
use verl::core::Result;
use verl::core::algorithm::AdvantageEstimator;
use verl::core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

/// Prompts.
pub const GROUPS: u64 = 128;
/// Answers to each.
pub const SAMPLES: usize = 8;
/// Tokens of each answer; every 64th is not the policy's.
pub const TOKENS: usize = 4096;

/// Numbers that look random, in [0, 1).
fn noise(i: usize) -> f32 {
    ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32
}

fn answer(group: u64, sample: usize) -> Result<Trajectory> {
    let mut t = Trajectory::new(TrajectoryParts {
        group: GroupId(group),
        sample,
        prompt: Arc::from([1]),
        response: vec![7; TOKENS],
        response_mask: (0..TOKENS).map(|i| i % 64 != 0).collect(),
        finish: FinishReason::Stop,
        weight_version: 0,
    })?;
    let seed = group as usize * SAMPLES + sample;
    t.set_score((noise(seed) * 4.0).floor())?;
    t.set_parts(vec![
        ("right".into(), noise(seed + 1)),
        ("short".into(), noise(seed + 2)),
    ])?;
    for (column, low, high) in [
        (Column::OldLogProbs, -3.0, 0.0),
        (Column::Values, -1.0, 1.0),
        (Column::ImplicitRewards, -0.1, 0.1),
    ] {
        let value = |i| low + (high - low) * noise(seed * TOKENS + i);
        t.set(column, (0..TOKENS).map(value).collect())?;
    }
    // The token's own square, and some of what is left for the others.
    let square = |(i, log_prob): (usize, &f32)| {
        let p = log_prob.exp();
        p * p + noise(i + seed) * (1.0 - p) * (1.0 - p)
    };
    let log_probs = t.get(Column::OldLogProbs, "bench")?.iter().enumerate();
    let squares = log_probs.map(square).collect();
    t.set(Column::SumPiSquared, squares)?;
    Ok(t)
}

/// The batch, with every column that an estimator reads.
///
/// # Errors
/// When a column does not fit, which is a fault of this function.
pub fn batch() -> Result<Batch> {
    let group = |g: u64| {
        let answers = (0..SAMPLES).map(|sample| answer(g, sample));
        let mut group = Group::new(GroupId(g), answers.collect::<Result<_>>()?)?;
        group.set_baseline(1.0)?;
        Ok(group)
    };
    let groups = (0..GROUPS).map(group).collect::<Result<_>>()?;
    Ok(Batch::new(groups))
}

/// Every estimator.
///
/// # Errors
/// When an option is out of range, which is a fault of this function.
pub fn estimators() -> Result<Vec<Box<dyn AdvantageEstimator>>> {
    let gdpo = GdpoConfig {
        gdpo_reward_keys: vec!["right".into(), "short".into()],
        ..Default::default()
    };
    let gpg = GpgConfig {
        alpha_counts: AlphaCounts::NonzeroRewards,
        ..Default::default()
    };
    let gae = Gae {
        gamma: 1.0,
        lam: 0.95,
        whiten: true,
    };
    Ok(vec![
        Box::new(GroupRelative(GrpoConfig::default())),
        Box::new(RlooConfig::default().build()?),
        Box::new(OpoConfig::default().build()?),
        Box::new(gpg.build()?),
        Box::new(GrpoPasskConfig::default().build()?),
        Box::new(gdpo.build()?),
        Box::new(ReinforcePlusPlusConfig::default().build()?),
        Box::new(ReinforcePlusPlusBaselineConfig::default().build()?),
        Box::new(RemaxAdvantage),
        Box::new(gae),
        Box::new(VapoConfig::default().build()?),
        Box::new(OptimalTokenBaselineConfig::default().build()?),
        Box::new(PrimeConfig::default().build()?),
    ])
}
