//! The whole page, from a run's files.

use super::*;
use crate::tracking::Split;
use serde_json::json;

fn completion(step: u64, split: Split, prompt: &str, response: &str) -> Completion {
    Completion {
        step,
        split,
        prompt: prompt.into(),
        response: response.into(),
        reference: Some("42".into()),
        score: (step > 0).then_some(1.0),
        cause: (step == 0).then(|| "no answer".into()),
        finish: "stop".into(),
        tokens: 12,
    }
}

/// A run of `steps` steps that looks like a real one.
fn sample(steps: u64) -> ReportData {
    let mut noise = 7u64;
    let mut random = || {
        noise = noise
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (noise >> 33) as f64 / (1u64 << 31) as f64 - 0.5
    };
    let mut metrics = vec![Metrics::new(0)];
    metrics[0].set("val-core/arithmetic/acc/mean@1", 0.31);
    for step in 1..=steps {
        let t = step as f64 / steps as f64;
        let rise = 1.0 / (1.0 + (-8.0 * (t - 0.4)).exp());
        let mut m = Metrics::new(step);
        m.extend([
            ("critic/score/mean", 0.32 + 0.6 * rise + 0.08 * random()),
            ("critic/rewards/mean", 0.30 + 0.57 * rise + 0.08 * random()),
            ("response_length/mean", 38.0 - 14.0 * rise + 3.0 * random()),
            ("response_length/max", 64.0 - 10.0 * rise + 6.0 * random()),
            ("actor/ppo_kl", 0.002 + 0.001 * random()),
            ("actor/kl_loss", 0.012 * rise + 0.002 * random().abs()),
            ("actor/entropy", 1.1 - 0.8 * rise + 0.05 * random()),
            ("actor/pg_clipfrac", 0.02 + 0.02 * random().abs()),
            ("actor/grad_norm", 0.8 + 0.4 * random().abs()),
            ("timing_s/gen", 1.4 - 0.4 * rise + 0.1 * random()),
            ("timing_s/reward", 0.1),
            ("timing_s/update_actor", 0.9 + 0.1 * random()),
            ("timing_s/step", 2.6),
            ("perf/throughput", 1800.0),
        ]);
        if step % 10 == 0 {
            m.set("val-core/arithmetic/acc/mean@1", 0.31 + 0.63 * rise);
            m.set("timing_s/testing", 0.8);
        }
        metrics.push(m);
    }
    let question = "<|im_start|>user\nTom has 17 apples & buys 25 more. How many?<|im_end|>\n<|im_start|>assistant\n";
    let other = "<|im_start|>user\nWhat is 6 x 7?<|im_end|>\n<|im_start|>assistant\n";
    let mut completions = Vec::new();
    for (step, answer) in [
        (
            0,
            "Apples are nice. <script>alert(1)</script> Tom likes apples.",
        ),
        (steps, "17 + 25 = 42\n#### 42"),
    ] {
        completions.push(completion(step, Split::Val, question, answer));
        completions.push(completion(step, Split::Val, other, answer));
        completions.push(completion(step, Split::Train, "another", answer));
    }
    let summary = Summary {
        algorithm: "grpo".into(),
        model: "models/tiny-qwen2".into(),
        seed: 1,
        steps,
        seconds: 152.4,
        tokens_generated: 1_254_392,
        accuracy_before: Some(0.31),
        accuracy_after: Some(0.938),
        skipped_updates: 1,
        ended: "finished".into(),
        extra: json!({"note": 1}).as_object().cloned().unwrap_or_default(),
        ..Summary::default()
    };
    let config = crate::config::RunConfig::default().to_yaml().unwrap();
    ReportData {
        summary,
        metrics,
        completions,
        config,
    }
}

#[test]
fn the_page_has_every_curve_and_both_ends_of_the_run() {
    let page = sample(60).render();
    for title in [
        "Reward",
        "Accuracy",
        "Response length",
        "KL divergence",
        "Entropy",
        "Clip fraction",
        "Gradient norm",
        "Time per step",
    ] {
        assert!(
            page.contains(&format!("<figcaption>{title}<small>")),
            "{title}"
        );
    }
    for text in [
        "31.0%",
        "93.8%",
        "+62.8",
        "1\u{202f}254\u{202f}392",
        "2 min 32 s",
        "before training",
        "step 60",
        "update actor",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(
        page.matches("<div class=\"pair\">").count(),
        2,
        "one box a validation prompt"
    );
}

#[test]
fn text_of_the_model_is_text_on_the_page() {
    let page = sample(12).render();
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("17 apples &amp; buys"));
    assert_eq!(escape("a\u{0}\u{1b}[\t"), "a\u{fffd}\u{fffd}[\t");
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let page = sample(12).render();
    for part in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn a_run_that_ended_at_once_still_has_a_page() {
    let page = ReportData::default().render();
    assert!(page.ends_with("</html>\n") && !page.contains("NaN") && !page.contains("<figure"));
}

#[test]
fn the_report_is_written_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = sample(20);
    let mut metrics = MetricsFile::open(dir.path().join("metrics.jsonl"), None).unwrap();
    data.metrics
        .iter()
        .for_each(|m| metrics.log_step(m).unwrap());
    let mut completions =
        CompletionsFile::open(dir.path().join("completions.jsonl"), None).unwrap();
    completions.log_completions(&data.completions).unwrap();
    std::fs::write(dir.path().join("config.yaml"), &data.config).unwrap();
    Report::new(dir.path()).finish(&data.summary).unwrap();
    let written = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert_eq!(written, data.render());
}
