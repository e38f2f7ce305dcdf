//! Reading safetensors files, single or sharded, through a memory map.

use burn::tensor::TensorData;
use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use verl_core::{Error, Result};

/// Opened weight files of one folder.
#[derive(Debug)]
pub(super) struct Shards {
    files: Vec<(PathBuf, Mmap)>,
    index: BTreeMap<String, Place>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Place {
    /// Number of its file.
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Its bytes in the file.
    bytes: Range<usize>,
}

/// A tensor as a file holds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    name: &'a str,
    path: &'a Path,
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
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
        Ok(Shards {
            index: contents(path, &map, 0)?,
            files: vec![(path.to_path_buf(), map)],
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
        let mut held = contents(&path, &map, self.files.len())?;
        let absent: Vec<&str> = tensors
            .iter()
            .filter(|t| !held.contains_key(**t))
            .copied()
            .collect();
        if !absent.is_empty() {
            return Err(Error::malformed(
                path,
                format!("the index says it holds {}, it does not", absent.join(", ")),
            ));
        }
        held.retain(|name, _| tensors.contains(name.as_str()));
        self.index.append(&mut held);
        self.files.push((path, map));
        Ok(())
    }

    /// Names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// The tensor of a name, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<Stored<'_>> {
        let (name, place) = self.index.get_key_value(name)?;
        let (path, map) = &self.files[place.file];
        Some(Stored {
            name,
            path,
            dtype: place.dtype,
            shape: &place.shape,
            bytes: &map[place.bytes.clone()],
        })
    }

    /// The tensor of a name.
    pub(super) fn want(&self, name: &str) -> Result<Stored<'_>> {
        self.get(name).ok_or_else(|| Error::Weights {
            place: "weights".into(),
            message: format!("no tensor `{name}`"),
        })
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
        let stored = self.want(name)?;
        let words = stored.bytes.chunks_exact(4);
        let values = words.map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok((stored.dtype == Dtype::I32).then(|| values.collect()))
    }

    /// Values of a tensor, as f32.
    pub(super) fn read(&self, name: &str) -> Result<TensorData> {
        let stored = self.want(name)?;
        Ok(TensorData::new(stored.floats()?, stored.shape.to_vec()))
    }
}

impl<'a> Stored<'a> {
    /// Its type.
    pub(super) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its shape.
    pub(super) fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Its values, from any float type.
    pub(super) fn floats(&self) -> Result<Vec<f32>> {
        Ok(match self.dtype {
            Dtype::F32 => self.each(f32::from_le_bytes).collect(),
            Dtype::F16 => self.each(|b| f16::from_le_bytes(b).to_f32()).collect(),
            Dtype::BF16 => self.each(|b| bf16::from_le_bytes(b).to_f32()).collect(),
            _ => return Err(self.wrong_type("F32, F16, BF16")),
        })
    }

    /// Its 32-bit words.
    pub(super) fn words(&self) -> Result<Vec<u32>> {
        match self.dtype {
            Dtype::I32 | Dtype::U32 => Ok(self.each(u32::from_le_bytes).collect()),
            _ => Err(self.wrong_type("I32, U32")),
        }
    }

    /// Its bytes, of a tensor of bytes.
    pub(super) fn octets(&self) -> Result<&'a [u8]> {
        match self.dtype {
            Dtype::U8 => Ok(self.bytes),
            _ => Err(self.wrong_type("U8")),
        }
    }

    /// An error about this tensor.
    pub(super) fn fault(&self, message: impl std::fmt::Display) -> Error {
        Error::Weights {
            place: self.path.display().to_string(),
            message: format!("tensor `{}`: {message}", self.name),
        }
    }

    fn each<const N: usize, T>(&self, value: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
        self.bytes.as_chunks::<N>().0.iter().map(move |b| value(*b))
    }

    fn wrong_type(&self, supported: &str) -> Error {
        let (name, got) = (self.name, self.dtype);
        Error::malformed(
            self.path,
            format!("tensor `{name}` has type {got:?}; supported: {supported}"),
        )
    }
}

/// The tensors of a file, which gets the number `file`.
fn contents(path: &Path, map: &Mmap, file: usize) -> Result<BTreeMap<String, Place>> {
    let (header, metadata) = SafeTensors::read_metadata(map)
        .map_err(|e| Error::malformed(path, format!("not a whole safetensors file: {e}")))?;
    // The header comes after its length in eight bytes.
    let start = 8 + header;
    let place = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (from, to) = info.data_offsets;
        let place = Place {
            file,
            dtype: info.dtype,
            shape: info.shape.clone(),
            bytes: start + from..start + to,
        };
        (name, place)
    };
    Ok(metadata.tensors().into_iter().map(place).collect())
}

/// Maps a file for reading.
#[allow(unsafe_code)]
pub(super) fn map_file(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io(path))?;
    // SAFETY: the map is read-only; a file that another process cuts short
    // while it is mapped is outside what a reader can guard against.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}
