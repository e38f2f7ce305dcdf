//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it, which
//! is what chat templates were written against.

use serde_json::{Number, Value};

/// Serialises with `", "` and `": "` between items, or on indented lines.
pub(super) fn dumps(value: &Value, indent: Option<usize>) -> String {
    let mut out = String::new();
    write(value, indent, 0, &mut out);
    out
}

fn write(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
        Value::String(s) => string(s, out),
        Value::Array(items) => {
            block(('[', ']'), items.iter(), indent, depth, out, |item, out| {
                write(item, indent, depth + 1, out)
            });
        }
        Value::Object(map) => block(
            ('{', '}'),
            map.iter(),
            indent,
            depth,
            out,
            |(key, item), out| {
                string(key, out);
                out.push_str(": ");
                write(item, indent, depth + 1, out);
            },
        ),
    }
}

fn block<T>(
    (open, close): (char, char),
    items: impl ExactSizeIterator<Item = T>,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
    mut each: impl FnMut(T, &mut String),
) {
    let empty = items.len() == 0;
    out.push(open);
    for (i, item) in items.enumerate() {
        match indent {
            Some(width) => {
                out.push_str(if i > 0 { ",\n" } else { "\n" });
                out.push_str(&" ".repeat(width * (depth + 1)));
            }
            None if i > 0 => out.push_str(", "),
            None => {}
        }
        each(item, out);
    }
    if let (Some(width), false) = (indent, empty) {
        out.push('\n');
        out.push_str(&" ".repeat(width * depth));
    }
    out.push(close);
}

fn string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Python's `repr` of a float: exponents below -4 or from 16 on are written
/// with a sign and two digits.
fn number(n: &Number) -> String {
    let Some(x) = n.as_f64().filter(|_| n.is_f64()) else {
        return n.to_string();
    };
    let scientific = format!("{x:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(e) if x != 0.0 && !(-4..16).contains(&e) => {
            format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs())
        }
        _ => {
            let plain = format!("{x}");
            if plain.contains('.') {
                plain
            } else {
                format!("{plain}.0")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spelling_is_pythons() {
        let value = json!({"b": [1, 2.0, 1e-7, 1e22, 0.1], "a": "é\"\n\u{1}", "c": {}, "d": null});
        assert_eq!(
            dumps(&value, None),
            r#"{"b": [1, 2.0, 1e-07, 1e+22, 0.1], "a": "é\"\n\u0001", "c": {}, "d": null}"#
        );
        assert_eq!(
            dumps(&json!({"a": [1]}), Some(2)),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
    }
}
