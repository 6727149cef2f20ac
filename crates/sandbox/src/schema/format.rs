//! Formats of strings that the API server checks in custom resources.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// Whether the API server knows the format; it ignores all others, int32 and int64 among them.
pub(super) fn is_known(format: &str) -> bool {
    !matches!(check(format), Check::None)
}

/// Whether `text` is of the format; true for formats nobody knows.
///
/// Differs: book, card and colour formats (isbn, creditcard, ssn, rgbcolor, bsonobjectid) are
/// taken as plain text; no definition of ours or of the ecosystem uses them.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match check(format) {
        Check::None | Check::Text => true,
        Check::By(check) => check(text),
    }
}

enum Check {
    None,
    Text,
    By(fn(&str) -> bool),
}

fn check(format: &str) -> Check {
    // Dashes do not count: date-time and datetime are one format.
    match format.replace('-', "").as_str() {
        "datetime" => Check::By(is_date_time),
        "date" => Check::By(is_date),
        "duration" => Check::By(is_duration),
        "byte" => Check::By(is_base64),
        "ipv4" => Check::By(|text| text.parse::<Ipv4Addr>().is_ok()),
        "ipv6" => Check::By(|text| text.parse::<Ipv6Addr>().is_ok()),
        "cidr" => Check::By(is_cidr),
        "mac" => Check::By(is_mac),
        "uri" => Check::By(is_request_uri),
        "hostname" => Check::By(is_hostname),
        "email" => Check::By(is_email),
        "uuid" => Check::By(|text| is_uuid(text, None)),
        "uuid3" => Check::By(|text| is_uuid(text, Some('3'))),
        "uuid4" => Check::By(|text| is_uuid(text, Some('4'))),
        "uuid5" => Check::By(|text| is_uuid(text, Some('5'))),
        "hexcolor" => Check::By(is_hex_color),
        "k8sshortname" => Check::By(|text| text.len() <= 63 && is_label(text)),
        "k8slongname" => Check::By(|text| text.len() <= 253 && text.split('.').all(is_label)),
        "password" | "isbn" | "isbn10" | "isbn13" | "creditcard" | "ssn" | "rgbcolor" | "bsonobjectid" => {
            Check::Text
        }
        _ => Check::None,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
            .expect("the pattern is a constant and compiles")
    });
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let Some(parts) = TIME.captures(time) else { return false };
    is_date(date) && &parts[1] <= "23" && &parts[2] <= "59" && &parts[3] <= "59"
}

/// Go's duration syntax, or a number with a unit spelled out ("3 days").
fn is_duration(text: &str) -> bool {
    if text.parse::<koord_api::duration::GoDuration>().is_ok() {
        return true;
    }
    let lower = text.trim().to_lowercase();
    let split = lower.find(|character: char| !character.is_ascii_digit() && character != '.');
    let Some((number, unit)) = split.map(|at| lower.split_at(at)) else { return false };
    const UNITS: [&str; 29] = [
        "ns",
        "nano",
        "nanos",
        "nanosecond",
        "nanoseconds",
        "us",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "ms",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hour",
        "hours",
    ];
    const LONG: [&str; 9] = ["d", "day", "days", "w", "wk", "week", "weeks", "hrs", "µs"];
    let unit = unit.trim();
    !number.is_empty() && (UNITS.contains(&unit) || LONG.contains(&unit))
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let plain = body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    !text.is_empty() && plain && padding <= 2 && text.len().is_multiple_of(4)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| plain) else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn is_mac(text: &str) -> bool {
    let hex =
        |group: &str, length| group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups = |separator, length| {
        let groups: Vec<&str> = text.split(separator).collect();
        let bytes = groups.len() * length / 2;
        groups.iter().all(|group| hex(group, length)) && matches!(bytes, 6 | 8 | 20)
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

/// An absolute URI or an absolute path, as in the first line of a request.
fn is_request_uri(text: &str) -> bool {
    let clean = !text.bytes().any(|byte| byte <= b' ' || byte == 0x7f);
    let scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        let mut bytes = scheme.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    });
    clean && (text.starts_with('/') || scheme)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_alphanumeric() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels: Vec<&str> = text.split('.').collect();
    let top = labels.last().copied().unwrap_or_default();
    let top_fits = labels.len() == 1 || (top.chars().count() >= 2 && top.chars().all(char::is_alphabetic));
    text.len() <= 255 && labels.iter().all(|part| label(part)) && top_fits
}

fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => rest.strip_suffix('>').unwrap_or_default(),
        None => text,
    };
    let Some((user, host)) = address.rsplit_once('@') else { return false };
    let clean = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == '@');
    clean(user) && clean(host) && !host.starts_with('.') && !user.starts_with('.') && !user.ends_with('.')
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    static UUID: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?([0-9a-fA-F])[0-9a-fA-F]{3}-?([0-9a-fA-F])[0-9a-fA-F]{3}-?[0-9a-fA-F]{12}$")
            .expect("the pattern is a constant and compiles")
    });
    let Some(parts) = UUID.captures(text) else { return false };
    let variant =
        matches!(version, None | Some('3')) || matches!(&parts[2], "8" | "9" | "a" | "b" | "A" | "B");
    version.is_none_or(|version| parts[1].starts_with(version)) && variant
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_label(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "tomorrow"),
            ("datetime", "2026-01-02t03:04:05.123+01:00", "2026-01-02T24:00:00Z"),
            ("date", "2026-02-28", "2026-02-30"),
            ("duration", "1h30m", "soon"),
            ("duration", "3 days", "3 moons"),
            ("byte", "aGk=", "aGk"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00:5e:00:53"),
            ("uri", "https://koord.sh/x", "koord"),
            ("hostname", "node-1.example.com", "-x"),
            ("email", "a@b.c", "a@"),
            ("uuid4", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "9b1deb4d-3b7d-1bad-9bdd-2b0d7b3dcb6d"),
            ("hexcolor", "#fff", "#ffff"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b-c", "a..b"),
        ] {
            assert!(matches(format, good), "{format} {good}");
            assert!(!matches(format, bad), "{format} {bad}");
        }
        assert!(!is_known("int32"));
        assert!(matches("int32", "anything"));
    }
}
