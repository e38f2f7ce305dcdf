//! Reading the reference files: cases with inputs and outputs as JSON, larger
//! tensors in a safetensors file beside it.

use burn::tensor::Device;
use safetensors::Dtype;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use verl_backends::model::{Kernels, Model};
use verl_backends::weights::{load_adapter, load_model};

/// The folder of reference data: `VERL_REFERENCE_DIR`, or the repository's.
pub(crate) fn reference() -> PathBuf {
    match std::env::var_os("VERL_REFERENCE_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
    }
}

/// Model folders `tiny-*` that hold full-precision weights and have a golden file.
pub(crate) fn tiny_models() -> Vec<(String, PathBuf, Golden)> {
    let mut names: Vec<String> = std::fs::read_dir(reference().join("models"))
        .expect("reference models")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tiny-"))
        .collect();
    names.sort();
    let full_precision = |dir: &Path| {
        let config = std::fs::read_to_string(dir.join("config.json"));
        config.is_ok_and(|text| !text.contains("quantization_config"))
    };
    names
        .into_iter()
        .map(|name| (reference().join("models").join(&name), name))
        .filter(|(dir, name)| full_precision(dir) && golden_path(name).exists())
        .map(|(dir, name)| (name.clone(), dir, Golden::open(&name)))
        .collect()
}

/// The reference models, each on either kind of kernels.
pub(crate) fn loaded_models() -> impl Iterator<Item = (String, Model, Golden)> {
    let both = |(name, dir, _): (String, PathBuf, Golden)| {
        [Kernels::Fused, Kernels::Plain].map(|kernels| {
            let mut model = load_model(&dir, &Device::flex()).unwrap();
            model.kernels = kernels;
            (format!("{name}, {kernels:?}"), model, Golden::open(&name))
        })
    };
    tiny_models().into_iter().flat_map(both)
}

/// The reference adapters on their models, with the models as they were, on
/// either kind of kernels.
pub(crate) fn loaded_adapters() -> Vec<(String, Model, Model, PathBuf, Golden)> {
    let models = reference().join("models");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&models).expect("reference models") {
        let dir = entry.unwrap().path();
        let Ok(config) = std::fs::read_to_string(dir.join("adapter_config.json")) else {
            continue;
        };
        let config: Value = serde_json::from_str(&config).unwrap();
        let base = dir.join(config["base_model_name_or_path"].as_str().unwrap());
        let name = dir.file_name().unwrap().to_str().unwrap().to_string();
        for kernels in [Kernels::Fused, Kernels::Plain] {
            let mut base = load_model(&base, &Device::flex()).unwrap();
            base.kernels = kernels;
            let mut model = base.clone();
            load_adapter(&mut model, &dir).unwrap();
            let what = format!("{name}, {kernels:?}");
            found.push((what, base, model, dir.clone(), Golden::open(&name)));
        }
    }
    assert!(!found.is_empty(), "no adapters in {}", models.display());
    found
}

fn golden_path(name: &str) -> PathBuf {
    reference()
        .join("golden/models")
        .join(format!("{name}.json"))
}

/// One golden file.
pub(crate) struct Golden {
    pub(crate) json: Value,
    tensors: OnceLock<Vec<u8>>,
    path: PathBuf,
}

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        Self::at(golden_path(name))
    }

    /// The golden file of a codec or of quantised models.
    pub(crate) fn quant(name: &str) -> Self {
        Self::at(reference().join(format!("golden/quant/{name}.json")))
    }

    fn at(path: PathBuf) -> Self {
        let json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        Golden {
            json,
            tensors: OnceLock::new(),
            path,
        }
    }

    /// Cases whose description starts with `prefix`.
    pub(crate) fn cases<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Value> {
        let all = self.json["cases"].as_array().unwrap().iter();
        all.filter(move |case| case["desc"].as_str().unwrap().starts_with(prefix))
    }

    /// Values of a tensor, small or in the safetensors file.
    pub(crate) fn floats(&self, tensor: &Value) -> Vec<f32> {
        if let Some(data) = tensor["data"].as_array() {
            return data.iter().map(|x| x.as_f64().unwrap() as f32).collect();
        }
        self.stored(tensor, |dtype, bytes| match dtype {
            Dtype::F32 => each(bytes, f32::from_le_bytes),
            Dtype::F16 => each(bytes, |b| half::f16::from_le_bytes(b).to_f32()),
            other => panic!("floats of type {other:?}"),
        })
    }

    /// The 32-bit words of a tensor in the safetensors file.
    pub(crate) fn words(&self, tensor: &Value) -> Vec<u32> {
        self.stored(tensor, |_, bytes| each(bytes, u32::from_le_bytes))
    }

    /// The bytes of a tensor in the safetensors file.
    pub(crate) fn octets(&self, tensor: &Value) -> Vec<u8> {
        self.stored(tensor, |_, bytes| bytes.to_vec())
    }

    fn stored<T>(&self, tensor: &Value, read: impl FnOnce(Dtype, &[u8]) -> T) -> T {
        let bytes = self
            .tensors
            .get_or_init(|| std::fs::read(self.path.with_extension("safetensors")).unwrap());
        let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
        let view = file.tensor(tensor["key"].as_str().unwrap()).unwrap();
        read(view.dtype(), view.data())
    }
}

fn each<const N: usize, T>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (values, _) = bytes.as_chunks::<N>();
    values.iter().map(|b| value(*b)).collect()
}

/// The rows of `input_ids` without the padding that `attention_mask` marks.
pub(crate) fn unpadded_rows(inputs: &Value) -> Vec<Vec<u32>> {
    let (ids, mask) = (rows(&inputs["input_ids"]), rows(&inputs["attention_mask"]));
    let keep = |(ids, mask): (Vec<i64>, Vec<i64>)| {
        ids.into_iter()
            .zip(mask)
            .filter(|(_, m)| *m == 1)
            .map(|(id, _)| id as u32)
            .collect()
    };
    ids.into_iter().zip(mask).map(keep).collect()
}

/// An integer matrix, row by row.
pub(crate) fn rows(tensor: &Value) -> Vec<Vec<i64>> {
    let width = tensor["shape"][1].as_u64().unwrap() as usize;
    let data: Vec<i64> = tensor["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_i64().unwrap())
        .collect();
    data.chunks(width).map(<[i64]>::to_vec).collect()
}

/// A float matrix, row by row.
pub(crate) fn float_rows(golden: &Golden, tensor: &Value) -> Vec<Vec<f32>> {
    let width = tensor["shape"][1].as_u64().unwrap() as usize;
    golden
        .floats(tensor)
        .chunks(width)
        .map(<[f32]>::to_vec)
        .collect()
}

/// A list of token ids.
pub(crate) fn ids(list: &Value) -> Vec<u32> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap() as u32)
        .collect()
}

/// Largest absolute value.
pub(crate) fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Asserts that all differences are at most `bound`.
pub(crate) fn assert_close(what: &str, got: &[f32], want: &[f32], bound: f32) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (g - w).abs() <= bound,
            "{what}[{i}]: got {g}, want {w} within {bound}"
        );
    }
}

/// A name to JSON map, as pairs.
pub(crate) fn entries(map: &Value) -> HashMap<String, Value> {
    map.as_object()
        .unwrap()
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}
