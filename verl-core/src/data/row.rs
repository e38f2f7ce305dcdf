//! From a row of a file to a question.

use super::{JsonlRow, read_jsonl};
use crate::text::Message;
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A question, ready to be rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptRow {
    /// The conversation up to the answer.
    pub messages: Vec<Message>,
    /// The ground truth.
    pub answer: Option<String>,
    /// The row it was made of.
    pub fields: Map<String, Value>,
    /// File and line, for messages.
    pub place: (PathBuf, usize),
}

/// How rows become questions.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptFormat {
    /// Field of the prompt: text, or a list of chat messages. Dots reach into
    /// nested objects.
    pub prompt_key: String,
    /// Field of the ground truth.
    pub answer_key: String,
    /// The ground truth is what follows the last occurrence of this text.
    pub answer_after: Option<String>,
    /// System message before each prompt.
    pub system_prompt: Option<String>,
    /// Text with `{prompt}`, or another field of the row, in braces; `{{` and
    /// `}}` stand for braces.
    pub template: Option<String>,
}

impl Default for PromptFormat {
    fn default() -> Self {
        PromptFormat {
            prompt_key: "prompt".into(),
            answer_key: "answer".into(),
            answer_after: None,
            system_prompt: None,
            template: None,
        }
    }
}

/// Questions, and the errors of the rows that were left out.
#[derive(Debug, Default)]
pub struct Rows {
    /// The questions.
    pub rows: Vec<PromptRow>,
    /// Why rows were left out.
    pub skipped: Vec<Error>,
}

