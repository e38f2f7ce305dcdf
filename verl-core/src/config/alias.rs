//! Other spellings: verl's own sections, and the published recipe's keys.
//!
//! A key keeps one canonical name here; every spelling below is renamed before
//! anything else looks at it.

use super::de::brief;
use super::source::{Entry, inside};
use crate::Result;
use serde_json::{Value, json};

/// Sections that have moved as a whole, longest first.
const SECTIONS: &[(&str, &str)] = &[
    ("actor_rollout_ref.actor.policy_loss", "algorithm"),
    ("actor_rollout_ref.actor", "actor"),
    ("actor_rollout_ref.rollout", "rollout"),
    ("actor_rollout_ref.model", "actor.model"),
    ("actor_rollout_ref.ref", "ref"),
    ("actor.policy_loss", "algorithm"),
    ("trainer", "training"),
];

/// Keys, after their section has moved.
const KEYS: &[(&str, &str)] = &[
    ("actor.clip_ratio", "algorithm.clip_ratio"),
    ("actor.clip_ratio_c", "algorithm.clip_ratio_c"),
    ("actor.clip_ratio_high", "algorithm.clip_ratio_high"),
    ("actor.clip_ratio_low", "algorithm.clip_ratio_low"),
    ("actor.entropy_coeff", "algorithm.entropy_coeff"),
    ("actor.kl_loss_coef", "algorithm.kl_loss_coef"),
    ("actor.kl_loss_type", "algorithm.kl_loss_type"),
    ("actor.loss_agg_mode", "algorithm.loss_agg_mode"),
    (
        "actor.model.enable_gradient_checkpointing",
        "actor.model.checkpoint_every",
    ),
    (
        "actor.model.exclude_modules",
        "actor.model.lora.exclude_modules",
    ),
    (
        "actor.model.lora_adapter_path",
        "actor.model.lora.adapter_path",
    ),
    ("actor.model.lora_alpha", "actor.model.lora.alpha"),
    ("actor.model.lora_dropout", "actor.model.lora.dropout"),
    ("actor.model.lora_rank", "actor.model.lora.rank"),
    (
        "actor.model.target_modules",
        "actor.model.lora.target_modules",
    ),
    ("actor.model.use_rslora", "actor.model.lora.rslora"),
    ("actor.optim.lr_scheduler_type", "actor.optim.lr_schedule"),
    ("actor.optim.lr_warmup_steps", "actor.optim.warmup_steps"),
    (
        "actor.optim.lr_warmup_steps_ratio",
        "actor.optim.warmup_ratio",
    ),
    ("actor.optim.warmup_style", "actor.optim.lr_schedule"),
    ("actor.use_kl_loss", "algorithm.use_kl_loss"),
    ("algorithm.clip_epsilon", "algorithm.clip_ratio"),
    ("algorithm.grpo_beta", "algorithm.kl_loss_coef"),
    ("algorithm.loss_mode", "algorithm.policy_loss"),
    ("critic.cliprange_value", "algorithm.cliprange_value"),
    ("critic.optim.lr_scheduler_type", "critic.optim.lr_schedule"),
    ("critic.optim.lr_warmup_steps", "critic.optim.warmup_steps"),
    (
        "critic.optim.lr_warmup_steps_ratio",
        "critic.optim.warmup_ratio",
    ),
    ("critic.optim.warmup_style", "critic.optim.lr_schedule"),
    ("data.max_response_length", "rollout.response_length"),
    ("data.seed", "seed"),
    ("data.train_batch_size", "training.train_batch_size"),
    (
        "memory_optimization.activation_checkpointing",
        "actor.model.checkpoint_every",
    ),
    ("rollout.max_response_length", "rollout.response_length"),
    ("rollout.prompt_length", "data.max_prompt_length"),
    ("training.default_local_dir", "output_dir"),
    ("training.learning_rate", "actor.optim.lr"),
    ("training.log_val_generations", "training.log_completions"),
    (
        "training.max_actor_ckpt_to_keep",
        "training.keep_checkpoints",
    ),
    ("training.resume_from_path", "training.resume"),
    ("training.resume_mode", "training.resume"),
    ("training.total_epochs", "training.max_epochs"),
    ("training.total_training_steps", "training.total_steps"),
    ("training.weight_decay", "actor.optim.weight_decay"),
];

/// Short names of number formats and devices.
const VALUES: &[(&str, &str)] = &[
    ("bf16", "bfloat16"),
    ("cpu", "flex"),
    ("f16", "float16"),
    ("f32", "float32"),
    ("fp16", "float16"),
    ("fp32", "float32"),
    ("half", "float16"),
];

/// verl's switch beside `data.truncation`.
const FILTER_OVERLONG: &str = "data.filter_overlong_prompts";

