//! Cron schedules: whether Kubernetes could read one, and its words when it could not.

use koord_api::duration::GoDuration;

use super::super::quote;

const EVERY: &str = "@every ";
const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Smallest and largest number of a field, and names that count from the smallest.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: &MONTHS },
    Bounds { min: 0, max: 6, names: &DAYS },
];

/// Refuses what Kubernetes could not read.
pub(super) fn check(text: &str) -> Result<(), String> {
    let text = without_zone(text)?;
    if text.starts_with('@') {
        return check_descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| check_range(part, bounds))?;
    }
    Ok(())
}

/// A zone in front is refused elsewhere, with better words; here it is only passed over.
fn without_zone(text: &str) -> Result<&str, String> {
    if !["TZ=", "CRON_TZ="].iter().any(|prefix| text.starts_with(prefix)) {
        return Ok(text);
    }
    match text.split_once(' ') {
        Some((_, rest)) => Ok(rest.trim()),
        None => Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned()),
    }
}

fn check_descriptor(text: &str) -> Result<(), String> {
    if let Some(duration) = text.strip_prefix(EVERY) {
        let parsed: Result<GoDuration, _> = duration.parse();
        return parsed.map(drop).map_err(|why| format!("failed to parse duration {text}: {why}"));
    }
    match DESCRIPTORS.contains(&text) {
        true => Ok(()),
        false => Err(format!("unrecognized descriptor: {text}")),
    }
}

/// `*`, `3`, `1-5`, each with `/step`.
fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let limits: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match limits.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => (number_or_name(one, bounds)?, number_or_name(one, bounds)?),
        [first, last] => (number_or_name(first, bounds)?, number_or_name(last, bounds)?),
        [first, ..] => {
            number_or_name(first, bounds)?;
            return Err(format!("too many hyphens: {text}"));
        }
        [] => (bounds.min, bounds.max),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if limits.len() == 1 {
                end = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    match () {
        () if start < min => Err(format!("beginning of range ({start}) below minimum ({min}): {text}")),
        () if end > max => Err(format!("end of range ({end}) above maximum ({max}): {text}")),
        () if start > end => Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}")),
        () if step == 0 => Err(format!("step of range should be a positive number: {text}")),
        () => Ok(()),
    }
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let named = bounds.names.iter().position(|name| *name == lower).and_then(|at| u64::try_from(at).ok());
    named.map_or_else(|| number(text), |at| Ok(at + bounds.min))
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) => {
            u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
        }
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            quote(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_as_kubernetes_reads_them() {
        for text in
            ["*/5 * * * *", "* * * JAN-MAR MON", "@every 1h", "? ? ? ? ?", "5/15 0,12 1 * *", "@hourly"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, want) in [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("@foo", "unrecognized descriptor: @foo"),
            ("* * * * 8", "end of range (8) above maximum (6): 8"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("1-0 * * * *", "beginning of range (1) beyond end of range (0): 1-0"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("1-61 * * * *", "end of range (61) above maximum (59): 1-61"),
        ] {
            assert_eq!(check(text), Err(want.to_owned()), "{text}");
        }
    }
}
