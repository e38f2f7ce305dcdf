//! JSON Lines: one object per line.

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// One row and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonlRow {
    /// The file.
    pub path: PathBuf,
    /// One-based physical line.
    pub line: usize,
    /// The object.
    pub fields: Map<String, Value>,
}

/// Reads a file. A byte-order mark, CRLF line ends and blank lines are
/// accepted; any other fault is an error with its line. With `skip_bad`, bad
/// rows are left out instead and their errors returned.
///
/// # Errors
/// [`Error::Io`], or [`Error::Malformed`] with file and line.
pub fn read_jsonl(path: &Path, skip_bad: bool) -> Result<(Vec<JsonlRow>, Vec<Error>)> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        match parse(line).map_err(|message| Error::malformed_at(path, i + 1, message)) {
            Ok(Some(fields)) => rows.push(JsonlRow {
                path: path.to_path_buf(),
                line: i + 1,
                fields,
            }),
            Ok(None) => {}
            Err(error) if skip_bad => skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok((rows, skipped))
}

fn parse(line: &[u8]) -> std::result::Result<Option<Map<String, Value>>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|e| format!("invalid UTF-8 at byte {}", e.valid_up_to() + 1))?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(Some(fields)),
        Ok(_) => Err("expected a JSON object".into()),
        Err(e) if e.is_eof() => {
            Err("the line ends in the middle of its JSON; is the file cut off?".into())
        }
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8], skip: bool) -> Result<(Vec<JsonlRow>, Vec<Error>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        read_jsonl(file.path(), skip)
    }

    #[test]
    fn marks_line_ends_and_blank_lines_are_accepted() {
        let (rows, _) = read(b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n{\"a\":2}\n\n", false).unwrap();
        assert_eq!(rows.iter().map(|r| r.line).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn faults_name_their_physical_line() {
        for (content, want) in [
            (
                &b"{\"a\":1}\n\n{\"a\":\"\xFF\"}\n"[..],
                ":3: invalid UTF-8 at byte 7",
            ),
            (
                b"{\"a\":1}\n{\"a\":",
                ":2: the line ends in the middle of its JSON",
            ),
            (b"[1]\n", ":1: expected a JSON object"),
            (b"{\"a\":1}\n{a:1}\n", ":2: not JSON"),
        ] {
            let error = read(content, false).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn bad_rows_can_be_left_out_and_are_counted() {
        let (rows, skipped) = read(b"{\"a\":1}\nx\n{\"a\":2}\n{\"a\"", true).unwrap();
        assert_eq!((rows.len(), skipped.len()), (2, 2));
    }
}
