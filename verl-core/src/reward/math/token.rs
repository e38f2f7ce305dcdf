//! LaTeX as a list of tokens with one spelling for each meaning.
//!
//! Layout (spaces, sizes, fonts, dollar signs, degrees) is dropped. A rule
//! that looks at its surroundings looks only at the tokens already kept, so
//! that reading the printed tokens again gives the same tokens.

use super::number;
use std::fmt;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A plain decimal in canonical digits.
    Number(String),
    /// Words: `\text{cm}`, or a bare word.
    Text(String),
    /// A command without its backslash; `{`, `}` and `\` are escaped ones.
    Command(String),
    /// `\begin{name}`.
    Begin(String),
    /// `\end{name}`.
    End(String),
    /// Any other character.
    Symbol(char),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Number(digits) => f.write_str(digits),
            Token::Text(words) => write!(f, "\\text{{{words}}}"),
            Token::Command(name) => write!(f, "\\{name}"),
            Token::Begin(name) => write!(f, "\\begin{{{name}}}"),
            Token::End(name) => write!(f, "\\end{{{name}}}"),
            Token::Symbol(c) => write!(f, "{c}"),
        }
    }
}

impl Token {
    /// Whether this is the command `name`.
    pub(super) fn is_command(&self, name: &str) -> bool {
        matches!(self, Token::Command(own) if own == name)
    }
}

/// The tokens of a text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = reader.step(c, rest);
    }
    reader.kept
}

/// Tokens as text, a space between any two.
pub(super) fn print(tokens: &[Token]) -> String {
    let printed: Vec<String> = tokens.iter().map(Token::to_string).collect();
    printed.join(" ")
}

#[derive(Default)]
struct Reader {
    kept: Vec<Token>,
    /// Open brackets, between which a comma separates elements.
    brackets: usize,
}

