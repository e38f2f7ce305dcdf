//! Axes: from figures to places on the page, with round numbers beside them.

use std::fmt::Write;

/// Size of the drawing, in its own units.
pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 210.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 24.0;

/// Maps steps and values to the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// Axes that hold every point. `floor` and `ceiling` are values that must
    /// be on the page too. `None` without a finite point.
    pub(super) fn around(
        points: impl Iterator<Item = (f64, f64)>,
        floor: Option<f64>,
        ceiling: Option<f64>,
    ) -> Option<Self> {
        let mut x = (f64::INFINITY, f64::NEG_INFINITY);
        let mut y = (
            floor.unwrap_or(f64::INFINITY),
            ceiling.unwrap_or(f64::NEG_INFINITY),
        );
        for point in points.filter(|p| p.1.is_finite()) {
            x = (x.0.min(point.0), x.1.max(point.0));
            y = (y.0.min(point.1), y.1.max(point.1));
        }
        if x.0 > x.1 {
            return None;
        }
        if x.0 == x.1 {
            x = (x.0 - 0.5, x.1 + 0.5);
        }
        if y.0 >= y.1 {
            let pad = if y.0 == 0.0 { 1.0 } else { y.0.abs() * 0.1 };
            y = (y.0 - pad, y.0 + pad);
        }
        let step = round_step(y.1 - y.0, 4.0);
        let y = (
            (y.0 / step + 1e-9).floor() * step,
            (y.1 / step - 1e-9).ceil() * step,
        );
        Some(Axes { x, y })
    }

    pub(super) fn x(&self, step: f64) -> f64 {
        LEFT + (step - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    /// Lines and numbers of both axes.
    pub(super) fn draw(&self, out: &mut String) {
        let step = round_step(self.y.1 - self.y.0, 4.0);
        for i in 0..=((self.y.1 - self.y.0) / step).round() as usize {
            let value = self.y.0 + i as f64 * step;
            let y = self.y(value);
            let _ = write!(
                out,
                r#"<line class="grid" x1="{LEFT}" x2="{x2}" y1="{y:.1}" y2="{y:.1}"/><text x="{tx}" y="{ty:.1}" text-anchor="end">{label}</text>"#,
                x2 = WIDTH - RIGHT,
                tx = LEFT - 6.0,
                ty = y + 4.0,
                label = short(value, step)
            );
        }
        let _ = write!(
            out,
            r#"<text x="2" y="{:.1}">step</text>"#,
            HEIGHT - BOTTOM + 16.0
        );
        let step = round_step(self.x.1 - self.x.0, 6.0).max(1.0);
        let mut at = (self.x.0 / step).ceil() * step;
        while at <= self.x.1 + 1e-9 {
            let _ = write!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{at:.0}</text>"#,
                self.x(at),
                HEIGHT - BOTTOM + 16.0
            );
            at += step;
        }
    }
}

/// 1, 2 or 5 times a power of ten, to divide `span` into about `parts`.
fn round_step(span: f64, parts: f64) -> f64 {
    let rough = (span / parts).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|f| f * power >= rough * 0.7)
        .unwrap_or(10.0);
    factor * power
}

/// A tick's number, as exact as the distance between ticks calls for.
fn short(value: f64, step: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".into();
    }
    match value.abs() {
        v if v >= 1e6 => format!("{}M", trim(value / 1e6, step / 1e6)),
        v if v >= 1e4 => format!("{}k", trim(value / 1e3, step / 1e3)),
        _ if step < 1e-4 => format!("{value:.0e}"),
        _ => trim(value, step),
    }
}

fn trim(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_step(1.0, 4.0), 0.2);
        assert_eq!(round_step(0.037, 4.0), 0.01);
        assert_eq!(short(0.30000000000000004, 0.1), "0.3");
        assert_eq!(short(25_000.0, 5_000.0), "25k");
        assert_eq!(short(2e-6, 1e-6), "2e-6");
    }

    #[test]
    fn every_point_is_on_the_page() {
        let points = [(1.0, -0.3), (9.0, 7.2), (5.0, f64::NAN)];
        let axes = Axes::around(points.into_iter(), None, None).unwrap();
        for (x, y) in &points[..2] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&axes.x(*x)));
            assert!((TOP..=HEIGHT - BOTTOM).contains(&axes.y(*y)));
        }
        assert!(Axes::around([(1.0, f64::NAN)].into_iter(), None, None).is_none());
        let flat = Axes::around([(3.0, 0.0)].into_iter(), None, None).unwrap();
        assert!(flat.x(3.0).is_finite() && flat.y(0.0).is_finite());
    }
}
