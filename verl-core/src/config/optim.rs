//! `actor.optim` and `critic.optim`: which optimizer, its options, and the
//! course of the learning rate.

use crate::math::{LrSchedule, ScheduleKind};
use serde::{Deserialize, Serialize};

/// How gradients become updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    #[serde(rename = "adamw")]
    AdamW,
    /// The same with its moments in 8 bits.
    #[serde(rename = "adamw_8bit")]
    AdamW8bit,
    /// Second moments of matrices as a row and a column.
    Adafactor,
    /// The sign of a momentum.
    Lion,
    /// Orthogonalised momentum for hidden matrices, AdamW for the rest.
    Muon,
}

impl OptimizerKind {
    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            OptimizerKind::AdamW => "adamw",
            OptimizerKind::AdamW8bit => "adamw_8bit",
            OptimizerKind::Adafactor => "adafactor",
            OptimizerKind::Lion => "lion",
            OptimizerKind::Muon => "muon",
        }
    }
}

/// An optimizer and its learning-rate schedule. Schedules count optimizer
/// updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimConfig {
    /// The optimizer.
    pub name: OptimizerKind,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// AdamW's decay of the running mean and of the running square.
    pub betas: [f64; 2],
    /// Added to AdamW's denominator.
    pub eps: f64,
    /// Options of Adafactor alone.
    pub adafactor: AdafactorOptions,
    /// Options of Lion alone.
    pub lion: LionOptions,
    /// Options of Muon alone.
    pub muon: MuonOptions,
    /// Course of the learning rate after the warm-up.
    pub lr_schedule: ScheduleKind,
    /// Updates over which the learning rate rises linearly from 0.
    pub warmup_steps: Option<u64>,
    /// The same as a share of all updates.
    pub warmup_ratio: Option<f64>,
    /// Learning rate at the end of a decaying schedule, as a share of `lr`.
    pub min_lr_ratio: f64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        OptimConfig {
            name: OptimizerKind::AdamW,
            lr: 1e-5,
            weight_decay: 0.01,
            betas: [0.9, 0.999],
            eps: 1e-8,
            adafactor: AdafactorOptions::default(),
            lion: LionOptions::default(),
            muon: MuonOptions::default(),
            lr_schedule: ScheduleKind::Constant,
            warmup_steps: None,
            warmup_ratio: None,
            min_lr_ratio: 0.0,
        }
    }
}

/// What Adafactor alone is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdafactorOptions {
    /// `c` in the decay `1 - t^-c` of the running square at update `t`.
    pub decay_exponent: f64,
    /// Largest root mean square of a tensor's update, in units of `lr`.
    pub clip_threshold: f64,
    /// Added to the squared gradient.
    pub eps: f64,
}

impl Default for AdafactorOptions {
    fn default() -> Self {
        AdafactorOptions {
            decay_exponent: 0.8,
            clip_threshold: 1.0,
            eps: 1e-30,
        }
    }
}

/// What Lion alone is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LionOptions {
    /// Share of the momentum in an update, and decay of the momentum.
    pub betas: [f64; 2],
}

impl Default for LionOptions {
    fn default() -> Self {
        LionOptions { betas: [0.9, 0.99] }
    }
}

/// What Muon alone is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MuonOptions {
    /// Decay of the Nesterov momentum.
    pub momentum: f64,
    /// Newton-Schulz iterations per update.
    pub steps: usize,
}

impl Default for MuonOptions {
    fn default() -> Self {
        MuonOptions {
            momentum: 0.95,
            steps: 5,
        }
    }
}

/// A key that only some optimizers read.
pub(super) struct Restricted {
    /// Its path inside `optim`.
    pub(super) key: &'static str,
    /// Whether its value is not the default.
    pub(super) changed: bool,
    /// The optimizers that read it.
    pub(super) readers: &'static [OptimizerKind],
}

impl OptimConfig {
    /// The learning-rate schedule of a run of `total` updates.
    pub fn schedule(&self, total: u64) -> LrSchedule {
        let by_ratio = |ratio: f64| (ratio * total as f64).round() as u64;
        LrSchedule {
            base: self.lr,
            kind: self.lr_schedule,
            warmup: self
                .warmup_steps
                .or(self.warmup_ratio.map(by_ratio))
                .unwrap_or(0),
            total,
            min_ratio: self.min_lr_ratio,
        }
    }

