//! Faults met in practice: options that disturb one another, endless
//! resampling, prompts that leave no room, answers that end at once, log-probs
//! of a sampler that is not the policy.

use crate::parts::{Setup, model_dir, settings};
use crate::runs::{logged, series};
use std::sync::Arc;
use verl::backends::burn::tensor::Device;
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::model::{Kernels, Model, ModelConfig};
use verl::core::rollout::SamplingParams;
use verl::{TrainSettings, Trainer, reward_fn};

#[test]
fn kl_in_the_loss_and_kl_in_the_reward_do_not_disturb_each_other() {
    let run = |options| {
        let setup = Setup {
            options,
            ..Default::default()
        };
        logged(&mut Trainer::new(setup.parts(), settings(2, None)).unwrap())
    };
    let both = run(serde_json::json!({"use_kl_loss": true, "use_kl_in_reward": true}));
    for name in ["actor/kl_loss", "actor/reward_kl_penalty"] {
        assert_eq!(series(&both, name).len(), 2, "{name}");
    }
    let loss = run(serde_json::json!({"use_kl_loss": true}));
    assert!(
        loss.iter()
            .all(|m| m.get("actor/reward_kl_penalty").is_none())
    );
    assert_eq!(series(&loss, "actor/kl_loss").len(), 2);
}

#[test]
fn resampling_without_end_trains_on_what_there_is() {
    let setup = Setup {
        algorithm: "dapo".into(),
        options: serde_json::json!({"filter_groups": {"enable": true, "max_num_gen_batches": 3}}),
        reward: Arc::new(reward_fn("same", |_| 1.0f32)),
        ..Default::default()
    };
    let mut trainer = Trainer::new(setup.parts(), settings(2, None)).unwrap();
    let steps = logged(&mut trainer);
    assert_eq!(series(&steps, "train/num_gen_batches"), [3.0, 3.0]);
    assert_eq!(series(&steps, "train/kept_groups"), [0.0, 0.0]);
    assert!(series(&steps, "actor/pg_loss").iter().all(|l| *l == 0.0));
}

#[test]
fn a_prompt_that_leaves_no_room_is_refused_with_the_numbers() {
    let mut parts = Setup::default().parts();
    let longest = ModelConfig::from_dir(&model_dir()).unwrap().max_positions;
    parts.prompts.truncate(4);
    for prompt in &mut parts.prompts {
        prompt.ids = vec![3; longest].into();
    }
    let mut trainer = Trainer::new(parts, settings(1, None)).unwrap();
    let error = trainer.fit().unwrap_err().to_string();
    assert!(
        error.contains(&format!(
            "{longest} prompt tokens and up to 5 answer tokens"
        )),
        "{error}"
    );
}

#[test]
fn answers_that_end_at_once_train_with_a_finite_loss() {
    let mut parts = Setup::default().parts();
    // Every token ends the answer.
    let model = Model::random(
        Arc::new(ModelConfig::from_dir(&model_dir()).unwrap()),
        3,
        &Device::flex(),
    );
    let generator = GeneratorOptions {
        vocab: Some(parts.tokenizer.vocab_size()),
        stop_ids: (0..parts.tokenizer.vocab_size() as u32).collect(),
        ..Default::default()
    };
    parts.engine = Box::new(NativeGenerator::new(model, generator).unwrap());
    let mut trainer = Trainer::new(parts, settings(2, None)).unwrap();
    let steps = logged(&mut trainer);
    assert_eq!(series(&steps, "response_length/max"), [1.0, 1.0]);
    for name in ["actor/pg_loss", "actor/grad_norm"] {
        assert!(series(&steps, name).iter().all(|x| x.is_finite()), "{name}");
    }
    assert_eq!(series(&steps, "actor/skipped_updates"), [0.0, 0.0]);
}

/// A filter makes the sampler's distribution another than the policy's, so its
/// log-probs must not be taken for the policy's.
#[test]
fn a_samplers_log_probs_are_taken_over_only_where_they_agree() {
    let run = |sampling: SamplingParams, reuse_log_probs| {
        let settings = TrainSettings {
            sampling,
            reuse_log_probs,
            mini_batch_prompts: None,
            ..settings(2, None)
        };
        let setup = Setup::default();
        let steps = logged(&mut Trainer::new(setup.parts(), settings).unwrap());
        let gap = series(&steps, "training/rollout_probs_diff_max");
        (series(&steps, "actor/ppo_kl"), gap)
    };
    let plain = SamplingParams {
        max_tokens: 5,
        ..Default::default()
    };
    let filtered = SamplingParams {
        top_k: 2,
        ..plain.clone()
    };
    for (sampling, reuse) in [
        (plain.clone(), Some(1e-3)),
        (plain, None),
        (filtered.clone(), Some(1e-3)),
        (filtered, None),
    ] {
        let agrees = sampling.top_k == 0;
        let (kl, gap) = run(sampling, reuse);
        assert!(
            kl.iter().all(|kl| kl.abs() < 1e-5),
            "the ratio is not 1: {kl:?}"
        );
        assert_eq!(agrees, gap.iter().all(|g| *g < 1e-4), "{gap:?}");
    }
}

#[test]
fn both_kinds_of_kernels_train_alike() {
    let run = |kernels| {
        let setup = Setup {
            kernels,
            ..Default::default()
        };
        let mut trainer = Trainer::new(setup.parts(), settings(1, None)).unwrap();
        let steps = logged(&mut trainer);
        ["critic/score/mean", "actor/grad_norm", "actor/entropy"]
            .map(|name| series(&steps, name)[0])
    };
    let (fused, plain) = (run(Kernels::Fused), run(Kernels::Plain));
    for (a, b) in fused.into_iter().zip(plain) {
        assert!((a - b).abs() <= 1e-4 * b.abs(), "{fused:?} {plain:?}");
    }
}
