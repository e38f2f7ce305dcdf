//! Low-rank adapters.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An adapter on a frozen model. Without a rank and without an existing
/// adapter every weight is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSettings {
    /// Inner dimension of a new adapter; 0 is none.
    pub rank: usize,
    /// Strength; the update is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Share of the adapter's inputs dropped while training.
    pub dropout: f32,
    /// Scale by `alpha / sqrt(rank)` instead.
    pub rslora: bool,
    /// Which projections are adapted.
    pub target_modules: TargetModules,
    /// Which of those are not.
    pub exclude_modules: Vec<String>,
    /// Folder of an existing adapter to go on from, in the form of `peft`.
    pub adapter_path: Option<PathBuf>,
}

impl Default for LoraSettings {
    fn default() -> Self {
        LoraSettings {
            rank: 0,
            alpha: 16.0,
            dropout: 0.0,
            rslora: false,
            target_modules: TargetModules::default(),
            exclude_modules: Vec::new(),
            adapter_path: None,
        }
    }
}

impl LoraSettings {
    /// Whether there is an adapter.
    pub fn enabled(&self) -> bool {
        self.rank > 0 || self.adapter_path.is_some()
    }

    /// The first setting that nothing would use, and why.
    pub(super) fn unused(&self) -> Option<(&'static str, &'static str)> {
        let defaults = LoraSettings::default();
        let given = [
            ("rank", self.rank != defaults.rank),
            ("alpha", self.alpha != defaults.alpha),
            ("rslora", self.rslora != defaults.rslora),
            (
                "target_modules",
                self.target_modules != defaults.target_modules,
            ),
            (
                "exclude_modules",
                self.exclude_modules != defaults.exclude_modules,
            ),
            ("dropout", self.dropout != defaults.dropout),
        ];
        let (given, why) = match (&self.adapter_path, self.rank) {
            (Some(_), _) => (
                &given[..5],
                "comes from the adapter in `adapter_path`; remove the key",
            ),
            (None, 0) => (&given[..], "there is no adapter; set `rank` too"),
            (None, _) => (&given[..0], ""),
        };
        let (key, _) = given.iter().find(|(_, given)| *given)?;
        Some((key, why))
    }
}

/// Projections by name: `all-linear`, a regular expression for the whole name,
/// or a list of names or ends of names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetModules {
    /// `all-linear`, or a regular expression.
    Text(String),
    /// Names, or their last parts.
    Names(Vec<String>),
}

impl Default for TargetModules {
    fn default() -> Self {
        TargetModules::Text("all-linear".into())
    }
}
