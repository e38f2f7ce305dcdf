//! The verdicts of verl's `math_reward`: strings after a few replacements.

use super::Cause;

/// Right when the last box equals the ground truth as a string.
///
/// An assertion that fails inside verl counts as a wrong answer there; so it
/// does here, and a box that its reader cannot open is no answer.
pub(super) fn judge(text: &str, truth: &str) -> Cause {
    match boxed(text) {
        None => Cause::NoAnswer,
        Some(answer) if equal(answer, truth) => Cause::Correct,
        Some(_) => Cause::Wrong,
    }
}

/// `\boxed x` up to a dollar sign where there is any, else the last
/// `\boxed{}`. `\fbox` is found by verl and then refused.
fn boxed(text: &str) -> Option<&str> {
    const SPACED: &str = "\\boxed ";
    if let Some(at) = text.rfind(SPACED) {
        return text[at + SPACED.len()..].split('$').next();
    }
    let rest = &text[text.rfind("\\boxed")? + "\\boxed".len()..];
    let mut open = 0_usize;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => open += 1,
            '}' if open == 1 => return rest[..at].strip_prefix('{'),
            // A count below zero never comes back to zero at a closing brace.
            '}' if open == 0 => return None,
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

fn equal(a: &str, b: &str) -> bool {
    match (stripped(a), stripped(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// The string that is compared; `None` where verl raises an exception.
fn stripped(text: &str) -> Option<String> {
    let mut text = text
        .replace('\n', "")
        .replace("\\!", "")
        .replace("\\\\", "\\")
        .replace("tfrac", "frac")
        .replace("dfrac", "frac")
        .replace("\\left", "")
        .replace("\\right", "")
        .replace("^{\\circ}", "")
        .replace("^\\circ", "")
        .replace("\\$", "");
    match text.split("\\text{ ").collect::<Vec<_>>()[..] {
        [_] => {}
        [value, _] => text = value.to_string(),
        _ => return None,
    }
    text = text
        .replace("\\%", "")
        .replace(" .", " 0.")
        .replace("{.", "{0.");
    if text.starts_with('.') {
        text.insert(0, '0');
    }
    if let [name, value] = text.split('=').collect::<Vec<_>>()[..]
        && name.chars().count() <= 2
    {
        text = value.to_string();
    }
    text = fractions(&roots(&text)?.replace(' ', ""))?;
    if text == "0.5" {
        text = "\\frac{1}{2}".into();
    }
    Some(slash(&text).unwrap_or(text))
}

/// `\sqrt2` to `\sqrt{2}`.
fn roots(text: &str) -> Option<String> {
    let mut parts = text.split("\\sqrt");
    let mut out = parts.next()?.to_string();
    for part in parts {
        let first = part.chars().next()?;
        out.push_str("\\sqrt");
        if first == '{' {
            out.push_str(part);
        } else {
            out.push_str(&format!("{{{first}}}{}", &part[first.len_utf8()..]));
        }
    }
    Some(out)
}

/// `\frac12` and `\frac1{2}` to `\frac{1}{2}`.
fn fractions(text: &str) -> Option<String> {
    let mut parts = text.split("\\frac");
    let mut out = parts.next()?.to_string();
    for part in parts {
        out.push_str("\\frac");
        let mut chars = part.chars();
        let first = chars.next()?;
        if first == '{' {
            out.push_str(part);
            continue;
        }
        let Some(second) = chars.next() else {
            return Some(text.to_string());
        };
        match second {
            '{' => out.push_str(&format!("{{{first}}}{{{}", chars.as_str())),
            _ => out.push_str(&format!("{{{first}}}{{{second}}}{}", chars.as_str())),
        }
    }
    Some(out)
}

/// `a/b` of two integers to a fraction.
fn slash(text: &str) -> Option<String> {
    let (a, b) = text.split_once('/')?;
    let integer = |s: &str| {
        let digits = s.strip_prefix('-').unwrap_or(s);
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        plain && (s == "0" || !digits.starts_with('0'))
    };
    (integer(a) && integer(b)).then(|| format!("\\frac{{{a}}}{{{b}}}"))
}
