//! Whole files through every stage, with the exact words a user reads.

use super::*;
use crate::math::ScheduleKind;
use serde_json::{Value, json};
use std::path::Path;

fn load(yaml: &str) -> RunConfig {
    RunConfig::from_yaml(yaml, &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn message(yaml: &str) -> String {
    RunConfig::from_yaml(yaml, &[]).unwrap_err().to_string()
}

fn message_with(yaml: &str, overrides: &[&str]) -> String {
    let overrides: Vec<_> = overrides.iter().map(|o| o.to_string()).collect();
    RunConfig::from_yaml(yaml, &overrides)
        .unwrap_err()
        .to_string()
}

fn recipe() -> String {
    let folder = std::env::var("VERL_REFERENCE_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/reference").into());
    let shipped = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/reference"));
    let file = "examples/run_qwen2-7b_math.yaml";
    std::fs::read_to_string(Path::new(&folder).join(file))
        .or_else(|_| std::fs::read_to_string(shipped.join(file)))
        .unwrap()
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(load(""), RunConfig::default());
    assert_eq!(load("actor:\nrollout: {}\n"), RunConfig::default());
}

#[test]
fn what_is_written_reads_back_the_same() {
    let yaml = "seed: 7\nactor: {grad_clip: null, ppo_mini_batch_size: 8, optim: {lr: 2e-5, betas: [0.8, 0.99]}}\n\
                algorithm: {name: ppo, clip_ratio: 0.3, kl_ctrl: {type: adaptive, kl_coef: 1e-3}}\n\
                rollout: {stop: [\"\\n\\n\", \"#: x\"]}\nreward: {options: {method: strict}}\n\
                data: {train_files: a b.jsonl, system_prompt: \"yes\"}\ntraining: {resume: runs/a/step_00000003}\n";
    let config = load(yaml);
    let mut again = load(&config.to_yaml().unwrap());
    again.sources = config.sources.clone();
    assert_eq!(config, again);
    assert_eq!(
        config.training.resume,
        Resume::Path("runs/a/step_00000003".into())
    );
    assert_eq!(
        config.algorithm.settings.0["kl_ctrl"],
        json!({"type": "adaptive", "kl_coef": 1e-3})
    );
    assert_eq!(config.data.train_files, [Path::new("a b.jsonl")]);
}

#[test]
fn the_published_recipe_is_used_or_refused_line_by_line() {
    let text = message(&recipe());
    let expected = "the configuration has 10 problems:
  - actor.model.tensor_model_parallel_size (line 12): a model runs on one device here; remove the key or set it to 1
  - memory_optimization.param_offload (line 23): weights stay on the device; remove the key or set it to false
  - parallel.tensor_model_parallel_size (line 27): a model runs on one device here; remove the key or set it to 1
  - parallel.pipeline_model_parallel_size (line 28): a model runs on one device here; remove the key or set it to 1
  - parallel.data_parallel_size (line 29): a model runs on one device here; remove the key or set it to 1
  - parallel.expert_parallel_size (line 30): a model runs on one device here; remove the key or set it to 1
  - quantization.bits (line 33): the section says too little; set `actor.model.quantization` to nf4, nf4_double or int8, with `actor.model.lora.rank`, and remove it
  - quantization.dtype (line 34): the section says too little; set `actor.model.quantization` to nf4, nf4_double or int8, with `actor.model.lora.rank`, and remove it
  - quantization.double_quant (line 35): the section says too little; set `actor.model.quantization` to nf4, nf4_double or int8, with `actor.model.lora.rank`, and remove it
  - quantization.quant_type (line 36): the section says too little; set `actor.model.quantization` to nf4, nf4_double or int8, with `actor.model.lora.rank`, and remove it";
    assert_eq!(text, expected);
}

#[test]
fn the_rest_of_the_recipe_means_what_it_says() {
    let overrides: Vec<String> = [
        "actor.model.tensor_model_parallel_size=1",
        "memory_optimization={param_offload: false, activation_checkpointing: false}",
        "parallel=",
        "quantization=",
    ]
    .map(String::from)
    .into();
    let config = RunConfig::from_yaml(&recipe(), &overrides).unwrap();
    assert_eq!(config.algorithm.name, "grpo");
    let options = json!({"clip_ratio": 0.2, "kl_loss_coef": 0.15});
    assert_eq!(Value::Object(config.algorithm.settings.0.clone()), options);
    assert_eq!(config.actor.model.path, Path::new("Qwen/Qwen2-7B-Instruct"));
    assert_eq!(config.actor.model.dtype, Dtype::Bfloat16);
    assert_eq!(
        (config.actor.optim.lr, config.actor.optim.weight_decay),
        (2e-5, 0.01)
    );
    assert_eq!(config.training.max_epochs, Some(10));
    let plan = config.plan(7473).unwrap();
    assert_eq!(
        (
            plan.prompts_per_step,
            plan.updates_per_step,
            plan.mini_batches.as_slice()
        ),
        (512, 1, &[512][..])
    );
    assert_eq!(plan.micro_batch_samples, Some(16 * config.rollout.n));
    assert_eq!((plan.steps_per_epoch, plan.total_steps), (14, 140));
}

#[test]
fn verl_spellings_keep_their_meaning() {
    let config = load(
        "actor_rollout_ref:
  model: {path: m, use_remove_padding: true}
  actor:
    optim: {lr: 3e-6, lr_warmup_steps: -1, lr_warmup_steps_ratio: 0.1, warmup_style: cosine}
    clip_ratio_high: 0.28
    loss_agg_mode: token-mean
    use_dynamic_bsz: true
    ppo_mini_batch_size: 16
  rollout: {n: 5, name: native, val_kwargs: {do_sample: false, temperature: 1.0}}
data: {train_batch_size: 64, max_response_length: 100, truncation: error, filter_overlong_prompts: true}
algorithm: {adv_estimator: gae, gamma: 1.0}
critic: {model: {dtype: bf16}}
trainer: {total_epochs: 3, test_freq: -1, nnodes: 1, resume_mode: disable, max_actor_ckpt_to_keep: 4}
",
    );
    assert_eq!(config.actor.optim.lr_schedule, ScheduleKind::Cosine);
    assert_eq!(
        (
            config.actor.optim.warmup_steps,
            config.actor.optim.schedule(200).warmup
        ),
        (None, 20)
    );
    assert_eq!(config.algorithm.name, "ppo");
    assert_eq!(
        Value::Object(config.algorithm.settings.0.clone()),
        json!({"clip_ratio_high": 0.28, "loss_agg_mode": "token-mean", "gamma": 1.0})
    );
    assert_eq!((config.rollout.n, config.rollout.response_length), (5, 100));
    assert_eq!(config.rollout.val_sampling().temperature, 0.0);
    assert_eq!(config.training.train_batch_size, 64);
    assert_eq!(
        config.critic.resolved_model(&config.actor),
        (Path::new("m"), Dtype::Bfloat16)
    );
    assert_eq!(config.data.truncation, Truncation::Filter);
    assert_eq!(
        (config.training.max_epochs, config.training.keep_checkpoints),
        (Some(3), Some(4))
    );
    assert_eq!(
        (&config.training.resume, config.training.test_freq),
        (&Resume::Never, -1)
    );
}

#[test]
fn misspelt_keys_suggest_the_nearest() {
    assert_eq!(
        message("rollout:\n  n: 2\n  temprature: 1"),
        "rollout.temprature (line 3): unknown key; did you mean `rollout.temperature`?"
    );
    assert_eq!(
        message("training: {lr: 1}"),
        "training.lr (line 1): unknown key; did you mean `actor.optim.lr`?"
    );
    assert_eq!(
        message("zzz: {qqq: 1}"),
        "zzz.qqq (line 1): unknown key; the sections are seed, output_dir, actor, critic, algorithm, rollout, data, \
         reward, training, device, tracking"
    );
    assert_eq!(
        message("seed: {a: 1}"),
        "seed.a (line 1): `seed` takes a single value (integer), not a section"
    );
    assert_eq!(
        message("actor: 5"),
        "actor (line 1): expected a section of keys, found 5"
    );
}

#[test]
fn every_mistyped_value_is_reported() {
    assert_eq!(
        message("seed: -1\nactor:\n  optim:\n    lr: fast\n    lr_schedule: cosin\n    betas: [0.9]\nrollout:\n  n: 2.5\n  stop: [5]\ndata:\n  shuffle: 1\n  prompt_key: 7\n"),
        "the configuration has 8 problems:
  - seed (line 1): expected a whole number of at least 0, found -1
  - actor.optim.lr (line 4): expected a number, found \"fast\"
  - actor.optim.lr_schedule (line 5): `cosin` is not one of constant, linear, cosine; did you mean `cosine`?
  - actor.optim.betas (line 6): invalid length 1, expected an array of length 2
  - rollout.n (line 8): expected a whole number of at least 0, found 2.5
  - rollout.stop[0] (line 9): expected text, found 5; put it in quotes
  - data.shuffle (line 11): expected `true` or `false`, found 1
  - data.prompt_key (line 12): expected text, found 7; put it in quotes"
    );
    assert_eq!(
        message("data: {max_prompt_length: \"${data.x}\"}"),
        "data.max_prompt_length (line 1): `${data.x}` refers to another key, which is not supported; write the value itself"
    );
}

#[test]
fn one_key_under_two_spellings_is_an_error() {
    assert_eq!(
        message("training:\n  learning_rate: 1\nactor:\n  optim: {lr: 2}"),
        "actor.optim.lr (line 4): sets this key, as `training.learning_rate` (line 2) does; keep one"
    );
    assert_eq!(
        message("algorithm:\n  kl_loss_coef: 0.2\n  grpo_beta: 0.1"),
        "algorithm.grpo_beta (line 3): sets `algorithm.kl_loss_coef`, as `algorithm.kl_loss_coef` (line 2) does; keep one"
    );
    // An override replaces the file's value, however either is spelt.
    let config = RunConfig::from_yaml(
        "trainer: {total_epochs: 2}",
        &["training.max_epochs=5".into()],
    )
    .unwrap();
    assert_eq!(config.training.max_epochs, Some(5));
}

#[test]
fn errors_of_an_override_show_it() {
    assert_eq!(
        message_with("seed: 1", &["rollout.n=many"]),
        "rollout.n: expected a whole number of at least 0, found \"many\" (from the override `rollout.n=many`)"
    );
    assert_eq!(
        message_with("", &["rollot.n=4"]),
        "rollot.n: unknown key; did you mean `rollout.n`? (from the override `rollot.n=4`)"
    );
    assert_eq!(
        message_with("", &["rollout.n"]),
        "rollout.n: write overrides as `key.path=value`; there is no `=`"
    );
    let last = RunConfig::from_yaml("", &["seed=2".into(), "seed=3".into()]).unwrap();
    assert_eq!(last.seed, 3);
}

#[test]
fn combinations_that_cannot_work_name_both_numbers() {
    assert_eq!(
        message("training: {train_batch_size: 4}\nactor: {ppo_mini_batch_size: 8}"),
        "actor.ppo_mini_batch_size (line 2): 8 prompts per update, but training.train_batch_size gives only 4 per step; \
         lower one or raise the other"
    );
    assert_eq!(
        message(
            "actor: {ppo_mini_batch_size: 8}\ntraining: {micro_batch_size: 2, gradient_accumulation_steps: 3}"
        ),
        "training.gradient_accumulation_steps (line 2): 3 micro-batches of training.micro_batch_size 2 prompts are 6 \
         prompts per update, but actor.ppo_mini_batch_size is 8; make them equal or remove one"
    );
    assert_eq!(
        message("actor: {ppo_max_token_len_per_gpu: 600}"),
        "actor.ppo_max_token_len_per_gpu (line 1): 600 tokens cannot hold one sequence of data.max_prompt_length 512 + \
         rollout.response_length 256 = 768 tokens; raise it to at least 768"
    );
    assert_eq!(
        message("rollout: {temperature: 0}"),
        "rollout.temperature (line 1): 0 is greedy, so all rollout.n 8 samples of a prompt would be the same; raise it"
    );
    assert_eq!(
        message("actor: {optim: {warmup_ratio: 2, warmup_steps: 5}}\ntracking: {metrics_jsonl: false}"),
        "the configuration has 3 problems:
  - actor.optim.warmup_ratio (line 1): 2 is out of range; it must be in [0, 1]
  - actor.optim.warmup_ratio (line 1): a warm-up of 5 steps is given too, as warmup_steps; keep one
  - tracking.report: needs tracking.metrics_jsonl, whose figures it draws; turn that on or this off"
    );
}

#[test]
fn a_plan_weighs_the_last_mini_batch_and_says_so() {
    let config = load(
        "training: {train_batch_size: 10, total_steps: 3}\nactor: {ppo_mini_batch_size: 3, ppo_epochs: 2, ppo_micro_batch_size_per_gpu: 8}\nrollout: {n: 4}",
    );
    let plan = config.plan(20).unwrap();
    assert_eq!(
        plan.to_string(),
        "10 prompts x 4 samples = 40 samples per step
8 updates per step: 2 passes x 4 mini-batches
mini-batch: 3 prompts (12 samples), the last 1 prompt (4 samples), its loss averaged over those alone
micro-batch: at most 16384 tokens and 8 samples
3 steps in all (1.50 epochs of 2), 24 updates of the actor"
    );
    assert_eq!(
        config.plan(7).unwrap_err().to_string(),
        "training.train_batch_size (line 1): a step takes 10 prompts, but there are only 7 training prompts; lower it or add data"
    );
}

#[test]
fn plugin_errors_get_their_line() {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Options {
        #[allow(dead_code)]
        clip_ratio: f32,
    }
    let config = load("algorithm:\n  name: grpo\n  clip_ration: 0.2\n");
    let given = Value::Object(config.algorithm.settings.0.clone());
    let err = from_value::<Options>("algorithm", &given).unwrap_err();
    assert_eq!(
        config.locate(err).to_string(),
        "algorithm.clip_ration (line 3): unknown key; did you mean `clip_ratio`?"
    );
}

#[test]
fn files_that_are_required_are_named() {
    assert_eq!(
        RunConfig::default()
            .require_files()
            .unwrap_err()
            .to_string(),
        "the configuration has 2 problems:
  - actor.model.path: required; set it to a Hugging Face folder or a GGUF file
  - data.train_files: required; set it to one or more JSONL files"
    );
}

#[test]
fn a_file_that_is_not_text_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.yaml");
    std::fs::write(&path, b"seed: 1\noutput_dir: \xff\n").unwrap();
    let text = RunConfig::from_file(&path, &[]).unwrap_err().to_string();
    assert!(
        text.ends_with("run.yaml:2: an invalid byte; save the file as UTF-8 text"),
        "{text}"
    );
}

