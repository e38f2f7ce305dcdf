//! Verdicts on the reference answers.

use super::{Cause, Gsm8kMethod, Gsm8kOptions, Gsm8kReward, MathOptions, MathReward};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn cases(file: &str) -> Vec<Value> {
    let root = match std::env::var_os("VERL_REFERENCE_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
    };
    let text = std::fs::read_to_string(root.join("golden/rewards").join(file)).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["cases"]
        .as_array()
        .unwrap()
        .clone()
}

fn verdict(case: &Value, method: Gsm8kMethod, verl_compatible: bool) -> f64 {
    let reward = Gsm8kReward::new(Gsm8kOptions {
        method,
        verl_compatible,
        ..Default::default()
    });
    let (text, truth) = (&case["inputs"]["solution"], &case["inputs"]["ground_truth"]);
    let start = Instant::now();
    let cause = reward.judge(text.as_str().unwrap(), truth.as_str().unwrap());
    assert!(start.elapsed().as_millis() < 500, "{}: slow", case["desc"]);
    f64::from(u8::from(cause == Cause::Correct))
}

#[test]
fn compatible_verdicts_are_verls() {
    for case in cases("gsm8k.json") {
        let outputs = &case["outputs"];
        for (method, key) in [
            (Gsm8kMethod::Strict, "verl_strict"),
            (Gsm8kMethod::Flexible, "verl_flexible"),
        ] {
            assert_eq!(
                verdict(&case, method, true),
                outputs[key].as_f64().unwrap(),
                "{key}: {}",
                case["desc"]
            );
        }
    }
}

#[test]
fn flexible_verdicts_are_sensible() {
    let mut wrong = Vec::new();
    for case in cases("gsm8k.json")
        .iter()
        .filter(|c| c["outputs"]["ambiguous"] != true)
    {
        if verdict(case, Gsm8kMethod::Flexible, false)
            != case["outputs"]["sensible"].as_f64().unwrap()
        {
            let text = case["inputs"]["solution"].as_str().unwrap();
            let tail: String = text
                .chars()
                .skip(text.chars().count().saturating_sub(80))
                .collect();
            wrong.push(format!(
                "{}: {tail:?} against {}",
                case["desc"], case["inputs"]["ground_truth"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The solution of a case, or its box around the prediction.
fn solution(case: &Value) -> String {
    let inputs = &case["inputs"];
    match inputs["solution"].as_str() {
        Some(solution) => solution.to_string(),
        None => case["config"]["solution"]
            .as_str()
            .unwrap()
            .replace("PREDICTION", inputs["prediction"].as_str().unwrap()),
    }
}

fn math_mismatches(key: &str, verl_compatible: bool) -> Vec<String> {
    let reward = MathReward::new(MathOptions {
        verl_compatible,
        ..Default::default()
    });
    let mut wrong = Vec::new();
    for case in cases("math.json") {
        if !verl_compatible && case["outputs"]["ambiguous"] == true {
            continue;
        }
        let (text, truth) = (solution(&case), case["inputs"]["ground_truth"].as_str());
        let got = reward.judge(&text, truth.unwrap()) == Cause::Correct;
        if f64::from(u8::from(got)) != case["outputs"][key].as_f64().unwrap() {
            let start: String = text.chars().take(80).collect();
            wrong.push(format!("{}: {start:?} against {truth:?}", case["desc"]));
        }
    }
    wrong
}

#[test]
fn compatible_math_verdicts_are_verls() {
    let wrong = math_mismatches("verl_math_reward", true);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn math_verdicts_are_sensible() {
    let wrong = math_mismatches("sensible", false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
