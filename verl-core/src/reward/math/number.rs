//! Plain decimal numbers, in one spelling each.

/// Reads the number at the start of `text`: its canonical digits and the rest.
///
/// Groups of three digits may be separated by `{,}`, `\,` or `\!`, and by a
/// comma where `grouped_by_comma`. A dot that no digit follows ends a sentence.
pub(super) fn leading(text: &str, grouped_by_comma: bool) -> Option<(String, &str)> {
    let (mut whole, mut rest) = digits(text);
    if whole.len() <= 3 && !whole.is_empty() {
        while let Some((group, after)) = next_group(rest, grouped_by_comma) {
            whole.push_str(&group);
            rest = after;
        }
    }
    let mut fraction = String::new();
    if let Some(behind) = rest.strip_prefix('.') {
        let (found, after) = digits(behind);
        if !found.is_empty() {
            (fraction, rest) = (found, after);
        } else if !whole.is_empty() {
            rest = behind;
        }
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let number = match fraction.trim_end_matches('0') {
        "" => whole.to_string(),
        fraction => format!("{whole}.{fraction}"),
    };
    Some((number, rest))
}

fn next_group(rest: &str, by_comma: bool) -> Option<(String, &str)> {
    let separators = ["{,}", "\\,", "\\!", ","];
    let offered = &separators[..if by_comma { 4 } else { 3 }];
    let behind = offered.iter().find_map(|s| rest.strip_prefix(*s))?;
    // Only four characters decide, so that a long run of digits is read once.
    let end = behind
        .char_indices()
        .take(4)
        .take_while(|(_, c)| digit(*c).is_some());
    (end.count() == 3).then(|| {
        let end = behind
            .char_indices()
            .nth(3)
            .map_or(behind.len(), |(i, _)| i);
        (digits(&behind[..end]).0, &behind[end..])
    })
}

fn digits(text: &str) -> (String, &str) {
    let end = text.find(|c| digit(c).is_none()).unwrap_or(text.len());
    (
        text[..end].chars().filter_map(digit).collect(),
        &text[end..],
    )
}

/// An ASCII digit, also for the full-width ones.
fn digit(c: char) -> Option<char> {
    match c {
        '0'..='9' => Some(c),
        '０'..='９' => char::from_digit(c as u32 - '０' as u32, 10),
        _ => None,
    }
}
