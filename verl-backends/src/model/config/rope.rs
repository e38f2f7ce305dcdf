//! The rotary embedding, in both of its spellings.

use super::{Keys, RopeConfig, RopeScaling};
use serde_json::{Map, Value};
use verl_core::{Error, Result};

/// Reads `rope_parameters`, or the older `rope_theta` with `rope_scaling`.
pub(super) fn rope(keys: &Keys<'_>, max_positions: usize) -> Result<RopeConfig> {
    let empty = Map::new();
    let section = ["rope_parameters", "rope_scaling"]
        .iter()
        .find_map(|k| keys.get(k));
    let map = match section {
        Some(v) => v
            .as_object()
            .ok_or_else(|| keys.wrong("rope_parameters", "an object", v))?,
        None => &empty,
    };
    let rope = Keys {
        map,
        origin: keys.origin,
    };
    let theta = match rope.opt_number("rope_theta")? {
        Some(theta) => theta,
        None => keys.opt_number("rope_theta")?.unwrap_or(10_000.0),
    };
    let need = |key: &str| {
        rope.opt_number(key)?
            .ok_or_else(|| Error::malformed(keys.origin, format!("rope scaling needs `{key}`")))
    };
    let original_max = || -> Result<usize> {
        Ok(match rope.opt_size("original_max_position_embeddings")? {
            Some(n) => n,
            None => keys
                .opt_size("original_max_position_embeddings")?
                .unwrap_or(max_positions),
        })
    };
    let kind = ["rope_type", "type"]
        .iter()
        .find_map(|k| rope.get(k))
        .and_then(Value::as_str)
        .unwrap_or("default");
    let scaling = match kind {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear {
            factor: need("factor")?,
        },
        // Dynamic scaling starts at the configured length, not an original one.
        "dynamic" => RopeScaling::Dynamic {
            factor: need("factor")?,
            original_max: max_positions,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: need("factor")?,
            low_freq: need("low_freq_factor")?,
            high_freq: need("high_freq_factor")?,
            original_max: original_max()?,
        },
        "yarn" => yarn(&rope, need("factor")?, original_max()?)?,
        other => {
            let message = format!(
                "rope type `{other}` is not supported; supported: default, linear, dynamic, llama3, yarn"
            );
            return Err(Error::Unsupported(format!(
                "{}: {message}",
                keys.origin.display()
            )));
        }
    };
    Ok(RopeConfig { theta, scaling })
}

fn yarn(rope: &Keys<'_>, factor: f64, original_max: usize) -> Result<RopeScaling> {
    let mscale = |scale: f64, m: f64| {
        if scale <= 1.0 {
            1.0
        } else {
            0.1 * m * scale.ln() + 1.0
        }
    };
    let attention_factor = match rope.opt_number("attention_factor")? {
        Some(given) => given,
        None => match (
            rope.opt_number("mscale")?,
            rope.opt_number("mscale_all_dim")?,
        ) {
            (Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                mscale(factor, m) / mscale(factor, all)
            }
            _ => mscale(factor, 1.0),
        },
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_max,
        beta_fast: rope.opt_number("beta_fast")?.unwrap_or(32.0),
        beta_slow: rope.opt_number("beta_slow")?.unwrap_or(1.0),
        attention_factor,
        truncate: rope.flag("truncate", true)?,
    })
}
