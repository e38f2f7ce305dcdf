//! The loop over steps.

use super::Trainer;
use super::step::Clock;
use crate::Result;
use crate::tracking::{Metrics, Summary};

/// How a run went.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// The run in a few figures; also written by the trackers.
    pub summary: Summary,
    /// Whether the run was asked to stop before its last step.
    pub stopped: bool,
    /// Evaluation before the first step of this call, if there was one.
    pub before: Metrics,
    /// The last evaluation.
    pub after: Metrics,
}

impl Trainer {
    /// Runs the remaining steps. On a stop (see [`Trainer::stop_handle`]) the
    /// step in hand is finished and saved. An error that ends the run leaves a
    /// checkpoint of what was learnt.
    ///
    /// # Errors
    /// Whatever ends the run: see [`crate::Error::Aborted`].
    pub fn fit(&mut self) -> Result<FitReport> {
        let clock = Clock::start();
        let earlier = self.totals.seconds;
        let mut report = FitReport {
            summary: Summary::default(),
            stopped: false,
            before: Metrics::new(self.step),
            after: Metrics::new(self.step),
        };
        let result = self.run(&mut report);
        self.totals.seconds = earlier + clock.total();
        if result.is_err() {
            self.save_after_failure();
        }
        let ended = match &result {
            Ok(()) if report.stopped => "interrupted".to_string(),
            Ok(()) => "finished".to_string(),
            Err(error) => error.to_string(),
        };
        report.summary = self.summary(&report, ended);
        let finished = self
            .parts
            .trackers
            .iter_mut()
            .try_for_each(|t| t.finish(&report.summary));
        result.and(finished).map(|()| report)
    }

    fn run(&mut self, report: &mut FitReport) -> Result<()> {
        if self.settings.eval.before && self.step == 0 {
            report.before = self.evaluate()?;
            report.after = report.before.clone();
            self.totals.accuracy_before = self.accuracy(&report.before);
            self.log(&report.before)?;
        }
        while self.step < self.settings.total_steps {
            if self.stop.is_stopped() {
                report.stopped = true;
                break;
            }
            self.one_step(report)?;
        }
        // A stop may come in after the step's own save.
        if self.store.is_some() && self.saved != Some(self.step) && self.step > 0 {
            self.save_checkpoint()?;
        }
        Ok(())
    }

    fn one_step(&mut self, report: &mut FitReport) -> Result<()> {
        let mut metrics = self.train_step()?;
        let last = self.step == self.settings.total_steps;
        let due = |every: u64, step: u64| last || (every > 0 && step.is_multiple_of(every));
        if due(self.settings.eval.every, self.step) {
            let evaluation = self.evaluate()?;
            evaluation
                .iter()
                .for_each(|(name, value)| metrics.set(name, value));
            report.after = evaluation;
        }
        let every = self.settings.checkpoints.as_ref().map(|c| c.every);
        if every.is_some_and(|every| due(every, self.step) || self.stop.is_stopped()) {
            let mut clock = Clock::start();
            self.save_checkpoint()?;
            clock.lap("save_checkpoint", &mut metrics);
        }
        self.log(&metrics)
    }

    /// The share of right answers in an evaluation, or the mean reward where
    /// the reward does not tell right from wrong.
    fn accuracy(&self, metrics: &Metrics) -> Option<f64> {
        let (name, n) = (&self.settings.eval.name, self.settings.eval.samples);
        let of = |kind: &str| metrics.get(&format!("val-core/{name}/{kind}/mean@{n}"));
        of("acc").or_else(|| of("reward"))
    }

    fn summary(&self, report: &FitReport, ended: String) -> Summary {
        Summary {
            algorithm: self.parts.algorithm.name().to_string(),
            model: self.settings.model_name.clone(),
            seed: self.settings.seed,
            steps: self.step,
            seconds: self.totals.seconds,
            tokens_generated: self.totals.tokens_generated,
            accuracy_before: self.totals.accuracy_before,
            accuracy_after: self.accuracy(&report.after),
            skipped_updates: self.skipped.1,
            unscored: self.totals.unscored,
            ended,
            extra: Default::default(),
        }
    }

    fn log(&mut self, metrics: &Metrics) -> Result<()> {
        match metrics.iter().next() {
            Some(_) => self
                .parts
                .trackers
                .iter_mut()
                .try_for_each(|t| t.log_step(metrics)),
            None => Ok(()),
        }
    }

    /// Saves what was learnt before a failing run ends. A failure to save must
    /// not hide the first error.
    fn save_after_failure(&mut self) {
        if self.store.is_some()
            && let Err(error) = self.save_checkpoint()
        {
            tracing::error!(%error, "the run ends and its last state could not be saved");
        }
    }
}

/// What a run has added up, earlier parts of a resumed run included.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Totals {
    pub(super) seconds: f64,
    pub(super) tokens_generated: u64,
    pub(super) unscored: u64,
    pub(super) accuracy_before: Option<f64>,
}
