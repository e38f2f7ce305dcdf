//! `report.html`: a run on one page, without a script or a link to elsewhere.

mod answers;
mod chart;
mod scale;

use super::summary::replace;
use super::{Completion, CompletionsFile, Metrics, MetricsFile, Summary, Tracker};
use crate::Result;
use chart::{Chart, Series};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What the page is made of.
#[derive(Debug, Clone, Default)]
pub struct ReportData {
    /// The run in a few figures.
    pub summary: Summary,
    /// Every step.
    pub metrics: Vec<Metrics>,
    /// Answers, in the order of their steps.
    pub completions: Vec<Completion>,
    /// The resolved configuration as YAML, or empty.
    pub config: String,
}

impl ReportData {
    /// Reads the files of a run's folder; `completions.jsonl` and
    /// `config.yaml` may be missing.
    ///
    /// # Errors
    /// [`crate::Error::Io`], or [`crate::Error::Malformed`] with file and line.
    pub fn read(dir: &Path, summary: Summary) -> Result<Self> {
        let completions = dir.join("completions.jsonl");
        Ok(ReportData {
            summary,
            metrics: MetricsFile::read(dir.join("metrics.jsonl"))?,
            completions: match completions.exists() {
                true => CompletionsFile::read(completions)?,
                false => Vec::new(),
            },
            config: std::fs::read_to_string(dir.join("config.yaml")).unwrap_or_default(),
        })
    }

