//! Deserializer whose errors name the key and speak the user's language.
//!
//! `serde_json` could read these values too, but its messages know neither the
//! dotted path of a key nor a remedy.

use crate::registry::nearest;
use crate::{Error, Result};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Expected, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use std::fmt;

/// Reads `value`, found under the dotted key `section`, into a type.
///
/// # Errors
/// [`Error::Config`] with the full key: an unknown key with the nearest known
/// one, or a value of the wrong kind with what was expected and found.
///
/// # Example
/// ```
/// use serde_json::json;
///
/// #[derive(Debug, Default, serde::Deserialize)]
/// #[serde(default, deny_unknown_fields)]
/// struct Clip { clip_ratio: f32 }
///
/// let err = verl_core::config::from_value::<Clip>("algorithm", &json!({"clip_ration": 0.2})).unwrap_err();
/// assert_eq!(err.to_string(), "algorithm.clip_ration: unknown key; did you mean `clip_ratio`?");
/// ```
pub fn from_value<T: DeserializeOwned>(section: &str, value: &Value) -> Result<T> {
    let de = De {
        value,
        path: section,
    };
    T::deserialize(de)
        .map_err(|e| Error::config(e.key.unwrap_or_else(|| section.to_string()), e.message))
}

/// `parent.child`, or `child` at the root.
pub(super) fn join(parent: &str, child: &str) -> String {
    match parent.is_empty() {
        true => child.to_string(),
        false => format!("{parent}.{child}"),
    }
}

/// What went wrong, and under which key once that is known.
#[derive(Debug)]
struct DeError {
    key: Option<String>,
    /// A field of the section being read, for errors about the field itself.
    field: Option<String>,
    message: String,
}

impl DeError {
    /// Fills in the key unless a deeper level has done so.
    fn at(mut self, path: &str) -> Self {
        if self.key.is_none() {
            self.key = Some(match self.field.take() {
                Some(field) => join(path, &field),
                None => path.to_string(),
            });
        }
        self
    }

    fn about(field: &str, message: String) -> Self {
        DeError {
            key: None,
            field: Some(field.to_string()),
            message,
        }
    }
}

impl fmt::Display for DeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DeError {}

impl de::Error for DeError {
    fn custom<M: fmt::Display>(message: M) -> Self {
        DeError {
            key: None,
            field: None,
            message: message.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let wanted = in_words(expected);
        let remedy = match (wanted.as_str(), found) {
            (
                "text",
                Unexpected::Bool(_)
                | Unexpected::Unsigned(_)
                | Unexpected::Signed(_)
                | Unexpected::Float(_),
            ) => "; put it in quotes",
            _ => "",
        };
        Self::custom(format!("expected {wanted}, found {}{remedy}", Found(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::custom(format!(
            "`{variant}` is not one of {}{}",
            known.join(", "),
            did_you_mean(variant, known.iter().copied())
        ))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = match did_you_mean(field, known.iter().copied()) {
            hint if hint.is_empty() => format!("; known here: {}", known.join(", ")),
            hint => hint,
        };
        Self::about(field, format!("unknown key{hint}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::about(field, "this key is required".into())
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::about(
            field,
            "given twice, perhaps under two spellings; keep one".into(),
        )
    }
}

/// `; did you mean ...?`, or nothing when no candidate is like `name`.
pub(super) fn did_you_mean<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates)
        .map(|n| format!("; did you mean `{n}`?"))
        .unwrap_or_default()
}

fn in_words(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a string" | "path string" => "text".into(),
        "a boolean" => "`true` or `false`".into(),
        "a sequence" => "a list".into(),
        "a map" => "a section of keys".into(),
        _ if text.starts_with("struct ") => "a section of keys".into(),
        _ => text.replace("an array of length", "a list of"),
    }
}

struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Bool(b) => write!(f, "`{b}`"),
            Unexpected::Unsigned(n) => write!(f, "{n}"),
            Unexpected::Signed(n) => write!(f, "{n}"),
            Unexpected::Float(x) => write!(f, "{x:?}"),
            Unexpected::Str(s) => write!(f, "\"{s}\""),
            Unexpected::Unit => f.write_str("nothing"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Map => f.write_str("a section of keys"),
            other => write!(f, "{other}"),
        }
    }
}

/// A value and the dotted path it stands at.
#[derive(Clone, Copy)]
struct De<'a> {
    value: &'a Value,
    path: &'a str,
}

