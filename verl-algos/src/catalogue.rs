//! Algorithms by name, and free combinations of their parts.

use crate::preset::Preset;
use std::collections::BTreeMap;
use verl_core::algorithm::{AdvantageEstimator, Algorithm, PolicyLoss};
use verl_core::registry::{AlgorithmRegistry, Settings, SettingsReader, nearest};
use verl_core::{Error, Result};

type Make<T> = Box<dyn Fn(&mut SettingsReader) -> Result<Box<T>> + Send + Sync>;

/// What the `algorithm` section of a configuration can ask for: presets,
/// estimators, losses, and whole algorithms. Your own go beside the built-in
/// ones.
///
/// `name` picks a preset; `adv_estimator` and `policy_loss` replace its parts.
/// An estimator of your own is an algorithm by itself under its own name, with
/// the clipped loss.
///
/// # Example
/// A loss of one's own, with an option of its own, in GRPO's place of the
/// clipped one:
/// ```
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
/// use verl_algos::Catalogue;
/// use verl_core::algorithm::{Algorithm, LossInput, LossOutput, PolicyLoss};
/// use verl_core::registry::Settings;
/// use verl_core::types::Column;
///
/// #[derive(Debug, Serialize, Deserialize)]
/// struct Scaled { strength: f32 }
///
/// impl PolicyLoss for Scaled {
///     fn name(&self) -> &str { "scaled" }
///     fn needs(&self) -> &[Column] { &[Column::Advantages] }
///     fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
///         let advantages_n = input.column_n(Column::Advantages, "scaled")?;
///         let loss_n = (input.log_probs_n.clone() * advantages_n).mul_scalar(-self.strength);
///         Ok(LossOutput { loss_n, metrics_n: vec![] })
///     }
/// }
///
/// let mut catalogue = Catalogue::builtin();
/// catalogue.loss("scaled", |options| Ok(Box::new(options.take(Scaled { strength: 1.0 })?)))?;
///
/// let options = json!({"policy_loss": "scaled", "strength": 2.0});
/// let algorithm = catalogue.build("grpo", &Settings(options.as_object().unwrap().clone()))?;
/// assert_eq!(algorithm.estimator().name(), "grpo");
/// assert_eq!(algorithm.policy_loss().name(), "scaled");
/// # Ok::<(), verl_core::Error>(())
/// ```
pub struct Catalogue {
    estimators: BTreeMap<String, Make<dyn AdvantageEstimator>>,
    losses: BTreeMap<String, Make<dyn PolicyLoss>>,
    presets: BTreeMap<String, Preset>,
    algorithms: AlgorithmRegistry,
}

impl Catalogue {
    /// An empty catalogue.
    pub fn empty() -> Self {
        Catalogue {
            estimators: BTreeMap::new(),
            losses: BTreeMap::new(),
            presets: BTreeMap::new(),
            algorithms: AlgorithmRegistry::new("algorithm"),
        }
    }

    /// Adds an estimator under a name.
    ///
    /// # Errors
    /// [`Error::DuplicateName`] when the name is taken.
    pub fn estimator(
        &mut self,
        name: &str,
        make: impl Fn(&mut SettingsReader) -> Result<Box<dyn AdvantageEstimator>>
        + Send
        + Sync
        + 'static,
    ) -> Result<()> {
        insert("estimator", &mut self.estimators, name, Box::new(make))
    }

    /// Adds a policy loss under a name.
    ///
    /// # Errors
    /// [`Error::DuplicateName`] when the name is taken.
    pub fn loss(
        &mut self,
        name: &str,
        make: impl Fn(&mut SettingsReader) -> Result<Box<dyn PolicyLoss>> + Send + Sync + 'static,
    ) -> Result<()> {
        insert("policy loss", &mut self.losses, name, Box::new(make))
    }

    /// Adds a preset under its name.
    ///
    /// # Errors
    /// [`Error::DuplicateName`] when the name is taken.
    pub fn preset(&mut self, preset: Preset) -> Result<()> {
        let name = preset.name.clone();
        insert("algorithm", &mut self.presets, &name, preset)
    }

    /// Adds an algorithm that is not made of parts.
    ///
    /// # Errors
    /// [`Error::DuplicateName`] when the name is taken.
    pub fn algorithm(
        &mut self,
        name: &str,
        make: impl Fn(&Settings) -> Result<Box<dyn Algorithm>> + Send + Sync + 'static,
    ) -> Result<()> {
        self.algorithms.register(name, make)
    }

    /// Names of the presets, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.presets.keys().map(String::as_str)
    }

    /// Builds an algorithm from the options of an `algorithm` section.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest known one, or [`Error::Config`]
    /// naming the option that is unknown or out of range.
    pub fn build(&self, name: &str, settings: &Settings) -> Result<Box<dyn Algorithm>> {
        if let Some(preset) = self.presets.get(name) {
            return self.assemble(preset, settings);
        }
        if self.algorithms.names().any(|n| n == name) {
            return self.algorithms.build(name, settings);
        }
        match self.estimators.contains_key(name) {
            true => self.assemble(&Preset::new(name, name, "clipped"), settings),
            false => {
                let own = self.algorithms.names();
                Err(unknown("algorithm", name, self.names().chain(own)))
            }
        }
    }

    fn assemble(&self, preset: &Preset, settings: &Settings) -> Result<Box<dyn Algorithm>> {
        let mut reader = settings
            .reader("algorithm", &preset.name)
            .defaults(preset.defaults.clone());
        let parts = reader.take(preset.parts.clone())?;
        let estimator = find("estimator", &self.estimators, &parts.adv_estimator)?;
        let loss = find("policy loss", &self.losses, &parts.policy_loss)?;
        let (estimator, loss) = (estimator(&mut reader)?, loss(&mut reader)?);
        let algorithm = preset.finish(estimator, loss, &mut reader)?;
        reader.finish()?;
        Ok(Box::new(algorithm))
    }

    /// Everything of this crate.
    pub fn builtin() -> Self {
        let mut catalogue = Catalogue::empty();
        // Names are distinct, as the tests of this crate check.
        let _ = catalogue.add_builtin();
        catalogue
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogue")
            .field("presets", &self.presets.keys())
            .field("estimators", &self.estimators.keys())
            .field("losses", &self.losses.keys())
            .field("algorithms", &self.algorithms)
            .finish()
    }
}

fn insert<T>(
    kind: &'static str,
    map: &mut BTreeMap<String, T>,
    name: &str,
    value: T,
) -> Result<()> {
    if map.contains_key(name) {
        let name = name.to_string();
        return Err(Error::DuplicateName { kind, name });
    }
    map.insert(name.to_string(), value);
    Ok(())
}

fn find<'a, T>(kind: &'static str, map: &'a BTreeMap<String, T>, name: &str) -> Result<&'a T> {
    let missing = || unknown(kind, name, map.keys().map(String::as_str));
    map.get(name).ok_or_else(missing)
}

fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(like) => format!(" (did you mean `{like}`?)"),
        None => String::new(),
    };
    Error::UnknownName {
        kind,
        name: name.to_string(),
        hint,
        known: known.join(", "),
    }
}
