//! Reading safetensors files, single or sharded, through a memory map.

use burn::tensor::TensorData;
use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use verl_core::{Error, Result};

/// Opened weight files of one folder.
#[derive(Debug)]
pub(super) struct Shards {
    files: Vec<(PathBuf, Mmap)>,
    /// Tensor name to file number.
    index: BTreeMap<String, usize>,
}

impl Shards {
    /// Opens `model.safetensors`, or the shards that the index names. Other
    /// files in the folder are not read.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let index_path = dir.join("model.safetensors.index.json");
        match index_path.exists() {
            true => Self::open_sharded(dir, &index_path),
            false => Self::open_single(&dir.join("model.safetensors")),
        }
    }

    /// Opens one file.
    pub(super) fn open_single(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        let names: Vec<String> = parse(path, &map)?
            .names()
            .iter()
            .map(|n| n.to_string())
            .collect();
        Ok(Shards {
            files: vec![(path.to_path_buf(), map)],
            index: names.into_iter().map(|n| (n, 0)).collect(),
        })
    }

    fn open_sharded(dir: &Path, index_path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(index_path).map_err(Error::io(index_path))?;
        let json: Value = serde_json::from_str(&text)
            .map_err(|e| Error::malformed_at(index_path, e.line(), e.to_string()))?;
        let listed = json.get("weight_map").and_then(Value::as_object);
        let listed =
            listed.ok_or_else(|| Error::malformed(index_path, "`weight_map` is missing"))?;
        let mut by_file: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (tensor, file) in listed {
            let file = file
                .as_str()
                .ok_or_else(|| Error::malformed(index_path, format!("`{tensor}` names no file")))?;
            by_file.entry(file).or_default().insert(tensor);
        }
        let mut shards = Shards {
            files: Vec::new(),
            index: BTreeMap::new(),
        };
        let mut faults = Vec::new();
        for (file, tensors) in by_file {
            if let Err(fault) = shards.add(dir.join(file), &tensors) {
                let names: Vec<&str> = tensors.into_iter().collect();
                faults.push(format!("{fault} (holds {})", names.join(", ")));
            }
        }
        match faults.is_empty() {
            true => Ok(shards),
            false => Err(Error::Weights {
                place: dir.display().to_string(),
                message: faults.join("; "),
            }),
        }
    }

    fn add(&mut self, path: PathBuf, tensors: &BTreeSet<&str>) -> Result<()> {
        let map = map_file(&path)?;
        let held: BTreeSet<String> = parse(&path, &map)?
            .names()
            .iter()
            .map(|n| n.to_string())
            .collect();
        let absent: Vec<&str> = tensors
            .iter()
            .filter(|t| !held.contains(**t))
            .copied()
            .collect();
        if !absent.is_empty() {
            return Err(Error::malformed(
                path,
                format!("the index says it holds {}, it does not", absent.join(", ")),
            ));
        }
        let number = self.files.len();
        self.index
            .extend(tensors.iter().map(|t| (t.to_string(), number)));
        self.files.push((path, map));
        Ok(())
    }

    /// Names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Shape of a tensor, if there is one of that name.
    pub(super) fn shape(&self, name: &str) -> Result<Option<Vec<usize>>> {
        let Some(&number) = self.index.get(name) else {
            return Ok(None);
        };
        let (path, map) = &self.files[number];
        let view = parse(path, map)?
            .tensor(name)
            .map_err(|e| Error::malformed(path, e.to_string()))?;
        Ok(Some(view.shape().to_vec()))
    }

    /// An entry of the metadata of a single file.
    pub(super) fn metadata(&self, key: &str) -> Result<Option<String>> {
        let Some((path, map)) = self.files.first() else {
            return Ok(None);
        };
        let (_, header) =
            SafeTensors::read_metadata(map).map_err(|e| Error::malformed(path, e.to_string()))?;
        let entries = header.metadata().as_ref();
        Ok(entries.and_then(|entries| entries.get(key).cloned()))
    }

    /// Values of a tensor of `i32`; `None` when it is of another type.
    pub(super) fn integers(&self, name: &str) -> Result<Option<Vec<i32>>> {
        let (_, view) = self.view(name)?;
        let integers = |bytes: &[u8]| {
            let words = bytes.chunks_exact(4);
            words
                .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        };
        Ok((view.dtype() == Dtype::I32).then(|| integers(view.data())))
    }

    /// A tensor and the file that holds it.
    fn view(&self, name: &str) -> Result<(&Path, TensorView<'_>)> {
        let missing = || Error::Weights {
            place: "weights".into(),
            message: format!("no tensor `{name}`"),
        };
        let (path, map) = &self.files[*self.index.get(name).ok_or_else(missing)?];
        let view = parse(path, map)?
            .tensor(name)
            .map_err(|e| Error::malformed(path, e.to_string()))?;
        Ok((path.as_path(), view))
    }

    /// Values of a tensor, as f32.
    pub(super) fn read(&self, name: &str) -> Result<TensorData> {
        let (path, view) = self.view(name)?;
        let bytes = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::F16 => bytes
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            Dtype::BF16 => bytes
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            other => {
                let message =
                    format!("tensor `{name}` has type {other:?}; supported: F32, F16, BF16");
                return Err(Error::malformed(path, message));
            }
        };
        Ok(TensorData::new(values, view.shape().to_vec()))
    }
}

fn parse<'a>(path: &Path, map: &'a Mmap) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(map)
        .map_err(|e| Error::malformed(path, format!("not a whole safetensors file: {e}")))
}

/// Maps a file for reading.
#[allow(unsafe_code)]
pub(super) fn map_file(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io(path))?;
    // SAFETY: the map is read-only; a file that another process cuts short
    // while it is mapped is outside what a reader can guard against.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}
