//! Low-rank adapters on a frozen model (LoRA, arXiv:2106.09685).

use super::linear::{Adapter, Drop, Linear, Weight};
use super::params::Model;
use burn::tensor::{Tensor, TensorData};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regex::Regex;
use std::collections::BTreeMap;
use std::sync::Arc;
use verl_core::{Error, Result};

/// Which projections get an adapter, as PEFT's `target_modules` says it.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// Every projection of every layer.
    AllLinear,
    /// Those whose name is one of these, or ends in `.` and one of these.
    Names(Vec<String>),
    /// Those whose whole name matches a regular expression.
    Pattern(String),
}

impl Targets {
    /// `all-linear`, or else a regular expression.
    pub fn from_text(text: &str) -> Self {
        match text {
            "all-linear" => Targets::AllLinear,
            pattern => Targets::Pattern(pattern.into()),
        }
    }
}

/// Settings of an adapter; the defaults are PEFT's but for the targets.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Inner dimension of the update.
    pub rank: usize,
    /// Strength; the update is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Share of an adapter's inputs dropped in training passes.
    pub dropout: f32,
    /// Scales by `alpha / sqrt(rank)` instead, which keeps large ranks
    /// learning (rsLoRA, arXiv:2312.03732).
    pub stabilised: bool,
    /// What is adapted.
    pub targets: Targets,
    /// Names, or ends of names, that are left out.
    pub exclude: Vec<String>,
    /// Folder of the model under the adapter, as written beside it.
    pub base: String,
}

impl Default for LoraConfig {
    fn default() -> Self {
        LoraConfig {
            rank: 8,
            alpha: 16.0,
            dropout: 0.0,
            stabilised: false,
            targets: Targets::AllLinear,
            exclude: Vec::new(),
            base: String::new(),
        }
    }
}

impl LoraConfig {
    /// Factor on the update.
    pub fn scale(&self) -> f64 {
        match self.stabilised {
            true => self.alpha / (self.rank as f64).sqrt(),
            false => self.alpha / self.rank as f64,
        }
    }

    /// # Errors
    /// [`Error::Config`] naming the first setting out of range.
    fn validate(&self) -> Result<()> {
        if self.rank == 0 {
            return Err(Error::config("actor.model.lora.rank", "must be at least 1"));
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(Error::config(
                "actor.model.lora.alpha",
                "must be a positive number",
            ));
        }
        match (0.0..1.0).contains(&self.dropout) {
            true => Ok(()),
            false => Err(Error::config(
                "actor.model.lora.dropout",
                "must be in [0, 1)",
            )),
        }
    }

    /// Decides by name.
    fn selector(&self) -> Result<impl Fn(&str) -> bool + '_> {
        let pattern = match &self.targets {
            Targets::Pattern(pattern) => Some(whole(pattern)?),
            _ => None,
        };
        Ok(move |name: &str| {
            let wanted = match (&self.targets, &pattern) {
                (Targets::Names(names), _) => ends_in_one_of(name, names),
                (_, Some(pattern)) => pattern.is_match(name),
                _ => true,
            };
            wanted && !ends_in_one_of(name, &self.exclude)
        })
    }
}