    /// Every key that only some optimizers read.
    pub(super) fn restricted(&self) -> [Restricted; 8] {
        use OptimizerKind::{Adafactor, AdamW, AdamW8bit, Lion, Muon};
        let default = OptimConfig::default();
        let key = |key, changed, readers| Restricted {
            key,
            changed,
            readers,
        };
        let (factor, factor_default) = (&self.adafactor, default.adafactor);
        let (muon, muon_default) = (&self.muon, default.muon);
        let adam: &[_] = &[AdamW, AdamW8bit, Muon];
        [
            key("betas", self.betas != default.betas, adam),
            key("eps", self.eps != default.eps, adam),
            key(
                "adafactor.decay_exponent",
                factor.decay_exponent != factor_default.decay_exponent,
                &[Adafactor],
            ),
            key(
                "adafactor.clip_threshold",
                factor.clip_threshold != factor_default.clip_threshold,
                &[Adafactor],
            ),
            key(
                "adafactor.eps",
                factor.eps != factor_default.eps,
                &[Adafactor],
            ),
            key("lion.betas", self.lion != default.lion, &[Lion]),
            key(
                "muon.momentum",
                muon.momentum != muon_default.momentum,
                &[Muon],
            ),
            key("muon.steps", muon.steps != muon_default.steps, &[Muon]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{OptimizerKind, RunConfig};

    fn message(yaml: &str) -> String {
        RunConfig::from_yaml(yaml, &[]).unwrap_err().to_string()
    }

    #[test]
    fn an_option_of_another_optimizer_is_refused_by_name() {
        assert_eq!(
            message("actor:\n  optim:\n    name: adafactor\n    betas: [0.8, 0.9]\n"),
            "actor.optim.betas (line 4): `adafactor` does not read it, only adamw, adamw_8bit, muon do; remove the key"
        );
        assert_eq!(
            message("critic: {optim: {name: lion, eps: 1e-6, muon: {steps: 3}}}"),
            "the configuration has 2 problems:
  - critic.optim.eps (line 1): `lion` does not read it, only adamw, adamw_8bit, muon do; remove the key
  - critic.optim.muon.steps (line 1): `lion` does not read it, only muon does; remove the key"
        );
    }

    #[test]
    fn every_restricted_key_is_refused_where_nothing_reads_it() {
        let given = [
            ("betas", "[0.1, 0.2]"),
            ("eps", "0.5"),
            ("adafactor.decay_exponent", "0.5"),
            ("adafactor.clip_threshold", "0.5"),
            ("adafactor.eps", "0.5"),
            ("lion.betas", "[0.1, 0.2]"),
            ("muon.momentum", "0.5"),
            ("muon.steps", "2"),
        ];
        let kinds = ["adamw", "adamw_8bit", "adafactor", "lion", "muon"];
        for (key, value) in given {
            for kind in kinds {
                let overrides = [
                    format!("actor.optim.name={kind}"),
                    format!("actor.optim.{key}={value}"),
                ];
                let loaded = RunConfig::from_yaml("", &overrides);
                let adam = ["adamw", "adamw_8bit", "muon"].contains(&kind);
                let reads = match key {
                    "betas" | "eps" => adam,
                    own => own.starts_with(&format!("{kind}.")),
                };
                assert_eq!(loaded.is_ok(), reads, "{key} with {kind}");
                if let Err(error) = loaded {
                    let text = error.to_string();
                    assert!(text.starts_with(&format!("actor.optim.{key}:")), "{text}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_optimizer_lists_those_there_are() {
        assert_eq!(
            message("actor: {optim: {name: adamw8bit}}"),
            "actor.optim.name (line 1): `adamw8bit` is not one of adamw, adamw_8bit, adafactor, lion, muon; did you mean `adamw_8bit`?"
        );
    }

    #[test]
    fn names_are_those_of_the_configuration() {
        use OptimizerKind::{Adafactor, AdamW, AdamW8bit, Lion, Muon};
        for kind in [AdamW, AdamW8bit, Adafactor, Lion, Muon] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        assert_eq!(
            message("actor: {optim: {name: muon, muon: {momentum: 1.0, steps: 0}}}"),
            "the configuration has 2 problems:
  - actor.optim.muon.momentum (line 1): 1 is out of range; it must be in [0, 1)
  - actor.optim.muon.steps (line 1): 0 is out of range; it must be at least 1"
        );
        assert_eq!(
            message("actor: {optim: {name: lion, lion: {betas: [0.9, 1.5]}}}"),
            "actor.optim.lion.betas[1] (line 1): 1.5 is out of range; it must be in [0, 1)"
        );
    }
}
