//! Curves and stacked areas as inline SVG.

use super::escape;
use super::scale::{Axes, HEIGHT, WIDTH};
use std::fmt::Write;

/// Colours of the style sheet.
const COLOURS: usize = 8;
/// Curves of more points than this are drawn faintly under their moving mean.
const SMOOTH_ABOVE: usize = 40;

/// A named curve of `(step, value)`.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// One figure of the report.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    pub title: &'a str,
    pub note: &'a str,
    pub series: Vec<Series>,
    /// Values that must be on the page.
    pub floor: Option<f64>,
    pub ceiling: Option<f64>,
}

impl Chart<'_> {
    /// The curves, or nothing when there is no figure to draw.
    pub(super) fn lines(&self) -> String {
        let all = self.series.iter().flat_map(|s| s.points.iter().copied());
        let Some(axes) = Axes::around(all, self.floor, self.ceiling) else {
            return String::new();
        };
        let mut svg = String::new();
        axes.draw(&mut svg);
        for (i, series) in self.series.iter().enumerate() {
            let colour = i % COLOURS;
            if series.points.len() > SMOOTH_ABOVE {
                let _ = write!(
                    svg,
                    r#"<path class="curve raw s{colour}" d="{}"/>"#,
                    path(&axes, &series.points)
                );
                let _ = write!(
                    svg,
                    r#"<path class="curve s{colour}" d="{}"/>"#,
                    path(&axes, &smooth(&series.points))
                );
            } else {
                let _ = write!(
                    svg,
                    r#"<path class="curve s{colour}" d="{}"/>"#,
                    path(&axes, &series.points)
                );
                dots(&mut svg, &axes, &series.points, colour);
            }
            hover(&mut svg, &axes, series);
        }
        self.figure(&svg)
    }

    /// The series on top of each other, or nothing when there is none.
    pub(super) fn stacked(&self) -> String {
        let mut below: Vec<(f64, f64)> = Vec::new();
        let mut layers = Vec::new();
        for series in &self.series {
            let top: Vec<_> = series
                .points
                .iter()
                .enumerate()
                .map(|(i, &(x, y))| {
                    let base = below.get(i).map_or(0.0, |p| p.1);
                    (x, base + if y.is_finite() { y } else { 0.0 })
                })
                .collect();
            let floor = std::mem::replace(&mut below, top.clone());
            layers.push((floor, top));
        }
        let Some(axes) = Axes::around(below.into_iter(), Some(0.0), None) else {
            return String::new();
        };
        let mut svg = String::new();
        axes.draw(&mut svg);
        for (i, ((floor, top), series)) in layers.iter().zip(&self.series).enumerate() {
            let back = top
                .iter()
                .enumerate()
                .rev()
                .map(|(i, p)| (p.0, floor.get(i).map_or(0.0, |f| f.1)));
            let mut outline = path(&axes, top);
            for (x, y) in back {
                let _ = write!(outline, "L{:.1} {:.1}", axes.x(x), axes.y(y));
            }
            let title = escape(&series.name);
            let _ = write!(
                svg,
                r#"<path class="area s{}" d="{outline}Z"><title>{title}</title></path>"#,
                i % COLOURS
            );
        }
        self.figure(&svg)
    }

    fn figure(&self, svg: &str) -> String {
        let mut key = String::new();
        if self.series.len() > 1 {
            for (i, series) in self.series.iter().enumerate() {
                let _ = write!(
                    key,
                    r#"<span><svg viewBox="0 0 10 10"><circle class="s{}" cx="5" cy="5" r="4"/></svg>{}</span>"#,
                    i % COLOURS,
                    escape(&series.name)
                );
            }
        }
        format!(
            r#"<figure><figcaption>{title}<small>{note}</small></figcaption><div class="key">{key}</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{svg}</svg></figure>"#,
            title = escape(self.title),
            note = escape(self.note),
        )
    }
}

/// Path data; a value that is not finite leaves a gap.
fn path(axes: &Axes, points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    let mut pen = 'M';
    for &(x, y) in points {
        if y.is_finite() {
            let _ = write!(out, "{pen}{:.1} {:.1}", axes.x(x), axes.y(y));
            pen = 'L';
        } else {
            pen = 'M';
        }
    }
    out
}

fn dots(svg: &mut String, axes: &Axes, points: &[(f64, f64)], colour: usize) {
    for &(x, y) in points.iter().filter(|p| p.1.is_finite()) {
        let _ = write!(
            svg,
            r#"<circle class="dot s{colour}" cx="{:.1}" cy="{:.1}" r="2.4"/>"#,
            axes.x(x),
            axes.y(y)
        );
    }
}

/// Unseen circles that tell their figure under the pointer.
fn hover(svg: &mut String, axes: &Axes, series: &Series) {
    let every = series.points.len().div_ceil(120).max(1);
    for &(x, y) in series
        .points
        .iter()
        .step_by(every)
        .filter(|p| p.1.is_finite())
    {
        let _ = write!(
            svg,
            r#"<circle class="hit" cx="{:.1}" cy="{:.1}" r="5"><title>step {x:.0}: {} {y:.4}</title></circle>"#,
            axes.x(x),
            axes.y(y),
            escape(&series.name)
        );
    }
}

/// Mean over a window of a tenth of the curve around each point.
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = (points.len() / 20).max(2);
    (0..points.len())
        .map(|i| {
            let window = &points[i.saturating_sub(reach)..(i + reach + 1).min(points.len())];
            let finite: Vec<_> = window
                .iter()
                .map(|p| p.1)
                .filter(|y| y.is_finite())
                .collect();
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            (points[i].0, mean)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart<'static> {
        let series = vec![Series {
            name: "a<b".into(),
            points,
        }];
        Chart {
            title: "T",
            note: "",
            series,
            floor: None,
            ceiling: None,
        }
    }

    #[test]
    fn gaps_stay_gaps_and_names_are_escaped() {
        let svg = chart(vec![(1.0, 0.0), (2.0, f64::NAN), (3.0, 1.0)]).lines();
        let data = svg.split("d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(data.matches('M').count(), 2, "{data}");
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b") && !svg.contains("NaN"));
    }

    #[test]
    fn nothing_to_draw_is_no_figure() {
        assert_eq!(chart(vec![(1.0, f64::NAN)]).lines(), "");
        assert_eq!(
            Chart {
                series: vec![],
                ..chart(vec![])
            }
            .stacked(),
            ""
        );
    }

    #[test]
    fn long_curves_get_a_moving_mean() {
        let points: Vec<_> = (0..100).map(|i| (i as f64, (i % 2) as f64)).collect();
        assert_eq!(
            chart(points.clone())
                .lines()
                .matches("class=\"curve")
                .count(),
            2
        );
        assert!(smooth(&points)[50].1 > 0.4 && smooth(&points)[50].1 < 0.6);
    }
}
