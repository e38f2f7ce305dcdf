//! What holds for every advantage estimator, or for a family of them.

use crate::sample::{LIVE, Row, batch, close, groups, row};
use proptest::collection::vec;
use proptest::prelude::*;
use verl_algos::Gae;
use verl_algos::gdpo::GdpoConfig;
use verl_algos::gpg::GpgConfig;
use verl_algos::grpo::{GroupRelative, GrpoConfig, Singleton};
use verl_algos::grpo_passk::GrpoPasskConfig;
use verl_algos::opo::OpoConfig;
use verl_algos::optimal_token_baseline::OptimalTokenBaselineConfig;
use verl_algos::prime::{PrimeConfig, ProcessBaseline};
use verl_algos::reinforce_plus_plus::ReinforcePlusPlusConfig;
use verl_algos::reinforce_plus_plus_baseline::ReinforcePlusPlusBaselineConfig;
use verl_algos::remax::RemaxAdvantage;
use verl_algos::rloo::RlooConfig;
use verl_algos::vapo::VapoConfig;
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages};

type Estimators = Vec<Box<dyn AdvantageEstimator>>;

fn grpo(norm_adv_by_std: bool) -> GrpoConfig {
    GrpoConfig {
        norm_adv_by_std,
        epsilon: 0.0,
        ..Default::default()
    }
}

fn gdpo() -> GdpoConfig {
    GdpoConfig {
        gdpo_reward_keys: vec!["first".into(), "second".into()],
        gdpo_reward_weights: Some(vec![1.0, 0.5]),
        epsilon: 0.0,
        ..Default::default()
    }
}

fn passk(norm_adv_by_std: bool) -> GrpoPasskConfig {
    GrpoPasskConfig {
        norm_adv_by_std,
        epsilon: 0.0,
    }
}

/// Those whose advantages have no scale.
fn normalised() -> Result<Estimators> {
    Ok(vec![
        Box::new(GroupRelative(grpo(true))),
        Box::new(passk(true).build()?),
        Box::new(gdpo().build()?),
        Box::new(ReinforcePlusPlusConfig::default().build()?),
        Box::new(ReinforcePlusPlusBaselineConfig::default().build()?),
    ])
}

/// Those that compare an answer with answers to the same prompt alone.
fn group_relative() -> Result<Estimators> {
    let without_tail = OptimalTokenBaselineConfig {
        handle_zero_tail: false,
        ..Default::default()
    };
    Ok(vec![
        Box::new(GroupRelative(grpo(true))),
        Box::new(GroupRelative(grpo(false))),
        Box::new(RlooConfig::default().build()?),
        Box::new(ReinforcePlusPlusBaselineConfig::default().build()?),
        Box::new(OpoConfig::default().build()?),
        Box::new(GpgConfig::default().build()?),
        Box::new(passk(true).build()?),
        Box::new(passk(false).build()?),
        Box::new(gdpo().build()?),
        Box::new(RemaxAdvantage),
        Box::new(without_tail.build()?),
        Box::new(PrimeConfig::default().build()?),
    ])
}

fn all() -> Result<Estimators> {
    let raw = Singleton::Raw;
    let gae = Gae {
        gamma: 0.9,
        lam: 0.8,
        whiten: true,
    };
    let recipe = PrimeConfig {
        process_baseline: ProcessBaseline::Recipe,
        ..Default::default()
    };
    let mut all = group_relative()?;
    all.extend([
        Box::new(gae) as Box<dyn AdvantageEstimator>,
        Box::new(VapoConfig::default().build()?),
        Box::new(ReinforcePlusPlusConfig { gamma: 0.9 }.build()?),
        Box::new(OptimalTokenBaselineConfig::default().build()?),
        Box::new(recipe.build()?),
        Box::new(
            RlooConfig {
                singleton_groups: raw,
            }
            .build()?,
        ),
        Box::new(
            OpoConfig {
                singleton_groups: raw,
            }
            .build()?,
        ),
    ]);
    Ok(all)
}

type Groups = Vec<Vec<Row>>;

/// Groups of one to four answers.
fn mixed_groups() -> impl Strategy<Value = Groups> {
    vec(vec(row(), 1..5), 1..4)
}

/// Groups in which every answer has a policy token.
fn spoken_groups() -> impl Strategy<Value = Groups> {
    groups().prop_map(|mut groups| {
        let rows = groups.iter_mut().flatten();
        rows.filter(|row| row.iter().all(|token| !token.live))
            .for_each(|row| row.push(LIVE));
        groups
    })
}

