//! Built-in kinds, group by group, held against answers recorded from kube-apiserver v1.35.4.
//!
//! A line of `recorded/*.jsonl` is one request and what Kubernetes said: the code, and the object, the
//! causes of a refusal, or the Table. A line without a case only prepares for others. Times and
//! identities are left out of the comparison.

use http::Method;
use serde_json::{Map, Value, json};

use super::support::{Cluster, Reply};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

macro_rules! recorded {
    ($($group:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $group() {
                hold(include_str!(concat!("recorded/", stringify!($group), ".jsonl"))).await;
            }
        )*
    };
}

recorded!(
    admissionregistration,
    apiextensions,
    apps,
    batch,
    coordination,
    core_more,
    core_objects,
    core_pods_changed,
    core_pods_made,
    core_pods_refused,
    discovery,
    events,
    policy,
    rbac,
    resource,
    reviews,
    scheduling,
    storage,
);

/// Sends every line in turn and reports all answers that differ.
async fn hold(lines: &str) {
    let cluster = Cluster::start().await;
    let mut differing = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let reply = send(&cluster, &line).await;
        let case = line["case"].as_str().unwrap();
        if !case.is_empty() {
            let (want, got) = (wanted(&line), told(&line, &reply));
            if want != got {
                differing.push(format!("{case}\n  want {want}\n  got  {got}"));
            }
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

async fn send(cluster: &Cluster, line: &Value) -> Reply {
    let (verb, path) = line["send"].as_str().unwrap().split_once(' ').unwrap();
    let body = line["body"].clone();
    match verb {
        "POST" => cluster.post(path, body).await,
        "PUT" => cluster.put(path, body).await,
        "PATCH" => cluster.patch(path, "merge-patch+json", body).await,
        "STRATEGIC" => cluster.patch(path, "strategic-merge-patch+json", body).await,
        "DELETE" => cluster.delete(path, Value::Null).await,
        "TABLE" => cluster.send(Method::GET, path, &[("accept", TABLE)], "").await,
        _ => cluster.get(path).await,
    }
}

const ASPECTS: [&str; 7] = ["code", "object", "causes", "message", "columns", "rows", "warnings"];

fn wanted(line: &Value) -> Value {
    let kept = ASPECTS.iter().filter_map(|name| Some(((*name).to_owned(), line.get(name)?.clone())));
    Value::Object(kept.collect())
}

/// The answer in the terms of the recording.
fn told(line: &Value, reply: &Reply) -> Value {
    let mut told = Map::new();
    told.insert("code".into(), json!(reply.code));
    let answer = &reply.json;
    if answer["kind"] == "Status" && answer["status"] == "Failure" {
        let causes = answer["details"]["causes"].as_array();
        let causes = causes.into_iter().flatten().map(|cause| {
            let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
            Value::from(without_uids(&format!("{}: {}", text("field"), text("message"))))
        });
        let causes: Vec<Value> = causes.collect();
        match causes.is_empty() {
            true => told.insert("message".into(), answer["message"].clone()),
            false => told.insert("causes".into(), Value::Array(causes)),
        };
    } else if line.get("rows").is_some() {
        let columns = answer["columnDefinitions"].as_array().unwrap().iter();
        let columns = columns.map(|c| json!([c["name"], c["type"], c["format"], c["priority"]]));
        told.insert("columns".into(), columns.collect());
        let rows = answer["rows"].as_array().unwrap().iter();
        let rows = rows.map(|row| Value::Array(row["cells"].as_array().unwrap().iter().map(cell).collect()));
        told.insert("rows".into(), rows.collect());
    } else if line.get("object").is_some() {
        told.insert("object".into(), lasting(answer, ""));
    }
    let warnings = reply.headers.get_all("warning").iter();
    let warnings = warnings.map(|value| {
        let text = value.to_str().unwrap();
        let text = text.strip_prefix("299 - \"").unwrap().strip_suffix('"').unwrap();
        Value::from(text.replace("\\\"", "\"").replace("\\\\", "\\"))
    });
    let warnings: Vec<Value> = warnings.collect();
    // A refusal is told by its causes alone.
    if !warnings.is_empty() && reply.code < 300 {
        told.insert("warnings".into(), Value::Array(warnings));
    }
    Value::Object(told)
}

/// A cell, without the age it may show.
fn cell(value: &Value) -> Value {
    let is_age = |text: &str| {
        let mut parts = text.split_inclusive(|c: char| "smhdy".contains(c));
        let is_span = |part: &str| {
            let digits = part.trim_end_matches(|c: char| "smhdy".contains(c));
            digits.len() + 1 == part.len() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        let is_time = text.len() > 10 && text.as_bytes()[10] == b'T' && text.starts_with("20");
        !text.is_empty() && parts.all(is_span) || is_time
    };
    match value.as_str() {
        Some(text) if is_age(text) => json!("AGE"),
        // Restarts, and when the last was.
        Some(text) if text.ends_with(" ago)") => {
            json!(text.split_once(" (").map(|(count, _)| format!("{count} (AGE ago)")))
        }
        Some(text) => plain(text),
        None => value.clone(),
    }
}

/// What does not change from run to run.
fn lasting(value: &Value, parent: &str) -> Value {
    const PASSING: [&str; 8] = [
        "managedFields",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "uid",
        "lastTransitionTime",
        "apiVersion",
        "kind",
    ];
    match value {
        Value::Object(fields) => {
            let is_passing = |name: &str| {
                ["metadata", "conditions", ""].contains(&parent) && PASSING.contains(&name)
                    || name == "lastPhaseTransitionTime"
            };
            let is_given = |name: &str, value: &Value| {
                ["nodePort", "healthCheckNodePort"].contains(&name) && value.as_i64() >= Some(30_000)
            };
            let kept = fields.iter().filter(|(name, _)| !is_passing(name));
            let told = kept.map(|(name, value)| match is_given(name, value) {
                true => (name.clone(), json!("PORT")),
                false => (name.clone(), lasting(value, name)),
            });
            Value::Object(told.collect())
        }
        Value::Array(items) => items.iter().map(|item| lasting(item, parent)).collect(),
        Value::String(text) => plain(text),
        other => other.clone(),
    }
}

/// A text without what the server chose: addresses of services, identities.
fn plain(text: &str) -> Value {
    match text.starts_with("10.96.") {
        true => json!("ADDRESS"),
        false => Value::from(without_uids(text)),
    }
}

/// UUIDs in a text, made alike.
fn without_uids(text: &str) -> String {
    const SHAPE: [usize; 5] = [8, 4, 4, 4, 12];
    const LENGTH: usize = 36;
    let is_uid = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        parts.iter().map(|part| part.len()).eq(SHAPE)
            && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match rest.get(..LENGTH).filter(|head| is_uid(head)) {
            Some(_) => {
                out.push_str("UID");
                rest = &rest[LENGTH..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}
