//! `quantization_config`: how a folder's weights are quantised.

use super::Keys;
use serde_json::{Map, Value, json};
use verl_core::{Error, Result};

/// The key of `config.json`.
pub(super) const KEY: &str = "quantization_config";

/// A way of storing projections in 4 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantScheme {
    /// bitsandbytes' NF4, with or without double quantisation, which each
    /// tensor says of itself.
    BitsAndBytes,
    /// AWQ, version `gemm`.
    Awq {
        /// Inputs that share a scale; all of them without it.
        group_size: Option<usize>,
    },
    /// GPTQ, format `gptq`.
    Gptq {
        /// Inputs that share a scale; all of them without it.
        group_size: Option<usize>,
        /// Whether groups are of inputs in order of activation (`desc_act`), so
        /// that only `g_idx` tells which belong together.
        by_activation: bool,
    },
}

/// Reads the section, if there is one.
pub(super) fn scheme(keys: &Keys<'_>) -> Result<Option<QuantScheme>> {
    let Some(value) = keys.get(KEY) else {
        return Ok(None);
    };
    let Value::Object(map) = value else {
        return Err(keys.wrong(KEY, "an object", value));
    };
    let section = Section {
        keys: Keys {
            map,
            origin: keys.origin,
        },
    };
    match section.method()? {
        "bitsandbytes" => section.bitsandbytes(),
        "awq" => section.awq(),
        "gptq" => section.gptq(),
        other => section.refuse(
            "quant_method",
            &json!(other),
            "supported are bitsandbytes (nf4), awq and gptq",
        ),
    }
    .map(Some)
}

/// The configuration without the section.
pub(super) fn without_scheme(source: &Map<String, Value>) -> Map<String, Value> {
    let rest = source.iter().filter(|(key, _)| *key != KEY);
    rest.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The keys of the section.
struct Section<'a> {
    keys: Keys<'a>,
}

