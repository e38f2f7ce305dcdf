//! What runs learn, keep and refuse.

use crate::parts::{Setup, model_dir, settings, weights};
use std::sync::{Arc, Mutex};
use verl::backends::model::{Coding, LoraConfig};
use verl::core::config::RunConfig;
use verl::core::tracking::{Completion, Metrics, Summary, Tracker};
use verl::{Result, RunBuilder, TrainSettings, Trainer, reward_fn};

/// Keeps what a run logs.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<Metrics>>>);

impl Tracker for Log {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        self.0.lock().unwrap().push(metrics.clone());
        Ok(())
    }
    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self, _: &Summary) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn logged(trainer: &mut Trainer) -> Vec<Metrics> {
    let log = Log::default();
    trainer.add_tracker(Box::new(log.clone()));
    trainer.fit().unwrap();
    let steps = log.0.lock().unwrap();
    steps.clone()
}

pub(crate) fn series(steps: &[Metrics], name: &str) -> Vec<f64> {
    steps
        .iter()
        .map(|m| m.get(name).unwrap_or_else(|| panic!("no {name}")))
        .collect()
}

#[test]
fn every_algorithm_learns_to_answer_briefly() {
    for algorithm in verl::algos::Catalogue::builtin().names() {
        let setup = Setup {
            algorithm: algorithm.into(),
            lr: 3e-3,
            ..Default::default()
        };
        let long = TrainSettings {
            prompts_per_step: 8,
            samples_per_prompt: 8,
            mini_batch_prompts: None,
            ..settings(20, None)
        };
        let parts = setup.parts();
        let warmup = parts.algorithm.critic_warmup().min(10);
        let long = TrainSettings {
            critic_warmup: Some(warmup),
            total_steps: long.total_steps + warmup,
            ..long
        };
        let mut trainer = Trainer::new(parts, long).unwrap();
        let rewards = series(&logged(&mut trainer), "critic/score/mean");
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (before, after) = (mean(&rewards[..3]), mean(&rewards[rewards.len() - 3..]));
        println!("{algorithm}: {before:.3} to {after:.3}");
        assert!(after > before + 0.1, "{algorithm}: {before} to {after}");
    }
}

#[test]
fn an_adapter_learns_and_leaves_its_model_alone() {
    for coding in [None, Some(Coding::Nf4Double)] {
        learns(coding);
    }
}

fn learns(coding: Option<Coding>) {
    let setup = Setup {
        coding,
        options: serde_json::json!({"kl_loss_coef": 0.001}),
        lr: 2e-2,
        lora: Some(LoraConfig::default()),
        ..Default::default()
    };
    let long = TrainSettings {
        prompts_per_step: 8,
        samples_per_prompt: 8,
        mini_batch_prompts: None,
        ..settings(20, None)
    };
    let mut trainer = Trainer::new(setup.parts(), long).unwrap();
    let before = weights(trainer.policy());
    let rewards = series(&logged(&mut trainer), "critic/score/mean");
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&rewards[..3]), mean(&rewards[17..]));
    assert!(last > first + 0.1, "{first} to {last}");
    for ((name, was), (_, is)) in before.iter().zip(weights(trainer.policy())) {
        assert_eq!(*was != is, name.contains(".lora_"), "{name}");
    }
}

