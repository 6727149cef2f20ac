//! Sets of completion indexes, as a Job's status writes them: `1,3-5,7`.

use std::collections::BTreeSet;

/// Reads a list; what is not a number below `completions` is left out.
pub(super) fn parse(text: &str, completions: i64) -> BTreeSet<i64> {
    let mut out = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
        out.extend(first.max(0)..=last.min(completions - 1));
    }
    out
}

/// Writes a list, runs of three and more with a dash.
pub(super) fn format(indexes: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_and_write_alike() {
        for text in ["", "0", "0,2", "1,3-5,7", "0-9", "1,2,9"] {
            assert_eq!(format(&parse(text, 10)), text);
        }
        assert_eq!(format(&parse("3-20,x,-1", 10)), "3-9");
    }
}