impl Reader {
    /// Reads what starts with `c` and returns the rest.
    fn step<'a>(&mut self, c: char, rest: &'a str) -> &'a str {
        let next = &rest[c.len_utf8()..];
        if self.wants_one_digit() && (c == '.' || c.is_ascii_digit()) {
            if c != '.' {
                self.kept.push(Token::Number(c.into()));
            }
            return next;
        }
        if let Some((number, behind)) = number::leading(rest, self.brackets == 0) {
            self.number(number);
            return behind;
        }
        match c {
            '\\' => self.command(next),
            'a'..='z' | 'A'..='Z' => self.letters(rest),
            _ => {
                self.character(c);
                next
            }
        }
    }

    /// `\frac12` is one half.
    fn wants_one_digit(&self) -> bool {
        let fraction = |t: Option<&Token>| t.is_some_and(|t| t.is_command("frac"));
        match &self.kept[..] {
            [.., before, Token::Number(n)] if n.len() == 1 => fraction(Some(before)),
            kept => fraction(kept.last()),
        }
    }

    fn number(&mut self, number: String) {
        if !self.wants_one_digit() || number.len() == 1 {
            return self.kept.push(Token::Number(number));
        }
        let mut rest = &number[..];
        while let Some(c) = rest.chars().next() {
            rest = self.step(c, rest);
        }
    }

    fn character(&mut self, c: char) {
        let command = match c {
            '−' | '–' | '﹣' | '－' => return self.symbol('-'),
            '×' | '·' | '⋅' | '∗' => return self.symbol('*'),
            '÷' => return self.symbol('/'),
            'π' => "pi",
            '√' => "sqrt",
            '∞' => "infty",
            '≤' => "leq",
            '≥' => "geq",
            '≠' => "neq",
            '±' => "pm",
            '∪' => "cup",
            '∅' => "emptyset",
            '°' | '$' | '~' | '.' | '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}' => return,
            c if c.is_whitespace() || c.is_control() => return,
            c => return self.symbol(c),
        };
        self.kept.push(Token::Command(command.into()));
    }

    fn symbol(&mut self, c: char) {
        match c {
            '(' | '[' => self.brackets += 1,
            ')' | ']' => self.brackets = self.brackets.saturating_sub(1),
            '+' if self.starts_an_element() => return,
            _ => {}
        }
        self.kept.push(Token::Symbol(c));
        if let [.., up, open, ring, _] = &self.kept[..]
            && [up, open] == [&Token::Symbol('^'), &Token::Symbol('{')]
            && ring.is_command("circ")
            && c == '}'
        {
            self.kept.truncate(self.kept.len() - 4);
        }
    }

    /// Where a plus sign says nothing.
    fn starts_an_element(&self) -> bool {
        match self.kept.last() {
            None => true,
            Some(Token::Symbol(c)) => "([{,=".contains(*c),
            Some(Token::Command(name)) => name == "{",
            _ => false,
        }
    }

    fn command<'a>(&mut self, rest: &'a str) -> &'a str {
        let length = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (name, behind) = match length {
            0 => rest.split_at(rest.chars().next().map_or(0, char::len_utf8)),
            _ => rest.split_at(length),
        };
        match name {
            "left" | "right" | "big" | "Big" | "bigg" | "Bigg" => {
                return behind.strip_prefix('.').unwrap_or(behind);
            }
            "text" | "textbf" | "textit" | "textrm" | "texttt" | "mathrm" | "mbox" | "emph"
            | "operatorname" => return self.text(behind),
            "begin" | "end" => return self.environment(name == "begin", behind),
            "" | " " | "," | ";" | ":" | "!" | "(" | ")" | "[" | "]" | "$" | "displaystyle"
            | "textstyle" | "limits" | "quad" | "qquad" | "mathbf" | "mathit" | "mathsf" | "bm"
            | "boldsymbol" | "boxed" | "fbox" | "degree" => {}
            name if name.starts_with(char::is_whitespace) => {}
            "%" | "&" | "#" | "_" => self.character(name.chars().next().unwrap_or(' ')),
            "lbrace" | "{" => self.bracket("{"),
            "rbrace" | "}" => self.bracket("}"),
            "|" | "vert" | "lvert" | "rvert" | "mid" => self.symbol('|'),
            "cdot" | "times" | "ast" => self.symbol('*'),
            "div" => self.symbol('/'),
            "colon" => self.symbol(':'),
            "lt" => self.symbol('<'),
            "gt" => self.symbol('>'),
            "circ" if self.kept.last() == Some(&Token::Symbol('^')) => {
                self.kept.pop();
            }
            name => self.kept.push(Token::Command(canonical(name).into())),
        }
        behind
    }

    fn bracket(&mut self, name: &str) {
        match name {
            "{" => self.brackets += 1,
            _ => self.brackets = self.brackets.saturating_sub(1),
        }
        self.kept.push(Token::Command(name.into()));
    }

    /// The argument of a text command; a number in front of it is a number.
    fn text<'a>(&mut self, rest: &'a str) -> &'a str {
        let Some(inner) = rest.trim_start().strip_prefix('{') else {
            return rest;
        };
        let mut open = 1;
        let end = inner.find(|c| {
            open += i32::from(c == '{') - i32::from(c == '}');
            open == 0
        });
        let (content, behind) = match end {
            Some(end) => (&inner[..end], &inner[end + 1..]),
            None => (inner, ""),
        };
        let mut words = plain_words(content);
        while let Some((number, unit)) = number::leading(&words, true) {
            self.number(number);
            words = unit.trim_start().to_string();
        }
        self.words(words);
        behind
    }

    /// Neighbouring words are one text.
    fn words(&mut self, words: String) {
        if words.is_empty() {
            return;
        }
        match self.kept.last_mut() {
            Some(Token::Text(before)) => {
                before.push(' ');
                before.push_str(&words);
            }
            _ => self.kept.push(Token::Text(words)),
        }
    }

    fn environment<'a>(&mut self, begins: bool, rest: &'a str) -> &'a str {
        let group = rest.strip_prefix('{').and_then(|r| r.split_once('}'));
        let Some((name, behind)) = group else {
            return rest;
        };
        let name: String = name.chars().filter(char::is_ascii_alphabetic).collect();
        let name = match &name[..] {
            "pmatrix" | "bmatrix" | "Bmatrix" | "smallmatrix" => "matrix".into(),
            _ => name,
        };
        self.kept.push(match begins {
            true => Token::Begin(name),
            false => Token::End(name),
        });
        behind
    }

    /// A run of letters: a name that needs a backslash, a word, or variables.
    fn letters<'a>(&mut self, rest: &'a str) -> &'a str {
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        let unit = match self.kept.last() {
            Some(Token::Number(_)) => UNITS.contains(&run),
            Some(Token::Text(_)) => run.len() > 1,
            last => last.is_none() && run.len() > 2,
        };
        match run {
            "sqrt" | "pi" | "sin" | "cos" | "tan" | "log" | "ln" => {
                self.kept.push(Token::Command(run.into()));
            }
            "and" | "or" => self.words(run.into()),
            run if unit => self.words(run.into()),
            run => self.kept.extend(run.chars().map(Token::Symbol)),
        }
        behind
    }
}

fn canonical(name: &str) -> &str {
    match name {
        "dfrac" | "tfrac" | "cfrac" => "frac",
        "dbinom" | "tbinom" => "binom",
        "le" | "leqslant" => "leq",
        "ge" | "geqslant" => "geq",
        "ne" => "neq",
        "varnothing" => "emptyset",
        "infinity" => "infty",
        name => name,
    }
}

/// A text's words with one space between them, without markup.
fn plain_words(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| {
            if "{}\\$~".contains(c) || c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words that follow a number as its unit without `\text`.
const UNITS: [&str; 27] = [
    "cm", "mm", "km", "kg", "ft", "inches", "feet", "miles", "mph", "meters", "hours", "hour",
    "minutes", "seconds", "days", "weeks", "years", "dollars", "cents", "units", "degrees",
    "percent", "square", "cubic", "people", "ways", "points",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_meaning() {
        let printed = |text: &str| print(&tokens(text));
        for (text, want) in [
            ("\\dfrac12", "\\frac 1 2"),
            ("1{,}000", "1000"),
            ("$1,000.50$", "1000.5"),
            ("(100,200)", "( 100 , 200 )"),
            ("042.0", "42"),
            ("90^{\\circ}", "90"),
            ("\\left(1, +2\\right.", "( 1 , 2"),
            ("12\\mathrm{~cm}", "12 \\text{cm}"),
            ("5 dollars", "5 \\text{dollars}"),
            ("Monday", "\\text{Monday}"),
            ("2xy", "2 x y"),
        ] {
            assert_eq!(printed(text), want, "{text}");
        }
    }
}
