//! Where each configured value came from: YAML with line numbers, and
//! `key.path=value` overrides from the command line.

use super::de::join;
use crate::{Error, Result};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// The place a value was given at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// One-based line of the configuration file.
    Line(usize),
    /// An override, as typed.
    Override(String),
}

/// Where the keys of a configuration were given; empty for one built in code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<String, Origin>);

impl Sources {
    pub(super) fn insert(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_string(), origin);
    }

    /// Where `key`, the nearest section around it, or the first key inside it
    /// was given.
    pub fn of(&self, key: &str) -> Option<&Origin> {
        let mut at = key;
        loop {
            if let Some(origin) = self.0.get(at) {
                return Some(origin);
            }
            match at.rfind(['.', '[']) {
                Some(dot) => at = &at[..dot],
                None => return self.given(key).next().map(|(_, origin)| origin),
            }
        }
    }

    /// Every key given that is `section` or lies inside it, in the order of
    /// their names.
    pub fn given(&self, section: &str) -> impl Iterator<Item = (&str, &Origin)> {
        let within = move |(key, _): &(&String, &Origin)| *key == section || inside(key, section);
        self.0
            .iter()
            .filter(within)
            .map(|(key, origin)| (key.as_str(), origin))
    }

    /// Adds to an [`Error::Config`] without a line the place its key was given
    /// at. Other errors pass unchanged.
    pub fn locate(&self, error: Error) -> Error {
        match error {
            Error::Config {
                key,
                line: None,
                message,
            } => match self.of(&key) {
                Some(origin) => origin.error(key, message),
                None => Error::config(key, message),
            },
            other => other,
        }
    }
}

impl Origin {
    /// An [`Error::Config`] about `key`, given here.
    pub(super) fn error(&self, key: impl Into<String>, message: impl fmt::Display) -> Error {
        let (line, message) = match self {
            Origin::Line(line) => (Some(*line), message.to_string()),
            Origin::Override(text) => (None, format!("{message} (from the override `{text}`)")),
        };
        Error::Config {
            key: key.into(),
            line,
            message,
        }
    }
}

/// One configured value: a scalar, a list, or an empty section.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub value: Value,
    pub origin: Origin,
}

/// Every value of a YAML text, in the order of the file.
pub(super) fn parse_yaml(text: &str) -> Result<Vec<Entry>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text
        .lines()
        .all(|l| l.trim().is_empty() || l.trim_start().starts_with('#'))
    {
        return Ok(Vec::new());
    }
    let root: Tree = yaml(text).map_err(|e| yaml_error(&e))?;
    let mut entries = Vec::new();
    match root {
        Tree::Section(_) => root.flatten("", &Origin::Line(1), &mut entries),
        Tree::Value(Value::Null) => {}
        Tree::Value(_) => {
            return Err(Error::Config {
                key: "configuration".into(),
                line: Some(1),
                message: "expected sections of `key: value` lines, found a single value".into(),
            });
        }
    }
    Ok(entries)
}

/// The values of one `key.path=value` override. The value is YAML, so lists
/// and sections can be given too.
pub(super) fn parse_override(text: &str) -> Result<Vec<Entry>> {
    let shape = "write overrides as `key.path=value`";
    let Some((key, value)) = text.split_once('=') else {
        return Err(Error::config(text, format!("{shape}; there is no `=`")));
    };
    let key = key.trim();
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(Error::config(
            text,
            format!("{shape}; `{key}` is not a key path"),
        ));
    }
    let origin = Origin::Override(text.to_string());
    let tree = match value.trim().is_empty() {
        true => Tree::Value(Value::Null),
        false => yaml(value).map_err(|e| origin.error(key, yaml_message(&e)))?,
    };
    let mut entries = Vec::new();
    tree.flatten(key, &origin, &mut entries);
    Ok(entries)
}

/// Puts `overrides` in the place of what they override: the same key, keys
/// inside it, and a value that stood where it now needs a section.
pub(super) fn apply(entries: &mut Vec<Entry>, overrides: Vec<Entry>) {
    for new in overrides {
        entries.retain(|old| {
            !(old.key == new.key || inside(&old.key, &new.key) || inside(&new.key, &old.key))
        });
        entries.push(new);
    }
}

/// Whether `key` lies inside `section`.
pub(super) fn inside(key: &str, section: &str) -> bool {
    key.strip_prefix(section)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// The entries as nested sections.
pub(super) fn nest(entries: &[Entry]) -> Result<Value> {
    let mut root = Map::new();
    for entry in entries {
        let (sections, last) = match entry.key.rsplit_once('.') {
            Some((sections, last)) => (Some(sections), last),
            None => (None, entry.key.as_str()),
        };
        let mut map = &mut root;
        for section in sections.into_iter().flat_map(|s| s.split('.')) {
            let slot = map
                .entry(section)
                .or_insert_with(|| Value::Object(Map::new()));
            match slot {
                Value::Object(inner) => map = inner,
                _ => {
                    return Err(entry.origin.error(
                        &entry.key,
                        format!("`{section}` is a single value, not a section"),
                    ));
                }
            }
        }
        if map.insert(last.to_string(), entry.value.clone()).is_some() {
            return Err(entry.origin.error(
                &entry.key,
                "given both as a value and as a section; keep one",
            ));
        }
    }
    Ok(Value::Object(root))
}

/// YAML 1.2, in which `y` and `off` are text.
fn yaml(text: &str) -> Result<Tree, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn yaml_error(error: &serde_saphyr::Error) -> Error {
    let line = error
        .location()
        .map(|l| l.line() as usize)
        .filter(|&l| l > 0);
    Error::Config {
        key: "configuration".into(),
        line,
        message: yaml_message(error),
    }
}

fn yaml_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    // The line is part of our own error, and its options are not the user's.
    let end = [" at line ", ", set ", " rejected by "]
        .iter()
        .filter_map(|tail| first.find(tail))
        .min()
        .unwrap_or(first.len());
    format!(
        "not valid YAML: {}",
        first[..end].trim_end_matches([':', ',', ' '])
    )
}

