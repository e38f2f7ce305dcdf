//! Whether two answers mean the same.

use super::complex::Complex;
use super::evaluate;
use super::token::{Token, print, tokens};

/// Tokens beyond which answers are compared by spelling only.
const MAX_TOKENS: usize = 600;
/// Sets, tuples and matrices within each other.
const MAX_DEPTH: usize = 8;
/// Points at which expressions are compared.
const POINTS: u64 = 6;

/// Whether `answer` means what `truth` means. An empty answer means nothing.
pub(super) fn equal(answer: &str, truth: &str) -> bool {
    let (answer, truth) = (tokens(answer), tokens(truth));
    if answer == truth {
        return !answer.is_empty();
    }
    let longest = answer.len().max(truth.len());
    longest <= MAX_TOKENS && same(&answer, &truth, MAX_DEPTH)
}

/// One spelling of an answer: equal spellings are equal answers.
#[cfg(test)]
pub(super) fn normalised(text: &str) -> String {
    print(&tokens(text))
}

fn same(a: &[Token], b: &[Token], depth: usize) -> bool {
    if a.is_empty() || b.is_empty() || depth == 0 {
        return false;
    }
    if a == b || words(a).is_some_and(|w| Some(w) == words(b)) {
        return true;
    }
    let ((a, unit_a), (b, unit_b)) = (without_unit(a), without_unit(b));
    if matches!((&unit_a, &unit_b), (Some(a), Some(b)) if a != b) {
        return false;
    }
    let ((a, name_a), (b, name_b)) = (without_name(a), without_name(b));
    if matches!((name_a, name_b), (Some(a), Some(b)) if a != b) {
        return false;
    }
    same_shape(a, b, depth - 1).unwrap_or_else(|| {
        same_value(a, b, 1.0)
            || (unit_a.as_deref() == Some("%") && unit_b.is_none() && same_value(a, b, 0.01))
            || (unit_b.as_deref() == Some("%") && unit_a.is_none() && same_value(b, a, 0.01))
    })
}

/// Compares what consists of parts; `None` where both are single expressions.
fn same_shape(a: &[Token], b: &[Token], depth: usize) -> Option<bool> {
    if let (Some(a), Some(b)) = (matrix(a), matrix(b)) {
        return Some(a.0 == b.0 && in_order(&a.1, &b.1, depth));
    }
    let unions = (
        split(a, |t| t.is_command("cup")),
        split(b, |t| t.is_command("cup")),
    );
    if unions.0.len() > 1 || unions.1.len() > 1 {
        return Some(in_any_order(&owned(unions.0), &owned(unions.1), depth));
    }
    if let (Some(a), Some(b)) = (relation(a), relation(b)) {
        return Some(a.0 == b.0 && in_order(&owned(a.1), &owned(b.1), depth));
    }
    match (bracketed(a), bracketed(b)) {
        (Some((open_a, a)), Some((open_b, b))) => {
            return Some(open_a == open_b && in_order(&owned(a), &owned(b), depth));
        }
        (Some((_, parts)), None) | (None, Some((_, parts))) => {
            let other = if bracketed(a).is_some() { b } else { a };
            return Some(in_order(&owned(parts), &owned(list(other)), depth));
        }
        (None, None) => {}
    }
    let ratios = (split(a, is_colon), split(b, is_colon));
    if ratios.0.len() > 1 && ratios.1.len() > 1 {
        return Some(in_order(&owned(ratios.0), &owned(ratios.1), depth));
    }
    if let (Some(a), Some(b)) = (equation(a), equation(b)) {
        return Some(same_equation(a, b));
    }
    let (a, b) = (collection(a), collection(b));
    (a.len() != 1 || b.len() != 1).then(|| in_any_order(&a, &b, depth))
}

fn is_colon(token: &Token) -> bool {
    *token == Token::Symbol(':')
}

fn owned(parts: Vec<&[Token]>) -> Vec<Vec<Token>> {
    parts.into_iter().map(<[Token]>::to_vec).collect()
}

fn in_order(a: &[Vec<Token>], b: &[Vec<Token>], depth: usize) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, depth))
}

