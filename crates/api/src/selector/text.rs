//! The text of label selectors: `a=b,c!=d,e in (x,y),f notin (z),g,!h`.

use super::label::{Operator, Requirement};
use super::syntax::{SelectorError, check_key, invalid};

/// Reads the conditions in the order they are written.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { lexer: Lexer { rest: text }, ahead: None };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Keyword(_) | Token::Symbol("!") => {}
            Token::End => return Ok(requirements),
            other => {
                return Err(SelectorError::new(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                )));
            }
        }
        let requirement = parser
            .requirement()
            .map_err(|error| SelectorError::new(format!("unable to parse requirement: {error}")))?;
        requirements.push(requirement);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match parser.peek() {
                Token::Word(_) | Token::Keyword(_) | Token::Symbol("!") => {}
                other => {
                    return Err(SelectorError::new(format!(
                        "found '{}', expected: identifier after ','",
                        other.text()
                    )));
                }
            },
            other => {
                return Err(SelectorError::new(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    other.text()
                )));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Token<'a> {
    Word(&'a str),
    /// `in` or `notin`, which are plain words where no operator may stand.
    Keyword(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Keyword(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    fn token(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let length = match self.rest.as_bytes() {
            // A zero byte ends the text.
            [] | [0, ..] => return Token::End,
            [b'=' | b'!', b'=', ..] => 2,
            [b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<', ..] => 1,
            _ => return self.word(),
        };
        Token::Symbol(self.cut(length))
    }

    fn word(&mut self) -> Token<'a> {
        let is_end = |byte: &u8| b"\0=!(),>< \t\r\n".contains(byte);
        let length = self.rest.bytes().position(|byte| is_end(&byte)).unwrap_or(self.rest.len());
        match self.cut(length) {
            word @ ("in" | "notin") => Token::Keyword(word),
            word => Token::Word(word),
        }
    }

    fn cut(&mut self, length: usize) -> &'a str {
        let (head, rest) = self.rest.split_at(length);
        // Right after a token, a zero byte only parts it from what follows.
        self.rest = rest.strip_prefix('\0').unwrap_or(rest);
        head
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    ahead: Option<Token<'a>>,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Token<'a> {
        *self.ahead.get_or_insert_with(|| self.lexer.token())
    }

    fn next(&mut self) -> Token<'a> {
        self.ahead.take().unwrap_or_else(|| self.lexer.token())
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut first = self.next();
        let is_negated = matches!(first, Token::Symbol("!"));
        if is_negated {
            first = self.next();
        }
        let (Token::Word(key) | Token::Keyword(key)) = first else {
            return Err(SelectorError::new(format!("found '{}', expected: identifier", first.text())));
        };
        let wrong = check_key(key);
        if !wrong.is_empty() {
            return Err(SelectorError::new(invalid("<nil>", key, &wrong.join("; "))));
        }
        if is_negated {
            return Requirement::new(key, Operator::DoesNotExist, None, "");
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, None, "");
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::new(key, operator, Some(values), "")
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        Ok(match self.next() {
            Token::Keyword("in") => Operator::In,
            Token::Keyword("notin") => Operator::NotIn,
            Token::Symbol("=" | "==") => Operator::Equals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                return Err(SelectorError::new(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                )));
            }
        })
    }

    /// `(x,y)`, sorted, each value once. Missing words between commas count as the empty value.
    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if !matches!(open, Token::Symbol("(")) {
            return Err(SelectorError::new(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = match self.peek() {
            Token::Symbol(")") => vec![""],
            Token::Word(_) | Token::Keyword(_) | Token::Symbol(",") => self.value_list()?,
            other => {
                return Err(SelectorError::new(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.text()
                )));
            }
        };
        self.next();
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    /// Everything up to the closing bracket.
    fn value_list(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(value) | Token::Keyword(value) => {
                    values.push(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => {
                            return Err(SelectorError::new(format!(
                                "found '{}', expected: ',' or ')'",
                                other.text()
                            )));
                        }
                    }
                }
                Token::Symbol(",") => {
                    let is_last = matches!(self.peek(), Token::Symbol(")"));
                    if values.is_empty() || is_last || matches!(self.peek(), Token::Symbol(",")) {
                        values.push("");
                    }
                    if is_last {
                        return Ok(values);
                    }
                }
                other => {
                    return Err(SelectorError::new(format!(
                        "found '{}', expected: ',', or identifier",
                        other.text()
                    )));
                }
            }
        }
    }

    fn exact_value(&mut self) -> Result<Vec<String>, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(vec![String::new()]);
        }
        match self.next() {
            Token::Word(value) | Token::Keyword(value) => Ok(vec![value.to_owned()]),
            other => Err(SelectorError::new(format!("found '{}', expected: identifier", other.text()))),
        }
    }
}