/// YAML with the line of every key.
enum Tree {
    Section(Vec<(String, usize, Tree)>),
    Value(Value),
}

impl Tree {
    fn flatten(self, path: &str, origin: &Origin, out: &mut Vec<Entry>) {
        match self {
            Tree::Section(fields) if !fields.is_empty() => {
                for (name, line, tree) in fields {
                    let origin = match origin {
                        Origin::Line(_) => Origin::Line(line),
                        given => given.clone(),
                    };
                    tree.flatten(&join(path, &name), &origin, out);
                }
            }
            tree => out.push(Entry {
                key: path.to_string(),
                value: tree.into_value(),
                origin: origin.clone(),
            }),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Tree::Value(value) => value,
            Tree::Section(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(name, _, tree)| (name, tree.into_value()))
                    .collect(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a section of keys")
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Tree, E> {
        Ok(Tree::Value(v.into()))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Tree, E> {
        Ok(Tree::Value(v.into()))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Tree, E> {
        Ok(Tree::Value(v.into()))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Tree, E> {
        // JSON numbers, and every option here, are finite.
        match serde_json::Number::from_f64(v) {
            Some(number) => Ok(Tree::Value(number.into())),
            None => Err(E::custom(format!("{v} is not a finite number"))),
        }
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Tree, E> {
        Ok(Tree::Value(v.into()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Value(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Value(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Tree>()? {
            items.push(item.into_value());
        }
        Ok(Tree::Value(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            fields.push((
                name.value,
                name.referenced.line() as usize,
                map.next_value()?,
            ));
        }
        Ok(Tree::Section(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(key: &str, value: Value, line: usize) -> Entry {
        Entry {
            key: key.into(),
            value,
            origin: Origin::Line(line),
        }
    }

    #[test]
    fn every_value_knows_its_line() {
        let yaml = "# comment\nseed: 3\nactor:\n  optim:\n    lr: 2e-5\n    betas: [0.9,\n      0.95]\n  grad_clip: null\n";
        assert_eq!(
            parse_yaml(yaml).unwrap(),
            [
                entry("seed", json!(3), 2),
                entry("actor.optim.lr", json!(2e-5), 5),
                entry("actor.optim.betas", json!([0.9, 0.95]), 6),
                entry("actor.grad_clip", Value::Null, 8),
            ]
        );
    }

    #[test]
    fn bom_crlf_and_an_empty_file_are_fine() {
        assert_eq!(
            parse_yaml("\u{feff}seed: 1\r\noutput_dir: a\r\n").unwrap()[1],
            entry("output_dir", json!("a"), 2)
        );
        assert_eq!(parse_yaml("").unwrap(), []);
        assert_eq!(parse_yaml("# nothing but comments\n\n").unwrap(), []);
    }

    #[test]
    fn scalars_keep_their_kind() {
        let kinds =
            parse_yaml("a: '5'\nb: true\nc: 1.0e-5\nd: -3\ne: ~\nf: no thanks\ng: 7B\nh: off")
                .unwrap();
        let values: Vec<_> = kinds.into_iter().map(|e| e.value).collect();
        assert_eq!(
            values,
            [
                json!("5"),
                json!(true),
                json!(1e-5),
                json!(-3),
                json!(null),
                json!("no thanks"),
                json!("7B"),
                json!("off")
            ]
        );
    }

    #[test]
    fn broken_yaml_names_the_line() {
        let twice = parse_yaml("seed: 1\nseed: 2\n").unwrap_err().to_string();
        assert_eq!(
            twice,
            "configuration (line 2): not valid YAML: duplicate mapping key: seed"
        );
        let open = parse_yaml("seed: 1\nactor: [1, 2\n")
            .unwrap_err()
            .to_string();
        assert!(open.starts_with("configuration (line "), "{open}");
        let single = parse_yaml("just words").unwrap_err().to_string();
        assert_eq!(
            single,
            "configuration (line 1): expected sections of `key: value` lines, found a single value"
        );
        let nan = parse_yaml("seed: 1\nactor:\n  grad_clip: .nan")
            .unwrap_err()
            .to_string();
        assert_eq!(
            nan,
            "configuration (line 3): not valid YAML: non-finite float `.nan`"
        );
    }

    #[test]
    fn overrides_replace_values_and_sections() {
        let mut entries = parse_yaml("a:\n  b: 1\n  c: 2\nd: 3").unwrap();
        for text in ["a.b=[x, y]", "d.e={f: true}", "g="] {
            apply(&mut entries, parse_override(text).unwrap());
        }
        assert_eq!(
            nest(&entries).unwrap(),
            json!({"a": {"c": 2, "b": ["x", "y"]}, "d": {"e": {"f": true}}, "g": null})
        );
    }

    #[test]
    fn a_malformed_override_says_how_to_write_one() {
        let message = |text| parse_override(text).unwrap_err().to_string();
        assert_eq!(
            message("seed 3"),
            "seed 3: write overrides as `key.path=value`; there is no `=`"
        );
        assert_eq!(
            message("a..b=3"),
            "a..b=3: write overrides as `key.path=value`; `a..b` is not a key path"
        );
        assert!(message("a.b=[1").contains("(from the override `a.b=[1`)"));
    }
}