/// Each element of one is an element of the other; repetition counts once.
fn in_any_order(a: &[Vec<Token>], b: &[Vec<Token>], depth: usize) -> bool {
    let within =
        |a: &[Vec<Token>], b: &[Vec<Token>]| a.iter().all(|a| b.iter().any(|b| same(a, b, depth)));
    within(a, b) && within(b, a)
}

/// Splits outside brackets.
fn split(tokens: &[Token], separates: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, 0_i32);
    for (at, token) in tokens.iter().enumerate() {
        open += opens(token);
        if open == 0 && separates(token) {
            parts.push(&tokens[start..at]);
            start = at + 1;
        }
    }
    parts.push(&tokens[start..]);
    parts
}

fn opens(token: &Token) -> i32 {
    match token {
        Token::Symbol('(' | '[' | '{') | Token::Begin(_) => 1,
        Token::Symbol(')' | ']' | '}') | Token::End(_) => -1,
        Token::Command(name) => i32::from(name == "{") - i32::from(name == "}"),
        _ => 0,
    }
}

/// What stands between brackets that enclose the whole.
fn inside<'a>(tokens: &'a [Token], open: &[Token], close: &[Token]) -> Option<&'a [Token]> {
    let [first, inner @ .., last] = tokens else {
        return None;
    };
    let mut depth = 0_i32;
    let enclosed = inner.iter().all(|token| {
        depth += opens(token);
        depth >= 0
    });
    (open.contains(first) && close.contains(last) && enclosed).then_some(inner)
}

/// Both brackets of a tuple, point or interval, and its parts.
type Bracketed<'a> = ((&'a Token, &'a Token), Vec<&'a [Token]>);

/// Takes a tuple, point or interval apart.
fn bracketed(tokens: &[Token]) -> Option<Bracketed<'_>> {
    let (open, close) = (['(', '['], [')', ']']);
    let inner = inside(tokens, &open.map(Token::Symbol), &close.map(Token::Symbol))?;
    let parts = split(inner, is_comma);
    (parts.len() > 1).then(|| ((&tokens[0], &tokens[tokens.len() - 1]), parts))
}

fn is_comma(token: &Token) -> bool {
    matches!(token, Token::Symbol(',' | ';'))
}

fn list(tokens: &[Token]) -> Vec<&[Token]> {
    let word = |t: &Token| matches!(t, Token::Text(word) if word == "and" || word == "or");
    let mut parts = split(tokens, |t| is_comma(t) || word(t));
    parts.retain(|part| !part.is_empty());
    parts
}

/// Elements of a set or a list, both signs of a `\pm` as two.
fn collection(tokens: &[Token]) -> Vec<Vec<Token>> {
    let brace = |name: &str| [Token::Command(name.into())];
    let inner = inside(tokens, &brace("{"), &brace("}")).unwrap_or(tokens);
    let mut elements = Vec::new();
    for element in list(inner) {
        match element.iter().position(|t| t.is_command("pm")) {
            None => elements.push(element.to_vec()),
            Some(at) => elements.extend(['+', '-'].map(|sign| {
                let mut signed = element.to_vec();
                signed[at] = Token::Symbol(sign);
                signed
            })),
        }
    }
    elements
}

/// Row length and cells of a matrix.
fn matrix(tokens: &[Token]) -> Option<(Vec<usize>, Vec<Vec<Token>>)> {
    let name = || "matrix".to_string();
    let inner = inside(tokens, &[Token::Begin(name())], &[Token::End(name())])?;
    let mut rows = split(inner, |t| t.is_command("\\"));
    rows.retain(|row| !row.is_empty());
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| split(row, |t| *t == Token::Symbol('&')))
        .collect();
    let lengths = rows.iter().map(Vec::len).collect();
    Some((lengths, owned(rows.into_iter().flatten().collect())))
}

/// Signs and sides of an inequality, the smaller side first.
fn relation(tokens: &[Token]) -> Option<(Vec<&'static str>, Vec<&[Token]>)> {
    let sign = |token: &Token| match token {
        Token::Symbol('<') => Some("<"),
        Token::Symbol('>') => Some(">"),
        Token::Command(name) => ["leq", "geq", "neq"].into_iter().find(|n| n == name),
        _ => None,
    };
    let mut sides = split(tokens, |t| sign(t).is_some());
    let mut signs: Vec<_> = tokens.iter().filter_map(sign).collect();
    if signs.is_empty() || sides.len() != signs.len() + 1 {
        return None;
    }
    if signs.iter().all(|s| matches!(*s, ">" | "geq")) {
        sides.reverse();
        signs.reverse();
        for sign in &mut signs {
            *sign = if *sign == ">" { "<" } else { "leq" };
        }
    }
    Some((signs, sides))
}

