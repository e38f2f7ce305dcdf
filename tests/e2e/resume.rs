//! A run that was stopped and resumed is the run that was not.

use crate::parts::{Setup, settings, weights};
use verl::Trainer;
use verl::backends::model::LoraConfig;
use verl::backends::optim::{Adafactor, AdamW8bit, Lion, Muon};
use verl::core::optimizer::Optimizer;

fn stop_at_every_step(setup: &Setup) {
    stop_at(setup, 1..6);
}

fn stop_at(setup: &Setup, stops: std::ops::Range<u64>) {
    let mut whole = Trainer::new(setup.parts(), settings(6, None)).unwrap();
    whole.fit().unwrap();
    let want = weights(whole.policy());
    for stop in stops {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Trainer::new(setup.parts(), settings(stop, Some(dir.path()))).unwrap();
        first.fit().unwrap();
        let mut second = Trainer::new(setup.parts(), settings(6, Some(dir.path()))).unwrap();
        assert_eq!(second.resume_latest().unwrap(), Some(stop));
        let report = second.fit().unwrap();
        assert_eq!(report.summary.steps, 6);
        assert_eq!(report.summary.tokens_generated, whole.tokens_generated());
        assert!(
            weights(second.policy()) == want,
            "stopped after step {stop}"
        );
    }
}

#[test]
fn grpo_resumes_byte_for_byte_across_an_epoch_border() {
    // 10 prompts, 4 a step: an epoch has 2 steps.
    stop_at_every_step(&Setup::default());
}

#[test]
fn ppo_with_critic_and_adaptive_kl_resumes_byte_for_byte() {
    stop_at_every_step(&Setup {
        algorithm: "ppo".into(),
        options: serde_json::json!({
            "use_kl_in_reward": true,
            "kl_ctrl": {"type": "adaptive", "kl_coef": 0.1, "target_kl": 0.01, "horizon": 100.0},
        }),
        ..Default::default()
    });
}

#[test]
fn adapters_with_dropout_resume_byte_for_byte() {
    stop_at_every_step(&Setup {
        algorithm: "ppo".into(),
        options: serde_json::json!({"use_kl_in_reward": true}),
        lora: Some(LoraConfig {
            dropout: 0.2,
            ..Default::default()
        }),
        ..Default::default()
    });
}

#[test]
fn every_optimizer_resumes_byte_for_byte() {
    let optimizers: [fn() -> Box<dyn Optimizer>; 4] = [
        || Box::new(AdamW8bit::new(Default::default())),
        || Box::new(Adafactor::new(Default::default())),
        || Box::new(Lion::new(Default::default())),
        || Box::new(Muon::new(Default::default())),
    ];
    for optimizer in optimizers {
        let setup = Setup {
            optimizer,
            ..Default::default()
        };
        stop_at(&setup, 3..4);
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    Trainer::new(Setup::default().parts(), settings(3, Some(dir.path())))
        .unwrap()
        .fit()
        .unwrap();
    let mut folders: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    folders.sort();
    let newest = folders.last().unwrap().join("policy/model.safetensors");
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap();
    let mut trainer =
        Trainer::new(Setup::default().parts(), settings(6, Some(dir.path()))).unwrap();
    assert_eq!(trainer.resume_latest().unwrap(), Some(2));
}

#[test]
fn a_checkpoint_of_another_seed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Trainer::new(Setup::default().parts(), settings(1, Some(dir.path())))
        .unwrap()
        .fit()
        .unwrap();
    let other = verl::TrainSettings {
        seed: 2,
        ..settings(2, Some(dir.path()))
    };
    let error = Trainer::new(Setup::default().parts(), other)
        .unwrap()
        .resume_latest()
        .unwrap_err();
    assert!(
        error.to_string().starts_with("seed: the checkpoint in"),
        "{error}"
    );
}
