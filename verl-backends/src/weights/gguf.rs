//! GGUF files (versions 2 and 3) of Llama-type models.

use super::dequant::{GgmlType, dequantise};
use crate::model::{Model, ModelConfig, ParamMut};
use burn::tensor::{Device, Tensor, TensorData};
use memmap2::Mmap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use verl_core::rollout::WeightTensor;
use verl_core::{Error, Result};

/// One tensor of a file.
#[derive(Debug, Clone)]
struct Entry {
    /// Rows first, as everywhere else.
    shape: Vec<usize>,
    kind: GgmlType,
    /// From the start of the file.
    offset: usize,
}

/// An opened file.
#[derive(Debug)]
pub(super) struct Gguf {
    map: Mmap,
    tensors: BTreeMap<String, Entry>,
    architecture: String,
}

/// Loads a GGUF file into a model of the given configuration.
///
/// # Errors
/// One error lists every missing, misshapen or unused tensor.
pub(super) fn load(config: Arc<ModelConfig>, path: &Path, device: &Device) -> Result<Model> {
    let file = Gguf::open(path)?;
    let mut model = Model::skeleton(config, device);
    let fault = |message: String| Error::Weights {
        place: path.display().to_string(),
        message,
    };
    let (mut missing, mut misshapen, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    model.each(&mut |name, param| {
        let stored = gguf_name(name);
        match file.tensors.get(&stored) {
            None => missing.push(format!("{name} ({stored})")),
            Some(e) if e.shape != param.dims() => {
                misshapen.push(format!(
                    "{stored} is {:?}, expected {:?}",
                    e.shape,
                    param.dims()
                ));
            }
            Some(_) => {}
        }
        used.insert(stored);
    });
    let ignorable = |name: &str| {
        name == "rope_freqs.weight" || (model.config.tied() && name == "output.weight")
    };
    let extra: Vec<String> = file
        .tensors
        .keys()
        .filter(|n| !used.contains(*n) && !ignorable(n))
        .cloned()
        .collect();
    let mut faults = Vec::new();
    for (kind, names) in [
        ("missing", missing),
        ("misshapen", misshapen),
        ("not used", extra),
    ] {
        if !names.is_empty() {
            faults.push(format!("{kind}: {}", names.join(", ")));
        }
    }
    if !faults.is_empty() {
        return Err(fault(faults.join("; ")));
    }
    let (heads, kv_heads) = (model.config.heads, model.config.kv_heads);
    let mut failed = None;
    model.each(&mut |name, param| {
        let permuted = if file.architecture != "llama" {
            None
        } else if name.contains("q_proj") {
            Some(heads)
        } else if name.contains("k_proj") {
            Some(kv_heads)
        } else {
            None
        };
        if failed.is_none() {
            failed = file.fill(&gguf_name(name), permuted, param, device).err();
        }
    });
    failed.map_or(Ok(model), |message| Err(fault(message)))
}

impl Gguf {
    fn open(path: &Path) -> Result<Self> {
        let map = super::safetensors::map_file(path)?;
        let parsed = parse(&map).map_err(|message| Error::malformed(path, message))?;
        let (tensors, architecture) = parsed;
        for (name, e) in &tensors {
            let end = e
                .kind
                .bytes(e.shape.iter().product())
                .and_then(|n| e.offset.checked_add(n));
            if end.is_none_or(|end| end > map.len()) {
                let message =
                    format!("the file ends inside tensor `{name}`; is the download complete?");
                return Err(Error::malformed(path, message));
            }
        }
        Ok(Gguf {
            map,
            tensors,
            architecture,
        })
    }

    fn fill(
        &self,
        stored: &str,
        heads: Option<usize>,
        param: ParamMut<'_>,
        device: &Device,
    ) -> Result<(), String> {
        let Some(e) = self.tensors.get(stored) else {
            return Err(format!("missing: {stored}"));
        };
        let count = e.shape.iter().product();
        let bytes = e
            .kind
            .bytes(count)
            .ok_or_else(|| format!("{stored} has a size its type cannot have"))?;
        let mut values = dequantise(e.kind, &self.map[e.offset..e.offset + bytes]);
        if let Some(heads) = heads {
            values = unpermuted(values, e.shape[0], heads);
        }
        let data = TensorData::new(values, e.shape.clone());
        let tensor = match param {
            ParamMut::Vector(_) => WeightTensor::Vector(Tensor::from_data(data, device)),
            ParamMut::Matrix(_) => WeightTensor::Matrix(Tensor::from_data(data, device)),
        };
        param.replace(tensor);
        Ok(())
    }
}

/// The name in a GGUF file of a Hugging Face parameter.
fn gguf_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".into(),
        "model.norm.weight" => return "output_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        _ => {}
    }
    let Some((layer, part)) = name
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return name.into();
    };
    let (part, suffix) = part.rsplit_once('.').unwrap_or((part, "weight"));
    let part = match part {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    };
    format!("blk.{layer}.{part}.{suffix}")
}

