//! Options: what they become, and what a wrong one is told.

use crate::Catalogue;
use serde_json::{Value, json};
use verl_core::algorithm::Algorithm;
use verl_core::math::{KlControl, KlEstimator, LossAggregation};
use verl_core::registry::Settings;

fn settings(options: Value) -> Settings {
    Settings(options.as_object().unwrap().clone())
}

fn grpo(options: Value) -> Box<dyn Algorithm> {
    Catalogue::builtin()
        .build("grpo", &settings(options))
        .unwrap()
}

fn refusal(name: &str, options: Value) -> String {
    let built = Catalogue::builtin().build(name, &settings(options));
    built.unwrap_err().to_string()
}

#[test]
fn names_are_those_of_the_algorithms_and_registered_once() {
    let mut catalogue = Catalogue::empty();
    catalogue.add_builtin().unwrap();
    let names: Vec<&str> = catalogue.names().collect();
    let expected = "cispo clip_cov dapo dpo dppo_kl dppo_tv dr_grpo dro gdpo gmpo gpg grpo \
        grpo_passk gspo kl_cov opo optimal_token_baseline orpo pf_ppo ppo prime \
        reinforce_plus_plus reinforce_plus_plus_baseline remax rloo sapo simpo spin sppo vapo";
    assert_eq!(names.join(" "), expected);
    for name in catalogue.names() {
        let algorithm = catalogue.build(name, &Settings::default()).unwrap();
        assert_eq!(algorithm.name(), name);
    }
    assert!(catalogue.add_builtin().is_err());
}

#[test]
fn parts_can_be_combined() {
    let catalogue = Catalogue::builtin();
    let options = settings(json!({"adv_estimator": "gae", "lam": 0.9}));
    let algorithm = catalogue.build("grpo", &options).unwrap();
    assert_eq!(algorithm.estimator().name(), "gae");
    assert!(algorithm.requirements().critic && algorithm.value_loss().is_some());
    let message = refusal("grpo", json!({"policy_loss": "cliped"}));
    let want = "unknown policy loss `cliped` (did you mean `clipped`?); known: cispo, ";
    assert!(message.starts_with(want), "{message}");
}

#[test]
fn losses_are_named_as_they_are_registered() {
    let catalogue = Catalogue::builtin();
    let names = refusal("grpo", json!({"policy_loss": "none of them"}));
    let (_, names) = names.split_once("known: ").unwrap();
    for name in names.split(", ") {
        let options = settings(json!({"policy_loss": name}));
        let algorithm = catalogue.build("grpo", &options).unwrap();
        assert_eq!(algorithm.policy_loss().name(), name);
    }
}

#[test]
fn options_reach_their_parts() {
    let algorithm = grpo(json!({
        "norm_adv_by_std_in_grpo": false,
        "loss_agg_mode": "seq-mean-token-sum-norm",
        "loss_scale_factor": 512,
        "entropy_coeff": 0.01,
        "kl_loss_coef": 0.04,
        "kl_loss_type": "low_var_kl",
        "use_kl_in_reward": true,
        "kl_penalty": "abs",
        "kl_ctrl": {"type": "adaptive", "kl_coef": 0.2, "target_kl": 6.0},
    }));
    let terms = algorithm.policy_terms();
    assert_eq!(
        terms.aggregation,
        LossAggregation::SeqMeanTokenSumNorm(512.0)
    );
    assert_eq!(terms.entropy_coeff, 0.01);
    let kl = terms.kl_loss.unwrap();
    assert_eq!((kl.coef, kl.estimator), (0.04, KlEstimator::LowVarKl));
    let in_reward = algorithm.kl_in_reward().unwrap();
    assert_eq!(in_reward.estimator, KlEstimator::Abs);
    let control = KlControl::Adaptive {
        kl_coef: 0.2,
        target_kl: 6.0,
        horizon: 10_000.0,
    };
    assert_eq!(in_reward.control, control);
    assert!(algorithm.requirements().reference);
    assert_eq!(
        format!("{algorithm:?}"),
        format!(
            "{:?}",
            grpo(json!({
                "norm_adv_by_std": false,
                "loss_agg_mode": "seq-mean-token-sum-norm",
                "loss_scale_factor": 512.0,
                "entropy_coeff": 0.01,
                "use_kl_loss": true,
                "kl_loss_coef": 0.04,
                "kl_loss_type": "low_var_kl",
                "use_kl_in_reward": true,
                "kl_penalty": "abs",
                "kl_ctrl": {"type": "adaptive", "kl_coef": 0.2, "target_kl": 6.0, "horizon": 10000},
            }))
        )
    );
}

