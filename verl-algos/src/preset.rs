//! A named combination of parts with its defaults.

use crate::common::{KlRewardConfig, TermsConfig};
use crate::dapo::{FilterGroupsConfig, OverlongFilter};
use crate::rollout_correction::RolloutCorrectionConfig;
use crate::value::ValueConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Algorithm, Composed, PolicyLoss, Requirements};
use verl_core::registry::SettingsReader;

/// What every algorithm can do to its batches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SharedConfig {
    /// Dynamic sampling.
    filter_groups: FilterGroupsConfig,
    /// Leave answers that the token limit cut out of the loss.
    overlong_filter: bool,
    /// What to do about a sampler that differs from the policy.
    rollout_correction: Option<RolloutCorrectionConfig>,
}

/// Where there is a critic.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct WarmupConfig {
    /// First steps in which only the critic is trained, unless
    /// `training.critic_warmup` says otherwise.
    value_pretraining_steps: u64,
}

/// The two parts that a preset is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PartNames {
    pub(crate) adv_estimator: String,
    pub(crate) policy_loss: String,
}

/// Adds what only one algorithm has, from options of its own.
type Extra = fn(Composed, &mut SettingsReader) -> Result<Composed>;

/// Puts a loss into another, from options of its own.
type Wrap = fn(Box<dyn PolicyLoss>, &mut SettingsReader) -> Result<Box<dyn PolicyLoss>>;

/// An algorithm as a combination: an estimator, a loss, and defaults of their
/// options that differ from the parts' own.
///
/// # Example
/// GRPO with its advantages not normalised and a constant denominator, under a
/// name of its own:
/// ```
/// use serde_json::json;
/// use verl_algos::{Catalogue, Preset};
/// use verl_core::algorithm::Algorithm;
///
/// let mut catalogue = Catalogue::builtin();
/// let preset = Preset::new("plain_grpo", "grpo", "clipped")
///     .default("norm_adv_by_std", json!(false))
///     .default("loss_agg_mode", json!("seq-mean-token-sum"));
/// catalogue.preset(preset)?;
/// assert_eq!(catalogue.build("plain_grpo", &Default::default())?.name(), "plain_grpo");
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Preset {
    pub(crate) name: String,
    pub(crate) parts: PartNames,
    pub(crate) defaults: Map<String, Value>,
    extra: Option<Extra>,
    wrap: Option<Wrap>,
}

impl Preset {
    /// A combination without defaults of its own.
    pub fn new(name: &str, estimator: &str, loss: &str) -> Self {
        Preset {
            name: name.into(),
            parts: PartNames {
                adv_estimator: estimator.into(),
                policy_loss: loss.into(),
            },
            defaults: Map::new(),
            extra: None,
            wrap: None,
        }
    }

    /// Sets an option where the configuration does not. It is ignored when no
    /// part in use has the option.
    pub fn default(mut self, option: &str, value: impl Into<Value>) -> Self {
        self.defaults.insert(option.into(), value.into());
        self
    }

    /// Adds parts that are neither estimator nor loss: a filter, a hook, a
    /// reward model. `extra` may read options of its own.
    pub fn extra(mut self, extra: Extra) -> Self {
        self.extra = Some(extra);
        self
    }

    /// Adds a term to the loss. `wrap` may read options of its own.
    pub fn wrap(mut self, wrap: Wrap) -> Self {
        self.wrap = Some(wrap);
        self
    }

    /// Joins the parts, with the options that every algorithm has.
    pub(crate) fn finish(
        &self,
        estimator: Box<dyn AdvantageEstimator>,
        mut loss: Box<dyn PolicyLoss>,
        reader: &mut SettingsReader,
    ) -> Result<Composed> {
        if let Some(wrap) = self.wrap {
            loss = wrap(loss, reader)?;
        }
        let shared = reader.take(SharedConfig::default())?;
        let correction = shared.rollout_correction.map(|c| c.build()).transpose()?;
        if let Some(correction) = &correction {
            loss = correction.wrap(loss);
        }
        let terms = reader.take(TermsConfig::default())?.build()?;
        let kl_in_reward = reader.take(KlRewardConfig::default())?.build()?;
        let mut algorithm = Composed::new(&self.name, estimator, loss)
            .terms(terms)
            .kl_in_reward(kl_in_reward);
        if let Some(filter) = shared.filter_groups.build()? {
            let most = shared.filter_groups.max_num_gen_batches;
            algorithm = algorithm.dynamic_sampling(filter, most);
        }
        if let Some(correction) = correction {
            let bypass = correction.is_bypass();
            algorithm = algorithm
                .requires(Requirements::default().rollout_log_probs_as_old(bypass))
                .hook(Box::new(correction));
        }
        if shared.overlong_filter {
            algorithm = algorithm.hook(Box::new(OverlongFilter));
        }
        if let Some(extra) = self.extra {
            algorithm = extra(algorithm, reader)?;
        }
        if algorithm.requirements().critic {
            let (loss, aggregation) = reader.take(ValueConfig::default())?.build()?;
            let warmup = reader
                .take(WarmupConfig::default())?
                .value_pretraining_steps;
            algorithm = algorithm
                .value_loss(Box::new(loss), aggregation)
                .critic_warmup(warmup);
        }
        Ok(algorithm)
    }
}