/// Puts the rows of q and k back in order: in a Llama GGUF, row `2 i + j` of
/// a head is Hugging Face's row `j * half + i`.
fn unpermuted(values: Vec<f32>, rows: usize, heads: usize) -> Vec<f32> {
    let (width, per_head) = (values.len() / rows.max(1), rows / heads.max(1));
    let half = per_head / 2;
    let mut out = vec![0.0; values.len()];
    for row in 0..rows {
        let (head, within) = (row / per_head, row % per_head);
        let source = head * per_head + 2 * (within % half) + within / half;
        out[row * width..(row + 1) * width]
            .copy_from_slice(&values[source * width..(source + 1) * width]);
    }
    out
}

/// Reads header, metadata and tensor list.
fn parse(bytes: &[u8]) -> Result<(BTreeMap<String, Entry>, String), String> {
    let mut r = Reader { bytes, at: 0 };
    if r.take(4)? != b"GGUF" {
        return Err("not a GGUF file".into());
    }
    let version = r.u32()?;
    if !(2..=3).contains(&version) {
        return Err(format!(
            "GGUF version {version} is not supported; 2 and 3 are"
        ));
    }
    let (tensor_count, key_count) = (r.u64()?, r.u64()?);
    let (mut architecture, mut alignment) = (String::new(), 32);
    for _ in 0..key_count {
        let key = r.string()?;
        let kind = r.u32()?;
        match (key.as_str(), kind) {
            ("general.architecture", 8) => architecture = r.string()?,
            ("general.alignment", 4) => alignment = r.u32()?.max(1) as usize,
            _ => r.skip_value(kind)?,
        }
    }
    let mut tensors = BTreeMap::new();
    for _ in 0..tensor_count {
        let name = r.string()?;
        let rank = r.u32()?;
        if rank > 4 {
            return Err(format!("tensor `{name}` has {rank} dimensions"));
        }
        // The fastest dimension comes first.
        let mut shape = (0..rank)
            .map(|_| r.u64().map(|n| n as usize))
            .collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let kind = GgmlType::from_id(r.u32()?).map_err(|e| format!("tensor `{name}`: {e}"))?;
        tensors.insert(
            name,
            Entry {
                shape,
                kind,
                offset: r.u64()? as usize,
            },
        );
    }
    let data = r.at.next_multiple_of(alignment);
    tensors
        .values_mut()
        .for_each(|e| e.offset = e.offset.saturating_add(data));
    Ok((tensors, architecture))
}

/// Little-endian values from the start of a file.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let end = self
            .at
            .checked_add(n)
            .filter(|end| *end <= self.bytes.len());
        let end = end.ok_or("the file ends in its header; is the download complete?")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn string(&mut self) -> Result<String, String> {
        let length = usize::try_from(self.u64()?).map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn skip_value(&mut self, kind: u32) -> Result<(), String> {
        match kind {
            0 | 1 | 7 => self.take(1).map(drop),
            2 | 3 => self.take(2).map(drop),
            4..=6 => self.take(4).map(drop),
            10..=12 => self.take(8).map(drop),
            8 => self.string().map(drop),
            9 => {
                let (kind, count) = (self.u32()?, self.u64()?);
                if kind == 9 {
                    return Err("nested arrays in the metadata are not supported".into());
                }
                (0..count).try_for_each(|_| self.skip_value(kind))
            }
            other => Err(format!("unknown metadata type {other}")),
        }
    }
}
