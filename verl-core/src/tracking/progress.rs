//! A progress bar with the figures that matter.

use super::{Completion, Metrics, Summary, Tracker};
use crate::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Draws a bar on stderr, or where that is no terminal, sends one line per
/// step to `tracing::info!`.
#[derive(Debug)]
pub struct Progress {
    /// None where there is no terminal.
    bar: Option<ProgressBar>,
    started: Instant,
    first: u64,
    total: u64,
}

impl Progress {
    /// Starts the clock of a run that goes from step `done` to step `total`.
    pub fn new(done: u64, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("{bar:20.cyan/blue} step {pos}/{len}  {msg}")
            {
                bar.set_style(style);
            }
            bar.set_position(done);
            bar
        });
        Progress {
            bar,
            started: Instant::now(),
            first: done,
            total,
        }
    }

    /// Time left, judged by the steps so far.
    fn left(&self, step: u64) -> Option<Duration> {
        let done = u32::try_from(step.checked_sub(self.first)?)
            .ok()
            .filter(|&n| n > 0)?;
        let left = u32::try_from(self.total.saturating_sub(step)).ok()?;
        Some(self.started.elapsed() / done * left)
    }
}

impl Tracker for Progress {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        let mut line = figures(metrics);
        if let Some(left) = self.left(metrics.step) {
            line.push_str(&format!("  left {}", clock(left)));
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(metrics.step);
                bar.set_message(line);
            }
            None => tracing::info!("step {}/{}  {line}", metrics.step, self.total),
        }
        Ok(())
    }

    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        let took = clock(Duration::try_from_secs_f64(summary.seconds).unwrap_or_default());
        let accuracy = match (summary.accuracy_before, summary.accuracy_after) {
            (Some(before), Some(after)) => format!(", accuracy {before:.3} -> {after:.3}"),
            _ => String::new(),
        };
        let line = format!(
            "{} after {} steps in {took}{accuracy}",
            summary.ended, summary.steps
        );
        match &self.bar {
            // The last figures stay on the screen.
            Some(bar) => {
                bar.abandon();
                bar.println(line);
            }
            None => tracing::info!("{line}"),
        }
        Ok(())
    }
}

/// The figures that matter, those that the step has.
fn figures(metrics: &Metrics) -> String {
    let validation = metrics
        .iter()
        .find(|(name, _)| name.starts_with("val-core/"));
    let shown = [
        (
            "reward",
            metrics.get("critic/score/mean").map(|x| format!("{x:.3}")),
        ),
        (
            "length",
            metrics
                .get("response_length/mean")
                .map(|x| format!("{x:.1}")),
        ),
        (
            "kl",
            metrics
                .get("actor/kl_loss")
                .or(metrics.get("actor/ppo_kl"))
                .map(|x| format!("{x:.4}")),
        ),
        (
            "entropy",
            metrics.get("actor/entropy").map(|x| format!("{x:.3}")),
        ),
        ("val", validation.map(|(_, x)| format!("{x:.3}"))),
        (
            "tok/s",
            metrics.get("perf/throughput").map(|x| format!("{x:.0}")),
        ),
    ];
    let parts: Vec<_> = shown
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)))
        .collect();
    parts.join("  ")
}

/// `1:02:03`, or `2:03` under an hour.
fn clock(time: Duration) -> String {
    let s = time.as_secs();
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_figures_of_the_step() {
        let mut metrics = Metrics::new(2);
        metrics.extend([
            ("critic/score/mean", 0.51234),
            ("response_length/mean", 83.25),
            ("actor/ppo_kl", 0.00123),
            ("actor/entropy", 0.3),
            ("perf/throughput", 1234.5),
        ]);
        assert_eq!(
            figures(&metrics),
            "reward 0.512  length 83.2  kl 0.0012  entropy 0.300  tok/s 1234"
        );
        assert_eq!(figures(&Metrics::new(0)), "");
    }

    #[test]
    fn time_left_counts_only_this_run() {
        let mut progress = Progress::new(10, 14);
        progress.started = Instant::now() - Duration::from_secs(60);
        assert_eq!(progress.left(12).unwrap().as_secs(), 60);
        assert_eq!(progress.left(10), None);
        assert_eq!(
            (
                clock(Duration::from_secs(3723)),
                clock(Duration::from_secs(9))
            ),
            ("1:02:03".into(), "0:09".into())
        );
    }
}
