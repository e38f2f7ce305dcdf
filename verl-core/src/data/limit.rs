//! Prompts that are too long.

use super::PromptRow;
use crate::config::Truncation;
use crate::text::{ChatOptions, Tokenizer};
use crate::trainer::Prompt;
use crate::{Error, Result};
use std::sync::Arc;

/// How long a rendered prompt may be, and what happens to a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLimit {
    /// Most tokens, measured on the very ids that are sent.
    pub max_tokens: usize,
    /// What happens to a longer prompt.
    pub truncation: Truncation,
}

/// What the limit did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitReport {
    /// Prompts that were cut.
    pub cut: usize,
    /// Prompts that were left out.
    pub dropped: usize,
}

impl PromptLimit {
    /// Renders and tokenises questions in the model's chat format.
    ///
    /// # Errors
    /// With [`Truncation::Error`], the first prompt that is too long, by file
    /// and line. [`Truncation::Right`] would cut off the cue that lets the
    /// assistant speak and is refused when a chat prompt needs cutting.
    pub fn prepare(
        &self,
        rows: &[PromptRow],
        tokenizer: &dyn Tokenizer,
        options: &ChatOptions,
    ) -> Result<(Vec<Prompt>, LimitReport)> {
        let mut report = LimitReport::default();
        let mut prompts = Vec::with_capacity(rows.len());
        for row in rows {
            let mut ids = tokenizer.encode_chat(&row.messages, options)?;
            if ids.len() > self.max_tokens {
                match self.truncation {
                    Truncation::Filter => {
                        report.dropped += 1;
                        continue;
                    }
                    Truncation::Left => {
                        ids.drain(..ids.len() - self.max_tokens);
                        report.cut += 1;
                    }
                    Truncation::Error | Truncation::Right => {
                        return Err(self.too_long(row, ids.len()));
                    }
                }
            }
            prompts.push(prompt(row, ids));
        }
        Ok((prompts, report))
    }

    fn too_long(&self, row: &PromptRow, tokens: usize) -> Error {
        let remedy = match self.truncation {
            Truncation::Right => {
                "cutting its end would remove the cue that lets the assistant speak; set data.truncation to left or filter"
            }
            _ => "raise data.max_prompt_length, or set data.truncation to left or filter",
        };
        let message = format!(
            "the prompt has {tokens} tokens, the limit is {}; {remedy}",
            self.max_tokens
        );
        Error::malformed_at(&row.place.0, row.place.1, message)
    }
}

fn prompt(row: &PromptRow, ids: Vec<u32>) -> Prompt {
    let question = row
        .messages
        .iter()
        .rev()
        .find(|m| m.role == "user")
        .map_or("", |m| m.content.as_str());
    Prompt {
        ids: ids.into(),
        text: Arc::from(question),
        answer: row.answer.as_deref().map(Arc::from),
        row: Arc::new(row.fields.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Message;

    /// One id per character of the tools and the question, and two for the
    /// chat frame.
    #[derive(Debug)]
    struct Characters;

    impl Tokenizer for Characters {
        fn encode(&self, text: &str) -> Result<Vec<u32>> {
            Ok(text.chars().map(u32::from).collect())
        }
        fn decode(&self, ids: &[u32], _: bool) -> Result<String> {
            Ok(ids.iter().filter_map(|id| char::from_u32(*id)).collect())
        }
        fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<u32>> {
            let mut ids = vec![1];
            for tool in &options.tools {
                ids.extend(self.encode(&tool.to_string())?);
            }
            ids.extend(self.encode(&messages[0].content)?);
            ids.push(2);
            Ok(ids)
        }
        fn vocab_size(&self) -> usize {
            0x110000
        }
        fn stop_ids(&self) -> &[u32] {
            &[]
        }
    }

    fn rows(lengths: &[usize]) -> Vec<PromptRow> {
        let row = |(i, n): (usize, &usize)| PromptRow {
            messages: vec![Message::new("user", "x".repeat(*n))],
            answer: None,
            fields: Default::default(),
            place: ("d.jsonl".into(), i + 1),
        };
        lengths.iter().enumerate().map(row).collect()
    }

    fn prepare(truncation: Truncation) -> Result<(Vec<Prompt>, LimitReport)> {
        let limit = PromptLimit {
            max_tokens: 10,
            truncation,
        };
        limit.prepare(&rows(&[7, 8, 9, 50]), &Characters, &ChatOptions::default())
    }

    #[test]
    fn a_left_cut_keeps_the_cue() {
        let (prompts, report) = prepare(Truncation::Left).unwrap();
        assert_eq!(
            prompts.iter().map(|p| p.ids.len()).collect::<Vec<_>>(),
            [9, 10, 10, 10]
        );
        assert!(prompts.iter().all(|p| p.ids.last() == Some(&2)));
        assert_eq!(report, LimitReport { cut: 2, dropped: 0 });
    }

    #[test]
    fn long_prompts_can_be_left_out() {
        let (prompts, report) = prepare(Truncation::Filter).unwrap();
        assert_eq!(
            (prompts.len(), report),
            (2, LimitReport { cut: 0, dropped: 2 })
        );
    }

    #[test]
    fn errors_name_the_row() {
        let error = prepare(Truncation::Error).unwrap_err().to_string();
        assert!(
            error.starts_with("d.jsonl:3: the prompt has 11 tokens, the limit is 10; raise"),
            "{error}"
        );
        assert!(
            prepare(Truncation::Right)
                .unwrap_err()
                .to_string()
                .contains("the cue that lets the assistant speak")
        );
    }

    #[test]
    fn tools_count_towards_the_limit() {
        let tool = serde_json::json!({"name": "add"});
        let options = ChatOptions {
            tools: vec![tool.clone()],
            ..Default::default()
        };
        let frame = 2 + tool.to_string().len();
        let rows = rows(&[511 - frame, 512 - frame, 513 - frame, 5000]);
        let prepare = |truncation| {
            let limit = PromptLimit {
                max_tokens: 512,
                truncation,
            };
            limit.prepare(&rows, &Characters, &options)
        };
        let (kept, report) = prepare(Truncation::Filter).unwrap();
        let lengths: Vec<_> = kept.iter().map(|p| p.ids.len()).collect();
        assert_eq!((lengths, report.dropped), (vec![511, 512], 2));
        let (cut, report) = prepare(Truncation::Left).unwrap();
        assert!(cut.iter().all(|p| p.ids.len() <= 512));
        assert_eq!((cut.len(), report.cut), (4, 2));
        let error = prepare(Truncation::Error).unwrap_err().to_string();
        assert!(error.contains("the prompt has 513 tokens"), "{error}");
    }
}
