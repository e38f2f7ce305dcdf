//! Known keys of verl whose feature does not exist here: refused with a
//! reason, unless their value asks for nothing.

use super::source::{Entry, inside};
use crate::Error;
use serde_json::{Value, json};

/// A key, or a section with all its keys, that asks for something missing.
struct Missing {
    key: &'static str,
    /// Values that ask for nothing and are let through, as JSON.
    neutral: &'static str,
    reason: &'static str,
}

const fn missing(key: &'static str, neutral: &'static str, reason: &'static str) -> Missing {
    Missing {
        key,
        neutral,
        reason,
    }
}

const ONE: &str = "[1, null]";
const OFF: &str = "[false, null]";
const ON: &str = "[true, null]";
const NONE: &str = "[null]";
const ONE_DEVICE: &str = "a model runs on one device here; remove the key or set it to 1";
const NO_SERVER_TUNING: &str =
    "answers come from the native generator, which has no such setting; remove the key";
const NO_PADDING: &str = "sequences are always packed without padding; remove the key";

#[rustfmt::skip]
const MISSING: &[Missing] = &[
    missing("actor.model.tensor_model_parallel_size", ONE, ONE_DEVICE),
    missing("actor.model.use_remove_padding", ON, NO_PADDING),
    missing("actor.use_dynamic_bsz", ON, "micro-batches are always filled by tokens; set `actor.ppo_max_token_len_per_gpu`"),
    missing("actor.ulysses_sequence_parallel_size", ONE, ONE_DEVICE),
    missing("actor.strategy", NONE, "weights are not sharded; remove the key"),
    missing("actor.fsdp_config", NONE, "weights are not sharded; remove the section"),
    missing("actor.optim.total_training_steps", "[-1, null]", "schedules run to the end of the run; set `training.total_steps`"),
    missing("critic.strategy", NONE, "weights are not sharded; remove the key"),
    missing("critic.model.fsdp_config", NONE, "weights are not sharded; remove the section"),
    missing("critic.model.use_remove_padding", ON, NO_PADDING),
    missing("critic.ppo_mini_batch_size", NONE, "the critic uses the actor's mini-batches; set `actor.ppo_mini_batch_size`"),
    missing("custom_reward_function", NONE, "rewards are Rust functions registered by name; set `reward.name`"),
    missing("data.val_batch_size", NONE, "validation prompts are batched by the generator; set `training.val_samples` to use fewer"),
    missing("memory_optimization.param_offload", OFF, "weights stay on the device; remove the key or set it to false"),
    missing("memory_optimization", OFF, "this memory option is not available; remove the key"),
    missing("parallel", ONE, ONE_DEVICE),
    missing("quantization", "[null, false, \"none\"]", "the section says too little; set `actor.model.quantization` to nf4, nf4_double or int8, with `actor.model.lora.rank`, and remove it"),
    missing("ref", NONE, "the reference model is the policy before training and has no settings of its own; remove the section"),
    missing("reward_model.enable", OFF, "reward models are not available; set `reward.name`"),
    missing("reward_model", NONE, "reward models are not available; remove the section"),
    missing("rollout.name", "[\"native\", null]", "answers come from the native generator; remove the key"),
    missing("rollout.mode", "[\"sync\", null]", "rollouts are synchronous; remove the key"),
    missing("rollout.tensor_model_parallel_size", ONE, ONE_DEVICE),
    missing("rollout.gpu_memory_utilization", NONE, NO_SERVER_TUNING),
    missing("rollout.enforce_eager", NONE, NO_SERVER_TUNING),
    missing("rollout.free_cache_engine", NONE, NO_SERVER_TUNING),
    missing("rollout.max_num_batched_tokens", NONE, NO_SERVER_TUNING),
    missing("training.experiment_name", NONE, "a run is named by its folder; set `output_dir`"),
    missing("training.project_name", NONE, "a run is named by its folder; set `output_dir`"),
    missing("training.logger", NONE, "what is written is chosen under `tracking`; remove the key"),
    missing("training.n_gpus_per_node", ONE, ONE_DEVICE),
    missing("training.nnodes", ONE, ONE_DEVICE),
];

/// Takes out the entries that ask for nothing, and reports those that ask for
/// what does not exist.
pub(super) fn check(entries: &mut Vec<Entry>) -> Vec<Error> {
    let mut problems = Vec::new();
    entries.retain(|entry| {
        let Some(found) = MISSING
            .iter()
            .find(|m| entry.key == m.key || inside(&entry.key, m.key))
        else {
            return true;
        };
        if !found.lets_through(&entry.value) {
            problems.push(entry.origin.error(&entry.key, found.reason));
        }
        false
    });
    problems
}

impl Missing {
    fn lets_through(&self, value: &Value) -> bool {
        let neutral: Value = serde_json::from_str(self.neutral).unwrap_or_default();
        *value == json!({}) || neutral.as_array().is_some_and(|list| list.contains(value))
    }
}

/// Every refused key and why, for the documentation.
pub(super) fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    MISSING.iter().map(|m| (m.key, m.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neutral_lists_are_json() {
        for m in MISSING {
            assert!(
                serde_json::from_str::<Vec<Value>>(m.neutral).is_ok(),
                "{}",
                m.key
            );
        }
    }

    #[test]
    fn a_section_never_hides_its_keys() {
        for (i, m) in MISSING.iter().enumerate() {
            let hidden = MISSING[..i]
                .iter()
                .find(|before| m.key == before.key || inside(m.key, before.key));
            assert!(hidden.is_none(), "{} comes after its section", m.key);
        }
    }
}