impl<'de> de::Deserializer<'de> for De<'_> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        let read = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::String(s) => visitor.visit_str(s),
            Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
                (Some(n), _, _) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (_, _, Some(x)) => visitor.visit_f64(x),
                _ => Err(de::Error::custom(format!(
                    "the number {n} cannot be represented"
                ))),
            },
            Value::Array(items) => visitor.visit_seq(Items {
                items: items.iter(),
                path: self.path,
                next: 0,
            }),
            Value::Object(map) => visitor.visit_map(Fields {
                fields: map.iter(),
                pending: None,
                path: self.path,
            }),
        };
        read.map_err(|e| e.at(self.path))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeError> {
        visitor
            .visit_newtype_struct(self)
            .map_err(|e| e.at(self.path))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        let read = match self.value {
            Value::String(variant) => visitor.visit_enum(Choice {
                variant,
                content: None,
                path: self.path,
            }),
            Value::Object(map) if map.len() == 1 => match map.iter().next() {
                Some((variant, content)) => visitor.visit_enum(Choice {
                    variant,
                    content: Some(content),
                    path: self.path,
                }),
                None => Err(de::Error::custom(
                    "expected one of the choices, found nothing",
                )),
            },
            other => Err(de::Error::custom(format!(
                "expected the name of a choice, found {}",
                brief(other)
            ))),
        };
        read.map_err(|e| e.at(self.path))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A value as it is shown in a message.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Object(_) => "a section of keys".into(),
        Value::Array(_) => "a list".into(),
        Value::String(s) => format!("\"{s}\""),
        other => format!("{other}"),
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Value>,
    path: &'a str,
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = DeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DeError> {
        let Some(value) = self.items.next() else {
            return Ok(None);
        };
        let path = format!("{}[{}]", self.path, self.next);
        self.next += 1;
        seed.deserialize(De { value, path: &path })
            .map(Some)
            .map_err(|e| e.at(&path))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'a> {
    fields: serde_json::map::Iter<'a>,
    pending: Option<(&'a String, &'a Value)>,
    path: &'a str,
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = DeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DeError> {
        self.pending = self.fields.next();
        match self.pending {
            Some((key, _)) => seed.deserialize(StrDeserializer::new(key)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DeError> {
        match self.pending.take() {
            Some((key, value)) => {
                let path = join(self.path, key);
                seed.deserialize(De { value, path: &path })
                    .map_err(|e| e.at(&path))
            }
            None => Err(de::Error::custom("a value was read before its key")),
        }
    }
}

/// An enum value: a bare name, or a section with the name as its only key.
struct Choice<'a> {
    variant: &'a str,
    content: Option<&'a Value>,
    path: &'a str,
}

impl<'a, 'de> de::EnumAccess<'de> for Choice<'a> {
    type Error = DeError;
    type Variant = Content<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'a>), DeError> {
        let content = Content {
            content: self.content,
            path: join(self.path, self.variant),
        };
        Ok((
            seed.deserialize(StrDeserializer::new(self.variant))?,
            content,
        ))
    }
}

struct Content<'a> {
    content: Option<&'a Value>,
    path: String,
}

impl Content<'_> {
    fn value(&self) -> Result<De<'_>, DeError> {
        match self.content {
            Some(value) => Ok(De {
                value,
                path: &self.path,
            }),
            None => Err(de::Error::custom(
                "this choice needs a value: write it as `name: value`",
            )),
        }
    }
}

impl<'de> de::VariantAccess<'de> for Content<'_> {
    type Error = DeError;

    fn unit_variant(self) -> Result<(), DeError> {
        match self.content {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(de::Error::custom("this choice takes no value")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DeError> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DeError> {
        de::Deserializer::deserialize_any(self.value()?, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        // A variant of defaulted fields may be written as its bare name.
        let empty = Value::Object(Map::new());
        let value = self.content.unwrap_or(&empty);
        de::Deserializer::deserialize_struct(
            De {
                value,
                path: &self.path,
            },
            "",
            fields,
            visitor,
        )
    }
}
