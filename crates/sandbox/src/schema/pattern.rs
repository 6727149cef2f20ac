//! Regular expressions as Go reads them.

use regex::Regex;

/// A pattern from a schema: its text, and the same compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    pub fn new(text: &str) -> Result<Pattern, String> {
        let regex = Regex::new(&translate(text)).map_err(|error| error.to_string())?;
        Ok(Pattern { text: text.to_owned(), regex })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Go's classes are ASCII and its brackets do not nest; the rest of the two syntaxes agrees.
fn translate(go: &str) -> String {
    let mut out = String::with_capacity(go.len() + 8);
    let mut characters = go.chars().peekable();
    let mut class = Class::Outside;
    while let Some(character) = characters.next() {
        match (character, class) {
            ('\\', _) => match characters.next() {
                Some(escaped) => push_escape(&mut out, escaped, class != Class::Outside),
                None => out.push('\\'),
            },
            ('[', Class::Outside) => {
                out.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket right after the opening one is an ordinary member.
                if characters.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
                class = Class::Inside;
            }
            ('[', Class::Inside) if characters.peek() == Some(&':') => {
                out.push('[');
                class = Class::Named;
            }
            ('[' | '&' | '~', Class::Inside) => {
                out.push('\\');
                out.push(character);
            }
            ('-', Class::Inside) if out.ends_with('-') => out.push_str("\\-"),
            (']', Class::Inside) => {
                out.push(']');
                class = Class::Outside;
            }
            (']', Class::Named) => {
                out.push(']');
                class = Class::Inside;
            }
            _ => out.push(character),
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Outside,
    Inside,
    /// Within `[:alpha:]`.
    Named,
}

fn push_escape(out: &mut String, escaped: char, in_class: bool) {
    let members = match escaped {
        'd' | 'D' => "0-9",
        'w' | 'W' => "0-9A-Za-z_",
        's' | 'S' => "\\t\\n\\f\\r ",
        'b' if !in_class => return out.push_str("(?-u:\\b)"),
        other => {
            out.push('\\');
            return out.push(other);
        }
    };
    match (escaped.is_ascii_uppercase(), in_class) {
        (true, _) => out.push_str(&format!("[^{members}]")),
        (false, true) => out.push_str(members),
        (false, false) => out.push_str(&format!("[{members}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_go_does() {
        for (pattern, text, want) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w.]+$", "a_1.b", true),
            (r"^[[]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]$", "&", true),
            (r"^[+--]$", ",", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\S+$", "a b", false),
            (r"b", "abc", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().is_match(text), want, "{pattern} {text}");
        }
        assert!(Pattern::new("a(").is_err());
    }
}
