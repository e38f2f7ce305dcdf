//! Accuracy over steps, as a table and as a drawing.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use verl::Result;
use verl::core::tracking::{Metrics, Tracker};

/// The held-out accuracy of one run.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// Steps and accuracies.
    pub(crate) points: Vec<(u64, f64)>,
    pub(crate) seconds: f64,
}

impl Curve {
    fn first(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |p| p.1)
    }

    fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |p| p.1)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<30} seed {} ", self.name, self.seed)?;
        for (_, accuracy) in &self.points {
            write!(f, " {:5.1}", 100.0 * accuracy)?;
        }
        write!(f, "  {:.0} s", self.seconds)
    }
}

/// Points that a [`Recorder`] collects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Points(Arc<Mutex<Vec<(u64, f64)>>>);

impl Points {
    pub(crate) fn take(&self) -> Vec<(u64, f64)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// Notes the held-out accuracy of each evaluation.
#[derive(Debug)]
pub(crate) struct Recorder(Points);

pub(crate) fn recorder() -> (Points, Recorder) {
    let points = Points::default();
    (points.clone(), Recorder(points))
}

impl Tracker for Recorder {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        if let Some(accuracy) = metrics.get("val-core/eval/acc/mean@1") {
            let mut points = self.0.0.lock().unwrap_or_else(|e| e.into_inner());
            points.push((metrics.step, accuracy));
        }
        Ok(())
    }
}

/// One row per run.
pub(crate) fn table(curves: &[Curve]) -> String {
    let steps = curves.first().map_or(&[][..], |c| &c.points);
    let mut text = String::from("| algorithm | seed |");
    steps
        .iter()
        .for_each(|(step, _)| _ = write!(text, " step {step} |"));
    text += " seconds |\n|---|---|";
    text += &"---|".repeat(steps.len() + 1);
    for curve in curves {
        let _ = write!(text, "\n| `{}` | {} |", curve.name, curve.seed);
        for (_, accuracy) in &curve.points {
            let _ = write!(text, " {:.1} % |", 100.0 * accuracy);
        }
        let _ = write!(text, " {:.0} |", curve.seconds);
    }
    text + "\n"
}

const WIDTH: f64 = 180.0;
const HEIGHT: f64 = 90.0;
const COLUMNS: usize = 5;

/// Small multiples, one panel per run.
pub(crate) fn svg(curves: &[Curve]) -> String {
    let rows = curves.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, (HEIGHT + 30.0) * rows as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, curve) in curves.iter().enumerate() {
        let x = WIDTH * (i % COLUMNS) as f64;
        let y = (HEIGHT + 30.0) * (i / COLUMNS) as f64;
        text += &panel(curve, x, y);
    }
    text + "</svg>\n"
}

fn panel(curve: &Curve, x: f64, y: f64) -> String {
    let end = curve.points.last().map_or(1, |p| p.0).max(1) as f64;
    let (left, top, width) = (x + 8.0, y + 18.0, WIDTH - 16.0);
    let place = |(step, accuracy): &(u64, f64)| {
        let px = left + width * *step as f64 / end;
        format!("{px:.1},{:.1}", top + HEIGHT * (1.0 - accuracy))
    };
    let line: Vec<String> = curve.points.iter().map(place).collect();
    format!(
        "<text x=\"{left}\" y=\"{:.1}\">{} ({}): {:.0} to {:.0} %</text>\n\
         <rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" \
         fill=\"none\" stroke=\"#ccc\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\"/>\n",
        y + 13.0,
        curve.name,
        curve.seed,
        100.0 * curve.first(),
        100.0 * curve.last(),
        line.join(" ")
    )
}