/// Leaves of the serialised default configuration.
fn leaves(path: &str, value: &Value, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter()
                .for_each(|(key, value)| leaves(&de::join(path, key), value, out));
        }
        leaf => out.push((path.to_string(), leaf.clone())),
    }
}

#[test]
fn the_key_table_and_the_structs_agree() {
    let mut defaults = Vec::new();
    leaves(
        "",
        &serde_json::to_value(RunConfig::default()).unwrap(),
        &mut defaults,
    );
    let documented: Vec<_> = KEYS.iter().map(|k| k.path).collect();
    let existing: Vec<_> = defaults.iter().map(|(path, _)| path.as_str()).collect();
    let same = |a: &[&str], b: &[&str]| {
        a.iter()
            .filter(|x| !b.contains(x))
            .map(|x| x.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        same(&existing, &documented),
        Vec::<String>::new(),
        "keys without documentation"
    );
    assert_eq!(
        same(&documented, &existing),
        Vec::<String>::new(),
        "documented keys that do not exist"
    );

    for key in KEYS {
        let (_, real) = defaults.iter().find(|(path, _)| path == key.path).unwrap();
        let stated: Value = serde_saphyr::from_str(key.default).unwrap();
        let equal = match (stated.as_f64(), real.as_f64()) {
            // The structs hold some numbers as f32.
            (Some(a), Some(b)) => a == b || a as f32 == b as f32,
            _ => stated == *real,
        };
        assert!(
            equal,
            "{}: documented default {}, real default {real}",
            key.path, key.default
        );
        // `key: DEFAULT` in a file is the same as leaving the key out.
        let mut config = load(&format!("{}: {}", key.path, key.default));
        config.sources = Sources::default();
        assert_eq!(config, RunConfig::default(), "{}", key.path);
    }
}

#[test]
fn documented_choices_are_the_real_ones() {
    for key in KEYS
        .iter()
        .filter(|k| k.ty.contains('|') && !k.ty.contains("path"))
    {
        let choices: Vec<_> = key.ty.split(" | ").filter(|c| *c != "null").collect();
        // Only an adapter can be trained over weights kept as codes.
        let beside = match key.path {
            "actor.model.quantization" => "actor: {model: {lora: {rank: 8}}}",
            _ => "",
        };
        for choice in &choices {
            let entry = format!("{}={choice}", key.path);
            assert!(
                RunConfig::from_yaml(beside, &[entry]).is_ok(),
                "{} {choice}",
                key.path
            );
        }
        let wrong = RunConfig::from_yaml("", &[format!("{}=zzz", key.path)])
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains(&format!("not one of {}", choices.join(", "))),
            "{wrong}"
        );
    }
}

#[test]
fn configuration_docs_are_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    let wanted = render_docs(&[]);
    if std::env::var_os("VERL_WRITE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        wanted,
        "run with VERL_WRITE_DOCS=1 to write it anew"
    );
}

#[test]
fn a_section_that_nothing_would_use_is_refused_where_it_is_given() {
    let config = load("critic:\n  grad_clip: 2\n  optim: {lr: 1}\n");
    let why = "`grpo` trains no critic; remove the key";
    assert_eq!(
        config.refuse("critic", why).unwrap_err().to_string(),
        "the configuration has 2 problems:
  - critic.grad_clip (line 2): `grpo` trains no critic; remove the key
  - critic.optim.lr (line 3): `grpo` trains no critic; remove the key"
    );
    assert!(config.refuse("rollout", why).is_ok());
    assert!(RunConfig::default().refuse("critic", why).is_ok());
}
