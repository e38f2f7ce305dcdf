//! The value of an expression where its variables have given values.

use super::complex::Complex;
use super::token::Token;

/// Brackets and arguments within each other beyond which nothing is evaluated.
const MAX_DEPTH: usize = 60;

const GREEK: [&str; 20] = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "varepsilon",
    "zeta",
    "eta",
    "theta",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "rho",
    "sigma",
    "tau",
    "phi",
    "varphi",
    "omega",
    "psi",
];

/// The value of an expression at a point; points are numbered.
///
/// `None` where the tokens are no expression or have no finite value there.
pub(super) fn value(tokens: &[Token], point: u64) -> Option<Complex> {
    let mut reader = Reader {
        tokens,
        at: 0,
        depth: 0,
        point,
    };
    let value = reader.sum()?;
    (reader.at == tokens.len() && value.is_finite()).then_some(value)
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    point: u64,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn takes(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sum(&mut self) -> Option<Complex> {
        let mut total = self.product()?;
        loop {
            if self.takes('+') {
                total = total + self.product()?;
            } else if self.takes('-') {
                total = total - self.product()?;
            } else {
                return Some(total);
            }
        }
    }

    fn product(&mut self) -> Option<Complex> {
        let mut total = self.signed()?;
        loop {
            if self.takes('*') {
                total = total * self.signed()?;
            } else if self.takes('/') {
                total = total / self.signed()?;
            } else if self.starts_a_factor() {
                total = total * self.power()?;
            } else {
                return Some(total);
            }
        }
    }

    fn starts_a_factor(&self) -> bool {
        match self.peek() {
            // Two numbers side by side are no product.
            Some(Token::Number(_)) => {
                !matches!(self.tokens[..self.at].last(), Some(Token::Number(_)))
            }
            Some(Token::Symbol(c)) => c.is_alphabetic() || "({[".contains(*c),
            Some(Token::Command(name)) => starts_a_value(name),
            _ => false,
        }
    }

    fn signed(&mut self) -> Option<Complex> {
        let mut negative = false;
        loop {
            if self.takes('-') {
                negative = !negative;
            } else if !self.takes('+') {
                break;
            }
        }
        let value = self.power()?;
        Some(if negative { -value } else { value })
    }

    fn power(&mut self) -> Option<Complex> {
        let mut base = self.atom()?;
        loop {
            if self.takes('!') {
                base = factorial(base)?;
            } else if self.takes('%') {
                base = base / Complex::real(100.0);
            } else {
                break;
            }
        }
        match self.takes('^') {
            true => Some(base.pow(self.nested(Self::exponent)?)),
            false => Some(base),
        }
    }

    fn exponent(&mut self) -> Option<Complex> {
        let negative = self.takes('-');
        let value = self.power()?;
        Some(if negative { -value } else { value })
    }

    fn atom(&mut self) -> Option<Complex> {
        let token = self.peek()?.clone();
        self.at += 1;
        match token {
            Token::Number(digits) => self.number(&digits),
            Token::Symbol('(') => self.enclosed(')'),
            Token::Symbol('[') => self.enclosed(']'),
            Token::Symbol('{') => self.enclosed('}'),
            Token::Symbol('|') => Some(Complex::real(self.enclosed('|')?.abs())),
            Token::Symbol('i') => Some(Complex::I),
            Token::Symbol('e') => Some(Complex::real(std::f64::consts::E)),
            Token::Symbol(c) if c.is_alphabetic() => self.variable(c.to_string()),
            Token::Command(name) => self.command(&name),
            _ => None,
        }
    }

    /// A plain number, one with a base as index, or a mixed number.
    fn number(&mut self, digits: &str) -> Option<Complex> {
        if self.takes('_') {
            let base = self.nested(Self::atom)?.as_natural(36)?;
            return in_base(digits, base);
        }
        let value = Complex::real(digits.parse().ok()?);
        let mixed = self.peek().is_some_and(|t| t.is_command("frac")) && !digits.contains('.');
        let numerator = (self.tokens.get(self.at + 1), self.tokens.get(self.at + 2));
        let plain = |t: Option<&Token>| matches!(t, Some(Token::Number(_)));
        if mixed && (plain(numerator.0) || plain(numerator.1)) {
            let start = self.at;
            let fraction = self.atom()?;
            if fraction.im == 0.0 && (0.0..1.0).contains(&fraction.re) {
                return Some(value + fraction);
            }
            self.at = start;
        }
        Some(value)
    }

    fn enclosed(&mut self, closer: char) -> Option<Complex> {
        let value = self.nested(Self::sum)?;
        self.takes(closer).then_some(value)
    }

    /// The argument of a command: a group or a single atom.
    fn argument(&mut self) -> Option<Complex> {
        self.nested(Self::atom)
    }

    fn command(&mut self, name: &str) -> Option<Complex> {
        match name {
            "pi" => Some(Complex::real(std::f64::consts::PI)),
            "frac" => Some(self.argument()? / self.argument()?),
            "binom" => binomial(self.argument()?, self.argument()?),
            "sqrt" if self.takes('[') => {
                let degree = self.enclosed(']')?;
                Some(self.argument()?.pow(Complex::real(1.0) / degree))
            }
            "sqrt" => Some(self.argument()?.sqrt()),
            "sin" | "cos" | "tan" | "cot" | "sec" | "csc" | "ln" | "log" | "exp" => {
                self.function(name)
            }
            name if GREEK.contains(&name) => self.variable(name.to_string()),
            _ => None,
        }
    }

    /// A function with an optional base, power and brackets.
    fn function(&mut self, name: &str) -> Option<Complex> {
        let base = match self.takes('_') {
            true => Some(self.argument()?),
            false => None,
        };
        let power = match self.takes('^') {
            true => Some(self.argument()?),
            false => None,
        };
        let x = self.nested(Self::operand)?;
        let one = Complex::real(1.0);
        let value = match name {
            "sin" => x.sin(),
            "cos" => x.cos(),
            "tan" => x.sin() / x.cos(),
            "cot" => x.cos() / x.sin(),
            "sec" => one / x.cos(),
            "csc" => one / x.sin(),
            "exp" => x.exp(),
            _ => base.map_or(x.ln(), |base| x.ln() / base.ln()),
        };
        Some(power.map_or(value, |power| value.pow(power)))
    }

    /// What a function applies to without brackets: factors up to a sign, an
    /// operator or another function. Brackets end it.
    fn operand(&mut self) -> Option<Complex> {
        let bracketed = self.peek() == Some(&Token::Symbol('('));
        let mut value = self.power()?;
        while !bracketed
            && self.starts_a_factor()
            && !matches!(self.peek(), Some(Token::Command(name)) if is_function(name))
            && self.peek() != Some(&Token::Symbol('('))
        {
            value = value * self.power()?;
        }
        Some(value)
    }

    /// A variable with its index: a fixed number per name and point.
    fn variable(&mut self, mut name: String) -> Option<Complex> {
        if self.takes('_') {
            let index = self.nested(Self::atom)?;
            name.push_str(&format!("_{}_{}", index.re, index.im));
        }
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ self.point.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let unit = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        let sign = if self.point % 2 == 1 { -1.0 } else { 1.0 };
        Some(Complex::real(sign * (0.3 + 2.0 * unit)))
    }
}

fn is_function(name: &str) -> bool {
    matches!(
        name,
        "sin" | "cos" | "tan" | "cot" | "sec" | "csc" | "ln" | "log" | "exp"
    )
}

fn starts_a_value(name: &str) -> bool {
    matches!(name, "pi" | "frac" | "binom" | "sqrt") || is_function(name) || GREEK.contains(&name)
}

fn factorial(value: Complex) -> Option<Complex> {
    let n = value.as_natural(170)?;
    Some(Complex::real((1..=n).map(f64::from).product()))
}

fn binomial(n: Complex, k: Complex) -> Option<Complex> {
    let (n, k) = (n.as_natural(1000)?, k.as_natural(1000)?);
    if k > n {
        return Some(Complex::real(0.0));
    }
    let steps = (0..k.min(n - k)).map(f64::from);
    Some(Complex::real(
        steps.fold(1.0, |c, i| c * (f64::from(n) - i) / (i + 1.0)),
    ))
}

fn in_base(digits: &str, base: u32) -> Option<Complex> {
    let mut value = 0.0;
    for c in digits.chars() {
        if !(2..=36).contains(&base) {
            return None;
        }
        value = value * f64::from(base) + f64::from(c.to_digit(base)?);
    }
    Some(Complex::real(value))
}
