//! PRIME: advantages, process rewards and the reward model's loss.

use crate::estimators::check_masked;
use crate::reference::{Case, Table, cases};
use crate::rows::{Rows, gradient};
use verl_algos::prime::{
    ImplicitRewardConfig, ImplicitRewardLoss, PrimeConfig, PrimeNorm, ProcessBaseline,
};
use verl_core::algorithm::ProcessRewards;
use verl_core::algorithm::{AdvantageEstimator, Objective};
use verl_core::math::LossAggregation;
use verl_core::types::Column;

/// The rows of a case, grouped in blocks, with their outcomes.
fn judged(case: &Case) -> Rows {
    let mask = case.input("response_mask");
    let block = case.number("n_samples").unwrap_or(1.0) as usize;
    let ids: Vec<i64> = (0..mask.shape[0]).map(|row| (row / block) as i64).collect();
    let mut rows = Rows::new(&mask, Some(&ids));
    rows.set_scores(&case.input("acc").data);
    rows
}

#[test]
fn advantages_as_the_paper_and_as_the_recipe() {
    for (file, raw, process_baseline) in [
        (
            "prime_advantage_paper",
            "advantages_raw",
            ProcessBaseline::LeaveOneOut,
        ),
        ("prime_advantage", "returns", ProcessBaseline::Recipe),
    ] {
        for case in cases(file) {
            let number = |key| case.number(key).unwrap() as f32;
            let config = PrimeConfig {
                reward_dpo_coef: number("reward_dpo_coef"),
                reward_gt_coef: number("reward_gt_coef"),
                gamma: case.number("gamma").unwrap_or(1.0) as f32,
                process_baseline,
            };
            let mut rows = judged(&case);
            rows.set(Column::ImplicitRewards, &case.input("rm_scores"));
            let estimate = config.build().unwrap().estimate(&rows.batch).unwrap();
            check_masked(&case, "advantages", &rows.restore(&estimate.advantages));
            check_masked(&case, raw, &rows.restore(&estimate.returns.unwrap()));
        }
    }
}

#[test]
fn process_rewards() {
    for case in cases("prime_reward") {
        let number = |key| case.number(key).unwrap() as f32;
        let config = ImplicitRewardConfig {
            beta_train: number("beta"),
            prime_norm: match case.text("prime_norm") {
                "none" => PrimeNorm::None,
                _ => PrimeNorm::BatchNorm,
            },
            lambda: number("lambda"),
            prime_use_gt: case.config("prime_use_gt").as_bool().unwrap(),
        };
        let mut rows = judged(&case);
        rows.set(Column::RefLogProbs, &case.input("ref_log_prob"));
        let log_probs: Vec<Vec<f32>> = case
            .input("rm_log_prob")
            .rows()
            .map(<[f32]>::to_vec)
            .collect();
        let reward = config.build().unwrap();
        reward.score(&mut rows.batch, &log_probs).unwrap();
        case.check_output("token_rewards", &rows.column(Column::ImplicitRewards));
    }
}

#[test]
fn reward_model_loss() {
    for case in cases("prime_rm_loss") {
        // The other losses compare the answers of a group with each other.
        if case.text("loss_type") != "ce" {
            continue;
        }
        let scores = case.input("token_level_scores");
        let mut rows = judged(&case);
        let zeros = Table {
            shape: scores.shape.clone(),
            data: vec![0.0; scores.data.len()],
        };
        rows.set(Column::RefLogProbs, &zeros);
        let objective = Objective {
            loss: &ImplicitRewardLoss {
                beta: case.number("beta").unwrap() as f32,
            },
            aggregation: LossAggregation::SeqMeanTokenMean,
            denominators: rows.denominators(None, None),
            entropy_coeff: 0.0,
            kl: None,
            temperature: 1.0,
        };
        let leaf = rows.leaf(&scores);
        let value = rows.policy(&objective, leaf.clone(), None);
        let gradient = gradient(&value.loss, &leaf);
        case.check_output("loss", &[value.loss.into_scalar::<f32>()]);
        case.check_output("grad", &rows.unpack(&gradient, 1));
    }
}
