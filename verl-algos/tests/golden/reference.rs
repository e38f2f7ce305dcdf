//! Reading the reference files.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use verl_core::algorithm::Algorithm;
use verl_core::registry::Settings;

/// The folder of reference data: `VERL_REFERENCE_DIR`, or the repository's.
fn reference() -> PathBuf {
    match std::env::var_os("VERL_REFERENCE_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
    }
}

/// The cases of one file.
pub(crate) fn cases(name: &str) -> Vec<Case> {
    let path = reference().join(format!("golden/algos/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let file: Value = serde_json::from_str(&text).unwrap();
    let tolerance = |key: &str| file["tolerance"][key].as_f64().unwrap();
    let cases = file["cases"].as_array().unwrap().iter().enumerate();
    cases
        .map(|(i, case)| Case {
            name: format!("{name}, case {i} ({})", case["desc"].as_str().unwrap()),
            json: case.clone(),
            rtol: tolerance("rtol"),
            atol: tolerance("atol"),
        })
        .collect()
}

/// One case: options, inputs and the outputs to reproduce.
pub(crate) struct Case {
    pub(crate) name: String,
    json: Value,
    rtol: f64,
    atol: f64,
}

/// A row-major tensor of a case.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f32>,
}

impl Table {
    /// Rows of the last dimension.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.data.chunks(self.width())
    }

    /// Size of the last dimension.
    pub(crate) fn width(&self) -> usize {
        *self.shape.last().unwrap_or(&1)
    }
}

impl Case {
    /// An option; `null` where it is not given.
    pub(crate) fn config(&self, key: &str) -> &Value {
        &self.json["config"][key]
    }

    /// All options.
    pub(crate) fn options(&self) -> &Value {
        &self.json["config"]
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.config(key).as_f64()
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.config(key).as_str().unwrap_or_default()
    }

    /// The named options as a plugin's settings, with others added.
    pub(crate) fn settings(&self, keys: &[&str], others: &[(&str, Value)]) -> Settings {
        let given = keys.iter().map(|key| (*key, self.config(key).clone()));
        let all = given.chain(others.iter().cloned());
        Settings(all.map(|(k, v)| (k.to_string(), v)).collect::<Map<_, _>>())
    }

    pub(crate) fn input(&self, name: &str) -> Table {
        self.optional_input(name)
            .unwrap_or_else(|| panic!("{}: no input {name}", self.name))
    }

    pub(crate) fn optional_input(&self, name: &str) -> Option<Table> {
        table(&self.json["inputs"][name])
    }

    /// Group ids, in the file's integers.
    pub(crate) fn ids(&self, name: &str) -> Vec<i64> {
        let data = self.json["inputs"][name]["data"].as_array().unwrap();
        data.iter().map(|x| x.as_i64().unwrap()).collect()
    }

    pub(crate) fn output(&self, name: &str) -> Table {
        self.optional_output(name)
            .unwrap_or_else(|| panic!("{}: no output {name}", self.name))
    }

    pub(crate) fn optional_output(&self, name: &str) -> Option<Table> {
        table(&self.json["outputs"][name])
    }

    /// Whether the reference refuses the input.
    pub(crate) fn is_refused(&self) -> bool {
        self.json["outputs"].get("error").is_some()
    }

    /// The numbers to log.
    pub(crate) fn metrics(&self) -> Vec<(&str, f64)> {
        let metrics = self.json["outputs"]["metrics"].as_object();
        metrics
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.as_str(), number(v)))
            .collect()
    }

    /// Compares element by element, within the file's tolerance.
    pub(crate) fn check(&self, what: &str, got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len(), "{}: size of {what}", self.name);
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            self.check_number(&format!("{what}[{i}]"), f64::from(*g), f64::from(*w));
        }
    }

    /// Compares one number, within the file's tolerance.
    pub(crate) fn check_number(&self, what: &str, got: f64, want: f64) {
        let close = (got - want).abs() <= self.atol + self.rtol * want.abs();
        assert!(close, "{}: {what} is {got}, not {want}", self.name);
    }

    /// Compares an output, within the file's tolerance.
    pub(crate) fn check_output(&self, name: &str, got: &[f32]) {
        self.check(name, got, &self.output(name).data);
    }
}

fn number(x: &Value) -> f64 {
    match x.as_str() {
        Some("NaN") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        Some(other) => panic!("not a number: {other}"),
        None => match x.as_bool() {
            Some(yes) => f64::from(u8::from(yes)),
            None => x.as_f64().unwrap(),
        },
    }
}

fn table(tensor: &Value) -> Option<Table> {
    let shape = tensor["shape"].as_array()?;
    Some(Table {
        shape: shape.iter().map(|x| x.as_u64().unwrap() as usize).collect(),
        data: tensor["data"]
            .as_array()?
            .iter()
            .map(|x| number(x) as f32)
            .collect(),
    })
}

/// A built-in algorithm with options of a case.
pub(crate) fn build(name: &str, settings: &Settings) -> Box<dyn Algorithm> {
    verl_algos::Catalogue::builtin()
        .build(name, settings)
        .unwrap()
}
