//! `koord explain` as its users meet it, against a scheduler's HTTP server that answers from a table.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// What is answered to a path and an accepted form.
type Answer = fn(&str, &str) -> (u16, &'static str, String);

/// A server for the rest of the process.
fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            reply(stream.unwrap(), answer);
        }
    });
    url
}

fn reply(mut stream: TcpStream, answer: Answer) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let accept = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("accept").then(|| value.trim().to_owned())
    });
    let (status, kind, body) = answer(&path, &accept.unwrap_or_default());
    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    let _ = write!(stream, "{head}Connection: close\r\n\r\n{body}");
}

fn koord(words: &[&str]) -> (bool, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
    command.arg("explain").args(words).env("KOORD_SANDBOX_DIR", dir.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// A leader that knows one pod.
fn leader(path: &str, accept: &str) -> (u16, &'static str, String) {
    match (path, accept) {
        ("/apis/v1/explain/pod/shop/web-0", "text/plain") => {
            (200, "text/plain; charset=utf-8", "pod shop/web-0 waits\n".to_owned())
        }
        ("/apis/v1/explain/pod/shop/web-0", "application/json") => {
            (200, "application/json", r#"{"pod":"shop/web-0"}"#.to_owned())
        }
        ("/apis/v1/explain/pending", _) => (200, "text/plain", "2 pods: Insufficient cpu\n".to_owned()),
        _ => (404, "application/json", r#"{"message":"cannot find pod shop/nobody"}"#.to_owned()),
    }
}

#[test]
fn answers_are_printed_as_they_come() {
    let url = serve(leader);
    for (words, want) in [
        (&["pod", "shop/web-0"][..], "pod shop/web-0 waits\n"),
        (&["pod", "shop/web-0", "-o", "json"], "{\n  \"pod\": \"shop/web-0\"\n}\n"),
        (&["pending"], "2 pods: Insufficient cpu\n"),
    ] {
        let (ok, out, error) = koord(&[words, &["--scheduler", &url]].concat());
        assert!(ok, "{words:?}: {error}");
        assert_eq!(out, want, "{words:?}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let follower: Answer =
        |_, _| (503, "application/json", r#"{"message": "the instance is not leader"}"#.to_owned());
    let starting: Answer = |_, _| (503, "text/plain", "still initialising\n".to_owned());
    let stranger: Answer = |_, _| (404, "text/plain", String::new());
    for (name, answer, wants) in [
        ("no such pod", leader as Answer, &["cannot find pod shop/nobody"][..]),
        ("not leader", follower, &["the instance is not leader", "the replica that leads"]),
        ("starting", starting, &["503", "still initialising"]),
        ("another program", stranger, &["explains nothing", "koord-scheduler"]),
    ] {
        let url = serve(answer);
        let (ok, out, error) = koord(&["pod", "shop/nobody", "--scheduler", &url]);
        assert!(!ok && out.is_empty(), "{name}: {out}");
        for want in wants {
            assert!(error.contains(want), "{name}: {want:?} in {error}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    // Nothing listens on port 1.
    for (words, wants) in [
        (
            &["pending", "--scheduler", "http://127.0.0.1:1"][..],
            &["no scheduler answers at http://127.0.0.1:1", "port-forward"][..],
        ),
        (&["pending", "--scheduler", "10251"], &["--scheduler 10251", "http://127.0.0.1:10251"]),
        (&["pod", "a/b/c"], &["a/b/c", "NAMESPACE/NAME"]),
        (&["pod"], &["NS/NAME"]),
        (&["pending", "-o", "yaml"], &["yaml", "json"]),
    ] {
        let (ok, out, error) = koord(words);
        assert!(!ok && out.is_empty(), "{words:?}: {out}");
        for want in wants {
            assert!(error.contains(want), "{words:?}: {want:?} in {error}");
        }
    }
}

/// A sandbox names its scheduler, or says that it has none.
#[test]
fn the_scheduler_of_a_sandbox_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.args(words).env("KOORD_SANDBOX_DIR", dir.path()).stdin(Stdio::null()).output().unwrap()
    };
    let file = dir.path().join("running.json");
    assert!(sandbox(&["sandbox", "up", "--detach", "--nodes", "0"]).status.success());
    let mut running: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    running["scheduler"] = serde_json::Value::Null;
    std::fs::write(&file, running.to_string()).unwrap();
    let error = String::from_utf8(sandbox(&["explain", "pending"]).stderr).unwrap();
    assert!(error.contains("runs without a scheduler"), "{error}");
    running["scheduler"] = serve(leader).into();
    std::fs::write(&file, running.to_string()).unwrap();
    let out = String::from_utf8(sandbox(&["explain", "pending"]).stdout).unwrap();
    assert_eq!(out, "2 pods: Insufficient cpu\n");
    sandbox(&["sandbox", "down"]);
}
