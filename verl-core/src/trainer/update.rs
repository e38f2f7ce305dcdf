//! Mini-batches, micro-batches and optimizer steps.

use super::Trainer;
use crate::algorithm::{Objective, ValueObjective};
use crate::math::Denominators;
use crate::policy::{MetricSum, Trainable, UpdateReport};
use crate::tracking::Metrics;
use crate::types::{Group, Trajectory};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Averages of what the updates of one step report.
#[derive(Debug, Default)]
pub(super) struct Averages {
    sums: BTreeMap<String, (f64, u64)>,
}

impl Averages {
    fn add(&mut self, name: &str, value: f64) {
        let entry = self.sums.entry(name.to_string()).or_default();
        *entry = (entry.0 + value, entry.1 + 1);
    }

    pub(super) fn write(self, metrics: &mut Metrics) {
        for (name, (sum, count)) in self.sums {
            metrics.set(name, sum / count as f64);
        }
    }
}

/// Which language model an update is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    Policy,
    Reward,
}

impl Trainer {
    /// All updates of a language model on one step's groups.
    pub(super) fn update(
        &mut self,
        which: Model,
        groups: &[Group],
        averages: &mut Averages,
    ) -> Result<()> {
        let epochs = match which {
            Model::Policy => self.settings.epochs,
            Model::Reward => 1,
        };
        for _ in 0..epochs {
            for mini in groups.chunks(self.mini_batch()) {
                let skipped = self.mini_batch_update(which, mini, averages)?;
                self.note_skip(which.name(), skipped)?;
            }
        }
        Ok(())
    }

    fn mini_batch_update(
        &mut self,
        which: Model,
        mini: &[Group],
        averages: &mut Averages,
    ) -> Result<Option<String>> {
        let Trainer {
            parts, settings, ..
        } = self;
        let trajectories = members(mini);
        let denominators = Denominators::count(trajectories.iter().map(|t| t.policy_tokens()));
        let temperature = settings.sampling.temperature;
        let algorithm = &parts.algorithm;
        let (model, objective) = match (which, algorithm.reward_model(), &mut parts.reward_model) {
            (Model::Policy, ..) => {
                let terms = algorithm.policy_terms();
                let objective = Objective {
                    loss: algorithm.policy_loss(),
                    aggregation: terms.aggregation,
                    denominators,
                    entropy_coeff: terms.entropy_coeff,
                    kl: terms.kl_loss,
                    temperature,
                };
                (&mut parts.policy, objective)
            }
            (Model::Reward, Some(implicit), Some(model)) => {
                let objective = Objective {
                    loss: &*implicit.loss,
                    aggregation: implicit.aggregation,
                    denominators,
                    entropy_coeff: 0.0,
                    kl: None,
                    temperature,
                };
                (model, objective)
            }
            (Model::Reward, ..) => return Ok(None),
        };
        let whole = algorithm.requirements().whole_groups;
        let mut sums = Sums::default();
        for micro in settings.cut(&trajectories, whole) {
            sums.add(model.forward_backward(&micro, &objective)?);
        }
        let report = sums.finish(which.name(), &mut **model, averages)?;
        Ok(report.skipped)
    }

    /// All updates of the critic on one step's groups.
    pub(super) fn update_critic(
        &mut self,
        groups: &[Group],
        averages: &mut Averages,
    ) -> Result<()> {
        for _ in 0..self.settings.critic_epochs {
            for mini in groups.chunks(self.mini_batch()) {
                let Trainer {
                    parts, settings, ..
                } = self;
                let (Some(critic), Some((loss, aggregation))) =
                    (&mut parts.critic, parts.algorithm.value_loss())
                else {
                    return Ok(());
                };
                let trajectories = members(mini);
                let denominators =
                    Denominators::count(trajectories.iter().map(|t| t.policy_tokens()));
                let objective = ValueObjective {
                    loss,
                    aggregation,
                    denominators,
                };
                let mut sums = Sums::default();
                for micro in settings.cut(&trajectories, false) {
                    sums.add(critic.forward_backward(&micro, &objective)?);
                }
                let report = sums.finish("critic", &mut **critic, averages)?;
                self.note_skip("critic", report.skipped)?;
            }
        }
        Ok(())
    }

    fn mini_batch(&self) -> usize {
        self.settings
            .mini_batch_prompts
            .unwrap_or(self.settings.prompts_per_step)
            .max(1)
    }

    /// Counts a skipped update; too many in a row end the run.
    fn note_skip(&mut self, who: &str, skipped: Option<String>) -> Result<()> {
        let Some(reason) = skipped else {
            self.skipped.0 = 0;
            return Ok(());
        };
        tracing::warn!(step = self.step + 1, who, reason, "update skipped");
        self.skipped = (self.skipped.0 + 1, self.skipped.1 + 1);
        match self.skipped.0 > self.settings.max_skipped_updates {
            true => Err(Error::Aborted(format!(
                "{} updates in a row were skipped, more than max_skipped_updates allows; the last: {who}: {reason}",
                self.skipped.0
            ))),
            false => Ok(()),
        }
    }
}

impl Model {
    /// Prefix of its metrics.
    fn name(self) -> &'static str {
        match self {
            Model::Policy => "actor",
            Model::Reward => "reward_model",
        }
    }
}

/// Objectives name their figures as the actor's; other models' get their own
/// prefix.
fn of(who: &str, name: &str) -> String {
    match (who, name.strip_prefix("actor/")) {
        ("reward_model", Some(rest)) => format!("{who}/{rest}"),
        _ => name.to_string(),
    }
}

fn members(groups: &[Group]) -> Vec<&Trajectory> {
    groups.iter().flat_map(|g| g.trajectories()).collect()
}

/// Sums over the micro-batches of one mini-batch.
#[derive(Debug, Default)]
struct Sums {
    metrics: BTreeMap<String, f64>,
}

impl Sums {
    fn add(&mut self, metrics: Vec<MetricSum>) {
        for (name, value) in metrics {
            *self.metrics.entry(name).or_default() += value;
        }
    }

    /// Steps the optimizer, unless a logged quantity is not finite.
    fn finish<T: Trainable + ?Sized>(
        self,
        who: &str,
        model: &mut T,
        averages: &mut Averages,
    ) -> Result<UpdateReport> {
        let bad = self.metrics.iter().find(|(_, v)| !v.is_finite());
        let report = match bad {
            Some((name, value)) => {
                model.discard_gradients();
                UpdateReport {
                    grad_norm: f64::NAN,
                    lr: 0.0,
                    skipped: Some(format!("{name} is {value}")),
                }
            }
            None if self.metrics.is_empty() => UpdateReport {
                grad_norm: 0.0,
                lr: 0.0,
                skipped: Some("no answer of the mini-batch has a token".into()),
            },
            None => model.optimizer_step()?,
        };
        if report.skipped.is_none() {
            averages.add(&format!("{who}/grad_norm"), report.grad_norm);
            averages.add(&format!("{who}/lr"), report.lr);
            self.metrics
                .iter()
                .for_each(|(name, value)| averages.add(&of(who, name), *value));
        }
        Ok(report)
    }
}
