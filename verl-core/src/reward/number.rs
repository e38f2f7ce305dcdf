//! Numbers as people write them, compared exactly.

/// A decimal number of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: String,
    /// Digits after it, without trailing zeros.
    fraction: String,
}

impl Number {
    /// Reads a text that is one number, with whatever stands around numbers:
    /// currency signs, units, quotes, markup.
    pub(super) fn parse(text: &str) -> Option<Number> {
        match &found(&normalised(text))[..] {
            [one] => one.number.clone(),
            _ => None,
        }
    }

    /// The number that a final answer states: alone in its line, or behind the
    /// last `=` of it. Two numbers side by side state none.
    pub(super) fn stated(region: &str) -> Option<Number> {
        let line = region.trim_start().lines().next().unwrap_or_default();
        let line = normalised(line);
        let side = line.rsplit('=').next().unwrap_or(&line);
        let runs = found(side);
        let first = runs.first()?;
        let denied = side[..first.start]
            .split_whitespace()
            .any(|w| w.eq_ignore_ascii_case("not"));
        let offers_another = runs[1..].iter().any(|r| {
            let between = &side[first.end..r.start];
            // What stands in brackets or behind a comma comments on the answer.
            !between.contains(['(', ',', '.'])
        });
        if denied || offers_another {
            None
        } else {
            first.number.clone()
        }
    }

    /// The last number of a text.
    pub(super) fn last(text: &str) -> Option<Number> {
        found(&normalised(text))
            .into_iter()
            .rev()
            .find_map(|run| run.number)
    }
}

/// A number's place in a text; `None` where the digits are no number.
struct Run {
    start: usize,
    end: usize,
    number: Option<Number>,
}

/// One spelling for each sign, digit and separator.
fn normalised(text: &str) -> String {
    let text = text
        .replace("{,}", ",")
        .replace("\\,", "")
        .replace("\\$", "")
        .replace("\\%", "%");
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '−' | '–' | '‒' | '﹣' | '－' => out.push('-'),
            '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}' => {}
            '\u{A0}' | '\u{202F}' | '\u{2009}' => out.push(' '),
            '’' => out.push('\''),
            c if c.is_ascii() => out.push(c),
            c => match digit_value(c) {
                Some(d) => out.push(char::from(b'0' + d)),
                None => out.push(c),
            },
        }
    }
    out
}

/// Value of a decimal digit of the scripts in use.
fn digit_value(c: char) -> Option<u8> {
    const ZEROS: [u32; 6] = [0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50, 0xFF10];
    let zero = ZEROS
        .iter()
        .find(|z| (**z..**z + 10).contains(&(c as u32)))?;
    u8::try_from(c as u32 - zero).ok()
}

/// All numbers of a normalised text.
fn found(text: &str) -> Vec<Run> {
    let bytes = text.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    let mut runs = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let starts = digit(i) || (bytes[i] == b'.' && digit(i + 1));
        if !starts {
            i += 1;
            continue;
        }
        let start = i;
        i = end_of_run(bytes, i);
        let number = decimal(&text[start..i], is_negative(&text[..start]));
        runs.push(Run {
            start,
            end: i,
            number,
        });
    }
    runs
}

/// Digits with points, and with separators between groups of digits.
fn end_of_run(bytes: &[u8], mut i: usize) -> usize {
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    let group = |i: usize| digit(i) && digit(i + 1) && digit(i + 2) && !digit(i + 3);
    loop {
        match bytes.get(i) {
            Some(b'0'..=b'9') => i += 1,
            Some(b'.' | b',' | b':' | b'/') if digit(i + 1) => i += 1,
            Some(b' ' | b'\'') if group(i + 1) => i += 1,
            _ => return i,
        }
    }
}

/// Whether a minus sign stands before a number, a currency sign or a space
/// between them allowed; one behind a number is a dash.
fn is_negative(before: &str) -> bool {
    let before = before.trim_end_matches([' ', '$', '€', '£', '*', '"']);
    let Some(rest) = before.strip_suffix('-') else {
        return false;
    };
    !rest
        .trim_end()
        .ends_with(|c: char| c.is_ascii_digit() || c == '.')
}

/// Reads digits, group separators and at most one point.
fn decimal(run: &str, negative: bool) -> Option<Number> {
    let run = run.replace([' ', '\''], "");
    let (whole, fraction) = run.split_once('.').unwrap_or((&run, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !plain(fraction) {
        return None;
    }
    let whole: String = match whole.split_once(',') {
        None => whole.to_string(),
        Some(_) if well_grouped(whole) => whole.replace(',', ""),
        // A decimal comma.
        Some((w, f)) if fraction.is_empty() && plain(w) && plain(f) => {
            return decimal(&format!("{w}.{f}"), negative);
        }
        Some(_) => return None,
    };
    if !plain(&whole) {
        return None;
    }
    let (whole, fraction) = (
        whole.trim_start_matches('0').to_string(),
        fraction.trim_end_matches('0').to_string(),
    );
    let zero = whole.is_empty() && fraction.is_empty();
    Some(Number {
        negative: negative && !zero,
        whole,
        fraction,
    })
}

/// Groups of two or three digits, the last of three.
fn well_grouped(whole: &str) -> bool {
    let groups: Vec<&str> = whole.split(',').collect();
    let last = groups.last().is_some_and(|g| g.len() == 3);
    let inner = groups[1..].iter().all(|g| g.len() == 2 || g.len() == 3);
    last && inner && (1..=3).contains(&groups[0].len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_number() {
        let same = |a: &str, b: &str| assert_eq!(Number::parse(a), Number::parse(b), "{a} {b}");
        for (a, b) in [
            ("$18", "18"),
            ("18.00", "18"),
            ("70,000", "70000"),
            ("−5", "-5"),
            ("018", "18"),
            ("-0", "0"),
            (".5", "0.5"),
            ("70 000", "70000"),
            ("18,00", "18"),
            ("1,00,000", "100000"),
            ("１８", "18"),
            ("- 5", "-5"),
        ] {
            same(a, b);
        }
        assert_ne!(
            Number::parse("9007199254740993"),
            Number::parse("9007199254740992")
        );
        assert_eq!(Number::parse("1.8.0"), None);
    }

    #[test]
    fn hedges_state_nothing() {
        for text in ["18 or 20", "17-18", "not 18", "3:30", "..."] {
            assert_eq!(Number::stated(text), None, "{text}");
        }
        assert_eq!(Number::stated("20 (not 18)"), Number::parse("20"));
        assert_eq!(Number::stated("9 * 2 = 18"), Number::parse("18"));
    }
}
