//! The grammar of JSON (RFC 8259), strict, with the error texts of Go's scanner.

use super::error::Error;
use super::value::{Kind, Value};

/// Nesting that is read. Readers recurse, and no document of ours is deeper than ten.
/// Differs: Go stops at 10000; the limit here leaves a small thread's stack whole.
pub(super) const DEPTH_MAX: usize = 128;

pub(super) struct Parser<'a> {
    text: &'a str,
    /// Always on a character boundary.
    at: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parser<'a> {
        Parser { text, at: 0 }
    }

    pub(super) fn document(mut self) -> Result<Value, Error> {
        let value = self.value(0)?;
        self.skip_space();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        self.skip_space();
        let at = self.at;
        let kind = match self.byte() {
            Some(b'{') => self.object(depth + 1)?,
            Some(b'[') => self.array(depth + 1)?,
            Some(b'"') => Kind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Kind::Number(self.number()?),
            Some(b't') => self.literal("true", Kind::Bool(true))?,
            Some(b'f') => self.literal("false", Kind::Bool(false))?,
            Some(b'n') => self.literal("null", Kind::Null)?,
            _ => return Err(self.unexpected("looking for beginning of value")),
        };
        Ok(Value { kind, at })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, Error> {
        self.open(depth)?;
        let mut entries = Vec::new();
        if self.accept(b'}') {
            return Ok(Kind::Object(entries));
        }
        loop {
            self.skip_space();
            if self.byte() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            if !self.accept(b':') {
                return Err(self.unexpected("after object key"));
            }
            entries.push((key, self.value(depth)?));
            if self.accept(b'}') {
                return Ok(Kind::Object(entries));
            }
            if !self.accept(b',') {
                return Err(self.unexpected("after object key:value pair"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Kind, Error> {
        self.open(depth)?;
        let mut items = Vec::new();
        if self.accept(b']') {
            return Ok(Kind::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.accept(b']') {
                return Ok(Kind::Array(items));
            }
            if !self.accept(b',') {
                return Err(self.unexpected("after array element"));
            }
        }
    }

    /// Steps over the bracket that starts a level.
    fn open(&mut self, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::syntax(format!("exceeded max depth {DEPTH_MAX}"), self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Error> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let plain = match self.byte() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// A surrogate without its partner becomes U+FFFD, as in Go.
    fn unicode_escape(&mut self) -> Result<char, Error> {
        let high = self.hex4()?;
        if !(0xD800..0xDC00).contains(&high) || !self.text[self.at..].starts_with("\\u") {
            return Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let back = self.at;
        self.at += 2;
        let low = self.hex4()?;
        if (0xDC00..0xE000).contains(&low) {
            let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        self.at = back;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<String, Error> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            // A zero stands alone, so that the digit after it is the error.
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(self.text[start..self.at].to_owned())
    }

    /// One digit or more.
    fn digits(&mut self, place: &str) -> Result<(), Error> {
        if !self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected(place));
        }
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str, kind: Kind) -> Result<Kind, Error> {
        for expected in word.bytes() {
            if self.byte() != Some(expected) {
                let expected = char::from(expected);
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.at += 1;
        }
        Ok(kind)
    }

    /// Steps over the byte if it comes next after white space.
    fn accept(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.byte() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn unexpected(&self, place: &str) -> Error {
        match self.peek() {
            None => Error::end(self.at),
            Some(c) => Error::syntax(format!("invalid character {} {place}", quote(c)), self.at),
        }
    }
}

/// A character as Go shows it in single quotes.
fn quote(c: char) -> String {
    match c {
        '\'' => r"'\''".to_owned(),
        '\\' => r"'\\'".to_owned(),
        '\u{7}' => r"'\a'".to_owned(),
        '\u{8}' => r"'\b'".to_owned(),
        '\u{b}' => r"'\v'".to_owned(),
        '\u{c}' => r"'\f'".to_owned(),
        '\n' => r"'\n'".to_owned(),
        '\r' => r"'\r'".to_owned(),
        '\t' => r"'\t'".to_owned(),
        c if c.is_ascii_control() => format!("'\\x{:02x}'", u32::from(c)),
        c => format!("'{c}'"),
    }
}
