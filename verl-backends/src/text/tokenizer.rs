//! `tokenizer.json` and its companions.

use super::guard::{Piece, guard, pieces};
use super::template::ChatTemplate;
use serde_json::{Map, Value};
use std::path::Path;
use tokenizers::Tokenizer as Inner;
use verl_core::text::{ChatOptions, Message, Tokenizer};
use verl_core::types::TokenId;
use verl_core::{Error, Result};

/// A Hugging Face tokenizer with its chat template.
#[derive(Debug)]
pub struct HfTokenizer {
    /// Reads special tokens in the text.
    parsing: Inner,
    /// Takes them for text.
    plain: Inner,
    template: Option<ChatTemplate>,
    /// Strings of the special tokens.
    controls: Vec<String>,
    stop_ids: Vec<TokenId>,
    vocab_size: usize,
}

impl HfTokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json`,
    /// `special_tokens_map.json`, `chat_template.jinja` and
    /// `generation_config.json` where they exist.
    ///
    /// # Errors
    /// When a file is missing or malformed.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        let json = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let config = json_file(&dir.join("tokenizer_config.json"))?;
        let map = json_file(&dir.join("special_tokens_map.json"))?;
        let generation = json_file(&dir.join("generation_config.json"))?;
        let jinja = dir.join("chat_template.jinja");
        let template = match jinja.exists() {
            true => Some(std::fs::read_to_string(&jinja).map_err(Error::io(&jinja))?),
            false => template_of(&config),
        };
        let tokens = special_strings(&[&map, &config]);
        Self::build(
            &json,
            template.as_deref(),
            tokens,
            &ids_of(generation.get("eos_token_id")),
        )
        .map_err(|e| {
            if path_less(&e) {
                Error::malformed(&path, e.to_string())
            } else {
                e
            }
        })
    }

    /// A tokenizer from the text of its files: `tokenizer.json`, a chat
    /// template, and the string of the token that ends a text.
    ///
    /// # Errors
    /// When one of them is malformed.
    pub fn from_strings(tokenizer: &str, template: Option<&str>, eos_token: &str) -> Result<Self> {
        let tokens = Map::from_iter([("eos_token".to_string(), Value::from(eos_token))]);
        Self::build(tokenizer, template, tokens, &[])
    }

    fn build(
        json: &str,
        template: Option<&str>,
        tokens: Map<String, Value>,
        eos: &[TokenId],
    ) -> Result<Self> {
        let parse = || {
            json.parse::<Inner>()
                .map_err(|e| Error::invalid(format!("tokenizer.json: {e}")))
        };
        let mut parsing = parse()?;
        // Padding and truncation of the file are for its first user's batches.
        parsing.with_padding(None);
        let _ = parsing.with_truncation(None);
        let mut plain = parsing.clone();
        plain.set_encode_special_tokens(true);
        let mut controls: Vec<String> = parsing
            .get_added_tokens_decoder()
            .into_values()
            .filter(|t| t.special)
            .map(|t| t.content)
            .collect();
        controls.sort();
        let vocab_size = parsing
            .get_vocab(true)
            .into_values()
            .max()
            .map_or(0, |id| id as usize + 1);
        let eos_token = tokens
            .get("eos_token")
            .and_then(Value::as_str)
            .map(String::from);
        let template = template
            .map(|source| ChatTemplate::new(source, tokens))
            .transpose()?;
        let mut tokenizer = HfTokenizer {
            parsing,
            plain,
            template,
            controls,
            stop_ids: Vec::new(),
            vocab_size,
        };
        let named = eos_token.and_then(|t| tokenizer.parsing.token_to_id(&t));
        let mut stops: Vec<TokenId> = eos.to_vec();
        stops.extend(named);
        stops.extend(tokenizer.end_of_turn());
        stops.sort_unstable();
        stops.dedup();
        tokenizer.stop_ids = stops;
        Ok(tokenizer)
    }

    /// The special token that the template writes right after an answer.
    fn end_of_turn(&self) -> Option<TokenId> {
        const ANSWER: &str = "\u{F8FD}";
        let template = self.template.as_ref()?;
        let options = ChatOptions {
            add_generation_prompt: false,
            ..Default::default()
        };
        let talk = [Message::new("user", "a"), Message::new("assistant", ANSWER)];
        let text = template.render(&talk, &options).ok()?;
        let after = text.split(ANSWER).nth(1)?.trim_start();
        let end = self
            .controls
            .iter()
            .filter(|c| after.starts_with(c.as_str()))
            .max_by_key(|c| c.len())?;
        self.parsing.token_to_id(end)
    }

    /// Ids of text in which the strings of special tokens become those tokens.
    /// Only for text from a trusted source.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode_trusted(&self, text: &str) -> Result<Vec<TokenId>> {
        ids(&self.parsing, text)
    }

    /// The text of a conversation in the model's chat format.
    ///
    /// # Errors
    /// When there is no template, or it refuses the conversation.
    pub fn render_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        self.template()?.render(messages, options)
    }

    /// Id of a token's string.
    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        self.parsing.token_to_id(token)
    }

    fn template(&self) -> Result<&ChatTemplate> {
        let message = "the tokenizer has no chat template; use plain prompts, or add chat_template.jinja to its folder";
        self.template
            .as_ref()
            .ok_or_else(|| Error::Unsupported(message.into()))
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        ids(&self.plain, text)
    }

    fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String> {
        self.parsing
            .decode(ids, skip_special)
            .map_err(|e| Error::invalid(format!("decoding: {e}")))
    }

    fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<TokenId>> {
        let Some((messages, options)) = guard(messages, options, &self.controls) else {
            return self.encode_trusted(&self.render_chat(messages, options)?);
        };
        let text = self.render_chat(&messages, &options)?;
        let mut all = Vec::new();
        for piece in pieces(&text, &self.controls) {
            match piece {
                Piece::Special(token) => all.extend(self.parsing.token_to_id(token)),
                Piece::Text(text) => all.extend(self.encode(&text)?),
            }
        }
        Ok(all)
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn stop_ids(&self) -> &[TokenId] {
        &self.stop_ids
    }
}

fn ids(tokenizer: &Inner, text: &str) -> Result<Vec<TokenId>> {
    let encoding = tokenizer
        .encode_fast(text, false)
        .map_err(|e| Error::invalid(format!("encoding: {e}")))?;
    Ok(encoding.get_ids().to_vec())
}

/// Whether an error does not name a file yet.
fn path_less(error: &Error) -> bool {
    matches!(error, Error::Invalid(_))
}

fn json_file(path: &Path) -> Result<Map<String, Value>> {
    if !path.exists() {
        return Ok(Map::new());
    }
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::malformed(path, "expected a JSON object")),
        Err(e) => Err(Error::malformed_at(path, e.line(), e.to_string())),
    }
}

/// The template of a tokenizer configuration: a string, or the one named
/// `default` of a list.
fn template_of(config: &Map<String, Value>) -> Option<String> {
    match config.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named
                .iter()
                .find(|t| t["name"] == "default")
                .or_else(|| named.first())?;
            default["template"].as_str().map(String::from)
        }
        _ => None,
    }
}

/// Strings of the named special tokens, written as a string or as an object
/// with `content`; later maps win.
fn special_strings(maps: &[&Map<String, Value>]) -> Map<String, Value> {
    let mut found = Map::new();
    for (key, value) in maps
        .iter()
        .flat_map(|m| m.iter())
        .filter(|(key, _)| key.ends_with("_token"))
    {
        let text = value
            .as_str()
            .or_else(|| value.get("content").and_then(Value::as_str));
        if let Some(text) = text {
            found.insert(key.clone(), text.into());
        }
    }
    found
}

fn ids_of(value: Option<&Value>) -> Vec<TokenId> {
    match value {
        Some(Value::Array(ids)) => ids
            .iter()
            .filter_map(Value::as_u64)
            .map(|id| id as TokenId)
            .collect(),
        Some(id) => id.as_u64().map(|id| id as TokenId).into_iter().collect(),
        None => Vec::new(),
    }
}
