//! Advantage estimators on a large batch: 128 prompts with 8 answers of 4,096
//! tokens each. The aim is 50 ms for each of them on one core.
//!
//! ```text
//! cargo bench -p verl-benches --bench advantages
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use verl::algos::Gae;
use verl::algos::gdpo::GdpoConfig;
use verl::algos::gpg::GpgConfig;
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

const GROUPS: u64 = 128;
const SAMPLES: usize = 8;
const TOKENS: usize = 4096;

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
        (Column::SumPiSquared, 0.2, 0.8),
        (Column::Values, -1.0, 1.0),
        (Column::ImplicitRewards, -0.1, 0.1),
    ] {
        let value = |i| low + (high - low) * noise(seed * TOKENS + i);
        t.set(column, (0..TOKENS).map(value).collect())?;
    }
    Ok(t)
}

fn batch() -> Result<Batch> {
    let group = |g: u64| {
        let answers = (0..SAMPLES).map(|sample| answer(g, sample));
        let mut group = Group::new(GroupId(g), answers.collect::<Result<_>>()?)?;
        group.set_baseline(1.0)?;
        Ok(group)
    };
    let groups = (0..GROUPS).map(group).collect::<Result<_>>()?;
    Ok(Batch::new(groups))
}

fn estimators() -> Result<Vec<Box<dyn AdvantageEstimator>>> {
    let gdpo = GdpoConfig {
        gdpo_reward_keys: vec!["right".into(), "short".into()],
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
        Box::new(GpgConfig::default().build()?),
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

fn advantages(c: &mut Criterion) {
    let batch = batch().expect("a valid batch");
    let mut group = c.benchmark_group("advantages");
    group
        .sample_size(10)
        .throughput(Throughput::Elements((batch.len() * TOKENS) as u64));
    for estimator in estimators().expect("valid options") {
        group.bench_function(estimator.name(), |b| {
            b.iter(|| estimator.estimate(black_box(&batch)).expect("advantages"))
        });
    }
    group.finish();
}

criterion_group!(benches, advantages);
criterion_main!(benches);
