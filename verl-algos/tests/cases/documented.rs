//! `docs/algorithms.md` against the code.

use crate::answer::algorithm;
use serde_json::json;
use std::collections::BTreeSet;
use verl_algos::Catalogue;

const GUIDE: &str = include_str!("../../../docs/algorithms.md");
const EXAMPLE: &str = include_str!("../../../examples/custom_algorithm/src/main.rs");

/// The part of the guide under a heading.
fn section(heading: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(heading).unwrap();
    rest.split_once("\n## ").map_or(rest, |(part, _)| part)
}

/// Cells of the table of algorithms, row by row.
fn rows() -> Vec<Vec<&'static str>> {
    let rows = section("# Algorithms")
        .lines()
        .filter(|l| l.starts_with("| `"));
    rows.map(|l| l.split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn every_algorithm_has_a_row_and_the_needs_it_states() {
    let catalogue = Catalogue::builtin();
    let known: BTreeSet<&str> = catalogue.names().collect();
    let named: Vec<&str> = rows().iter().map(|row| row[1].trim_matches('`')).collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!(named.len(), known.len());
    for row in rows() {
        let algorithm = algorithm(row[1].trim_matches('`'), json!({}));
        let needs = algorithm.requirements();
        let facts = [
            (needs.critic, "critic"),
            (needs.min_group_size == 2, "2 answers"),
            (needs.greedy_baseline, "greedy answer"),
            (needs.reference, "reference"),
            (algorithm.reward_model().is_some(), "reward model"),
        ];
        let stated = facts
            .iter()
            .filter(|(needed, _)| *needed)
            .map(|(_, name)| *name);
        assert_eq!(row[4], stated.collect::<Vec<_>>().join(", "), "{}", row[1]);
        assert!(row[2].starts_with("arXiv:"), "{}", row[1]);
        let defaults = row[5];
        for mode in ["seq-mean-token-mean", "seq-mean-token-sum"] {
            let options = json!({"loss_agg_mode": mode});
            let asked = crate::answer::algorithm(algorithm.name(), options).policy_terms();
            let is_default = asked.aggregation == algorithm.policy_terms().aggregation;
            assert_eq!(
                is_default,
                defaults.contains(&format!("`{mode}`")),
                "{}",
                row[1]
            );
        }
    }
}

#[test]
fn every_part_has_its_equation() {
    let equations = section("## Equations");
    let catalogue = Catalogue::builtin();
    let refusal = |key: &str| {
        let options = json!({key: "none of them"});
        let settings = verl_core::registry::Settings(options.as_object().unwrap().clone());
        catalogue.build("grpo", &settings).unwrap_err().to_string()
    };
    for key in ["adv_estimator", "policy_loss"] {
        let message = refusal(key);
        let (_, names) = message.split_once("known: ").unwrap();
        // The reward itself needs none.
        for name in names.split(", ").filter(|name| *name != "reward") {
            let found = equations.lines().any(|line| {
                let head = line.split("  ").next().unwrap_or_default();
                head.split(", ").any(|part| part == name)
            });
            assert!(found, "no equation of `{name}`");
        }
    }
}

#[test]
fn the_guide_quotes_the_example() {
    let guide = section("## Write your own");
    let code = guide.split("```rust,ignore").skip(1);
    let code = code.map(|block| block.split("```").next().unwrap());
    let lines: Vec<&str> = code.flat_map(str::lines).map(str::trim).collect();
    assert!(lines.len() > 20);
    for line in lines {
        assert!(EXAMPLE.contains(line), "not in the example: {line}");
    }
}