/// verl's choice of an algorithm.
const ESTIMATOR: &str = "algorithm.adv_estimator";

/// Gives an entry its canonical key, and its value the form that key takes.
/// `None` when the spelling says nothing here, such as verl's "-1: not set".
pub(super) fn rename(mut entry: Entry) -> Result<Option<Entry>> {
    let given = entry.key.clone();
    if let Some((from, to)) = SECTIONS
        .iter()
        .find(|(from, _)| given == *from || inside(&given, from))
    {
        entry.key = format!("{to}{}", &given[from.len()..]);
    }
    if let Some((_, to)) = KEYS.iter().find(|(from, _)| *from == entry.key) {
        let from = std::mem::replace(&mut entry.key, (*to).to_string());
        return convert(&from, entry);
    }
    if let Some((_, value)) = VALUES
        .iter()
        .find(|(short, _)| entry.value.as_str() == Some(*short))
        && (entry.key.ends_with(".dtype") || entry.key == "device.kind")
    {
        entry.value = json!(value);
    }
    Ok(Some(entry))
}

/// Values whose form changes with their spelling.
fn convert(from: &str, mut entry: Entry) -> Result<Option<Entry>> {
    let unset = entry.value == json!(-1) || entry.value.is_null();
    if from == "actor.model.exclude_modules" && entry.value.is_null() {
        return Ok(None);
    }
    if from.ends_with(".lr_warmup_steps") && unset {
        return Ok(None);
    }
    // verl writes a ratio of 0 beside a number of steps and lets the latter win.
    if from.ends_with(".lr_warmup_steps_ratio") && (unset || entry.value.as_f64() == Some(0.0)) {
        return Ok(None);
    }
    match (from, entry.value.as_str()) {
        (
            "actor.model.enable_gradient_checkpointing"
            | "memory_optimization.activation_checkpointing",
            None,
        ) => match entry.value {
            Value::Bool(every) => entry.value = json!(u8::from(every)),
            Value::Null => return Ok(None),
            _ => {}
        },
        ("algorithm.loss_mode", Some("vanilla")) => entry.value = json!("clipped"),
        ("algorithm.loss_mode", Some("geo_mean")) => entry.value = json!("gmpo"),
        ("algorithm.loss_mode", Some("gpg")) => entry.value = json!("policy_gradient"),
        ("training.resume_mode", Some("disable")) => entry.value = json!("never"),
        ("training.resume_mode", Some("auto")) => {}
        // The path stands under `resume_from_path`.
        ("training.resume_mode", Some("resume_path")) => return Ok(None),
        ("training.resume_mode", _) => {
            return Err(entry
                .origin
                .error(from, "expected auto, disable or resume_path"));
        }
        ("training.resume_from_path", None) if entry.value.is_null() => return Ok(None),
        _ => {}
    }
    Ok(Some(entry))
}

/// Lets verl's filter switch decide about truncation: a prompt that is
/// filtered out is never truncated.
pub(super) fn settle_truncation(entries: &mut Vec<Entry>) -> Result<()> {
    let Some(at) = entries.iter().position(|e| e.key == FILTER_OVERLONG) else {
        return Ok(());
    };
    let mut filter = entries.remove(at);
    match &filter.value {
        Value::Bool(false) => Ok(()),
        Value::Bool(true) => {
            entries.retain(|e| e.key != "data.truncation");
            filter.key = "data.truncation".into();
            filter.value = json!("filter");
            entries.push(filter);
            Ok(())
        }
        other => {
            let message = format!("expected `true` or `false`, found {}", brief(other));
            Err(filter.origin.error(FILTER_OVERLONG, message))
        }
    }
}

/// verl's estimator without a name stands for the algorithm of that name;
/// beside a name it replaces the algorithm's own estimator.
pub(super) fn settle_estimator(entries: &mut [Entry]) {
    if entries.iter().any(|e| e.key == "algorithm.name") {
        return;
    }
    if let Some(entry) = entries.iter_mut().find(|e| e.key == ESTIMATOR) {
        entry.key = "algorithm.name".into();
        if entry.value.as_str() == Some("gae") {
            entry.value = json!("ppo");
        }
    }
}

/// Every spelling and its canonical key, for the documentation.
pub(super) fn table() -> impl Iterator<Item = (String, String)> {
    let sections = SECTIONS
        .iter()
        .map(|(from, to)| (format!("{from}.*"), format!("{to}.*")));
    let keys = KEYS
        .iter()
        .map(|(from, to)| (from.to_string(), to.to_string()));
    let settled = [
        (FILTER_OVERLONG, "data.truncation"),
        (ESTIMATOR, "algorithm.name (unless that is given too)"),
    ];
    let settled = settled.map(|(from, to)| (from.to_string(), to.to_string()));
    sections.chain(keys).chain(settled)
}
