//! The worked examples of api 1.3, and laws that must hold for any duration.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(key: &str, cases: &[(&str, &str)]) {
    for (text, canonical) in cases {
        let duration: GoDuration = text.parse().unwrap_or_else(|error| panic!("{key} {text}: {error}"));
        assert_eq!(duration.to_string(), *canonical, "{key} {text}");
    }
}

#[test]
fn texts() {
    check("api#10.80", &[("5m", "5m0s")]);
    check("api#10.81", &[("36h", "36h0m0s")]);
    check(
        "api#1.3.D1",
        &[
            ("5m", "5m0s"),
            ("24h", "24h0m0s"),
            ("90s", "1m30s"),
            ("36h", "36h0m0s"),
            ("3600s", "1h0m0s"),
            ("100h", "100h0m0s"),
        ],
    );
    check("api#1.3.D2", &["0", "0s", "0h", "-0s", "0.1ns"].map(|text| (text, "0s")));
    check(
        "api#1.3.D3",
        &[
            ("1500ms", "1.5s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("1.5h", "1h30m0s"),
            ("+5s", "5s"),
            ("00005s", "5s"),
        ],
    );
    check("api#1.3.D4", &[("1h1h", "2h0m0s"), ("1m1h", "1h1m0s"), ("1h30m", "1h30m0s")]);
    check("api#1.3.D5", &[("-1m", "-1m0s")]);
    check(
        "api#1.3.D6",
        &[
            ("1us", "1\u{b5}s"),
            ("1500us", "1.5ms"),
            ("999ns", "999ns"),
            ("1.0000000001s", "1s"),
            ("0.9999999999s", "999.999999ms"),
        ],
    );
    check("other letters for micro", &[("1\u{b5}s", "1\u{b5}s"), ("1\u{3bc}s", "1\u{b5}s")]);
    check(
        "limits",
        &[
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
            ("0.99999999999999999999999999h", "1h0m0s"),
        ],
    );
}

#[test]
fn wrong_texts() {
    for (key, text, message) in [
        ("api#1.3.D8", "", r#"time: invalid duration """#),
        ("api#1.3.D8", " 5m", r#"time: invalid duration " 5m""#),
        ("api#1.3.D9", "1", r#"time: missing unit in duration "1""#),
        ("api#1.3.D9", "1d", r#"time: unknown unit "d" in duration "1d""#),
        ("api#1.3.D9", "1M", r#"time: unknown unit "M" in duration "1M""#),
        ("api#1.3.D9", "5m ", r#"time: unknown unit "m " in duration "5m ""#),
        ("api#1.3.D9", "1h-5m", r#"time: unknown unit "h-" in duration "1h-5m""#),
        ("api#1.3.D9", "1e3s", r#"time: unknown unit "e" in duration "1e3s""#),
        ("a sign alone", "-", r#"time: invalid duration "-""#),
        ("a point alone", ".s", r#"time: invalid duration ".s""#),
        (
            "quoting",
            "1\u{e9}\"\\\n",
            r#"time: unknown unit "\xc3\xa9\"\\\x0a" in duration "1\xc3\xa9\"\\\x0a""#,
        ),
        ("too large", "9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
    ] {
        let error = text.parse::<GoDuration>().expect_err(text);
        assert_eq!(error.to_string(), message, "{key}");
    }
}

#[test]
fn largest() {
    let largest = "2562047h47m16.854775807s";
    assert_eq!(largest.parse(), Ok(GoDuration(i64::MAX)), "api#1.3.D7");
    assert_eq!(GoDuration(i64::MAX).to_string(), largest, "api#1.3.D7");
    assert!("2562048h".parse::<GoDuration>().is_err(), "api#1.3.D7");
}

#[test]
fn json() {
    for json in ["300", "\"\"", "\"5\""] {
        assert!(serde_json::from_str::<GoDuration>(json).is_err(), "api#1.3.D10 {json}");
    }
    let error = serde_json::from_str::<GoDuration>("null").unwrap_err();
    assert!(error.to_string().starts_with(r#"time: invalid duration """#), "{error}");
    assert_eq!(serde_json::from_str::<Option<GoDuration>>("null").unwrap(), None);
    let read: GoDuration = serde_json::from_str("\"90s\"").unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), "\"1m30s\"");
}

#[test]
fn standard_durations() {
    assert_eq!(GoDuration::from_seconds(90).to_std(), Some(Duration::from_secs(90)));
    assert_eq!(GoDuration::from_millis(-1).to_std(), None);
    assert_eq!(GoDuration::try_from(Duration::from_millis(5)), Ok(GoDuration::from_millis(5)));
    assert!(GoDuration::try_from(Duration::MAX).is_err());
    assert_eq!(GoDuration::from_seconds(i64::MAX), GoDuration(i64::MAX));
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_value_back(nanos in any::<i64>(), small in -5_000_000_000_i64..5_000_000_000) {
        for nanos in [nanos, small, small / 1_000_000, nanos / 1_000_000_000 * 1_000_000_000] {
            // Go itself reads a few of its own texts one nanosecond off, for it adds fractions in
            // floating point; nine digits of a second are always exact.
            prop_assert_eq!(GoDuration(nanos).to_string().parse(), Ok(GoDuration(nanos)));
        }
    }

    #[test]
    fn any_text_reads_or_fails_cleanly(text in "([-+]?[0-9.]{0,25}(ns|us|ms|s|m|h|d|µs)){0,4}") {
        if let Ok(duration) = text.parse::<GoDuration>() {
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
