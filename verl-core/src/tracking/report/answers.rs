//! Answers before and after training, side by side.

use super::escape;
use crate::tracking::{Completion, Split};
use std::fmt::Write;

/// Most prompts shown.
const SHOWN: usize = 6;

/// The first and the last answer to each prompt that was answered at both
/// ends of the run. Where validation was not logged, training prompts, which
/// rarely come twice, are shown as they are.
pub(super) fn render(page: &mut String, completions: &[Completion]) {
    let mut pairs = pairs(completions, Split::Val);
    if pairs.is_empty() {
        pairs = self::pairs(completions, Split::Train);
    }
    if !pairs.is_empty() {
        page.push_str("<h2>Answers before and after</h2>");
        for (before, after) in pairs.into_iter().take(SHOWN) {
            prompt(page, before);
            page.push_str("<div class=\"sides\">");
            side(page, before);
            side(page, after);
            page.push_str("</div></div>");
        }
        return;
    }
    let ends = [completions.first(), completions.last()].map(|c| c.map(|c| c.step));
    for (heading, step) in ["Answers of the first step", "Answers of the last step"]
        .into_iter()
        .zip(ends)
    {
        let of_step: Vec<_> = completions
            .iter()
            .filter(|c| Some(c.step) == step)
            .take(SHOWN / 2)
            .collect();
        if of_step.is_empty() {
            continue;
        }
        let _ = write!(page, "<h2>{heading}</h2>");
        for completion in of_step {
            prompt(page, completion);
            page.push_str("<div class=\"sides\">");
            side(page, completion);
            page.push_str("</div></div>");
        }
    }
}

fn pairs(completions: &[Completion], split: Split) -> Vec<(&Completion, &Completion)> {
    let of_split: Vec<_> = completions.iter().filter(|c| c.split == split).collect();
    let (Some(first), Some(last)) = (
        of_split.iter().map(|c| c.step).min(),
        of_split.iter().map(|c| c.step).max(),
    ) else {
        return Vec::new();
    };
    if first == last {
        return Vec::new();
    }
    let mut pairs: Vec<(&Completion, &Completion)> = Vec::new();
    for before in of_split.iter().filter(|c| c.step == first) {
        let seen = pairs.iter().any(|(known, _)| known.prompt == before.prompt);
        let after = of_split
            .iter()
            .find(|c| c.step == last && c.prompt == before.prompt);
        if let (false, Some(after)) = (seen, after) {
            pairs.push((before, after));
        }
    }
    pairs
}

/// Opens the box of a prompt.
fn prompt(page: &mut String, completion: &Completion) {
    let _ = write!(
        page,
        "<div class=\"pair\"><div class=\"label\">prompt</div><pre>{}</pre>",
        escape(completion.prompt.trim_end())
    );
    if let Some(reference) = &completion.reference {
        let _ = write!(
            page,
            "<div class=\"label\" style=\"margin-top:6px\">right answer: {}</div>",
            escape(reference)
        );
    }
}

fn side(page: &mut String, c: &Completion) {
    let score = match c.score {
        Some(score) => {
            let class = if score > 0.0 { "up" } else { "down" };
            format!(
                "<span class=\"score {class}\">score {}</span>",
                (score * 1000.0).round() / 1000.0
            )
        }
        None => "<span class=\"score down\">not scored</span>".to_string(),
    };
    let when = if c.step == 0 {
        "before training".to_string()
    } else {
        format!("step {}", c.step)
    };
    let cause = c
        .cause
        .as_deref()
        .map(|cause| format!("<span>{}</span>", escape(cause)))
        .unwrap_or_default();
    let _ = write!(
        page,
        "<div><div class=\"label\"><span>{when}</span>{score}<span>{} tokens, {}</span>{cause}</div><pre>{}</pre></div>",
        c.tokens,
        escape(&c.finish),
        escape(c.response.trim_end())
    );
}
