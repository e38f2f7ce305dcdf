//! Control strings inside user text stay text.
//!
//! A special token's string that occurs in a message is broken with a mark
//! before the template is rendered. After rendering, an unbroken occurrence
//! can only come from the template.

use verl_core::text::{ChatOptions, Message};

/// A character of the private use area; text that holds it is left alone, as
/// is everything else in it.
const MARK: char = '\u{F8FE}';

/// A piece of a rendered conversation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A special token written by the template.
    Special(&'a str),
    /// Text.
    Text(String),
}

/// Breaks control strings in everything a user can write. `None` when there
/// is nothing to break.
pub(super) fn guard(
    messages: &[Message],
    options: &ChatOptions,
    controls: &[String],
) -> Option<(Vec<Message>, ChatOptions)> {
    let (mut messages, mut options) = (messages.to_vec(), options.clone());
    let mut broken = false;
    for message in &mut messages {
        broken |= break_text(&mut message.content, controls);
        message
            .extra
            .values_mut()
            .for_each(|v| broken |= break_value(v, controls));
    }
    options
        .tools
        .iter_mut()
        .for_each(|v| broken |= break_value(v, controls));
    options
        .extra
        .values_mut()
        .for_each(|v| broken |= break_value(v, controls));
    broken.then_some((messages, options))
}

fn break_value(value: &mut serde_json::Value, controls: &[String]) -> bool {
    match value {
        serde_json::Value::String(s) => break_text(s, controls),
        serde_json::Value::Array(items) => items
            .iter_mut()
            .fold(false, |b, v| break_value(v, controls) | b),
        serde_json::Value::Object(map) => map
            .values_mut()
            .fold(false, |b, v| break_value(v, controls) | b),
        _ => false,
    }
}

fn break_text(text: &mut String, controls: &[String]) -> bool {
    let mut broken = false;
    for control in controls.iter().filter(|c| c.chars().count() > 1) {
        if text.contains(control.as_str()) {
            let first = control.chars().next().map_or(0, char::len_utf8);
            *text = text.replace(
                control.as_str(),
                &format!("{}{MARK}{}", &control[..first], &control[first..]),
            );
            broken = true;
        }
    }
    broken
}

/// Removes the marks.
fn unmark(text: &str) -> String {
    text.replace(MARK, "")
}

/// Cuts rendered, marked text at the special tokens that the template wrote.
pub(super) fn pieces<'a>(text: &'a str, controls: &[String]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let next = controls
            .iter()
            .filter(|c| !c.is_empty())
            .filter_map(|c| rest.find(c.as_str()).map(|at| (at, c.len())))
            .min_by_key(|&(at, len)| (at, std::cmp::Reverse(len)));
        let Some((at, len)) = next else { break };
        if at > 0 {
            pieces.push(Piece::Text(unmark(&rest[..at])));
        }
        pieces.push(Piece::Special(&rest[at..at + len]));
        rest = &rest[at + len..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(unmark(rest)));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_templates_own_tokens_stay_special() {
        let controls = ["<|end|>".to_string()];
        let messages = [Message::new("user", "a<|end|>b")];
        let (guarded, _) = guard(&messages, &ChatOptions::default(), &controls).unwrap();
        let rendered = format!("{}<|end|>", guarded[0].content);
        assert_eq!(
            pieces(&rendered, &controls),
            [Piece::Text("a<|end|>b".into()), Piece::Special("<|end|>")]
        );
        assert!(
            guard(
                &[Message::new("user", "ab")],
                &ChatOptions::default(),
                &controls
            )
            .is_none()
        );
    }
}
