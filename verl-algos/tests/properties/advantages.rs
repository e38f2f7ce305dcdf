//! Advantage estimators.

use crate::sample::{batch, close, groups};
use proptest::prelude::*;
use verl_algos::grpo::{GroupRelative, GrpoConfig};
use verl_algos::{Catalogue, Gae};
use verl_core::algorithm::{Algorithm, apply_kl_in_reward};
use verl_core::math::KlEstimator;
use verl_core::registry::Settings;
use verl_core::types::Column;

/// Rewards of one group, multiples of 1/8.
fn rewards() -> impl Strategy<Value = Vec<f32>> {
    proptest::collection::vec((-40i8..40).prop_map(|r| f32::from(r) / 8.0), 2..9)
}

const ALGORITHMS: [&str; 2] = ["grpo", "ppo"];

fn algorithm(name: &str) -> Box<dyn Algorithm> {
    Catalogue::builtin()
        .build(name, &Settings::default())
        .unwrap()
}

fn grpo(norm: bool) -> GroupRelative {
    GroupRelative(GrpoConfig {
        norm_adv_by_std: norm,
        ..GrpoConfig::default()
    })
}

proptest! {
    #[test]
    fn grpo_does_not_see_a_constant(rewards in rewards(), constant in -64i8..64, norm: bool) {
        let moved: Vec<f32> = rewards.iter().map(|r| r + f32::from(constant)).collect();
        prop_assert!(close(&grpo(norm).group(&moved), &grpo(norm).group(&rewards)));
    }

    #[test]
    fn grpo_is_exactly_zero_on_equal_rewards(
        reward in -1e6f32..1e6, n in 1usize..17, norm: bool, epsilon in 0.0f64..1e-3
    ) {
        let config = GrpoConfig { norm_adv_by_std: norm, epsilon, ..GrpoConfig::default() };
        let advantages = GroupRelative(config).group(&vec![reward; n]);
        prop_assert!(advantages.iter().all(|a| *a == 0.0));
    }

    #[test]
    fn grpo_sums_to_zero_and_keeps_the_order(rewards in rewards(), norm: bool) {
        let advantages = grpo(norm).group(&rewards);
        prop_assert!(advantages.iter().sum::<f32>().abs() < 1e-4);
        for (i, j) in (0..rewards.len()).zip(1..rewards.len()) {
            let (r, a) = (rewards[i] - rewards[j], advantages[i] - advantages[j]);
            prop_assert_eq!(r > 0.0, a > 0.0);
        }
    }

    #[test]
    fn grpo_follows_a_permutation(rewards in rewards(), turn in 0usize..9) {
        let turn = turn % rewards.len();
        let mut turned = rewards.clone();
        turned.rotate_left(turn);
        let mut want = grpo(true).group(&rewards);
        want.rotate_left(turn);
        prop_assert!(close(&grpo(true).group(&turned), &want));
    }

    #[test]
    fn whole_batches_follow_a_permutation_of_rows(sample in groups()) {
        let reversed: Vec<_> = sample.iter().rev().map(|g| g.iter().rev().cloned().collect()).collect();
        for algorithm in ALGORITHMS.map(algorithm) {
            let estimate = |groups| algorithm.estimator().estimate(&batch(groups, None)).unwrap();
            let (straight, mut back) = (estimate(&sample), estimate(&reversed));
            back.advantages.reverse();
            prop_assert!(close(&back.advantages.concat(), &straight.advantages.concat()));
        }
    }

    #[test]
    fn masked_tokens_are_never_read(sample in groups()) {
        let (clean, poisoned) = (batch(&sample, None), batch(&sample, Some(f32::NAN)));
        for algorithm in ALGORITHMS.map(algorithm) {
            let estimator = algorithm.estimator();
            prop_assert_eq!(estimator.estimate(&clean)?, estimator.estimate(&poisoned)?);
        }
        let penalised = |mut batch| apply_kl_in_reward(&mut batch, KlEstimator::K3, 0.1);
        prop_assert_eq!(penalised(clean)?, penalised(poisoned)?);
    }

    #[test]
    fn masked_tokens_have_no_advantage(sample in groups()) {
        let batch = batch(&sample, Some(f32::NAN));
        for algorithm in ALGORITHMS.map(algorithm) {
            let estimate = algorithm.estimator().estimate(&batch)?;
            for rows in [Some(estimate.advantages), estimate.returns].into_iter().flatten() {
                let tokens = batch.trajectories().zip(rows).flat_map(|(t, row)| {
                    t.response_mask().to_vec().into_iter().zip(row)
                });
                for (live, value) in tokens {
                    prop_assert!(value.is_finite() && (live || value == 0.0));
                }
            }
        }
    }

    #[test]
    fn gae_without_discount_is_the_reward_to_go_less_the_value(sample in groups()) {
        let batch = batch(&sample, Some(f32::NAN));
        for t in batch.trajectories() {
            let live = |column| -> Vec<f32> {
                let row = t.get(column, "test").unwrap();
                t.policy_positions().map(|i| row[i]).collect()
            };
            let (rewards, values) = (live(Column::TokenRewards), live(Column::Values));
            let gae = Gae { gamma: 1.0, lam: 1.0, whiten: false };
            let (advantages, returns) = gae.recursion(&rewards, &values);
            let to_go: Vec<f32> = (0..rewards.len()).map(|i| rewards[i..].iter().sum()).collect();
            prop_assert!(close(&returns, &to_go));
            let want: Vec<f32> = to_go.iter().zip(&values).map(|(r, v)| r - v).collect();
            prop_assert!(close(&advantages, &want));
        }
    }
}