fn equation(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    match split(tokens, |t| *t == Token::Symbol('='))[..] {
        [left, right] => Some((left, right)),
        _ => None,
    }
}

/// Equations are equal when the differences of their sides are proportional.
fn same_equation(a: (&[Token], &[Token]), b: (&[Token], &[Token])) -> bool {
    let difference = |(left, right): (&[Token], &[Token]), point| {
        Some(evaluate::value(left, point)? - evaluate::value(right, point)?)
    };
    let ratios: Vec<Complex> = (0..POINTS)
        .filter_map(|point| Some(difference(a, point)? / difference(b, point)?))
        .filter(|ratio| ratio.is_finite() && ratio.abs() > 0.0)
        .collect();
    ratios.len() >= 3 && ratios.iter().all(|r| close(*r, ratios[0]))
}

/// An answer without the `x =` or `f(x) =` in front of its last side.
fn without_name(tokens: &[Token]) -> (&[Token], Option<&[Token]>) {
    let sides = split(tokens, |t| *t == Token::Symbol('='));
    let [name, .., last] = &sides[..] else {
        return (tokens, None);
    };
    let letter = |t: &Token| matches!(t, Token::Symbol(c) if c.is_alphabetic());
    let named = match name {
        [one] => letter(one) || matches!(one, Token::Command(_)),
        [one, Token::Symbol('_'), _] => letter(one),
        [one, Token::Symbol('('), _, Token::Symbol(')')] => letter(one),
        _ => false,
    };
    let list = last.iter().any(is_comma) && split(tokens, is_comma).len() > 1;
    match named && !list {
        true => (last, Some(name)),
        false => (tokens, None),
    }
}

/// An answer without the unit or the percent sign behind it.
fn without_unit(tokens: &[Token]) -> (&[Token], Option<String>) {
    if let [value @ .., Token::Symbol('%')] = tokens
        && !value.is_empty()
    {
        return (value, Some("%".into()));
    }
    let Some(at) = tokens.iter().rposition(|t| matches!(t, Token::Text(_))) else {
        return (tokens, None);
    };
    let (value, unit) = tokens.split_at(at);
    let power = matches!(unit[1..], [] | [Token::Symbol('^'), ..]);
    let closed = split(value, |_| false).len() == 1 && value.iter().map(opens).sum::<i32>() == 0;
    match power && unit.len() <= 5 && closed && !value.is_empty() {
        true => (value, Some(print(unit))),
        false => (tokens, None),
    }
}

/// An answer that consists of words and letters, in small letters.
fn words(tokens: &[Token]) -> Option<String> {
    let mut out = String::new();
    for token in tokens {
        match token {
            Token::Text(words) => out.push_str(words),
            Token::Symbol(c) if c.is_alphabetic() || "()".contains(*c) => out.push(*c),
            _ => return None,
        }
    }
    let inner = out.strip_prefix('(').and_then(|o| o.strip_suffix(')'));
    let out = inner.map_or(out.clone(), str::to_string);
    let text = tokens.iter().any(|t| matches!(t, Token::Text(_))) || out.len() == 1;
    let lower = |out: String| match out.len() {
        1 => out,
        _ => out.to_lowercase(),
    };
    text.then(|| lower(out))
}

/// Whether `a * scale` and `b` have one value wherever both have one.
fn same_value(a: &[Token], b: &[Token], scale: f64) -> bool {
    if let ([Token::Number(a)], [Token::Number(b)]) = (a, b)
        && scale == 1.0
    {
        return a == b;
    }
    let pairs: Vec<_> = (0..POINTS)
        .filter_map(|point| {
            let value = evaluate::value(a, point)? * Complex::real(scale);
            Some((value, evaluate::value(b, point)?))
        })
        .collect();
    pairs.len() >= 2 && pairs.iter().all(|(a, b)| close(*a, *b))
}

/// Equal to eleven digits.
fn close(a: Complex, b: Complex) -> bool {
    (a - b).abs() <= 1e-11 * a.abs().max(b.abs())
}
