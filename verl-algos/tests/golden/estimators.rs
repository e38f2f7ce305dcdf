//! Advantage estimators beyond those of GRPO and PPO.

use crate::advantages::rewarded;
use crate::reference::{Case, cases};
use crate::rows::Rows;
use verl_algos::gdpo::GdpoConfig;
use verl_algos::gpg::{AlphaCounts, GpgConfig};
use verl_algos::grpo::Singleton;
use verl_algos::grpo_passk::GrpoPasskConfig;
use verl_algos::opo::OpoConfig;
use verl_algos::optimal_token_baseline::OptimalTokenBaselineConfig;
use verl_algos::reinforce_plus_plus::ReinforcePlusPlusConfig;
use verl_algos::reinforce_plus_plus_baseline::ReinforcePlusPlusBaselineConfig;
use verl_algos::remax::RemaxAdvantage;
use verl_algos::rloo::RlooConfig;
use verl_algos::vapo::VapoConfig;
use verl_core::algorithm::AdvantageEstimator;
use verl_core::types::Column;

/// Compares advantages with a named output. Ours are 0 at masked positions,
/// where the reference may leave numbers.
fn check_advantages(case: &Case, rows: &Rows, estimator: &dyn AdvantageEstimator, name: &str) {
    let estimate = estimator.estimate(&rows.batch).unwrap();
    check_masked(case, name, &rows.restore(&estimate.advantages));
}

fn check_returns(case: &Case, rows: &Rows, estimator: &dyn AdvantageEstimator, name: &str) {
    let estimate = estimator.estimate(&rows.batch).unwrap();
    check_masked(case, name, &rows.restore(&estimate.returns.unwrap()));
}

pub(crate) fn check_masked(case: &Case, name: &str, got: &[f32]) {
    let mask = case.input("response_mask").data;
    let want = case.output(name).data;
    let want: Vec<f32> = want.iter().zip(&mask).map(|(w, m)| w * m).collect();
    case.check(name, got, &want);
}

#[test]
fn rloo() {
    for (file, singleton_groups) in [
        ("adv_rloo", Singleton::Raw),
        ("adv_rloo_vectorized", Singleton::Zero),
    ] {
        let estimator = RlooConfig { singleton_groups }.build().unwrap();
        for case in cases(file) {
            check_advantages(&case, &rewarded(&case), &estimator, "advantages");
        }
    }
}

#[test]
fn reinforce_plus_plus() {
    for case in cases("adv_reinforce_plus_plus") {
        let gamma = case.number("gamma").unwrap() as f32;
        let estimator = ReinforcePlusPlusConfig { gamma }.build().unwrap();
        let mut rows = Rows::of(&case);
        rows.set(Column::TokenRewards, &case.input("token_level_rewards"));
        check_advantages(&case, &rows, &estimator, "advantages");
        check_returns(&case, &rows, &estimator, "returns");
    }
}

#[test]
fn reinforce_plus_plus_baseline_as_verl() {
    let config = ReinforcePlusPlusBaselineConfig {
        singleton_groups: Singleton::Raw,
    };
    for case in cases("adv_reinforce_plus_plus_baseline") {
        let estimator = config.build().unwrap();
        check_advantages(&case, &rewarded(&case), &estimator, "advantages");
    }
}

#[test]
fn opo_as_verl() {
    let config = OpoConfig {
        singleton_groups: Singleton::Raw,
    };
    for case in cases("adv_opo") {
        let estimator = config.build().unwrap();
        check_advantages(&case, &rewarded(&case), &estimator, "advantages");
    }
}

#[test]
fn gpg_as_verl() {
    for case in cases("adv_gpg") {
        let config = GpgConfig {
            f_norm: case.number("f_norm").unwrap() as f32,
            alpha_counts: AlphaCounts::NonzeroRewards,
            singleton_groups: Singleton::Raw,
        };
        let estimator = config.build().unwrap();
        check_advantages(&case, &rewarded(&case), &estimator, "advantages");
    }
}

