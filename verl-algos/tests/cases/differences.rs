//! Where we differ from verl 0.9.1: what holds here, and the option that gives
//! verl's behaviour.

use crate::answer::{advantages, algorithm, answer, close, estimate, group, scored, with};
use burn::tensor::Device;
use serde_json::json;
use verl_algos::probe::{Answer, probe};
use verl_algos::rollout_correction::RolloutCorrectionConfig;
use verl_core::algorithm::apply_kl_in_reward;
use verl_core::math::{Denominators, KlEstimator};
use verl_core::types::{Batch, Column, Trajectory};

#[test]
fn deviations_are_left_out_where_asked() {
    let batch = scored(&[&[4.0, 0.0], &[1.0, 0.0]]);
    let with_std = |name, norm: bool| {
        let options = json!({"norm_adv_by_std_in_grpo": norm});
        advantages(name, options, &batch)
    };
    assert_eq!(with_std("grpo", false), [2.0, -2.0, 0.5, -0.5]);
    let unit = std::f32::consts::FRAC_1_SQRT_2;
    assert!(close(&with_std("grpo", true), &[unit, -unit, unit, -unit]));
    // GDPO whitens afterwards, and so only the groups' proportion is left.
    let gdpo = with_std("gdpo", false);
    assert!((gdpo[0] / gdpo[2] - 4.0).abs() < 1e-4, "{gdpo:?}");
    let gdpo = with_std("gdpo", true);
    assert!((gdpo[0] / gdpo[2] - 1.0).abs() < 1e-4, "{gdpo:?}");
}

#[test]
fn equal_scores_that_binary_cannot_hold_have_advantage_0() {
    let batch = scored(&[&[0.3; 8], &[0.7; 8]]);
    for name in ["grpo", "gdpo", "rloo", "opo", "gpg", "grpo_passk"] {
        assert_eq!(advantages(name, json!({}), &batch), [0.0; 16], "{name}");
    }
}

#[test]
fn a_group_without_signal_is_filtered() {
    let dapo = algorithm("dapo", json!({}));
    let filter = dapo.dynamic_sampling().unwrap().filter;
    let keeps = |scores: &[f32]| filter.keeps(&scored(&[scores]).groups()[0]).unwrap();
    assert!(!keeps(&[0.1; 3]) && !keeps(&[0.0; 3]) && keeps(&[0.1, 0.1, 0.2]));
}

#[test]
fn gpg_counts_members_of_informative_groups() {
    let batch = scored(&[&[1.0, 0.0], &[1.0, 1.0]]);
    // Half of the answers are informative; three quarters have a reward.
    assert_eq!(advantages("gpg", json!({}), &batch), [1.0, -1.0, 0.0, 0.0]);
    let as_verl = json!({"alpha_counts": "nonzero_rewards"});
    let want = [2.0 / 3.0, -2.0 / 3.0, 0.0, 0.0];
    assert!(close(&advantages("gpg", as_verl, &batch), &want));
}

