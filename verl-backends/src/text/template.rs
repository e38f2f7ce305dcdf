//! Chat templates: Jinja as `transformers` renders it.

use super::pyjson;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde_json::Map;
use std::fmt;
use verl_core::text::{ChatOptions, Message};
use verl_core::{Error, Result};

/// A compiled chat template.
pub struct ChatTemplate {
    env: Environment<'static>,
    /// `bos_token` and its like, which templates read.
    tokens: Map<String, serde_json::Value>,
}

const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Compiles a template. `tokens` holds the strings of the special tokens
    /// by their configuration names (`bos_token`, `eos_token`, ...).
    ///
    /// # Errors
    /// [`Error::Malformed`] with the template's line when it does not parse.
    pub fn new(source: &str, tokens: Map<String, serde_json::Value>) -> Result<Self> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        env.set_syntax(syntax.map_err(|e| template_error(&e))?);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", to_json);
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", minijinja_strftime);
        let source = without_generation_tags(source);
        env.add_template_owned(NAME, source)
            .map_err(|e| template_error(&e))?;
        Ok(ChatTemplate { env, tokens })
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the template's line and what it objected to.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let mut context = self.tokens.clone();
        let json =
            |e: serde_json::Error| Error::invalid(format!("the conversation is not JSON: {e}"));
        context.insert(
            "messages".into(),
            serde_json::to_value(messages).map_err(json)?,
        );
        context.insert(
            "add_generation_prompt".into(),
            options.add_generation_prompt.into(),
        );
        if !options.tools.is_empty() {
            context.insert(
                "tools".into(),
                serde_json::Value::Array(options.tools.clone()),
            );
        }
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking".into(), thinking.into());
        }
        context.extend(options.extra.clone());
        let template = self
            .env
            .get_template(NAME)
            .map_err(|e| template_error(&e))?;
        template
            .render(Value::from(Serde(&context)))
            .map_err(|e| template_error(&e))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

fn template_error(error: &minijinja::Error) -> Error {
    let message = match error.detail() {
        Some(detail) => detail.to_string(),
        None => error.to_string(),
    };
    Error::Malformed {
        path: NAME.into(),
        line: error.line(),
        message,
    }
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(
        ErrorKind::InvalidOperation,
        format!("the template refuses the conversation: {message}"),
    ))
}

fn to_json(value: Value, kwargs: Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    // Templates written for other renderers pass this; it is what is done anyway.
    let _: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let json = serde_json::to_value(&value)
        .map_err(|e| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from_safe_string(pyjson::dumps(&json, indent)))
}

/// The current UTC time in Python's `strftime` notation, for the directives
/// that templates use.
fn minijinja_strftime(format: &str) -> Result<String, minijinja::Error> {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    strftime(format, seconds)
}

fn strftime(format: &str, seconds: u64) -> Result<String, minijinja::Error> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('B') => out.push_str(MONTHS[month - 1]),
            Some('b') => out.push_str(&MONTHS[month - 1][..3]),
            Some('A') => out.push_str(DAYS[(days % 7) as usize]),
            Some('a') => out.push_str(&DAYS[(days % 7) as usize][..3]),
            Some('H') => out.push_str(&format!("{:02}", rest / 3600)),
            Some('M') => out.push_str(&format!("{:02}", rest % 3600 / 60)),
            Some('S') => out.push_str(&format!("{:02}", rest % 60)),
            Some('%') => out.push('%'),
            other => {
                let directive = other.map_or("%".into(), |c| format!("%{c}"));
                let message = format!("strftime_now: the directive `{directive}` is not supported");
                return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
            }
        }
    }
    Ok(out)
}

/// Year, month and day of a day counted from 1970 (Howard Hinnant's
/// `civil_from_days`).
fn civil(days: u64) -> (u64, usize, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + u64::from(month <= 2),
        month as usize,
        doy - (153 * mp + 2) / 5 + 1,
    )
}

/// `{% generation %}` marks what the assistant says for training masks; it
/// renders as if it were not there, and becomes a condition that always holds.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}").map(|n| n + 2) else {
            break;
        };
        let tag = &rest[start..start + length];
        let inner = tag[2..tag.len() - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match inner {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String> {
        ChatTemplate::new(source, Map::new())?
            .render(&[Message::new("user", "a<b")], &ChatOptions::default())
    }

    #[test]
    fn nothing_is_escaped_and_generation_blocks_vanish() {
        let text =
            render("{% generation %}{{ messages[0].content }}{%- endgeneration -%} !").unwrap();
        assert_eq!(text, "a<b!");
    }

    #[test]
    fn errors_name_the_line() {
        let error = render("x\n{{ raise_exception('no system role') }}")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "chat_template:2: the template refuses the conversation: no system role"
        );
        assert!(
            render("x\n\n{% if %}")
                .unwrap_err()
                .to_string()
                .starts_with("chat_template:3: ")
        );
    }

    #[test]
    fn dates_follow_strftime() {
        assert_eq!(
            strftime("%d %b %Y %H:%M:%S %A", 1_709_209_845).unwrap(),
            "29 Feb 2024 12:30:45 Thursday"
        );
        assert!(strftime("%q", 0).is_err());
    }
}