#[test]
fn grpo_passk() {
    for case in cases("adv_grpo_passk") {
        let norm_adv_by_std = case.config("norm_adv_by_std_in_grpo").as_bool().unwrap();
        let config = GrpoPasskConfig {
            norm_adv_by_std,
            ..Default::default()
        };
        let (rows, estimator) = (rewarded(&case), config.build().unwrap());
        if !case.is_refused() {
            check_advantages(&case, &rows, &estimator, "advantages");
            continue;
        }
        // verl refuses a batch with a group of one; here that group gets 0.
        let estimate = estimator.estimate(&rows.batch).unwrap();
        let members = rows.batch.groups().iter().flat_map(|g| {
            let alone = g.trajectories().len() == 1;
            g.trajectories().iter().map(move |_| alone)
        });
        let lone = members.zip(estimate.advantages).find(|(alone, _)| *alone);
        assert!(lone.unwrap().1.iter().all(|a| *a == 0.0));
    }
}

#[test]
fn gdpo_as_verl() {
    for case in cases("adv_gdpo") {
        let keys = case.config("gdpo_reward_keys").as_array().unwrap().iter();
        let weights = case.config("gdpo_reward_weights").as_array();
        let config = GdpoConfig {
            gdpo_reward_keys: keys.map(|k| k.as_str().unwrap().into()).collect(),
            gdpo_reward_weights: weights
                .map(|all| all.iter().map(|w| w.as_f64().unwrap() as f32).collect()),
            norm_adv_by_std: case.config("norm_adv_by_std_in_grpo").as_bool().unwrap(),
            epsilon: case.number("epsilon").unwrap(),
            singleton_groups: Singleton::Raw,
        };
        let mut rows = rewarded(&case);
        for key in &config.gdpo_reward_keys {
            rows.set_part(key, &case.input(&format!("component_{key}")).data);
        }
        let estimator = config.build().unwrap();
        check_advantages(&case, &rows, &estimator, "advantages");
    }
}

#[test]
fn remax() {
    for case in cases("adv_remax") {
        let mut rows = Rows::of(&case);
        rows.set(Column::TokenRewards, &case.input("token_level_rewards"));
        let baselines = case.input("reward_baselines").data;
        for (group, baseline) in rows.batch.groups_mut().iter_mut().zip(baselines) {
            group.set_baseline(baseline).unwrap();
        }
        check_advantages(&case, &rows, &RemaxAdvantage, "advantages");
        check_returns(&case, &rows, &RemaxAdvantage, "returns");
    }
}

#[test]
fn optimal_token_baseline_as_verl() {
    let files = [
        "adv_optimal_token_baseline",
        "adv_tir_optimal_token_baseline",
    ];
    for case in files.into_iter().flat_map(cases) {
        let config = OptimalTokenBaselineConfig {
            handle_zero_tail: case.config("handle_zero_tail").as_bool().unwrap(),
            epsilon: case.number("epsilon").unwrap(),
            singleton_groups: Singleton::Raw,
        };
        let mut rows = rewarded(&case);
        for (column, name) in [
            (Column::OldLogProbs, "old_log_probs"),
            (Column::SumPiSquared, "sum_pi_squared"),
            (Column::ImportanceWeights, "rollout_is_weights"),
        ] {
            if let Some(values) = case.optional_input(name) {
                rows.set(column, &values);
            }
        }
        let estimator = config.build().unwrap();
        check_advantages(&case, &rows, &estimator, "advantages");
        check_returns(&case, &rows, &estimator, "returns");
    }
}

#[test]
fn vapo() {
    for case in cases("vapo_gae") {
        let number = |key| case.number(key).unwrap() as f32;
        let config = |whiten_advantages| VapoConfig {
            gamma: number("gamma"),
            alpha: number("alpha"),
            lambda_critic: number("lambda_critic"),
            whiten_advantages,
        };
        let mut rows = Rows::of(&case);
        rows.set(Column::TokenRewards, &case.input("token_level_rewards"));
        rows.set(Column::Values, &case.input("values"));
        let [whitened, raw] = [true, false].map(|whiten| config(whiten).build().unwrap());
        let lambdas: Vec<f32> = rows.lengths().map(|l| raw.lambda_policy(l)).collect();
        case.check_output("lambda_policy", &lambdas);
        check_advantages(&case, &rows, &whitened, "advantages");
        check_advantages(&case, &rows, &raw, "advantages_raw");
        check_returns(&case, &rows, &raw, "returns_critic");
    }
}