impl PromptFormat {
    /// Reads the questions of several JSONL files, one after another.
    ///
    /// # Errors
    /// The first bad row with file and line, unless `skip_bad`.
    pub fn read(&self, files: &[impl AsRef<Path>], skip_bad: bool) -> Result<Rows> {
        let mut all = Rows::default();
        for file in files {
            let (rows, skipped) = read_jsonl(file.as_ref(), skip_bad)?;
            all.skipped.extend(skipped);
            for row in rows {
                match self.question(row) {
                    Ok(question) => all.rows.push(question),
                    Err(error) if skip_bad => all.skipped.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(all)
    }

    /// Makes a question of a row.
    ///
    /// # Errors
    /// [`Error::Malformed`] at the row: a field is missing, has the wrong
    /// type, or the prompt is blank.
    pub fn question(&self, row: JsonlRow) -> Result<PromptRow> {
        let fail = |message: String| Error::malformed_at(&row.path, row.line, message);
        let value = field(&row.fields, &self.prompt_key).ok_or_else(|| {
            fail(format!(
                "no field `{}` (data.prompt_key); it has: {}",
                self.prompt_key,
                keys(&row.fields)
            ))
        })?;
        let mut messages = self.messages(value, &row.fields).map_err(fail)?;
        if messages.iter().all(|m| m.content.trim().is_empty()) {
            return Err(fail(format!(
                "the prompt in `{}` is blank",
                self.prompt_key
            )));
        }
        if let Some(system) = &self.system_prompt {
            messages.insert(0, Message::new("system", system));
        }
        let answer = self.answer(&row.fields).map_err(fail)?;
        Ok(PromptRow {
            messages,
            answer,
            place: (row.path.clone(), row.line),
            fields: row.fields,
        })
    }

    fn messages(
        &self,
        value: &Value,
        fields: &Map<String, Value>,
    ) -> std::result::Result<Vec<Message>, String> {
        match value {
            // A template would hide that nothing is asked.
            Value::String(prompt) if prompt.trim().is_empty() => {
                Err(format!("the prompt in `{}` is blank", self.prompt_key))
            }
            Value::String(prompt) => {
                let text = match &self.template {
                    Some(template) => fill(template, prompt, fields)?,
                    None => prompt.clone(),
                };
                Ok(vec![Message::new("user", text)])
            }
            Value::Array(_) if self.template.is_some() => Err(format!(
                "`{}` holds chat messages, around which data.prompt_template cannot be put",
                self.prompt_key
            )),
            Value::Array(_) => serde_json::from_value(value.clone())
                .map_err(|e| format!("`{}` is not a list of chat messages: {e}", self.prompt_key)),
            other => Err(format!(
                "`{}` must be text or a list of chat messages, not {other}",
                self.prompt_key
            )),
        }
    }

    fn answer(&self, fields: &Map<String, Value>) -> std::result::Result<Option<String>, String> {
        let text = match field(fields, &self.answer_key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(number @ Value::Number(_)) => number.to_string(),
            Some(other) => {
                return Err(format!(
                    "`{}` must be text or a number, not {other}",
                    self.answer_key
                ));
            }
        };
        match &self.answer_after {
            None => Ok(Some(text)),
            Some(mark) => match text.rsplit_once(mark.as_str()) {
                Some((_, answer)) => Ok(Some(answer.trim().to_string())),
                None => Err(format!(
                    "`{}` does not hold `{mark}` (data.answer_after)",
                    self.answer_key
                )),
            },
        }
    }
}

/// A field by its key, or by a dotted path into nested objects.
fn field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(key) {
        return Some(value);
    }
    let (head, tail) = key.split_once('.')?;
    field(fields.get(head)?.as_object()?, tail)
}

fn keys(fields: &Map<String, Value>) -> String {
    fields
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn fill(
    template: &str,
    prompt: &str,
    fields: &Map<String, Value>,
) -> std::result::Result<String, String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            (out, rest) = (out + "{", after);
        } else if let Some(after) = rest.strip_prefix("}}") {
            (out, rest) = (out + "}", after);
        } else if let Some((name, after)) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
            match (name, field(fields, name)) {
                ("prompt", _) => out.push_str(prompt),
                (_, Some(Value::String(text))) => out.push_str(text),
                (_, Some(other)) => out.push_str(&other.to_string()),
                (_, None) => {
                    return Err(format!(
                        "data.prompt_template names `{name}`; the row has: {}",
                        keys(fields)
                    ));
                }
            }
            rest = after;
        } else {
            return Err(
                "data.prompt_template has a single brace; write {{ or }} for a brace".into(),
            );
        }
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(value: Value) -> JsonlRow {
        JsonlRow {
            path: "d.jsonl".into(),
            line: 7,
            fields: value.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn templates_and_answers() {
        let format = PromptFormat {
            prompt_key: "question".into(),
            answer_after: Some("####".into()),
            system_prompt: Some("Be brief.".into()),
            template: Some("Q{id}: {prompt} {{x}}".into()),
            ..Default::default()
        };
        let q = format
            .question(row(
                json!({"question": "2+2?", "answer": "so\n#### 4", "id": 3}),
            ))
            .unwrap();
        assert_eq!(q.messages[1].content, "Q3: 2+2? {x}");
        assert_eq!((q.messages.len(), q.answer.as_deref()), (2, Some("4")));
    }

    #[test]
    fn nested_fields_and_chat_messages() {
        let format = PromptFormat {
            answer_key: "reward_model.ground_truth".into(),
            ..Default::default()
        };
        let q = format
            .question(row(json!({"prompt": [{"role": "user", "content": "hi"}], "reward_model": {"ground_truth": 18}})))
            .unwrap();
        assert_eq!(
            (q.messages[0].content.as_str(), q.answer.as_deref()),
            ("hi", Some("18"))
        );
    }

    #[test]
    fn faults_name_file_line_and_field() {
        let format = PromptFormat::default();
        let error = |value: Value| format.question(row(value)).unwrap_err().to_string();
        assert_eq!(
            error(json!({"q": "x"})),
            "d.jsonl:7: no field `prompt` (data.prompt_key); it has: q"
        );
        assert_eq!(
            error(json!({"prompt": " \n"})),
            "d.jsonl:7: the prompt in `prompt` is blank"
        );
        assert_eq!(
            error(json!({"prompt": []})),
            "d.jsonl:7: the prompt in `prompt` is blank"
        );
        assert_eq!(
            error(json!({"prompt": 5})),
            "d.jsonl:7: `prompt` must be text or a list of chat messages, not 5"
        );
    }

    #[test]
    fn a_template_does_not_hide_a_blank_prompt() {
        let format = PromptFormat {
            template: Some("Solve: {prompt}".into()),
            ..Default::default()
        };
        for prompt in ["", " \n\t"] {
            let error = format.question(row(json!({"prompt": prompt}))).unwrap_err();
            assert_eq!(
                error.to_string(),
                "d.jsonl:7: the prompt in `prompt` is blank"
            );
        }
    }
}
