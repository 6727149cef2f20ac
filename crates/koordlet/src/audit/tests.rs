//! Worked examples of koordlet-observe 13.8.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;

pub(super) fn options(dir: &Path) -> AuditOptions {
    AuditOptions { dir: dir.to_owned(), verbose: 3, disk_mib_max: 16, readers_max: 4, events_max: 2048 }
}

fn with_events(dir: &Path, count: usize) -> Auditor {
    let auditor = Auditor::open(&options(dir));
    for number in 0..count {
        record(&auditor, 1, number);
    }
    auditor
}

fn record(auditor: &Auditor, level: u32, number: usize) {
    let name = format!("p{number}");
    let subject = Subject::Pod { uid: "u", namespace: "ns", name: &name, container: "c" };
    auditor.record(level, subject, "r", format!("m {number}"));
}

fn ask(auditor: &Auditor, size: &str, token: &str) -> Answer {
    let query = Query { size: (!size.is_empty()).then(|| size.to_owned()), token: token.to_owned() };
    auditor.query(&query, Instant::now())
}

/// The numbers of a page's records and its token.
fn page(answer: Answer) -> (Vec<String>, String) {
    match answer {
        Answer::Page { events, token } => (events.into_iter().map(|event| event.message).collect(), token),
        other => panic!("{other:?}"),
    }
}

fn names(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| format!("m {number}")).collect()
}

#[test]
fn pages() {
    let dir = tempfile::tempdir().unwrap();
    // koordlet-observe#13.8.H1: newest first, the same token until the end, which is noticed by reading beyond it.
    let auditor = with_events(dir.path(), 10);
    let (first, token) = page(ask(&auditor, "4", ""));
    assert_eq!(first, names((6..10).rev()));
    assert!(!token.is_empty());
    assert_eq!(page(ask(&auditor, "4", &token)), (names((2..6).rev()), token.clone()));
    assert_eq!(page(ask(&auditor, "4", &token)), (names((0..2).rev()), String::new()));
    assert_eq!(page(ask(&auditor, "4", &token)), (Vec::new(), String::new()));
    // koordlet-observe#13.8.H9: all of them are there without a flush, where upstream shows only the first.
    // koordlet-observe#13.8.H8: a page that ends with the last record has a token still; the next is empty.
    let (five, token) = page(ask(&auditor, "5", ""));
    assert_eq!((five.len(), token.is_empty()), (5, false));
    let second = ask(&auditor, "5", &token);
    assert_eq!(second.headers(Form::Text), (Some("text/plain; charset=utf-8"), Some(token.as_str())));
    let third = ask(&auditor, "5", &token);
    assert_eq!(third.body(Form::Text), (200, String::new()));
    assert_eq!(third.headers(Form::Text), (None, None));
}

#[test]
fn sizes_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = with_events(dir.path(), 300);
    let status = |size: &str, token: &str| ask(&auditor, size, token).body(Form::Text).0;
    // koordlet-observe#13.8.H2
    assert_eq!(ask(&auditor, "3000", ""), Answer::Bad("size(3000) exceeds the limit(2048)".into()));
    assert_eq!(status("3000", ""), 400);
    // koordlet-observe#13.8.H3
    assert_eq!(ask(&auditor, "1", "abc"), Answer::Gone("invalid pageToken abc".into()));
    assert_eq!(status("1", "abc"), 409);
    // koordlet-observe#13.8.H4
    assert_eq!(page(ask(&auditor, "x", "")).0.len(), 256);
    assert_eq!(page(ask(&auditor, "", "")).0.len(), 256);
    // koordlet-observe#13.8.H11
    let (none, token) = page(ask(&auditor, "0", ""));
    assert!(none.is_empty() && !token.is_empty());
    assert_eq!(status("-1", ""), 400);
}

#[test]
fn readers_are_few_and_do_not_live_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = with_events(dir.path(), 10);
    // koordlet-observe#13.8.H5: the fifth makes the first go.
    let tokens: Vec<String> = (0..5).map(|_| page(ask(&auditor, "1", "")).1).collect();
    assert_eq!(ask(&auditor, "1", &tokens[0]), Answer::Gone(format!("invalid pageToken {}", tokens[0])));
    assert_eq!(page(ask(&auditor, "1", &tokens[1])).0, ["m 8"]);
    let later = Instant::now() + Duration::from_secs(601);
    let query = Query { size: None, token: tokens[2].clone() };
    assert_eq!(auditor.query(&query, later), Answer::Gone(format!("reader {} is expired", tokens[2])));
    auditor.sweep(later);
    let query = Query { size: None, token: tokens[3].clone() };
    assert_eq!(auditor.query(&query, later), Answer::Gone(format!("invalid pageToken {}", tokens[3])));
}

#[test]
fn levels() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = with_events(dir.path(), 1);
    // koordlet-observe#13.8.H6
    record(&auditor, 4, 7);
    assert_eq!(page(ask(&auditor, "10", "")).0, ["m 0"]);
    let all = Auditor::open(&AuditOptions { verbose: 0, ..options(dir.path()) });
    record(&all, 9, 8);
    assert_eq!(page(ask(&all, "10", "")).0, ["m 8", "m 0"]);
}

