//! What holds for any text, and the time that long texts take.

use super::compare::{equal, normalised};
use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Texts out of pieces that mean something to the scorer.
fn latex() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "\\frac", "\\sqrt", "\\boxed", "\\text", "\\left", "\\right", "\\pm", "\\begin",
            "\\end", "{matrix}", "\\circ", "\\", "\\\\", "\\,", "{,}", "{", "}", "(", ")", "[",
            "]", "|", ",", ".", "^", "_", "+", "-", "=", "/", "!", "%", "$", "&", ":", " ", "cm",
            "and", "pi", "e", "i", "x", "0", "7", "12", "000", "１", "°", "\\log", "\\sin", "<",
        ])
        .prop_map(str::to_string),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn normalisation_is_idempotent(text in latex()) {
        let once = normalised(&text);
        prop_assert_eq!(normalised(&once), once);
    }

    #[test]
    fn a_truth_accepts_itself(text in latex()) {
        prop_assert!(normalised(&text).is_empty() || equal(&text, &text));
    }

    #[test]
    fn equality_is_symmetric(a in latex(), b in latex()) {
        prop_assert_eq!(equal(&a, &b), equal(&b, &a));
    }

    #[test]
    fn any_text_has_a_verdict(text in latex(), truth in latex()) {
        for verl_compatible in [false, true] {
            let reward = MathReward::new(MathOptions { verl_compatible, ..Default::default() });
            reward.judge(&text, &truth);
            reward.judge(&format!("\\boxed{{{text}}}"), &truth);
        }
    }
}

#[test]
fn long_answers_take_little_time() {
    let units = [
        "\\boxed{",
        "\\frac{",
        "{",
        "(",
        "\\text{5 ",
        "1,000",
        "1,",
        "answer: ",
        "$",
        "\\sqrt",
        "\\text{a}",
        "9",
        "x+",
        "\\{1,",
        "\\pm ",
        "^",
        "\\frac1",
        "-",
        "\\boxed{1}",
        "=",
        "\\log_",
    ];
    for unit in units {
        let body = unit.repeat(30_000 / unit.len());
        let boxed = format!("\\boxed{{{body}}}");
        for text in [&body, &boxed] {
            for verl_compatible in [false, true] {
                let reward = MathReward::new(MathOptions {
                    verl_compatible,
                    ..Default::default()
                });
                // The best of several, since a busy machine stalls some.
                let judged = (0..5).map(|_| {
                    let start = Instant::now();
                    reward.judge(text, "\\frac{1}{2}");
                    reward.judge(text, &body);
                    start.elapsed()
                });
                let taken = judged.min().unwrap_or_default();
                assert!(taken < Duration::from_millis(500), "{unit}: {taken:?}");
            }
        }
    }
}

#[test]
fn spellings_of_one_half() {
    let halves = [
        "1/2",
        "0.5",
        ".5",
        "\\frac{1}{2}",
        "\\frac12",
        "\\tfrac{2}{4}",
        "2^{-1}",
    ];
    for a in halves {
        for b in halves {
            assert!(equal(a, b), "{a} {b}");
        }
        assert!(!equal(a, "\\frac{1}{3}"));
    }
}
