//! Durations, times and CPU lists against Go's time package, apimachinery and k8s.io/utils.

use koord_api::cpuset::CpuSet;
use koord_api::duration::GoDuration;
use koord_api::time::Time;
use serde::Deserialize;

use crate::random::Random;
use crate::{ask_texts, random, report};

#[derive(Deserialize)]
struct DurationReply {
    error: Option<String>,
    canonical: String,
    nanos: i64,
}

#[test]
fn durations() {
    let (mut random, count) = random("durations");
    let texts: Vec<String> = (0..count).map(|_| duration_text(&mut random)).collect();
    let Some(replies) = ask_texts::<DurationReply>("duration", &texts) else { return };
    let mut differences = Vec::new();
    for (text, reply) in texts.iter().zip(replies) {
        let ours = text.parse::<GoDuration>().map_err(|error| error.to_string());
        let theirs = reply.error.map_or(Ok(GoDuration(reply.nanos)), Err);
        let written = ours.as_ref().map_or(String::new(), ToString::to_string);
        if ours != theirs || written != reply.canonical {
            differences
                .push(format!("{text:?}: {ours:?} {written}, upstream {theirs:?} {}", reply.canonical));
        }
    }
    report(&differences);
}

fn duration_text(random: &mut Random) -> String {
    let mut text = random.pick(&["", "", "", "-", "+"]).to_owned();
    for _ in 0..=random.below(3) {
        let most = *random.pick(&[&2, &4, &10, &22]);
        text.push_str(&random.word("0123456789", most));
        if random.once_in(3) {
            text.push('.');
            text.push_str(&random.word("0123456789", 22));
        }
        let unit = random.pick(&["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "s", "m", "h", "h", "d", ""]);
        text.push_str(unit);
    }
    random.spoil(text, " .-+09smhM\u{e9}\"\\\n\u{7f}")
}

#[derive(Deserialize)]
struct TimeReply {
    error: Option<String>,
    written: String,
    seconds: i64,
    nanos: i32,
}

/// The instants both sides can hold: from the year 0 to the last one of our clock library, which
/// ends a day before the year 9999 does.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_207_199;

#[test]
fn times() {
    let (mut random, count) = random("times");
    let texts: Vec<String> = (0..count).map(|_| time_text(&mut random)).collect();
    let Some(replies) = ask_texts::<TimeReply>("time", &texts) else { return };
    let mut differences = Vec::new();
    let mut read = 0;
    for (text, reply) in texts.iter().zip(replies) {
        let ours = text.parse::<Time>();
        if reply.error.is_none() && !SECONDS.contains(&reply.seconds) {
            continue;
        }
        // The wording of errors is our own.
        let same = match (&ours, &reply.error) {
            (Ok(ours), None) => {
                read += 1;
                let written = serde_json::to_string(ours).expect("a time is JSON");
                // Go counts the fraction upwards from the second before, also before 1970.
                let nanos = i128::from(reply.seconds) * 1_000_000_000 + i128::from(reply.nanos);
                ours.0.as_nanosecond() == nanos && written == reply.written
            }
            (Err(_), Some(_)) => true,
            _ => false,
        };
        if !same {
            differences.push(format!("{text:?}: {ours:?}, upstream {:?} {}", reply.error, reply.written));
        }
    }
    report(&differences);
    assert!(read * 3 > count, "a good part of the cases should be times, {read} were");
}

fn time_text(random: &mut Random) -> String {
    let year = *random.pick(&[&2023, &2024, &1969, &0, &1, &9999, &1900, &2000]);
    let (month, day) = (1 + random.below(12), 1 + random.below(31));
    let (hour, minute, second) = (random.below(25), random.below(60), random.below(61));
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if random.once_in(3) {
        text.push_str(random.pick(&[".", ".", ","]));
        text.push_str(&random.word("0123456789", 14));
    }
    if random.once_in(2) {
        text.push('Z');
    } else {
        text.push_str(random.pick(&["+", "-"]));
        text.push_str(&format!("{:02}:{:02}", random.below(26), random.below(62)));
    }
    random.spoil(text, " tTzZ:.,-+07")
}

#[derive(Deserialize)]
struct CpuReply {
    error: Option<String>,
    canonical: String,
    size: usize,
}

#[test]
fn cpu_lists() {
    let (mut random, count) = random("CPU lists");
    let texts: Vec<String> =
        (0..count).map(|_| cpu_text(&mut random)).filter(|text| is_common_ground(text)).collect();
    let Some(replies) = ask_texts::<CpuReply>("cpuset", &texts) else { return };
    let mut differences = Vec::new();
    for (text, reply) in texts.iter().zip(replies) {
        let ours = text.parse::<CpuSet>();
        // The wording of errors is Koordinator's own.
        let same = match (&ours, &reply.error) {
            (Ok(ours), None) => ours.to_string() == reply.canonical && ours.len() == reply.size,
            (Err(_), Some(_)) => true,
            _ => false,
        };
        if !same {
            differences.push(format!("{text:?}: {ours:?}, upstream {:?} {}", reply.error, reply.canonical));
        }
    }
    report(&differences);
}

/// Koordinator has a parser of its own, which differs from k8s.io/utils in four points: a reversed
/// range is empty instead of an error, a range ends at 4096 at most, ids have 31 bits, and a second
/// dash is always an error, where k8s.io/utils reads `0--0` as 0.
fn is_common_ground(text: &str) -> bool {
    text.split(',').all(|part| {
        let number = |text: &str| text.parse::<u64>().ok();
        match part.split_once('-') {
            None => number(part).is_none_or(|id| id <= i32::MAX.unsigned_abs().into()),
            Some((_, last)) if last.contains('-') => !last.ends_with("-0"),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) => first <= last && last <= 4096,
                _ => true,
            },
        }
    })
}

fn cpu_text(random: &mut Random) -> String {
    let mut parts = Vec::new();
    for _ in 0..random.below(6) {
        let first = random.below(200);
        parts.push(match random.below(8) {
            0..3 => first.to_string(),
            3..6 => format!("{first}-{}", first + random.below(20)),
            6 => format!("{}-{first}", random.pick(&["0", "00", "7", "+3"])),
            _ => random.pick(&["4096", "4097", "2147483647", "2147483648", "4090-4096", "1-4097"]).to_owned(),
        });
    }
    random.spoil(parts.join(","), "0123-,, +:x\n")
}
