//! `config.json` of a Hugging Face model folder.

mod rope;
mod scheme;

pub use scheme::QuantScheme;

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use verl_core::{Error, Result};

/// What stands on top of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// Next-token logits; the matrix is the embedding when `tied`.
    CausalLm {
        /// Whether the head is the embedding matrix.
        tied: bool,
    },
    /// One score per token, with bias: a critic.
    TokenScore,
    /// One score per sequence, without bias: a reward model.
    SequenceScore,
}

/// Frequency scaling of rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// All frequencies divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The base grows with the sequence once it exceeds the trained length.
    Dynamic {
        /// The growth factor.
        factor: f64,
        /// The trained length.
        original_max: usize,
    },
    /// Llama 3's three bands.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original_max / low_freq` are divided.
        low_freq: f64,
        /// Wavelengths below `original_max / high_freq` stay.
        high_freq: f64,
        /// The trained length.
        original_max: usize,
    },
    /// YaRN (arXiv:2309.00071).
    Yarn {
        /// Context extension factor.
        factor: f64,
        /// The trained length.
        original_max: usize,
        /// Rotations above which a dimension is kept.
        beta_fast: f64,
        /// Rotations below which a dimension is interpolated.
        beta_slow: f64,
        /// Multiplies cos and sin.
        attention_factor: f64,
        /// Whether the ramp's ends are rounded to whole dimensions.
        truncate: bool,
    },
}

/// Rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base.
    pub theta: f64,
    /// Frequency scaling.
    pub scaling: RopeScaling,
}

/// Mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    /// Number of experts.
    pub experts: usize,
    /// Experts each token goes to.
    pub top_k: usize,
    /// Width of one expert.
    pub intermediate: usize,
    /// Whether the chosen experts' weights are made to sum to 1.
    pub norm_top_k: bool,
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Size of the vocabulary, padding entries included.
    pub vocab: usize,
    /// Width of the hidden states.
    pub hidden: usize,
    /// Width of the dense MLP.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f64,
    /// Rotary embeddings.
    pub rope: RopeConfig,
    /// Bias on the q, k and v projections.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub o_bias: bool,
    /// Bias on the MLP's projections.
    pub mlp_bias: bool,
    /// RMS norm on the heads of q and k.
    pub qk_norm: bool,
    /// For each layer, the number of tokens it attends to (itself included),
    /// when limited.
    pub windows: Vec<Option<usize>>,
    /// Experts, in the layers that have them.
    pub moe: Option<MoeConfig>,
    /// For each layer, whether its MLP is a mixture of experts.
    pub sparse: Vec<bool>,
    /// The head.
    pub head: HeadKind,
    /// Standard deviation of fresh weights.
    pub initializer_range: f64,
    /// Longest sequence.
    pub max_positions: usize,
    /// Padding id; a reward model pools the last token that is not it.
    pub pad_id: Option<u32>,
    /// How the folder's weights are quantised, if they are.
    pub quantisation: Option<QuantScheme>,
    /// The file as read, for saving it again: without `quantization_config`,
    /// because weights are saved in full.
    pub source: Map<String, Value>,
}

