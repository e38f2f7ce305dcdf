//! Every algorithm as a combination of an estimator and a loss.
//!
//! The estimator's file, or the loss's where the loss is what is new, holds
//! paper and equations; here stand the defaults in which an algorithm differs
//! from its parts.

use crate::pf_ppo::PfPpoConfig;
use crate::positive_lm::PositiveLmConfig;
use crate::preset::Preset;
use crate::prime::{ImplicitRewardConfig, RewardModelConfig};
use serde_json::json;
use verl_core::algorithm::Composed;

const TOKEN_SUM: &str = "seq-mean-token-sum";
const TOKEN_MEAN: &str = "seq-mean-token-mean";

/// All presets.
pub(crate) fn all() -> Vec<Preset> {
    let mut all = twelve();
    all.extend(ratios());
    all.extend(preferences());
    all
}

/// What the field starts from.
fn twelve() -> Vec<Preset> {
    vec![
        Preset::new("ppo", "gae", "clipped"),
        Preset::new("grpo", "grpo", "clipped").default("loss_agg_mode", TOKEN_MEAN),
        Preset::new("dapo", "grpo", "clipped")
            .default("clip_ratio_high", 0.28)
            .default("filter_groups", json!({"enable": true})),
        Preset::new("dr_grpo", "grpo", "clipped")
            .default("norm_adv_by_std", false)
            .default("loss_agg_mode", TOKEN_SUM),
        Preset::new("gspo", "grpo", "gspo").default("loss_agg_mode", TOKEN_MEAN),
        Preset::new("rloo", "rloo", "clipped"),
        Preset::new("reinforce_plus_plus", "reinforce_plus_plus", "clipped"),
        Preset::new("remax", "remax", "clipped"),
        Preset::new("opo", "opo", "policy_gradient"),
        Preset::new("gpg", "gpg", "policy_gradient"),
        Preset::new("prime", "prime", "clipped")
            .default(
                "filter_groups",
                json!({"enable": true, "mean_within": [0.2, 0.8], "max_num_gen_batches": 4}),
            )
            .extra(|algorithm, reader| {
                let rewards = reader.take(ImplicitRewardConfig::default())?;
                let model = reader.take(RewardModelConfig::default())?;
                Ok(algorithm.reward_model(model.build(&rewards)?))
            }),
        Preset::new("vapo", "vapo", "clipped")
            .default("clip_ratio_high", 0.28)
            .default("value_pretraining_steps", 50)
            .wrap(|loss, reader| {
                let options = reader.take(PositiveLmConfig::default())?;
                Ok(Box::new(options.build(loss)?))
            }),
    ]
}

/// Other baselines, and other ways to bound the ratio.
fn ratios() -> Vec<Preset> {
    let grpo = |name: &str| Preset::new(name, "grpo", name);
    vec![
        Preset::new(
            "reinforce_plus_plus_baseline",
            "reinforce_plus_plus_baseline",
            "clipped",
        ),
        Preset::new("grpo_passk", "grpo_passk", "clipped"),
        Preset::new("gdpo", "gdpo", "clipped").default("loss_agg_mode", TOKEN_MEAN),
        Preset::new(
            "optimal_token_baseline",
            "optimal_token_baseline",
            "clipped",
        ),
        grpo("cispo"),
        grpo("sapo").default("loss_agg_mode", TOKEN_MEAN),
        grpo("gmpo").default("loss_agg_mode", TOKEN_MEAN),
        grpo("clip_cov"),
        grpo("kl_cov"),
        grpo("dppo_tv"),
        grpo("dppo_kl"),
        grpo("dro"),
        Preset::new("pf_ppo", "gae", "clipped").extra(|algorithm: Composed, reader| {
            let options = reader.take(PfPpoConfig::default())?;
            Ok(algorithm.hook(Box::new(options.build()?)))
        }),
    ]
}

/// Losses that compare whole answers.
fn preferences() -> Vec<Preset> {
    let pairs = |name: &str| Preset::new(name, "reward", name).default("loss_agg_mode", TOKEN_MEAN);
    vec![
        Preset::new("sppo", "sppo", "sppo").default("loss_agg_mode", TOKEN_MEAN),
        pairs("spin"),
        pairs("dpo"),
        pairs("orpo"),
        pairs("simpo"),
    ]
}
