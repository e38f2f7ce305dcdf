//! Trackers together, and what a resumed run makes of their files.

use super::*;
use crate::config::TrackingConfig;

fn step(step: u64) -> Metrics {
    let mut metrics = Metrics::new(step);
    metrics.set("critic/score/mean", step as f64 / 10.0);
    metrics
}

fn answer(step: u64) -> Completion {
    Completion {
        step,
        split: Split::Train,
        prompt: "p".into(),
        response: "r\nwith \"quotes\"".into(),
        reference: None,
        score: None,
        cause: Some("timeout".into()),
        finish: "length".into(),
        tokens: 3,
    }
}

#[test]
fn every_file_asked_for_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut trackers = Trackers::open(&TrackingConfig::default(), dir.path(), None, 2).unwrap();
    for i in 1..=2 {
        trackers.log_step(&step(i)).unwrap();
        trackers.log_completions(&[answer(i)]).unwrap();
    }
    let summary = Summary {
        steps: 2,
        ended: "finished".into(),
        ..Summary::default()
    };
    trackers.finish(&summary).unwrap();
    for file in [
        "metrics.jsonl",
        "completions.jsonl",
        "tensorboard",
        "summary.json",
        "report.html",
    ] {
        assert!(dir.path().join(file).exists(), "{file}");
    }
    assert_eq!(
        Summary::read(dir.path().join("summary.json")).unwrap(),
        summary
    );
    assert_eq!(
        CompletionsFile::read(dir.path().join("completions.jsonl")).unwrap(),
        [answer(1), answer(2)]
    );
}

#[test]
fn nothing_else_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let none = TrackingConfig {
        progress: false,
        metrics_jsonl: false,
        tensorboard: false,
        completions: false,
        report: false,
    };
    let mut trackers = Trackers::open(&none, dir.path(), None, 2).unwrap();
    trackers.log_step(&step(1)).unwrap();
    trackers.finish(&Summary::default()).unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["summary.json"]);
}

#[test]
fn a_resumed_run_has_each_step_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut file = MetricsFile::open(&path, None).unwrap();
    (1..=5).for_each(|i| file.log_step(&step(i)).unwrap());
    drop(file);
    // Killed while writing step 6.
    let cut = std::fs::read_to_string(&path).unwrap() + "{\"step\": 6, \"crit";
    std::fs::write(&path, cut).unwrap();
    assert_eq!(
        MetricsFile::read(&path).unwrap().len(),
        5,
        "a run going on can be read"
    );

    let mut file = MetricsFile::open(&path, Some(3)).unwrap();
    (4..=6).for_each(|i| file.log_step(&step(i)).unwrap());
    let steps: Vec<_> = MetricsFile::read(&path)
        .unwrap()
        .iter()
        .map(|m| m.step)
        .collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6]);

    MetricsFile::open(&path, None).unwrap();
    assert_eq!(MetricsFile::read(&path).unwrap(), []);
}

#[test]
fn every_line_has_its_step_and_a_figure_that_is_not_finite_is_null() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut metrics = step(4);
    metrics.set("actor/grad_norm", f64::INFINITY);
    MetricsFile::open(&path, None)
        .unwrap()
        .log_step(&metrics)
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "{\"step\":4,\"critic/score/mean\":0.4,\"actor/grad_norm\":null}\n"
    );
    assert!(
        MetricsFile::read(&path).unwrap()[0]
            .get("actor/grad_norm")
            .unwrap()
            .is_nan()
    );
}

#[test]
fn a_damaged_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    std::fs::write(&path, "{\"step\":1}\n\n{\"step\":\n{\"step\":3}\n").unwrap();
    let message = MetricsFile::read(&path).unwrap_err().to_string();
    assert!(message.contains("metrics.jsonl:3: "), "{message}");
    std::fs::write(&path, "{\"step\":1}\n{\"loss\":2}\n{\"step\":3}\n").unwrap();
    let message = MetricsFile::read(&path).unwrap_err().to_string();
    assert!(
        message.ends_with("metrics.jsonl:2: expected a `step` and numbers"),
        "{message}"
    );
}

#[test]
fn one_failing_tracker_does_not_silence_the_others() {
    #[derive(Debug)]
    struct Failing;
    impl Tracker for Failing {
        fn log_step(&mut self, _: &Metrics) -> Result<()> {
            Err(Error::invalid("no network"))
        }
        fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
            Ok(())
        }
        fn finish(&mut self, _: &Summary) -> Result<()> {
            Ok(())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let mut trackers = Trackers::default();
    trackers.push(Failing);
    trackers.push(MetricsFile::open(&path, None).unwrap());
    assert_eq!(
        trackers.log_step(&step(1)).unwrap_err().to_string(),
        "no network"
    );
    assert_eq!(MetricsFile::read(&path).unwrap(), [step(1)]);
}
