//! Learning-rate schedules, counted in optimizer updates.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Course of the learning rate after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Stays at the base rate.
    #[default]
    Constant,
    /// Falls along a straight line.
    Linear,
    /// Falls along half a cosine.
    Cosine,
}

/// A warm-up and what follows it.
///
/// Update 0 of a warm-up over `w` updates has rate 0, update `w` the base
/// rate, as in verl and transformers. After `total` updates the rate stays at
/// its minimum (verl's cosine climbs again).
///
/// # Example
/// ```
/// use verl_core::math::{LrSchedule, ScheduleKind};
/// let s = LrSchedule { base: 1.0, kind: ScheduleKind::Cosine, warmup: 2, total: 6, min_ratio: 0.1 };
/// let rates: Vec<f64> = (0..8).map(|k| (s.lr_at(k) * 1000.0).round() / 1000.0).collect();
/// assert_eq!(rates, [0.0, 0.5, 1.0, 0.868, 0.55, 0.232, 0.1, 0.1]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrSchedule {
    /// The base rate.
    pub base: f64,
    /// What follows the warm-up.
    pub kind: ScheduleKind,
    /// Updates of the warm-up.
    pub warmup: u64,
    /// Updates of the whole run.
    pub total: u64,
    /// The last rate as a share of the base rate.
    pub min_ratio: f64,
}

impl LrSchedule {
    /// The rate of update `update`, counted from 0.
    pub fn lr_at(&self, update: u64) -> f64 {
        if update < self.warmup {
            return self.base * update as f64 / self.warmup as f64;
        }
        let span = self.total.saturating_sub(self.warmup).max(1) as f64;
        let progress = ((update - self.warmup) as f64 / span).min(1.0);
        let share = match self.kind {
            ScheduleKind::Constant => return self.base,
            ScheduleKind::Linear => 1.0 - progress,
            ScheduleKind::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
        };
        self.base * (self.min_ratio + (1.0 - self.min_ratio) * share)
    }
}