#[test]
fn kl_in_the_loss_is_on_when_it_has_a_weight_or_is_asked_for() {
    let coef = |options| grpo(options).policy_terms().kl_loss.map(|kl| kl.coef);
    assert_eq!(coef(json!({})), None);
    assert_eq!(coef(json!({"kl_loss_coef": 0.0})), None);
    assert_eq!(coef(json!({"kl_loss_coef": 0.1})), Some(0.1));
    assert_eq!(coef(json!({"use_kl_loss": true})), Some(0.001));
    assert_eq!(coef(json!({"use_kl_loss": false})), None);
}

#[test]
fn wrong_options_are_refused_by_name() {
    for (name, options, message) in [
        (
            "grpo",
            json!({"epsilon": -1.0}),
            "algorithm.epsilon: -1 must be 0 or positive",
        ),
        (
            "grpo",
            json!({"clip_ratio": -0.1}),
            "algorithm.clip_ratio: -0.1 is out of range; it must be 0 or positive",
        ),
        (
            "grpo",
            json!({"clip_ratio_low": 1.5}),
            "algorithm.clip_ratio_low: 1.5 is out of range; it must be in [0, 1]",
        ),
        (
            "ppo",
            json!({"clip_ratio_c": 1.0}),
            "algorithm.clip_ratio_c: 1 is out of range; it must be above 1",
        ),
        (
            "ppo",
            json!({"cliprange_value": 0.0}),
            "algorithm.cliprange_value: 0 must be positive",
        ),
        (
            "grpo",
            json!({"gamma": 0.9}),
            "algorithm.gamma: `grpo` has no such option; it has: adv_estimator, policy_loss, norm_adv_by_std, epsilon, \
             singleton_groups, clip_ratio, clip_ratio_low, clip_ratio_high, clip_ratio_c, \
             filter_groups, overlong_filter, rollout_correction, loss_agg_mode, loss_scale_factor, entropy_coeff, use_kl_loss, kl_loss_coef, \
             kl_loss_type, use_kl_in_reward, kl_penalty, kl_ctrl",
        ),
        (
            "grpo",
            json!({"norm_adv_by_std": true, "norm_adv_by_std_in_grpo": true}),
            "algorithm.norm_adv_by_std_in_grpo: is another name of `norm_adv_by_std`, which is \
             given too; drop one of the two",
        ),
        (
            "ppo",
            json!({"value_loss_agg_mode": "mean"}),
            "algorithm.value_loss_agg_mode: `mean` is not an aggregation; known: token-mean, \
             token-sum, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm",
        ),
        (
            "ppo",
            json!({"value_loss_agg_mode": "seq-mean-token-sum-norm"}),
            "algorithm.value_loss_scale_factor: seq-mean-token-sum-norm divides by it; set it to \
             a positive number, e.g. the longest response length",
        ),
        (
            "grpo",
            json!({"loss_scale_factor": 8}),
            "algorithm.loss_scale_factor: has no effect with seq-mean-token-mean; drop it or \
             choose seq-mean-token-sum-norm",
        ),
        (
            "grpo",
            json!({"use_kl_loss": false, "kl_loss_coef": 0.1}),
            "algorithm.kl_loss_coef: 0.1 has no effect while use_kl_loss is false; drop one of \
             the two",
        ),
        (
            "ppo",
            json!({"kl_penalty": "k1"}),
            "algorithm.kl_penalty: has no effect without use_kl_in_reward: true",
        ),
        (
            "ppo",
            json!({"use_kl_in_reward": true, "kl_ctrl": {"kl_coef": 0.1, "horizon": 5}}),
            "algorithm.kl_ctrl.horizon: has no effect without type: adaptive",
        ),
        (
            "ppo",
            json!({"use_kl_in_reward": true, "kl_ctrl": {"type": "adaptive", "horizon": 0}}),
            "algorithm.kl_ctrl.horizon: 0 must be positive",
        ),
        (
            "ppo",
            json!({"use_kl_in_reward": true, "kl_ctrl": {"kl_coef": -0.1}}),
            "algorithm.kl_ctrl.kl_coef: -0.1 must be 0 or positive",
        ),
    ] {
        assert_eq!(refusal(name, options), message);
    }
    let typo = json!({"use_kl_in_reward": true, "kl_ctrl": {"kl_coeff": 0.1}});
    let message = refusal("ppo", typo);
    assert!(
        message.starts_with("algorithm.kl_ctrl: unknown field `kl_coeff`"),
        "{message}"
    );
}
