//! The vocabulary's text forms and matchers, and the sandbox's patches, against Kubernetes' own libraries.
//!
//! Each test sends one batch of random and nasty cases to the Go program in `peers/cmd/oracle` and
//! compares every answer with ours. The seed is printed; `KOORD_ORACLE_SEED` sets another one and
//! `KOORD_ORACLE_COUNT` the number of random cases per batch.

mod gojson;
mod matching;
mod patches;
mod quantity;
mod random;
mod values;

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use random::Random;

const SEED: u64 = 20_240_607;
const COUNT: usize = 20_000;

/// Where a test takes its cases from, and how many.
#[expect(clippy::print_stdout, reason = "a failing test shows how to repeat it")]
fn random(name: &str) -> (Random, usize) {
    let number = |key: &str| std::env::var(key).ok().map(|text| text.parse::<u64>().expect(key));
    let seed = number("KOORD_ORACLE_SEED").unwrap_or(SEED);
    let count = number("KOORD_ORACLE_COUNT").map_or(COUNT, |count| usize::try_from(count).expect("a count"));
    println!("{name}: KOORD_ORACLE_SEED={seed} KOORD_ORACLE_COUNT={count}");
    (Random::new(seed), count)
}

/// Sends all requests to one oracle process and returns the answers in their order; none when
/// there is no oracle on this machine, which the test kit has reported.
fn ask<Reply: DeserializeOwned>(op: &str, requests: &[Value]) -> Option<Vec<Reply>> {
    let program = koord_testkit::peer("oracle")?;
    let mut oracle = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
    let mut input = BufWriter::new(oracle.stdin.take().expect("the input is piped"));
    let output = BufReader::new(oracle.stdout.take().expect("the output is piped"));
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for request in requests {
                let mut request = request.clone();
                request["op"] = json!(op);
                writeln!(input, "{request}").expect("the oracle reads");
            }
        });
        let replies = output
            .lines()
            .map(|line| line.expect("the oracle writes text"))
            .map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect();
        writer.join().expect("all requests are sent");
        replies
    });
    assert!(oracle.wait().expect("the oracle ends").success());
    assert_eq!(replies.len(), requests.len(), "an answer for each request");
    Some(replies)
}

/// As `ask`, for requests that hold one text.
fn ask_texts<Reply: DeserializeOwned>(op: &str, texts: &[String]) -> Option<Vec<Reply>> {
    let requests: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
    ask(op, &requests)
}

/// Fails with the first few differences, so that one cause does not fill the screen.
fn report(differences: &[String]) {
    let shown = differences.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences, the first are:\n{shown}", differences.len());
}