fn ends_in_one_of(name: &str, parts: &[String]) -> bool {
    parts.iter().any(|part| {
        name.strip_suffix(part.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn whole(pattern: &str) -> Result<Regex> {
    Regex::new(&format!("^(?:{pattern})$"))
        .map_err(|e| Error::config("actor.model.lora.target_modules", e.to_string()))
}

/// Adapters taken off a model, to be put back.
#[derive(Debug)]
pub struct Merged {
    config: Arc<LoraConfig>,
    adapters: BTreeMap<String, Adapter>,
    /// Weights that the merge dequantised, as they were.
    coded: BTreeMap<String, Weight>,
}

impl Model {
    /// Puts fresh adapters on the projections that `config` selects, and
    /// freezes the rest. `A` is uniform within `1 / sqrt(in)` and `B` is 0, so
    /// the model's outputs stay as they are.
    ///
    /// # Errors
    /// [`Error::Config`] when a setting is out of range, when nothing is
    /// selected, when a listed name selects nothing, or when the model has an
    /// adapter already.
    pub fn attach_lora(&mut self, config: LoraConfig, seed: u64) -> Result<()> {
        config.validate()?;
        if self.lora.is_some() {
            let message = "the model has an adapter already; merge it first";
            return Err(Error::config("actor.model.lora.rank", message));
        }
        self.check_targets(&config)?;
        let selected = config.selector()?;
        let (device, mut rng) = (self.device(), ChaCha8Rng::seed_from_u64(seed));
        self.each_linear(&mut |name, linear| {
            if !selected(name) {
                return;
            }
            let [outputs, inputs] = linear.weight.dims();
            let bound = 1.0 / (inputs as f32).sqrt();
            let a: Vec<f32> = (0..config.rank * inputs)
                .map(|_| bound * (2.0 * rng.random::<f32>() - 1.0))
                .collect();
            linear.adapter = Some(Adapter {
                a: Tensor::from_data(TensorData::new(a, [config.rank, inputs]), &device),
                b: Tensor::zeros([outputs, config.rank], &device),
                scale: config.scale(),
                drop: None,
            });
        });
        drop(selected);
        self.lora = Some(Arc::new(config));
        Ok(())
    }

    /// Changes the share of the adapter's inputs that training passes drop.
    ///
    /// # Errors
    /// [`Error::Config`] when it is not in `[0, 1)`.
    pub fn set_lora_dropout(&mut self, dropout: f32) -> Result<()> {
        if let Some(lora) = &self.lora {
            let config = LoraConfig {
                dropout,
                ..(**lora).clone()
            };
            config.validate()?;
            self.lora = Some(Arc::new(config));
        }
        Ok(())
    }

    fn check_targets(&mut self, config: &LoraConfig) -> Result<()> {
        let mut names = Vec::new();
        self.each_linear(&mut |name, _| names.push(name.to_string()));
        let listed = match &config.targets {
            Targets::Names(listed) => &listed[..],
            _ => &[],
        };
        for part in listed {
            if !names
                .iter()
                .any(|n| ends_in_one_of(n, std::slice::from_ref(part)))
            {
                let message = format!(
                    "`{part}` is no projection of this model's layers; they are named as in `{}`",
                    names.first().map_or("", String::as_str)
                );
                return Err(Error::config("actor.model.lora.target_modules", message));
            }
        }
        let selected = config.selector()?;
        match names.iter().any(|n| selected(n)) {
            true => Ok(()),
            false => Err(Error::config(
                "actor.model.lora.target_modules",
                "selects no projection",
            )),
        }
    }

    /// Whether training changes the parameter of this name: all are without an
    /// adapter; with one, its own and a score head's.
    pub fn trains(&self, name: &str) -> bool {
        self.lora.is_none() || Model::stays_trainable(name)
    }

    /// Whether the parameter is trained in a model with an adapter.
    pub(crate) fn stays_trainable(name: &str) -> bool {
        name.contains(".lora_") || name.starts_with("score.")
    }

    /// The same weights with the adapter off. Nothing is copied.
    pub fn without_lora(&self) -> Model {
        let mut model = self.clone();
        model.take_adapters();
        model
    }

    /// Adds the adapters to the weights and takes them off. A weight kept as
    /// codes becomes one in full precision.
    pub fn merge(&mut self) -> Option<Merged> {
        let config = self.lora.clone()?;
        let mut coded = BTreeMap::new();
        self.each_linear(&mut |name, linear| {
            if let (Weight::Coded(_), Some(_)) = (&linear.weight, &linear.adapter) {
                coded.insert(name.to_string(), linear.weight.clone());
            }
        });
        let adapters = self.take_adapters();
        self.add_deltas(&adapters, 1.0);
        Some(Merged {
            config,
            adapters,
            coded,
        })
    }

    /// Undoes [`Model::merge`], up to the rounding of one addition; weights
    /// that were codes are those codes again.
    pub fn unmerge(&mut self, merged: Merged) {
        self.add_deltas(&merged.adapters, -1.0);
        let (mut adapters, mut coded) = (merged.adapters, merged.coded);
        self.each_linear(&mut |name, linear| {
            linear.adapter = adapters.remove(name);
            if let Some(weight) = coded.remove(name) {
                linear.weight = weight;
            }
        });
        self.lora = Some(merged.config);
    }

    fn add_deltas(&mut self, adapters: &BTreeMap<String, Adapter>, sign: f64) {
        self.each_linear(&mut |name, linear| {
            if let Some(adapter) = adapters.get(name) {
                let delta = adapter.delta().mul_scalar(sign);
                let weight = linear.weight.tensor(&delta.device());
                linear.weight = Weight::Full(weight + delta);
            }
        });
    }

    fn take_adapters(&mut self) -> BTreeMap<String, Adapter> {
        let mut adapters = BTreeMap::new();
        self.each_linear(&mut |name, linear| {
            if let Some(adapter) = linear.adapter.take() {
                adapters.insert(name.to_string(), adapter);
            }
        });
        self.lora = None;
        adapters
    }

    /// The model with the adapters' dropout drawn for one training pass;
    /// `None` when there is none to draw.
    pub(crate) fn dropping(&self, seed: u64) -> Option<Model> {
        let rate = self.lora.as_ref()?.dropout;
        if rate == 0.0 {
            return None;
        }
        let mut model = self.clone();
        let mut number = 0;
        model.each_linear(&mut |_, linear: &mut Linear| {
            number += 1;
            if let Some(adapter) = &mut linear.adapter {
                let seed = verl_core::rollout::sample_seed(seed, number, 0, 0);
                adapter.drop = Some(Drop { rate, seed });
            }
        });
        Some(model)
    }
}
