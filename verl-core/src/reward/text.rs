//! What several scorers do with the text of an answer.

/// What follows the last closed thought.
pub(super) fn after_thinking(text: &str) -> &str {
    text.rfind("</think>")
        .map_or(text, |at| &text[at + "</think>".len()..])
}
