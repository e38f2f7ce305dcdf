//! What a run tells about itself while it goes on.
//!
//! The trainer hands every [`Tracker`] the [`Metrics`] of each step, some
//! [`Completion`]s and at the end a [`Summary`]. [`Trackers::open`] makes the
//! ones a configuration asks for; a program adds its own by implementing the
//! trait.
//!
//! | file | written by |
//! |---|---|
//! | `metrics.jsonl` | [`MetricsFile`], one line per step |
//! | `completions.jsonl` | [`CompletionsFile`] |
//! | `tensorboard/` | [`TensorBoard`] |
//! | `summary.json` | [`SummaryFile`] |
//! | `report.html` | [`Report`] |
//!
//! A resumed run goes on where its checkpoint was: lines of later steps are
//! cut, so that no step appears twice.
//!
//! # Names of metrics
//! verl's where it has one, so that dashboards carry over: `actor/pg_loss`,
//! `actor/ppo_kl`, `actor/pg_clipfrac`, `actor/entropy`, `actor/kl_loss`,
//! `actor/grad_norm`, `actor/lr`, `critic/score/mean`, `critic/rewards/mean`,
//! `response_length/mean`, `response_length/clip_ratio`, `timing_s/gen`,
//! `timing_s/update_actor`, `perf/throughput`, `val-core/NAME/acc/mean@1`.

mod completions;
mod jsonl;
mod metrics;
mod progress;
mod report;
mod summary;
mod tensorboard;

pub use completions::{Completion, CompletionsFile, Split};
pub use jsonl::MetricsFile;
pub use metrics::Metrics;
pub use progress::Progress;
pub use report::{Report, ReportData};
pub use summary::{Summary, SummaryFile};
pub use tensorboard::TensorBoard;

use crate::config::TrackingConfig;
use crate::{Error, Result};
use std::fmt;
use std::path::Path;

/// Follows a run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot follow a run",
    note = "implement `Tracker`"
)]
pub trait Tracker: fmt::Debug + Send {
    /// Takes the figures of a step; step 0 is the validation before training.
    fn log_step(&mut self, metrics: &Metrics) -> Result<()>;

    /// Takes some answers of a step.
    fn log_completions(&mut self, completions: &[Completion]) -> Result<()> {
        let _ = completions;
        Ok(())
    }

    /// The run has ended, by itself or early.
    fn finish(&mut self, summary: &Summary) -> Result<()> {
        let _ = summary;
        Ok(())
    }
}

/// Several trackers as one.
#[derive(Debug, Default)]
pub struct Trackers(Vec<Box<dyn Tracker>>);

impl Trackers {
    /// Opens what `config` asks for in the folder `dir`, and the summary.
    /// `resumed` is the step of the checkpoint the run goes on from, and
    /// `total` the step it is to reach.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn open(
        config: &TrackingConfig,
        dir: &Path,
        resumed: Option<u64>,
        total: u64,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        let mut trackers = Trackers::default();
        if config.metrics_jsonl {
            trackers.push(MetricsFile::open(dir.join("metrics.jsonl"), resumed)?);
        }
        if config.completions {
            trackers.push(CompletionsFile::open(
                dir.join("completions.jsonl"),
                resumed,
            )?);
        }
        if config.tensorboard {
            trackers.push(TensorBoard::open(dir.join("tensorboard"), resumed)?);
        }
        trackers.push(SummaryFile::new(dir));
        if config.report {
            trackers.push(Report::new(dir));
        }
        if config.progress {
            trackers.push(Progress::new(resumed.unwrap_or(0), total));
        }
        Ok(trackers)
    }

    /// Adds a tracker, called after those before it.
    pub fn push(&mut self, tracker: impl Tracker + 'static) {
        self.0.push(Box::new(tracker));
    }

    /// Lets every tracker do its part, even when one fails.
    fn each(&mut self, call: impl FnMut(&mut Box<dyn Tracker>) -> Result<()>) -> Result<()> {
        let problems = self
            .0
            .iter_mut()
            .map(call)
            .filter_map(Result::err)
            .collect();
        Error::several("the run's records", problems)
    }
}

impl Tracker for Trackers {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        self.each(|t| t.log_step(metrics))
    }

    fn log_completions(&mut self, completions: &[Completion]) -> Result<()> {
        self.each(|t| t.log_completions(completions))
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.each(|t| t.finish(summary))
    }
}

const _: fn(&dyn Tracker) = |_| {};

#[cfg(test)]
mod tests;
