//! Finds the answer in a solution. Every search is one pass over the text.

use crate::reward::text::after_thinking;

/// The content of the last box. An unclosed last box is no answer.
pub(super) fn boxed(text: &str) -> Option<&str> {
    content(last_box(after_thinking(text))?.1)
}

/// The last box or the text behind a later `Answer:`, whichever comes last;
/// without either, the last formula between dollar signs.
pub(super) fn stated(text: &str) -> Option<&str> {
    let text = after_thinking(text);
    match (last_box(text), last_answer_line(text)) {
        (Some((at, _)), Some((line_at, line))) if line_at > at => Some(line),
        (Some((_, rest)), _) => content(rest),
        (None, Some((_, line))) => Some(line),
        (None, None) => last_formula(text),
    }
}

/// Where the last box command stands, and what follows the command.
fn last_box(text: &str) -> Option<(usize, &str)> {
    ["\\boxed", "\\fbox"]
        .into_iter()
        .filter_map(|command| {
            let at = text.rfind(command)?;
            Some((at, &text[at + command.len()..]))
        })
        .max_by_key(|(at, _)| *at)
}

/// The balanced group that a text starts with, or its first word.
fn content(rest: &str) -> Option<&str> {
    let rest = rest.trim_start();
    let Some(inner) = rest.strip_prefix('{') else {
        let end = rest.find(|c: char| c.is_whitespace() || c == '$');
        return Some(&rest[..end.unwrap_or(rest.len())]).filter(|word| !word.is_empty());
    };
    let mut open = 1;
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            '\\' => {
                escaped = !escaped;
                continue;
            }
            '{' if !escaped => open += 1,
            '}' if !escaped => open -= 1,
            _ => {}
        }
        escaped = false;
        if open == 0 {
            return Some(&inner[..at]);
        }
    }
    None
}

/// The rest of the line behind the last `answer:` or `answer is`.
fn last_answer_line(text: &str) -> Option<(usize, &str)> {
    const MARK: &str = "answer";
    let lower = text.to_ascii_lowercase();
    lower.rmatch_indices(MARK).find_map(|(at, _)| {
        let line = text[at + MARK.len()..].lines().next()?;
        let line = line.trim_start();
        let behind = line
            .strip_prefix(':')
            .or_else(|| line.strip_prefix("is "))
            .or_else(|| line.strip_prefix("**:"))?;
        let answer = behind.trim_matches(|c: char| c.is_whitespace() || "*.:".contains(c));
        (!answer.is_empty()).then_some((at, answer))
    })
}

/// What stands between the last two dollar signs or pairs of them.
fn last_formula(text: &str) -> Option<&str> {
    let end = text.rfind('$')?;
    let before = text[..end].trim_end_matches('$');
    let start = before.rfind('$')? + 1;
    Some(&before[start..]).filter(|formula| !formula.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_balance_and_an_open_box_is_no_answer() {
        assert_eq!(boxed("\\boxed{\\frac{2}{5}} so"), Some("\\frac{2}{5}"));
        assert_eq!(boxed("\\boxed{\\{1, 2\\}}"), Some("\\{1, 2\\}"));
        assert_eq!(boxed("\\fbox{9}"), Some("9"));
        assert_eq!(boxed("\\boxed{2}, then \\boxed{3"), None);
        assert_eq!(boxed("\\boxed"), None);
        assert_eq!(boxed("<think>\\boxed{4}</think> unknown"), None);
    }

    #[test]
    fn the_last_statement_counts() {
        assert_eq!(stated("\\boxed{5}\nAnswer: 4."), Some("4"));
        assert_eq!(stated("Answer: $\\boxed{4}$"), Some("4"));
        assert_eq!(stated("**Final answer:** 4"), Some("4"));
        assert_eq!(stated("so $$x = 7$$"), Some("x = 7"));
        assert_eq!(stated("I do not know"), None);
    }
}