#[test]
fn a_configured_adapter_is_trained_saved_and_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = |out: &str, overrides: &[String]| {
        let out = dir.path().join(out);
        let config = RunConfig::from_yaml(&yaml(&out, "algorithm: { name: ppo }"), overrides)?;
        let mut run = RunBuilder::default().build(config)?;
        run.fit()?;
        Ok::<_, verl::Error>(weights(run.trainer().policy()))
    };
    let verls_spelling = [
        "actor_rollout_ref.model.lora_rank=4",
        "actor_rollout_ref.model.lora_alpha=8",
        "actor.optim.lr=0.01",
    ];
    let first = run("first", &verls_spelling.map(String::from)).unwrap();
    let checkpoints = std::fs::read_dir(dir.path().join("first/checkpoints")).unwrap();
    let newest = checkpoints.map(|e| e.unwrap().path()).max().unwrap();
    let from_there = format!(
        "actor.model.lora.adapter_path={}",
        newest.join("policy").display()
    );
    let second = run("second", &[from_there.clone(), "actor.optim.lr=0".into()]).unwrap();
    assert!(first == second, "the adapter is where training left it");

    for (overrides, want) in [
        (
            vec!["actor.model.lora.alpha=3".into()],
            "actor.model.lora.alpha: there is no adapter",
        ),
        (
            vec![from_there, "actor.model.lora.rank=8".into()],
            "actor.model.lora.rank: comes from the adapter",
        ),
        (
            vec![
                "actor.model.lora.rank=8".into(),
                "actor.model.lora.target_modules=[lm_head]".into(),
            ],
            "actor.model.lora.target_modules: `lm_head` is no projection",
        ),
    ] {
        let error = run("refused", &overrides).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn a_learning_rate_of_zero_changes_nothing() {
    for (algorithm, options) in [
        ("grpo", serde_json::json!({"kl_loss_coef": 0.1})),
        ("ppo", serde_json::json!({"use_kl_in_reward": true})),
    ] {
        let setup = Setup {
            algorithm: algorithm.into(),
            options,
            lr: 0.0,
            ..Default::default()
        };
        let two_epochs = TrainSettings {
            epochs: 2,
            ..settings(2, None)
        };
        let mut trainer = Trainer::new(setup.parts(), two_epochs).unwrap();
        let before = weights(trainer.policy());
        let steps = logged(&mut trainer);
        assert!(weights(trainer.policy()) == before, "{algorithm}");
        for kl in series(&steps, "actor/ppo_kl") {
            assert!(kl.abs() < 1e-6, "{algorithm}: the ratio is not 1: {kl}");
        }
        assert!(
            series(&steps, "actor/pg_clipfrac")
                .iter()
                .all(|f| *f == 0.0)
        );
        assert!(
            series(&steps, "training/rollout_probs_diff_max")
                .iter()
                .all(|d| *d < 1e-4),
            "{algorithm}"
        );
    }
}

#[test]
fn any_split_into_micro_batches_gives_the_same_weights_but_for_rounding() {
    let run = |micro_batch_tokens| {
        let settings = TrainSettings {
            micro_batch_tokens,
            ..settings(1, None)
        };
        let mut trainer = Trainer::new(Setup::default().parts(), settings).unwrap();
        trainer.fit().unwrap();
        weights(trainer.policy())
    };
    let (whole, split) = (run(10_000), run(12));
    for ((name, a), (_, b)) in whole.iter().zip(&split) {
        for (x, y) in a.iter().zip(b) {
            let (x, y) = (f32::from_bits(*x), f32::from_bits(*y));
            // The first step of Adam moves a weight by the rate whatever the
            // size of its gradient, so a gradient of 0 may go either way.
            assert!((x - y).abs() < 2.1e-3, "{name}: {x} {y}");
        }
    }
    let off = whole
        .iter()
        .zip(&split)
        .flat_map(|((_, a), (_, b))| a.iter().zip(b));
    let off = off
        .filter(|(a, b)| (f32::from_bits(**a) - f32::from_bits(**b)).abs() > 1e-5)
        .count();
    assert!(off < 200, "{off} weights differ");
}

#[test]
fn a_stop_saves_and_ends_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let mut quiet = settings(50, Some(dir.path()));
    quiet.checkpoints.as_mut().unwrap().every = 0;
    let mut setup = Setup::default();
    let stop = Arc::new(Mutex::new(None::<verl::core::trainer::StopHandle>));
    let in_reward = stop.clone();
    setup.reward = Arc::new(reward_fn("stops", move |_input| {
        if let Some(handle) = &*in_reward.lock().unwrap() {
            handle.stop();
        }
        0.5f32
    }));
    let mut trainer = Trainer::new(setup.parts(), quiet).unwrap();
    *stop.lock().unwrap() = Some(trainer.stop_handle());
    let report = trainer.fit().unwrap();
    assert!(report.stopped);
    assert_eq!(
        (report.summary.steps, report.summary.ended.as_str()),
        (1, "interrupted")
    );
    let mut again = Trainer::new(setup.parts(), settings(1, Some(dir.path()))).unwrap();
    assert_eq!(again.resume_latest().unwrap(), Some(1));
}

