//! Finds misspelt keys and writes the documentation, both from the key table.

use super::key_table::{KEYS, KeyDoc, OPTIONS};
use super::source::{Entry, inside};
use super::{alias, unsupported};
use crate::Error;
use crate::registry::nearest;
use serde_json::json;
use std::fmt::Write;

/// Sections whose keys belong to a plugin.
const OPEN: &[&str] = &["algorithm", "reward.options"];

/// Takes out empty sections, and takes out and reports every key that does
/// not exist.
pub(super) fn check(entries: &mut Vec<Entry>) -> Vec<Error> {
    let mut problems = Vec::new();
    entries.retain(|e| {
        let empty = e.value.is_null() || e.value == json!({});
        if empty && is_section(&e.key) {
            return false;
        }
        let problem = problem(e);
        let fine = problem.is_none();
        problems.extend(problem.map(|message| e.origin.error(&e.key, message)));
        fine
    });
    problems
}

fn is_section(path: &str) -> bool {
    KEYS.iter().any(|k| inside(k.path, path)) || OPEN.contains(&path)
}

fn problem(entry: &Entry) -> Option<String> {
    let path = entry.key.as_str();
    if KEYS.iter().any(|k| k.path == path && k.ty != OPTIONS)
        || OPEN.iter().any(|open| inside(path, open))
    {
        return None;
    }
    if is_section(path) {
        return Some(format!(
            "expected a section of keys, found {}",
            super::de::brief(&entry.value)
        ));
    }
    if let Some(leaf) = KEYS.iter().find(|k| inside(path, k.path)) {
        return Some(format!(
            "`{}` takes a single value ({}), not a section",
            leaf.path, leaf.ty
        ));
    }
    Some(format!("unknown key{}", suggestion(path)))
}

/// The key most likely meant: one of the same name in another section, or the
/// one spelt most alike.
fn suggestion(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let same_name = KEYS
        .iter()
        .find(|k| k.path.rsplit('.').next() == Some(name))
        .map(|k| k.path);
    match same_name.or_else(|| nearest(path, KEYS.iter().map(|k| k.path))) {
        Some(key) => format!("; did you mean `{key}`?"),
        None => {
            let mut sections: Vec<_> = KEYS
                .iter()
                .filter_map(|k| k.path.split('.').next())
                .collect();
            sections.dedup();
            format!("; the sections are {}", sections.join(", "))
        }
    }
}

/// The whole of `docs/configuration.md`. `extra` holds the options of plugins,
/// whose sections they extend: `("Algorithm `grpo`", keys)`.
pub fn render_docs(extra: &[(&str, &[KeyDoc<'_>])]) -> String {
    let mut out = String::from(INTRODUCTION);
    let mut section = "";
    for k in KEYS {
        let own = k.path.split_once('.').map_or("", |(section, _)| section);
        if own != section || out.len() == INTRODUCTION.len() {
            section = own;
            heading(&mut out, if own.is_empty() { "Run" } else { own });
        }
        row(&mut out, k);
    }
    for (title, keys) in extra {
        heading(&mut out, title);
        keys.iter().for_each(|k| row(&mut out, k));
    }
    out.push_str("\n## Other spellings\n\nThese are read as the key beside them. Giving one key under two spellings is an error.\n\n| spelling | key |\n|---|---|\n");
    for (from, to) in alias::table() {
        let _ = writeln!(out, "| `{from}` | `{to}` |");
    }
    out.push_str("\n## Refused keys\n\nKnown to verl, but nothing here would honour them. A value that asks for nothing (1, `false`, `null`) passes.\n\n| key | why |\n|---|---|\n");
    for (key, reason) in unsupported::table() {
        let _ = writeln!(out, "| `{key}` | {reason} |");
    }
    out
}

const INTRODUCTION: &str = "# Configuration

A run is described by one YAML file. Every key has a default; every key given
is used or refused, with its line and the nearest key that exists. On the
command line `key.path=value` overrides the file; the value is YAML.

Batch sizes count one thing each: `training.train_batch_size` prompts per step,
`rollout.n` samples per prompt, `actor.ppo_mini_batch_size` prompts per
optimizer update, `actor.ppo_max_token_len_per_gpu` tokens per micro-batch.

This file is generated from the table in `verl-core/src/config/key_table.rs`; a test
compares both with the structs. To write it anew after a change, run
`VERL_WRITE_DOCS=1 cargo test -p verl-core configuration_docs`.
";

fn heading(out: &mut String, title: &str) {
    let _ = write!(
        out,
        "\n## {title}\n\n| key | type | unit | default | meaning |\n|---|---|---|---|---|\n"
    );
}

fn row(out: &mut String, k: &KeyDoc<'_>) {
    let ty = k.ty.replace('|', "\\|");
    let _ = writeln!(
        out,
        "| `{}` | {ty} | {} | `{}` | {} |",
        k.path, k.unit, k.default, k.doc
    );
}