/// Records of about a kilobyte each.
fn fill(auditor: &Auditor, mib: usize) -> usize {
    let count = mib * 1024;
    for number in 0..count {
        auditor.record(1, Subject::Node, &number.to_string(), "x".repeat(950));
    }
    count
}

#[test]
fn files_turn_over() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = Auditor::open(&options(dir.path()));
    // koordlet-observe#13.8.H15: 16 MB allow for eight files.
    let written = fill(&auditor, 30);
    auditor.flush();
    let sizes: Vec<u64> =
        fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert_eq!(sizes.len(), 8);
    assert!(sizes.iter().all(|size| *size < log::FILE_BYTES_MAX + 2000), "{sizes:?}");
    // koordlet-observe#13.8.H7: reading goes on over all files, without a gap.
    let (mut token, mut next, mut seen) = (String::new(), written, 0_usize);
    loop {
        let Answer::Page { events, token: following } = ask(&auditor, "2000", &token) else { panic!() };
        for event in &events {
            next -= 1;
            assert_eq!(event.reason, next.to_string());
        }
        seen += events.len();
        token = following;
        if token.is_empty() {
            break;
        }
    }
    assert!(seen > 7 * 2 * 1024, "{seen}");
}

#[test]
fn a_file_renamed_while_it_is_read_is_neither_repeated_nor_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = with_events(dir.path(), 10);
    let (first, token) = page(ask(&auditor, "4", ""));
    assert_eq!(first, names((6..10).rev()));
    fill(&auditor, 3);
    let (rest, end) = page(ask(&auditor, "100", &token));
    assert_eq!((rest, end), (names((0..6).rev()), String::new()));
}

#[test]
fn a_restart_goes_on_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    drop(with_events(dir.path(), 3));
    let auditor = with_events(dir.path(), 2);
    assert_eq!(page(ask(&auditor, "10", "")).0, ["m 1", "m 0", "m 2", "m 1", "m 0"]);
}

#[test]
fn odd_lines() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = with_events(dir.path(), 3);
    auditor.flush();
    let path = dir.path().join("audit.log");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("not a record\n");
    fs::write(&path, &text).unwrap();
    // koordlet-observe#13.8.H13: it takes one of the two places.
    let (events, token) = page(ask(&auditor, "2", ""));
    assert_eq!((events, token.is_empty()), (names([2].into_iter()), false));
    // koordlet-observe#13.8.H14: long lines are read as others are.
    let dir = tempfile::tempdir().unwrap();
    let auditor = Auditor::open(&options(dir.path()));
    for number in 0..3 {
        auditor.record(1, Subject::Node, &number.to_string(), "x".repeat(100 << 10));
    }
    let Answer::Page { events, .. } = ask(&auditor, "2", "") else { panic!() };
    let reasons: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["2", "1"]);
    assert_eq!(events[0].message.len(), 100 << 10);
}

#[test]
fn forms() {
    let dir = tempfile::tempdir().unwrap();
    let auditor = Auditor::open(&options(dir.path()));
    // koordlet-observe#13.8.H10
    let nothing = ask(&auditor, "", "");
    assert_eq!(nothing.body(Form::Json), (200, r#"{"NextPageToken":"","Events":[]}"#.into()));
    assert_eq!(nothing.body(Form::Text), (200, String::new()));
    assert_eq!(ask(&Auditor::off(), "", "").body(Form::Json), (200, String::new()));
    // koordlet-observe#13.8.H16
    record(&auditor, 1, 0);
    let (_, text) = ask(&auditor, "1", "").body(Form::Text);
    let (start, rest) = text.split_once(",\"type\"").unwrap();
    assert!(start.starts_with(r#"{"createdAt":"20"#), "{text}");
    assert_eq!(
        rest,
        ":\"pod\",\"namespace\":\"ns\",\"name\":\"p0\",\"container\":\"c\",\"reason\":\"r\",\"message\":\"m 0\"}\n"
    );
    // koordlet-observe#13.8.H12: what names JSON gets JSON.
    for (accept, form) in [
        (None, Form::Text),
        (Some("application/json"), Form::Json),
        (Some("application/json, */*"), Form::Json),
        (Some("text/plain;q=0.5, Application/JSON;q=0.9"), Form::Json),
        (Some("*/*"), Form::Text),
    ] {
        assert_eq!(Form::of_accept(accept), form, "{accept:?}");
    }
}

#[test]
fn queries_are_read() {
    for (text, size, token) in [
        ("", None, ""),
        ("size=4&pageToken=a-b", Some("4"), "a-b"),
        ("pageToken=&size=", Some(""), ""),
        ("size=1&size=2&other=x&flag", Some("1"), ""),
    ] {
        let want = Query { size: size.map(str::to_owned), token: token.to_owned() };
        assert_eq!(Query::read(text), want, "{text}");
    }
}
