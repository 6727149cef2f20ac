//! Worked examples of api 1.3.

use proptest::prelude::*;

use super::*;

#[test]
fn texts() {
    for (text, written) in [
        ("2023-04-05T06:07:08Z", "2023-04-05T06:07:08Z"),
        ("2023-04-05T14:07:08+08:00", "2023-04-05T06:07:08Z"),
        ("2023-04-05T06:07:08.999Z", "2023-04-05T06:07:08Z"),
        ("2023-04-05T06:07:08.99999999999Z", "2023-04-05T06:07:08Z"),
        ("2023-04-05T06:07:08,5Z", "2023-04-05T06:07:08Z"),
        ("2023-04-05T6:07:08Z", "2023-04-05T06:07:08Z"),
        ("2024-02-29T23:59:59-01:30", "2024-03-01T01:29:59Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z"),
        ("9999-12-31T07:17:05+20:41", "9999-12-30T10:36:05Z"),
    ] {
        let time: Time = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(time.to_string(), written, "{text}");
    }
}

#[test]
fn wrong_texts() {
    for text in [
        "",
        "2023-04-05 06:07:08Z",
        "2023-04-05t06:07:08Z",
        "2023-04-05T06:07:08z",
        "2023-04-05T06:07:60Z",
        "2023-02-30T06:07:08Z",
        "2023-04-05T24:00:00Z",
        "2023-04-05T06:07:08",
        "2023-04-05T06:07:08.Z",
        "2023-04-05T06:07:08+0800",
        "2023-04-05T06:07:08+25:00",
        "2023-04-05T06:07:08Z ",
        "23-04-05T06:07:08Z",
        "0000-01-01T00:00:00+00:01",
    ] {
        let error = text.parse::<Time>().expect_err(text);
        let wanted = format!("invalid time {text:?}: expected RFC 3339 such as 2023-04-05T06:07:08Z");
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn json() {
    let time: Time = serde_json::from_str("\"2023-04-05T14:07:08.5+08:00\"").unwrap();
    assert_eq!(serde_json::to_string(&time).unwrap(), "\"2023-04-05T06:07:08Z\"");
    assert!(serde_json::from_str::<Time>("1680674828").is_err());
    assert_eq!(serde_json::to_string(&Time::default()).unwrap(), "null");
    assert!(serde_json::from_str::<Time>("null").unwrap().is_zero());
    assert!("0001-01-01T00:00:00Z".parse::<Time>().unwrap().is_zero());
    assert_eq!(serde_json::from_str::<Option<Time>>("null").unwrap(), None);
    assert_eq!(Time::from(WireTime::from(time)), time);
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_second_back(seconds in -62_167_219_200_i64..253_402_207_200) {
        let time = Time(Timestamp::from_second(seconds).unwrap());
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn any_text_reads_or_fails_cleanly(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.,][0-9]{0,12})?(Z|[-+][0-9]{2}:[0-9]{2})") {
        if let Ok(time) = text.parse::<Time>() {
            prop_assert!(time.to_string().parse::<Time>().is_ok());
        }
    }
}