#[test]
fn a_broken_scorer_ends_the_run_with_its_own_words() {
    let reward = reward_fn("broken", |_input| Err::<f32, &str>("the judge is down"));
    let setup = Setup {
        reward: Arc::new(reward),
        ..Default::default()
    };
    let error = Trainer::new(setup.parts(), settings(2, None))
        .unwrap()
        .fit()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("16 of 16 answers could not be scored")
            && error.contains("the judge is down"),
        "{error}"
    );
}

#[test]
fn what_an_algorithm_lacks_is_refused_at_start() {
    let mut parts = Setup {
        algorithm: "ppo".into(),
        ..Default::default()
    }
    .parts();
    parts.critic = None;
    let error = Trainer::new(parts, settings(1, None))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "algorithm.name: `ppo` needs a critic; give the run one (section `critic`)"
    );
    let single = TrainSettings {
        samples_per_prompt: 1,
        ..settings(1, None)
    };
    let error = Trainer::new(Setup::default().parts(), single)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("rollout.n: `grpo` compares the answers"),
        "{error}"
    );
}

fn yaml(out: &std::path::Path, more: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/sums.jsonl");
    format!(
        "output_dir: {}\nactor: {{ model: {{ path: {} }} }}\ndata: {{ train_files: {data}, val_files: {data}, max_prompt_length: 16 }}\n\
         rollout: {{ n: 4, response_length: 4 }}\nreward: {{ name: exact }}\n\
         training: {{ train_batch_size: 4, total_steps: 2, val_samples: 8 }}\ntracking: {{ progress: false }}\n{more}",
        out.display(),
        model_dir().display()
    )
}

#[test]
fn a_configured_run_writes_all_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let config = RunConfig::from_yaml(&yaml(dir.path(), "algorithm: { name: ppo }"), &[]).unwrap();
    let mut run = RunBuilder::default().build(config).unwrap();
    let summary = run.fit().unwrap().summary;
    assert_eq!((summary.steps, summary.algorithm.as_str()), (2, "ppo"));
    assert!(summary.accuracy_before.is_some() && summary.accuracy_after.is_some());
    for file in [
        "config.yaml",
        "metrics.jsonl",
        "completions.jsonl",
        "summary.json",
        "report.html",
        "checkpoints",
        "tensorboard",
    ] {
        assert!(dir.path().join(file).exists(), "{file}");
    }
    let lines = std::fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap();
    assert_eq!(
        lines.lines().count(),
        3,
        "validation before training, and two steps"
    );
    assert!(lines.lines().all(|l| l.starts_with("{\"step\":")));
}

#[test]
fn a_configured_optimizer_trains_and_no_other_goes_on_from_it() {
    let names = ["adamw", "adamw_8bit", "adafactor", "lion", "muon"];
    for (name, other) in names.iter().zip(names.iter().cycle().skip(1)) {
        let dir = tempfile::tempdir().unwrap();
        let build = |name: &str, steps: u64| {
            let overrides = [
                format!("actor.optim.name={name}"),
                "actor.optim.lr=1e-3".to_string(),
                format!("training.total_steps={steps}"),
            ];
            let config = RunConfig::from_yaml(&yaml(dir.path(), ""), &overrides).unwrap();
            RunBuilder::default().build(config)
        };
        assert_eq!(build(name, 1).unwrap().fit().unwrap().summary.steps, 1);
        assert_eq!(
            build(other, 2).unwrap_err().to_string(),
            format!(
                "the optimizer state was written by `{name}`, and `{other}` cannot go on from it; choose `{name}` \
                 again, or start a new run"
            )
        );
        assert_eq!(build(name, 2).unwrap().resumed(), Some(1));
    }
}

#[test]
fn options_nobody_would_use_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |more: &str| {
        let config = RunConfig::from_yaml(&yaml(dir.path(), more), &[]);
        config
            .and_then(|c| RunBuilder::default().build(c).map(drop))
            .unwrap_err()
            .to_string()
    };
    let error = refused("algorithm:\n  name: grpo\n  lamda: 0.9\n");
    assert!(
        error.contains("algorithm.lamda (line 10): `grpo` has no such option"),
        "{error}"
    );
    let error = refused("critic:\n  optim: { lr: 1e-4 }\n");
    assert!(
        error.contains("critic.optim.lr (line 9)") && error.contains("`grpo` has no critic"),
        "{error}"
    );
    let error = refused("algorithm: { name: gropo }\n");
    assert!(error.contains("did you mean `grpo`?"), "{error}");
}
