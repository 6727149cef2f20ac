//! The text of `--help`, from the same table that parsing uses.

use std::fmt::Write as _;

use super::{Flag, Kind, Status};

/// What `--help` prints: usage, then the flags under their headings. Flags without effect are left out.
pub fn help(program: &str, about: &str, tables: &[&[Flag]]) -> String {
    let mut text = format!("{about}\n\nUsage: {program} [flags]\n");
    let flags: Vec<&Flag> =
        tables.iter().copied().flatten().filter(|flag| !matches!(flag.status, Status::Ignored(_))).collect();
    let mut groups: Vec<&str> = Vec::new();
    for flag in &flags {
        if !groups.contains(&flag.group) {
            groups.push(flag.group);
        }
    }
    for group in groups {
        let _ = write!(text, "\n{group}:\n");
        for flag in flags.iter().filter(|flag| flag.group == group) {
            write_flag(&mut text, flag);
        }
    }
    text.push_str("\nOther:\n  -h, --help\n        this text\n      --version\n        the version\n");
    text
}

fn write_flag(text: &mut String, flag: &Flag) {
    let value = match flag.kind {
        Kind::Bool => String::new(),
        Kind::Int => " int".to_owned(),
        Kind::Float => " number".to_owned(),
        Kind::Duration => " duration".to_owned(),
        Kind::Text => " text".to_owned(),
        Kind::OneOf(words) => format!(" {}", words.join("|")),
        Kind::List => " a,b,…".to_owned(),
        Kind::Map => " a=x,b=y,…".to_owned(),
    };
    let short = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    let _ = writeln!(text, "  {short}--{}{value}", flag.name);
    let _ = write!(text, "        {}", flag.help);
    if !flag.default.is_empty() {
        let _ = write!(text, " (default {})", flag.default);
    }
    if let Status::Deprecated(instead) = flag.status {
        let _ = write!(text, " (deprecated: {instead})");
    }
    text.push('\n');
}