fn last_live(row: &mut Row) -> &mut f32 {
    let token = row.iter_mut().rev().find(|token| token.live);
    &mut token.unwrap().reward
}

fn scaled(groups: &Groups, factor: f32) -> Groups {
    let mut groups = groups.clone();
    let tokens = groups.iter_mut().flatten().flatten();
    tokens.for_each(|token| token.reward *= factor);
    groups
}

fn estimate(estimator: &dyn AdvantageEstimator, groups: &Groups) -> Result<Advantages> {
    estimator.estimate(&batch(groups, None))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_may_come_in_any_order(sample in mixed_groups()) {
        let reversed = sample.iter().rev().map(|g| g.iter().rev().cloned().collect()).collect();
        for estimator in all()? {
            let straight = estimate(&*estimator, &sample)?;
            let mut back = estimate(&*estimator, &reversed)?;
            back.advantages.reverse();
            let equal = close(&back.advantages.concat(), &straight.advantages.concat());
            prop_assert!(equal, "{estimator:?}: {back:?}, not {straight:?}");
        }
    }

    #[test]
    fn masked_tokens_are_never_read(sample in mixed_groups()) {
        let (clean, poisoned) = (batch(&sample, None), batch(&sample, Some(f32::NAN)));
        for estimator in all()? {
            prop_assert_eq!(estimator.estimate(&clean)?, estimator.estimate(&poisoned)?);
        }
    }

    #[test]
    fn rows_are_aligned_finite_and_zero_where_masked(sample in mixed_groups()) {
        let batch = batch(&sample, Some(f32::NAN));
        for estimator in all()? {
            let estimate = estimator.estimate(&batch)?;
            for rows in [Some(estimate.advantages), estimate.returns].into_iter().flatten() {
                prop_assert_eq!(rows.len(), batch.len());
                for (t, row) in batch.trajectories().zip(rows) {
                    prop_assert_eq!(row.len(), t.response().len());
                    for (live, value) in t.response_mask().iter().zip(row) {
                        let fine = value.is_finite() && (*live || value == 0.0);
                        prop_assert!(fine, "{estimator:?}: {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_constant_on_a_group_is_not_seen(
        sample in spoken_groups(), constant in -64i8..64, group in 0usize..4
    ) {
        let mut moved = sample.clone();
        let group = group % moved.len();
        let rows = moved[group].iter_mut();
        rows.for_each(|row| *last_live(row) += f32::from(constant));
        for estimator in group_relative()? {
            let (got, want) = (estimate(&*estimator, &moved)?, estimate(&*estimator, &sample)?);
            let equal = close(&got.advantages.concat(), &want.advantages.concat());
            prop_assert!(equal, "{estimator:?}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn equal_rewards_are_exactly_zero(sample in spoken_groups(), rewards in vec(-1e3f32..1e3, 4)) {
        let mut equal = scaled(&sample, 0.0);
        for (group, reward) in equal.iter_mut().zip(&rewards) {
            for row in group {
                row.iter_mut().for_each(|token| token.log_prob = token.reference);
                *last_live(row) = *reward;
            }
        }
        for estimator in group_relative()? {
            let advantages = estimate(&*estimator, &equal)?.advantages.concat();
            prop_assert!(advantages.iter().all(|a| *a == 0.0), "{estimator:?}: {advantages:?}");
        }
    }

    #[test]
    fn the_scale_of_rewards_is_not_seen(sample in mixed_groups(), factor in 1u8..32) {
        // Far above the 1e-8 that whitening adds to the variance.
        let sample = scaled(&sample, 16.0);
        let larger = scaled(&sample, f32::from(factor));
        for estimator in normalised()? {
            let (got, want) = (estimate(&*estimator, &larger)?, estimate(&*estimator, &sample)?);
            let equal = close(&got.advantages.concat(), &want.advantages.concat());
            prop_assert!(equal, "{estimator:?}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn answers_alone_in_their_group_teach_nothing_unless_asked(rows in vec(row(), 1..5)) {
        let sample: Groups = rows.into_iter().map(|row| vec![row]).collect();
        // ReMax compares with the greedy answer, which is there.
        for estimator in group_relative()?.into_iter().filter(|e| e.name() != "remax") {
            let advantages = estimate(&*estimator, &sample)?.advantages.concat();
            prop_assert!(advantages.iter().all(|a| *a == 0.0), "{estimator:?}: {advantages:?}");
        }
    }
}
