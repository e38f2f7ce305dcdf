//! Options out of range are refused by name.

use verl_algos::dapo::FilterGroupsConfig;
use verl_algos::gdpo::GdpoConfig;
use verl_algos::gpg::GpgConfig;
use verl_algos::grpo_passk::GrpoPasskConfig;
use verl_algos::optimal_token_baseline::OptimalTokenBaselineConfig;
use verl_algos::pf_ppo::PfPpoConfig;
use verl_algos::prime::{ImplicitRewardConfig, ImplicitRewardLossConfig, PrimeConfig};
use verl_algos::reinforce_plus_plus::ReinforcePlusPlusConfig;
use verl_algos::vapo::VapoConfig;
use verl_core::Result;

fn refusal<T: std::fmt::Debug>(built: Result<T>) -> String {
    built.unwrap_err().to_string()
}

#[test]
fn wrong_options_are_refused_by_name() {
    let keys = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let parts = |names: &[&str], weights: &[f32]| GdpoConfig {
        gdpo_reward_keys: keys(names),
        gdpo_reward_weights: Some(weights.to_vec()),
        ..Default::default()
    };
    let vapo = VapoConfig::default;
    let prime = PrimeConfig::default;
    let reward = ImplicitRewardConfig::default;
    for (refusal, message) in [
        (
            refusal(ReinforcePlusPlusConfig { gamma: 1.5 }.build()),
            "gamma: 1.5 is out of range; it must be in [0, 1]",
        ),
        (
            refusal(
                GpgConfig {
                    f_norm: 0.0,
                    ..Default::default()
                }
                .build(),
            ),
            "f_norm: 0 is out of range; it must be positive",
        ),
        (
            refusal(
                GrpoPasskConfig {
                    epsilon: -1.0,
                    ..Default::default()
                }
                .build(),
            ),
            "epsilon: -1 is out of range; it must be 0 or positive",
        ),
        (
            refusal(parts(&["a", "b"], &[1.0]).build()),
            "gdpo_reward_weights: has 1 weights for 2 names in gdpo_reward_keys; give one for each",
        ),
        (
            refusal(parts(&["a", "a"], &[1.0, 1.0]).build()),
            "gdpo_reward_keys: `a` stands there twice",
        ),
        (
            refusal(parts(&["a"], &[f32::NAN]).build()),
            "gdpo_reward_weights: NaN is out of range; it must be finite",
        ),
        (
            refusal(
                OptimalTokenBaselineConfig {
                    epsilon: 0.0,
                    ..Default::default()
                }
                .build(),
            ),
            "epsilon: 0 is out of range; it must be positive",
        ),
        (
            refusal(
                VapoConfig {
                    alpha: 0.0,
                    ..vapo()
                }
                .build(),
            ),
            "alpha: 0 is out of range; it must be positive",
        ),
        (
            refusal(
                VapoConfig {
                    lambda_critic: -0.1,
                    ..vapo()
                }
                .build(),
            ),
            "lambda_critic: -0.1 is out of range; it must be in [0, 1]",
        ),
        (
            refusal(
                PrimeConfig {
                    reward_gt_coef: -5.0,
                    ..prime()
                }
                .build(),
            ),
            "reward_gt_coef: -5 is out of range; it must be 0 or positive",
        ),
        (
            refusal(
                ImplicitRewardConfig {
                    beta_train: 0.0,
                    ..reward()
                }
                .build(),
            ),
            "beta_train: 0 is out of range; it must be positive",
        ),
        (
            refusal(
                ImplicitRewardConfig {
                    prime_use_gt: true,
                    ..reward()
                }
                .build(),
            ),
            "prime_use_gt: has no effect without a lambda above 0",
        ),
        (
            refusal(
                ImplicitRewardLossConfig {
                    beta_train: f32::INFINITY,
                }
                .build(),
            ),
            "beta_train: inf is out of range; it must be positive",
        ),
        (
            refusal(
                PfPpoConfig {
                    weight_pow: -2.0,
                    ..Default::default()
                }
                .build(),
            ),
            "pf_ppo.weight_pow: -2 is out of range; it must be 0 or positive",
        ),
        (
            refusal(
                FilterGroupsConfig {
                    metric: String::new(),
                    ..Default::default()
                }
                .build(),
            ),
            "filter_groups.metric: is empty; give `score`, `seq_reward` or the name of a sub-score",
        ),
    ] {
        assert_eq!(refusal, format!("algorithm.{message}"));
    }
}