impl Section<'_> {
    /// Files of before `quant_method` existed are bitsandbytes'.
    fn method(&self) -> Result<&str> {
        let loads = |key| self.keys.flag(key, false);
        match self.keys.get("quant_method") {
            Some(Value::String(name)) => Ok(name),
            Some(other) => Err(self.keys.wrong("quant_method", "a name", other)),
            None if loads("load_in_4bit")? || loads("load_in_8bit")? => Ok("bitsandbytes"),
            None => self.refuse("quant_method", &Value::Null, "it must be given"),
        }
    }

    fn bitsandbytes(&self) -> Result<QuantScheme> {
        self.only(
            "load_in_8bit",
            json!(false),
            json!(false),
            "8-bit folders are not read; use 4 bits or full precision",
        )?;
        self.only(
            "load_in_4bit",
            json!(true),
            json!(false),
            "only 4-bit folders are read",
        )?;
        self.only(
            "bnb_4bit_quant_type",
            json!("nf4"),
            json!("fp4"),
            "only nf4 is read",
        )?;
        self.only(
            "bnb_4bit_quant_storage",
            json!("uint8"),
            json!("uint8"),
            "codes must lie in bytes",
        )?;
        Ok(QuantScheme::BitsAndBytes)
    }

    fn awq(&self) -> Result<QuantScheme> {
        self.four_bits()?;
        self.only(
            "zero_point",
            json!(true),
            json!(true),
            "AWQ without zero points has not been checked against a reference",
        )?;
        self.only(
            "version",
            json!("gemm"),
            json!("gemm"),
            "only the gemm packing is read",
        )?;
        Ok(QuantScheme::Awq {
            group_size: self.group_size()?,
        })
    }

    fn gptq(&self) -> Result<QuantScheme> {
        self.four_bits()?;
        let format = "only the gptq format is read; others order codes or zero points differently";
        self.only("checkpoint_format", json!("gptq"), json!("gptq"), format)?;
        self.only("is_marlin_format", json!(false), json!(false), format)?;
        self.only("pack_dtype", json!("int32"), json!("int32"), format)?;
        self.only(
            "dynamic",
            json!({}),
            json!({}),
            "settings that differ from layer to layer are not read",
        )?;
        // Symmetric quantisation is a zero point like any other in the file.
        self.keys.flag("sym", true)?;
        Ok(QuantScheme::Gptq {
            group_size: self.group_size()?,
            by_activation: self.keys.flag("desc_act", false)?,
        })
    }

    fn four_bits(&self) -> Result<()> {
        self.only(
            "bits",
            json!(4),
            Value::Null,
            "only 4-bit weights are read; use those or full precision",
        )
    }

    /// `None` for -1, which means all inputs.
    fn group_size(&self) -> Result<Option<usize>> {
        match self.keys.get("group_size") {
            Some(Value::Number(n)) if n.as_i64() == Some(-1) => Ok(None),
            Some(Value::Number(n)) if n.as_u64().is_some_and(|n| n > 0) => {
                self.keys.opt_size("group_size")
            }
            Some(other) => Err(self.keys.wrong("group_size", "-1 or above 0", other)),
            None => self.refuse("group_size", &Value::Null, "it must be given"),
        }
    }

    /// Refuses every value of a key but `want`; a key that is not given has the
    /// value `default`. Names are compared without regard to case.
    fn only(&self, key: &str, want: Value, default: Value, reason: &str) -> Result<()> {
        let got = self.keys.get(key).unwrap_or(&default);
        let same = match (got.as_str(), want.as_str()) {
            (Some(got), Some(want)) => got.eq_ignore_ascii_case(want),
            _ => *got == want,
        };
        match same {
            true => Ok(()),
            false => self.refuse(key, got, reason),
        }
    }

    fn refuse<T>(&self, key: &str, got: &Value, reason: &str) -> Result<T> {
        let got = match got {
            Value::Null => "missing".to_string(),
            other => other.to_string(),
        };
        Err(Error::Unsupported(format!(
            "{}: `{KEY}.{key}` is {got}: {reason}",
            self.keys.origin.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(section: Value) -> Result<Option<QuantScheme>> {
        let source = json!({ KEY: section });
        let keys = Keys {
            map: source.as_object().unwrap(),
            origin: Path::new("config.json"),
        };
        scheme(&keys)
    }

    #[test]
    fn the_formats_that_are_read() {
        let nf4 = json!({"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"});
        assert_eq!(read(nf4).unwrap(), Some(QuantScheme::BitsAndBytes));
        let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "GEMM"});
        let group_size = Some(128);
        assert_eq!(read(awq).unwrap(), Some(QuantScheme::Awq { group_size }));
        let gptq = json!({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true});
        let want = QuantScheme::Gptq {
            group_size: None,
            by_activation: true,
        };
        assert_eq!(read(gptq).unwrap(), Some(want));
        assert_eq!(read(Value::Null).unwrap(), None);
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (section, want) in [
            (
                json!({"quant_method": "hqq"}),
                "quant_method` is \"hqq\": supported are",
            ),
            (json!({}), "quant_method` is missing"),
            (json!({"load_in_8bit": true}), "load_in_8bit` is true"),
            (
                json!({"load_in_4bit": true}),
                "bnb_4bit_quant_type` is \"fp4\"",
            ),
            (
                json!({"quant_method": "awq", "bits": 3, "group_size": 64}),
                "bits` is 3",
            ),
            (
                json!({"quant_method": "awq", "bits": 4}),
                "group_size` is missing",
            ),
            (
                json!({"quant_method": "awq", "bits": 4, "version": "gemv"}),
                "version` is \"gemv\"",
            ),
            (
                json!({"quant_method": "awq", "bits": 4, "zero_point": false}),
                "zero_point` is false: AWQ without zero points has not been checked",
            ),
            (json!({"quant_method": "gptq"}), "bits` is missing"),
            (
                json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}),
                "checkpoint_format` is \"gptq_v2\"",
            ),
            (
                json!({"quant_method": "gptq", "bits": 4, "group_size": 0}),
                "`group_size` must be -1 or above 0, not 0",
            ),
            (json!("awq"), "must be an object"),
        ] {
            let error = read(section).unwrap_err().to_string();
            assert!(
                error.starts_with("config.json: `") && error.contains(want),
                "{error}"
            );
        }
    }
}