impl ModelConfig {
    /// Reads `config.json` in a model folder.
    ///
    /// # Errors
    /// When the file is missing or malformed, or names an architecture or an
    /// option this decoder does not have.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        Self::from_file(&dir.join("config.json"))
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// As [`ModelConfig::from_dir`].
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|e| Error::malformed_at(path, e.line(), e.to_string()))?;
        match value {
            Value::Object(source) => Self::from_json(source, path),
            _ => Err(Error::malformed(path, "expected a JSON object")),
        }
    }

    /// Reads a parsed configuration; `origin` is named in errors.
    ///
    /// # Errors
    /// As [`ModelConfig::from_dir`].
    pub fn from_json(source: Map<String, Value>, origin: &Path) -> Result<Self> {
        let keys = Keys {
            map: &source,
            origin,
        };
        let family = keys.family()?;
        keys.refuse_unsupported()?;
        let layers = keys.size("num_hidden_layers")?;
        let hidden = keys.size("hidden_size")?;
        let heads = keys.size("num_attention_heads")?;
        let kv_heads = keys.opt_size("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = keys.opt_size("head_dim")?.unwrap_or(hidden / heads.max(1));
        let max_positions = keys
            .opt_size("max_position_embeddings")?
            .unwrap_or(usize::MAX);
        let config = ModelConfig {
            vocab: keys.size("vocab_size")?,
            hidden,
            intermediate: keys.size("intermediate_size")?,
            layers,
            heads,
            kv_heads,
            head_dim,
            norm_eps: keys.opt_number("rms_norm_eps")?.unwrap_or(1e-6),
            rope: rope::rope(&keys, max_positions)?,
            qkv_bias: family == Family::Qwen2 || keys.flag("attention_bias", false)?,
            o_bias: family != Family::Qwen2 && keys.flag("attention_bias", false)?,
            mlp_bias: keys.flag("mlp_bias", false)?,
            qk_norm: matches!(family, Family::Qwen3 | Family::Qwen3Moe),
            windows: windows(&keys, family, layers)?,
            moe: moe(&keys, family)?,
            sparse: sparse_layers(&keys, family, layers)?,
            head: head(&keys)?,
            initializer_range: keys.opt_number("initializer_range")?.unwrap_or(0.02),
            max_positions,
            pad_id: keys.opt_size("pad_token_id")?.map(|id| id as u32),
            quantisation: scheme::scheme(&keys)?,
            source: scheme::without_scheme(&source),
        };
        config.check(origin)?;
        Ok(config)
    }

    /// Whether logits come from the embedding matrix.
    pub fn tied(&self) -> bool {
        self.head == HeadKind::CausalLm { tied: true }
    }

    fn check(&self, origin: &Path) -> Result<()> {
        let fail = |message: String| Err(Error::malformed(origin, message));
        if self.heads == 0 || self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return fail(format!(
                "num_attention_heads {} must be a multiple of num_key_value_heads {}",
                self.heads, self.kv_heads
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return fail(format!(
                "head_dim {} must be even and positive for rotary embeddings",
                self.head_dim
            ));
        }
        match &self.moe {
            Some(m) if m.top_k == 0 || m.top_k > m.experts => fail(format!(
                "num_experts_per_tok {} must be between 1 and num_experts {}",
                m.top_k, m.experts
            )),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
}

/// Typed access to the keys of a `config.json`; every failure names key and file.
struct Keys<'a> {
    map: &'a Map<String, Value>,
    origin: &'a Path,
}

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn wrong(&self, key: &str, want: &str, got: &Value) -> Error {
        Error::malformed(
            PathBuf::from(self.origin),
            format!("`{key}` must be {want}, not {got}"),
        )
    }

    fn size(&self, key: &str) -> Result<usize> {
        self.opt_size(key)?
            .ok_or_else(|| Error::malformed(self.origin, format!("`{key}` is missing")))
    }

    fn opt_size(&self, key: &str) -> Result<Option<usize>> {
        let read = |v: &Value| {
            v.as_u64()
                .map(|n| n as usize)
                .ok_or_else(|| self.wrong(key, "a whole number", v))
        };
        self.get(key).map(read).transpose()
    }

    fn opt_number(&self, key: &str) -> Result<Option<f64>> {
        self.get(key)
            .map(|v| v.as_f64().ok_or_else(|| self.wrong(key, "a number", v)))
            .transpose()
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(v) => v
                .as_bool()
                .ok_or_else(|| self.wrong(key, "true or false", v)),
        }
    }

    fn family(&self) -> Result<Family> {
        match self.get("model_type").and_then(Value::as_str) {
            Some("llama") => Ok(Family::Llama),
            Some("mistral") => Ok(Family::Mistral),
            Some("qwen2") => Ok(Family::Qwen2),
            Some("qwen3") => Ok(Family::Qwen3),
            Some("qwen3_moe") => Ok(Family::Qwen3Moe),
            other => Err(Error::Unsupported(format!(
                "{}: model_type {} is not supported; supported: llama, mistral, qwen2, qwen3, qwen3_moe",
                self.origin.display(),
                other.map_or("(missing)".into(), |t| format!("`{t}`")),
            ))),
        }
    }

    fn refuse_unsupported(&self) -> Result<()> {
        let unsupported = |key: &str, why: &str| {
            Err(Error::Unsupported(format!(
                "{}: `{key}` {why}",
                self.origin.display()
            )))
        };
        match self.get("hidden_act").and_then(Value::as_str) {
            None | Some("silu") => {}
            Some(other) => {
                return unsupported(
                    "hidden_act",
                    &format!("`{other}` is not supported; only silu is"),
                );
            }
        }
        Ok(())
    }
}

