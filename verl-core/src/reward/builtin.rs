//! The built-in rewards by name: what `reward.name` may say.

use super::{
    ExactReward, FormatReward, Gsm8kOptions, Gsm8kReward, MathOptions, MathReward, OverlongPenalty,
    RewardFn,
};
use crate::Result;
use crate::registry::{Registry, Settings};
use serde::de::DeserializeOwned;

/// Rewards by name.
pub type RewardRegistry = Registry<dyn RewardFn>;

const SECTION: &str = "reward.options";

/// A registry that holds the built-in rewards; add your own to it.
///
/// # Example
/// ```
/// use verl_core::reward::{registry, reward_fn};
///
/// let mut rewards = registry();
/// rewards.register("short", |_settings| {
///     Ok(Box::new(reward_fn("short", |input| input.response_tokens < 100)))
/// })?;
/// assert_eq!(rewards.build("gsm8k", &Default::default())?.name(), "gsm8k");
/// # Ok::<(), verl_core::Error>(())
/// ```
pub fn registry() -> RewardRegistry {
    let mut registry = RewardRegistry::new("reward");
    registry.replace("exact", |s| {
        s.reader(SECTION, "exact").finish()?;
        Ok(Box::new(ExactReward))
    });
    registry.replace("format", |s| Ok(Box::new(FormatReward::new(options(s)?)?)));
    registry.replace("gsm8k", |s| {
        let mut reader = s.reader(SECTION, "gsm8k");
        let options = reader.take(Gsm8kOptions::default())?;
        reader.finish()?;
        Ok(Box::new(Gsm8kReward::new(options)))
    });
    registry.replace("math", |s| {
        let mut reader = s.reader(SECTION, "math");
        let options = reader.take(MathOptions::default())?;
        reader.finish()?;
        Ok(Box::new(MathReward::new(options)))
    });
    registry.replace("overlong", |s| {
        Ok(Box::new(OverlongPenalty::new(options(s)?)?))
    });
    registry
}

/// Options some of which must be given.
fn options<T: DeserializeOwned>(settings: &Settings) -> Result<T> {
    crate::config::from_value(SECTION, &serde_json::Value::Object(settings.0.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn minimal(name: &str) -> Settings {
        let options = match name {
            "overlong" => json!({"max_response_length": 8, "buffer_length": 2}),
            _ => json!({}),
        };
        Settings(options.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn every_reward_is_called_by_its_name_and_refuses_what_it_does_not_know() {
        let registry = registry();
        for name in registry.names() {
            assert_eq!(registry.build(name, &minimal(name)).unwrap().name(), name);
            let mut with_typo = minimal(name);
            with_typo.0.insert("mdoe".into(), json!("strict"));
            let error = registry.build(name, &with_typo).unwrap_err().to_string();
            assert!(error.contains("mdoe"), "{name}: {error}");
        }
    }
}