    /// The page.
    pub fn render(&self) -> String {
        let title = format!("{} on {}", self.summary.algorithm, self.summary.model);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title><style>{style}</style></head><body><main><h1>{title}</h1>",
            title = escape(&title),
            style = include_str!("style.css")
        );
        self.cards(&mut page);
        let charts = self.charts();
        if !charts.is_empty() {
            let _ = write!(page, "<h2>Curves</h2><div class=\"charts\">{charts}</div>");
        }
        answers::render(&mut page, &self.completions);
        if !self.config.is_empty() {
            let _ = write!(
                page,
                "<details><summary>Configuration</summary><pre>{}</pre></details>",
                escape(&self.config)
            );
        }
        let _ = writeln!(
            page,
            "<footer>Written by verl {}.</footer></main></body></html>",
            env!("CARGO_PKG_VERSION")
        );
        page
    }

    fn cards(&self, page: &mut String) {
        let s = &self.summary;
        let _ = write!(
            page,
            "<p class=\"sub\">{}, seed {}</p><div class=\"cards\">",
            escape(&s.ended),
            s.seed
        );
        let mut card = |label: &str, value: String| {
            let _ = write!(
                page,
                "<div class=\"card\"><b>{value}</b><span>{label}</span></div>"
            );
        };
        if let (Some(before), Some(after)) = (s.accuracy_before, s.accuracy_after) {
            let gain = 100.0 * (after - before);
            let class = if gain < 0.0 { "down" } else { "up" };
            card("accuracy before", format!("{:.1}%", 100.0 * before));
            card(
                "accuracy after",
                format!("{:.1}% <i class=\"{class}\">{gain:+.1}</i>", 100.0 * after),
            );
        }
        card("steps", s.steps.to_string());
        card("time", duration(s.seconds));
        card("tokens sampled", grouped(s.tokens_generated));
        if s.skipped_updates > 0 {
            card("updates skipped", grouped(s.skipped_updates));
        }
        if s.unscored > 0 {
            card("answers not scored", grouped(s.unscored));
        }
        page.push_str("</div>");
    }

    fn charts(&self) -> String {
        let lines = |title, note, names: &[(&str, &str)], floor, ceiling| {
            let series = names
                .iter()
                .filter_map(|(name, label)| self.series(name, label))
                .collect();
            Chart {
                title,
                note,
                series,
                floor,
                ceiling,
            }
            .lines()
        };
        let accuracy = Chart {
            title: "Accuracy",
            note: "validation",
            series: self.named(|name| name.strip_prefix("val-core/").map(str::to_string)),
            floor: Some(0.0),
            ceiling: Some(1.0),
        };
        [
            lines(
                "Reward",
                "mean over a step",
                &[
                    ("critic/score/mean", "score"),
                    ("critic/rewards/mean", "with penalties"),
                ],
                None,
                None,
            ),
            accuracy.lines(),
            lines(
                "Response length",
                "tokens",
                &[
                    ("response_length/mean", "mean"),
                    ("response_length/max", "longest"),
                ],
                Some(0.0),
                None,
            ),
            lines(
                "KL divergence",
                "nats per token",
                &[
                    ("actor/ppo_kl", "from the sampling policy"),
                    ("actor/kl_loss", "from the reference"),
                    ("actor/reward_kl_penalty", "in the reward"),
                ],
                None,
                None,
            ),
            lines(
                "Entropy",
                "nats per token",
                &[("actor/entropy", "entropy")],
                Some(0.0),
                None,
            ),
            lines(
                "Clip fraction",
                "share of tokens",
                &[
                    ("actor/pg_clipfrac", "clipped"),
                    ("actor/pg_clipfrac_lower", "dual clip"),
                ],
                Some(0.0),
                None,
            ),
            lines(
                "Gradient norm",
                "before clipping",
                &[("actor/grad_norm", "actor"), ("critic/grad_norm", "critic")],
                Some(0.0),
                None,
            ),
            self.time().stacked(),
        ]
        .concat()
    }

    fn series(&self, name: &str, label: &str) -> Option<Series> {
        let points: Vec<_> = self
            .metrics
            .iter()
            .filter_map(|m| Some((m.step as f64, m.get(name)?)))
            .collect();
        (!points.is_empty()).then(|| Series {
            name: label.to_string(),
            points,
        })
    }

    /// A series for every metric that `label` gives a name.
    fn named(&self, label: impl Fn(&str) -> Option<String>) -> Vec<Series> {
        let mut names: Vec<(&str, String)> = Vec::new();
        for (name, _) in self.metrics.iter().flat_map(Metrics::iter) {
            if let Some(label) = label(name)
                && !names.iter().any(|(known, _)| *known == name)
            {
                names.push((name, label));
            }
        }
        names
            .iter()
            .filter_map(|(name, label)| self.series(name, label))
            .collect()
    }

    /// Seconds of each phase at every step that has any; a phase that a step
    /// did not have took none of it.
    fn time(&self) -> Chart<'static> {
        let phase = |name: &str| {
            name.strip_prefix("timing_s/")
                .filter(|phase| *phase != "step")
                .map(str::to_string)
        };
        let timed = |m: &&Metrics| m.iter().any(|(name, _)| phase(name).is_some());
        let steps: Vec<_> = self.metrics.iter().filter(timed).collect();
        let mut series = self.named(phase);
        for s in &mut series {
            let key = format!("timing_s/{}", s.name);
            let seconds = |m: &&Metrics| (m.step as f64, m.get(&key).unwrap_or(0.0));
            s.points = steps.iter().map(seconds).collect();
            s.name = match s.name.as_str() {
                "gen" => "generation".into(),
                "testing" => "validation".into(),
                other => other.replace('_', " "),
            };
        }
        Chart {
            title: "Time per step",
            note: "seconds, by phase",
            series,
            floor: Some(0.0),
            ceiling: None,
        }
    }
}

/// Text as HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML, and unseen in any case.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s {
        0..60 => format!("{seconds:.0} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// A whole number with thin spaces between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Writes `report.html` at the end, from the files of the run.
#[derive(Debug)]
pub struct Report(PathBuf);

impl Report {
    /// Will read from and write into the folder `dir`.
    pub fn new(dir: &Path) -> Self {
        Report(dir.to_path_buf())
    }
}

impl Tracker for Report {
    fn log_step(&mut self, _: &Metrics) -> Result<()> {
        Ok(())
    }

    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        let data = ReportData::read(&self.0, summary.clone())?;
        replace(&self.0.join("report.html"), &data.render())
    }
}

#[cfg(test)]
mod tests;
