//! Plugins by name: what a configuration file can ask for.
//!
//! Built-ins and plugins of a user's own crate take the same road:
//! [`Registry::register`].

use crate::algorithm::Algorithm;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The options a configuration gives to a plugin: its section, less the name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(pub serde_json::Map<String, serde_json::Value>);

impl Settings {
    /// Starts reading the options of the plugin `name`, which stand in
    /// `section` of the configuration.
    pub fn reader(&self, section: &'static str, name: &str) -> SettingsReader {
        SettingsReader {
            section,
            plugin: name.to_string(),
            given: self.0.clone(),
            defaults: serde_json::Map::new(),
            known: Vec::new(),
        }
    }
}

/// Reads a plugin's options into one or several config structs, then refuses
/// what none of them knows.
///
/// # Example
/// ```
/// use serde::{Deserialize, Serialize};
/// use verl_core::registry::Settings;
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Mine { strength: f32 }
///
/// let given = serde_json::json!({"strength": 2.0});
/// let settings = Settings(given.as_object().unwrap().clone());
/// let mut reader = settings.reader("algorithm", "mine");
/// let mine: Mine = reader.take(Mine::default())?;
/// reader.finish()?;
/// assert_eq!(mine.strength, 2.0);
///
/// let typo = Settings(serde_json::json!({"strenght": 2.0}).as_object().unwrap().clone());
/// let mut reader = typo.reader("algorithm", "mine");
/// let _: Mine = reader.take(Mine::default())?;
/// let error = reader.finish().unwrap_err().to_string();
/// assert_eq!(error, "algorithm.strenght: `mine` has no such option; did you mean `strength`?");
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SettingsReader {
    section: &'static str,
    plugin: String,
    given: serde_json::Map<String, serde_json::Value>,
    defaults: serde_json::Map<String, serde_json::Value>,
    known: Vec<String>,
}

impl SettingsReader {
    /// Values of options that are not given. Those that no struct takes are
    /// ignored.
    pub fn defaults(mut self, defaults: serde_json::Map<String, Value>) -> Self {
        self.defaults = defaults;
        self
    }

    /// Lets the option `name` go by another name as well.
    ///
    /// # Errors
    /// [`Error::Config`] when both names are given.
    pub fn alias(&mut self, other: &str, name: &str) -> Result<()> {
        if let Some(value) = self.given.remove(other) {
            if self.given.contains_key(name) {
                return Err(Error::config(
                    format!("{}.{other}", self.section),
                    format!("is another name of `{name}`, which is given too; drop one of the two"),
                ));
            }
            self.given.insert(name.to_string(), value);
        }
        Ok(())
    }

    /// Takes the options that the struct `C` has; the others keep the value
    /// they have in `defaults`. Two structs may have an option in common.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first option of the wrong type.
    pub fn take<C: Serialize + DeserializeOwned>(&mut self, defaults: C) -> Result<C> {
        let section = self.section;
        let fail = |key: &str, e: serde_json::Error| {
            Error::config(format!("{section}.{key}"), e.to_string())
        };
        let Value::Object(mut merged) = serde_json::to_value(defaults).map_err(|e| fail("", e))?
        else {
            return Err(Error::invalid("a plugin's options must be a struct"));
        };
        for key in merged.keys().cloned().collect::<Vec<_>>() {
            if let Some(default) = self.defaults.get(&key) {
                overlay(&mut merged[&key], default.clone());
            }
            if let Some(given) = self.given.get(&key) {
                overlay(&mut merged[&key], given.clone());
                // One by one, so that an error can name its key.
                serde_json::from_value::<C>(Value::Object(merged.clone()))
                    .map_err(|e| fail(&key, e))?;
            }
            if !self.known.contains(&key) {
                self.known.push(key);
            }
        }
        serde_json::from_value(Value::Object(merged)).map_err(|e| fail("", e))
    }

    /// Refuses options that nothing has taken.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first and the option most like it.
    pub fn finish(self) -> Result<()> {
        let Some(key) = self.given.keys().find(|key| !self.known.contains(key)) else {
            return Ok(());
        };
        let hint = match nearest(key, self.known.iter().map(String::as_str)) {
            Some(like) => format!("did you mean `{like}`?"),
            None => format!("it has: {}", self.known.join(", ")),
        };
        Err(Error::config(
            format!("{}.{key}", self.section),
            format!("`{}` has no such option; {hint}", self.plugin),
        ))
    }
}

/// Puts a value in the place of another; of a section, key by key.
fn overlay(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(slot) => overlay(slot, value),
                    None => _ = old.insert(key, value),
                }
            }
        }
        (old, new) => *old = new,
    }
}

/// Builds a plugin from its settings.
pub type Factory<T> = Box<dyn Fn(&Settings) -> Result<Box<T>> + Send + Sync>;

/// Factories of one kind of plugin, by name.
///
/// # Example
/// ```
/// use verl_core::registry::Registry;
///
/// trait Greeting: Send + Sync { fn text(&self) -> String; }
/// struct Hello;
/// impl Greeting for Hello { fn text(&self) -> String { "hello".into() } }
///
/// let mut greetings = Registry::<dyn Greeting>::new("greeting");
/// greetings.register("hello", |_settings| Ok(Box::new(Hello)))?;
/// assert_eq!(greetings.build("hello", &Default::default())?.text(), "hello");
/// let err = greetings.build("helo", &Default::default()).err().unwrap();
/// assert_eq!(err.to_string(), "unknown greeting `helo` (did you mean `hello`?); known: hello");
/// # Ok::<(), verl_core::Error>(())
/// ```
pub struct Registry<T: ?Sized> {
    kind: &'static str,
    factories: BTreeMap<String, Factory<T>>,
}

/// Algorithms by name.
pub type AlgorithmRegistry = Registry<dyn Algorithm>;

impl<T: ?Sized> Registry<T> {
    /// An empty registry; `kind` is the word for its plugins in messages.
    pub fn new(kind: &'static str) -> Self {
        Registry {
            kind,
            factories: BTreeMap::new(),
        }
    }

    /// Adds a plugin.
    ///
    /// # Errors
    /// [`Error::DuplicateName`] when the name is taken.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(&Settings) -> Result<Box<T>> + Send + Sync + 'static,
    ) -> Result<()> {
        let name = name.into();
        if self.factories.contains_key(&name) {
            return Err(Error::DuplicateName {
                kind: self.kind,
                name,
            });
        }
        self.factories.insert(name, Box::new(factory));
        Ok(())
    }

    /// Adds a plugin or overrides the one of that name.
    pub fn replace(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(&Settings) -> Result<Box<T>> + Send + Sync + 'static,
    ) {
        self.factories.insert(name.into(), Box::new(factory));
    }

    /// Builds the plugin of that name.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the known names and the nearest, or what
    /// the plugin says of its settings.
    pub fn build(&self, name: &str, settings: &Settings) -> Result<Box<T>> {
        match self.factories.get(name) {
            Some(factory) => factory(settings),
            None => Err(self.unknown(name)),
        }
    }

    /// The registered names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    fn unknown(&self, name: &str) -> Error {
        let nearest = nearest(name, self.names());
        Error::UnknownName {
            kind: self.kind,
            name: name.to_string(),
            hint: nearest
                .map(|n| format!(" (did you mean `{n}`?)"))
                .unwrap_or_default(),
            known: self.names().collect::<Vec<_>>().join(", "),
        }
    }
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("kind", &self.kind)
            .field("names", &self.factories.keys())
            .finish()
    }
}

/// The candidate most like `name`, if any is like it.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|c| (strsim::jaro_winkler(name, c), c))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}
