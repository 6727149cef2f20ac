//! `koord explain` as its users meet it, against HTTP servers of a scheduler and a manager that answer from tables, and
//! on a sandbox.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// Nothing listens on port 1.
const NOBODY: &str = "http://127.0.0.1:1";

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

/// A manager that knows one pod and one node.
fn manager(path: &str, accept: &str) -> (u16, &'static str, String) {
    let (text, data) = match path {
        "/apis/v1/explain/pod/shop/web-0" => ("Profiles: none selects this pod\n", r#"{"profiles":[]}"#),
        "/apis/v1/explain/node/n1" => ("node n1: colocation is on\n", r#"{"node":"n1"}"#),
        "/apis/v1/explain/node/n2" => {
            let message = r#"{"message":"cannot find node n2; there is only n1"}"#;
            return (404, "application/json", message.to_owned());
        }
        _ => return (404, "application/json", r#"{"message":"cannot find pod shop/nobody"}"#.to_owned()),
    };
    match accept {
        "text/plain" => (200, "text/plain; charset=utf-8", text.to_owned()),
        _ => (200, "application/json", data.to_owned()),
    }
}

#[test]
fn answers_are_printed_as_they_come() {
    let (scheduler, manager) = (serve(leader), serve(manager));
    for (words, want) in [
        (&["pod", "shop/web-0"][..], "pod shop/web-0 waits\nProfiles: none selects this pod\n"),
        (
            &["pod", "shop/web-0", "-o", "json"],
            "{\n  \"pod\": \"shop/web-0\",\n  \"admission\": {\n    \"profiles\": []\n  }\n}\n",
        ),
        (&["pending"], "2 pods: Insufficient cpu\n"),
        (&["node", "n1"], "node n1: colocation is on\n"),
        (&["node", "n1", "-o", "json"], "{\n  \"node\": \"n1\"\n}\n"),
    ] {
        let (ok, out, error) = koord(&[words, &["--scheduler", &scheduler, "--manager", &manager]].concat());
        assert!(ok, "{words:?}: {error}");
        let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        assert!(out == want || (same(want).is_some() && same(&out) == same(want)), "{words:?}: {out}");
    }
}

/// Whoever answers is heard, and in place of the other there is one line.
#[test]
fn half_an_answer_is_better_than_none() {
    let (scheduler, manager) = (serve(leader), serve(manager));
    let stranger = serve(|_, _| (200, "text/html", "<html>".to_owned()));
    for (scheduler, manager, wants) in [
        (
            scheduler.as_str(),
            NOBODY,
            &[
                "pod shop/web-0 waits\nProfiles: not known: no manager answers at http://127.0.0.1:1/; ",
                "8080)",
            ][..],
        ),
        (
            &scheduler,
            &stranger,
            &["waits\nProfiles: not known: ", "explains nothing: is it koord-manager?\n"],
        ),
        (
            NOBODY,
            &manager,
            &["Scheduling: not known: no scheduler answers", "\nProfiles: none selects this pod\n"],
        ),
    ] {
        let (ok, out, error) = koord(&["pod", "shop/web-0", "--scheduler", scheduler, "--manager", manager]);
        assert!(ok && error.is_empty(), "{error}");
        for want in wants {
            assert!(out.contains(want), "{want:?} in {out}");
        }
        assert_eq!(out.lines().count(), 2, "{out}");
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
        let (ok, out, error) = koord(&["pod", "shop/nobody", "--scheduler", &url, "--manager", NOBODY]);
        assert!(!ok && out.is_empty(), "{name}: {out}");
        for want in wants {
            assert!(error.contains(want), "{name}: {want:?} in {error}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    for (words, wants) in [
        (
            &["pending", "--scheduler", NOBODY][..],
            &["no scheduler answers at http://127.0.0.1:1", "deployment/koord-scheduler 10251"][..],
        ),
        (
            &["node", "n1", "--manager", NOBODY],
            &["no manager answers at http://127.0.0.1:1", "deployment/koord-manager 8080"],
        ),
        (&["node", "n2", "--manager", &serve(manager)], &["cannot find node n2; there is only n1"]),
        (&["node", "n1", "--manager", "8080"], &["--manager 8080", "http://127.0.0.1:8080"]),
        (&["node", "N 1"], &["N 1", "expected a name"]),
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

/// A sandbox names its scheduler and its manager, or says that it has none.
#[test]
fn those_of_a_sandbox_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.args(words).env("KOORD_SANDBOX_DIR", dir.path()).stdin(Stdio::null()).output().unwrap()
    };
    let file = dir.path().join("running.json");
    assert!(sandbox(&["sandbox", "up", "--detach", "--nodes", "1"]).status.success());
    // Its own manager, once its caches are full.
    let begun = std::time::Instant::now();
    let out = loop {
        let asked = sandbox(&["explain", "node", "node-0"]);
        if asked.status.success() {
            break String::from_utf8(asked.stdout).unwrap();
        }
        let error = String::from_utf8(asked.stderr).unwrap();
        assert!(begun.elapsed() < std::time::Duration::from_secs(120), "{error}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert!(out.starts_with("node node-0: colocation is on\n"), "{out}");
    assert!(out.contains("cpuReclaimThresholdPercent"), "{out}");
    let unknown = sandbox(&["explain", "node", "node-7"]);
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(error, "error: cannot find node node-7; there is only node-0\n");
    let mut running: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for component in ["scheduler", "manager"] {
        running[component] = serde_json::Value::Null;
    }
    std::fs::write(&file, running.to_string()).unwrap();
    for (words, what) in [(&["explain", "pending"][..], "scheduler"), (&["explain", "node", "n1"], "manager")]
    {
        let error = String::from_utf8(sandbox(words).stderr).unwrap();
        assert!(error.contains(&format!("runs without a {what}")), "{error}");
    }
    running["scheduler"] = serve(leader).into();
    std::fs::write(&file, running.to_string()).unwrap();
    let out = String::from_utf8(sandbox(&["explain", "pending"]).stdout).unwrap();
    assert_eq!(out, "2 pods: Insufficient cpu\n");
    let out = String::from_utf8(sandbox(&["explain", "pod", "shop/web-0"]).stdout).unwrap();
    assert!(out.contains("Profiles: not known: the sandbox at https://"), "{out}");
    sandbox(&["sandbox", "down"]);
}