#[test]
fn pass_at_k_has_no_lead_where_the_best_are_tied_or_alone() {
    let batch = scored(&[&[3.0], &[2.0, 2.0, 0.0], &[2.0, 1.0, 0.0]]);
    let options = json!({"norm_adv_by_std_in_grpo": false});
    let got = advantages("grpo_passk", options, &batch);
    assert_eq!(got, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}

/// Two answers of two turns of which the second turn of one is longer.
fn two_turns() -> Batch {
    let turn = |sample, mask: &[bool], reward: f32| {
        let n = mask.len();
        let last = mask.iter().rposition(|live| *live).unwrap();
        let mut rewards = vec![0.0; n];
        rewards[last] = reward;
        with(
            answer(0, sample, mask),
            &[
                (Column::TokenRewards, &rewards),
                (Column::OldLogProbs, &vec![0.5f32.ln(); n]),
                (Column::SumPiSquared, &vec![0.5; n]),
            ],
        )
    };
    let first = turn(0, &[true, false, false, true], 1.0);
    let second = turn(1, &[true, true, false, false], 0.0);
    Batch::new(vec![group(0, vec![first, second])])
}

#[test]
fn token_baselines_count_the_policys_tokens() {
    // The k-th token of one answer meets the k-th of the other, wherever it
    // stands: each return of 1 and 0 has the baseline 0.5.
    let got = advantages("optimal_token_baseline", json!({}), &two_turns());
    let want = [0.5, 0.0, 0.0, 0.5, -0.5, -0.5, 0.0, 0.0];
    assert!(close(&got, &want), "{got:?}");
}

#[test]
fn what_others_wrote_has_neither_advantage_nor_reward() {
    let t = with(
        answer(0, 0, &[true, false, true]),
        &[
            (Column::TokenRewards, &[0.0, 9.0, 1.0]),
            (Column::Values, &[0.0; 3]),
        ],
    );
    let other = with(
        answer(0, 1, &[true]),
        &[(Column::TokenRewards, &[0.0]), (Column::Values, &[0.0])],
    );
    let mut answers = group(0, vec![t, other]);
    answers.set_baseline(0.5).unwrap();
    let batch = Batch::new(vec![answers]);
    let raw = json!({"whiten_advantages": false});
    for (name, options, want) in [
        ("ppo", raw, [1.0, 0.0, 1.0, 0.0]),
        ("remax", json!({}), [0.5, 0.0, 0.5, -0.5]),
        ("rloo", json!({}), [1.0, 0.0, 1.0, -1.0]),
    ] {
        assert_eq!(advantages(name, options, &batch), want, "{name}");
    }
    let returns = estimate("reinforce_plus_plus", json!({}), &batch).returns;
    assert_eq!(returns.unwrap()[0], [1.0, 0.0, 1.0]);
}

#[test]
fn a_single_token_is_whitened_to_0() {
    let t = with(
        answer(0, 0, &[true, false]),
        &[
            (Column::TokenRewards, &[3.0, 0.0]),
            (Column::Values, &[1.0, 0.0]),
        ],
    );
    let batch = Batch::new(vec![group(0, vec![t])]);
    for name in ["ppo", "vapo", "reinforce_plus_plus"] {
        assert_eq!(advantages(name, json!({}), &batch), [0.0, 0.0], "{name}");
    }
}

#[test]
fn answers_without_tokens_do_not_dilute_the_kl() {
    let spoken = with(
        answer(0, 0, &[true]),
        &[
            (Column::TokenRewards, &[0.0]),
            (Column::OldLogProbs, &[-1.0]),
            (Column::RefLogProbs, &[-2.0]),
        ],
    );
    let none: &[f32] = &[];
    let columns = [
        Column::TokenRewards,
        Column::OldLogProbs,
        Column::RefLogProbs,
    ];
    let silent = with(answer(0, 1, &[]), &columns.map(|column| (column, none)));
    let mut batch = Batch::new(vec![group(0, vec![spoken, silent])]);
    let kl = apply_kl_in_reward(&mut batch, KlEstimator::K1, 0.1).unwrap();
    assert_eq!(kl, 1.0);
}

/// A token whose probability rose by a factor.
fn risen(advantage: f32, factor: f32) -> Answer {
    Answer {
        advantage,
        log_probs: vec![-1.0],
        old_log_probs: vec![-1.0 - factor.ln()],
        ..Answer::default()
    }
}

#[test]
fn the_ratio_bound_of_dppo_is_the_papers() {
    // Within the trust region, as little of the probability has moved.
    let token = Answer {
        log_probs: vec![-7.0],
        old_log_probs: vec![-7.0 - 10f32.ln()],
        ..risen(1.0, 1.0)
    };
    let gradient = |options| {
        let algorithm = algorithm("dppo_tv", options);
        let device = Device::flex().autodiff();
        let probed = probe(
            algorithm.policy_loss(),
            std::slice::from_ref(&token),
            &device,
        );
        probed.unwrap().gradient_n[0]
    };
    assert!((gradient(json!({})) + 10.0).abs() < 1e-3);
    assert!((gradient(json!({"clip_ratio_c": 3})) + 3.0).abs() < 1e-3);
}

#[test]
fn the_ratio_of_kl_cov_is_cut_and_not_clipped() {
    let algorithm = algorithm("kl_cov", json!({}));
    let loss = |factor: f32| {
        let answers = [risen(1.0, factor), risen(1.0, 1.0)];
        let device = Device::flex().autodiff();
        let probed = probe(algorithm.policy_loss(), &answers, &device).unwrap();
        probed.loss_n.iter().copied().fold(f32::INFINITY, f32::min)
    };
    assert!((loss(8.0) + 8.0).abs() < 3.0, "{}", loss(8.0));
    let far = Answer {
        log_probs: vec![-1.0],
        old_log_probs: vec![-201.0],
        ..risen(1.0, 1.0)
    };
    let device = Device::flex().autodiff();
    let probed = probe(algorithm.policy_loss(), &[far], &device).unwrap();
    assert!(probed.loss_n[0].is_finite());
}

#[test]
fn aggregation_reaches_every_loss() {
    for name in ["sapo", "gmpo", "gspo"] {
        let mode = |options| algorithm(name, options).policy_terms().aggregation;
        assert_ne!(
            mode(json!({})),
            mode(json!({"loss_agg_mode": "token-sum"})),
            "{name}"
        );
    }
}

#[test]
fn a_loss_after_rejection_divides_by_what_is_left() {
    let ratio = |sample, ratio: f32| {
        with(
            answer(0, sample, &[true; 2]),
            &[
                (Column::RolloutLogProbs, &[-4.0; 2]),
                (Column::OldLogProbs, &[-4.0 + ratio.ln(); 2]),
            ],
        )
    };
    let mut batch = Batch::new(vec![group(0, vec![ratio(0, 1.0), ratio(1, 5.0)])]);
    let config: RolloutCorrectionConfig = serde_json::from_value(json!({
        "rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.5_2",
    }))
    .unwrap();
    config.build().unwrap().apply(&mut batch).unwrap();
    let left = Denominators::count(batch.trajectories().map(Trajectory::policy_tokens));
    assert_eq!((left.tokens, left.sequences), (2, 1));
}

#[test]
fn pf_ppo_draws_by_the_size_of_the_score() {
    let options = json!({"reweight_method": "pow", "weight_pow": 2});
    let config: verl_algos::pf_ppo::PfPpoConfig = serde_json::from_value(options).unwrap();
    let weights = config.build().unwrap().weights(&[-2.0, 0.0, 1.0]);
    assert!(close(&weights, &[4.0, 0.0, 1.0]));
}