fn head(keys: &Keys<'_>) -> Result<HeadKind> {
    let architecture = keys
        .get("architectures")
        .and_then(|a| a.get(0))
        .and_then(Value::as_str)
        .unwrap_or("ForCausalLM");
    // Qwen2, Llama and kin default to an untied head in transformers.
    let tied = keys.flag("tie_word_embeddings", false)?;
    if architecture.ends_with("ForCausalLM") {
        Ok(HeadKind::CausalLm { tied })
    } else if architecture.ends_with("ForTokenClassification") {
        Ok(HeadKind::TokenScore)
    } else if architecture.ends_with("ForSequenceClassification") {
        Ok(HeadKind::SequenceScore)
    } else {
        Err(Error::Unsupported(format!(
            "{}: architecture `{architecture}` is not supported",
            keys.origin.display()
        )))
    }
}

/// Which layers look back through a window. `layer_types` decides where it is
/// given; otherwise the rule of each family.
fn windows(keys: &Keys<'_>, family: Family, layers: usize) -> Result<Vec<Option<usize>>> {
    let window = keys.opt_size("sliding_window")?;
    let enabled = match family {
        Family::Mistral => true,
        Family::Llama => false,
        Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe => {
            keys.flag("use_sliding_window", false)?
        }
    };
    let Some(window) = window.filter(|_| enabled) else {
        return Ok(vec![None; layers]);
    };
    if let Some(types) = keys.get("layer_types").and_then(Value::as_array) {
        if types.len() != layers {
            let message = format!(
                "`layer_types` has {} entries for {layers} layers",
                types.len()
            );
            return Err(Error::malformed(keys.origin, message));
        }
        return Ok(types
            .iter()
            .map(|t| (t == "sliding_attention").then_some(window))
            .collect());
    }
    // Mistral and Qwen3-MoE look through the window in every layer, Qwen2 and
    // Qwen3 from `max_window_layers` on.
    let first = match family {
        Family::Qwen2 | Family::Qwen3 => keys.opt_size("max_window_layers")?.unwrap_or(28),
        _ => 0,
    };
    Ok((0..layers)
        .map(|i| (i >= first).then_some(window))
        .collect())
}

fn moe(keys: &Keys<'_>, family: Family) -> Result<Option<MoeConfig>> {
    if family != Family::Qwen3Moe {
        return Ok(None);
    }
    let experts = match keys.opt_size("num_local_experts")? {
        Some(n) => n,
        None => keys.size("num_experts")?,
    };
    Ok(Some(MoeConfig {
        experts,
        top_k: keys.opt_size("num_experts_per_tok")?.unwrap_or(8),
        intermediate: keys.size("moe_intermediate_size")?,
        norm_top_k: keys.flag("norm_topk_prob", false)?,
    }))
}

fn sparse_layers(keys: &Keys<'_>, family: Family, layers: usize) -> Result<Vec<bool>> {
    if family != Family::Qwen3Moe {
        return Ok(vec![false; layers]);
    }
    let step = keys.opt_size("decoder_sparse_step")?.unwrap_or(1).max(1);
    let dense = keys
        .get("mlp_only_layers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let is_dense = |i: usize| dense.iter().any(|d| d.as_u64() == Some(i as u64));
    Ok((0..layers)
        .map(|i| !is_dense(i) && (i + 1).is_multiple_of(step))
        .collect())
}
