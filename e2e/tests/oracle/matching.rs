//! Selectors, node affinity and tolerations against apimachinery and component-helpers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use koord_api::selector::{
    FieldSelector, NodeSelector, PreferredTerms, RequiredNodeAffinity, Selector, SelectorError, syntax,
};
use koord_api::toleration::tolerates;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::random::Random;
use crate::{ask, ask_texts, random, report};

type Labels = BTreeMap<String, String>;

#[derive(Deserialize)]
struct SelectorReply {
    error: Option<String>,
    canonical: String,
    matches: Option<Vec<bool>>,
}

fn part<T: DeserializeOwned>(request: &Value, name: &str) -> T {
    serde_json::from_value(request[name].clone()).unwrap_or_else(|error| panic!("{request}: {error}"))
}

/// Asks for matches of selectors with label or field sets and compares.
fn compare_selectors<S: ToString>(
    op: &str,
    requests: &[Value],
    compile: impl Fn(&Value) -> Result<S, SelectorError>,
    matches: impl Fn(&S, &Labels) -> bool,
) {
    let Some(replies) = ask::<SelectorReply>(op, requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        let sets: Vec<Labels> = part(request, "sets");
        let ours = compile(request).map_err(|error| error.to_string()).map(|selector| {
            let found = sets.iter().map(|set| matches(&selector, set)).collect::<Vec<_>>();
            (selector.to_string(), found)
        });
        // We write `==` as `=`.
        let canonical = if op == "label-text" { reply.canonical.replace("==", "=") } else { reply.canonical };
        let theirs = reply.error.map_or_else(|| Ok((canonical, reply.matches.unwrap_or_default())), Err);
        if ours != theirs {
            differences.push(format!("{request}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
    report(&differences);
}

#[test]
fn label_selector_objects() {
    let (mut random, count) = random("label selector objects");
    let requests: Vec<Value> = (0..count / 2)
        .map(|_| json!({"selector": label_selector(&mut random), "sets": sets(&mut random)}))
        .collect();
    compare_selectors(
        "label-selector",
        &requests,
        |request| Selector::new(part::<Option<_>>(request, "selector").as_ref()),
        Selector::matches,
    );
}

#[test]
fn label_selector_texts() {
    let (mut random, count) = random("label selector texts");
    let requests: Vec<Value> =
        (0..count).map(|_| json!({"text": label_text(&mut random), "sets": sets(&mut random)})).collect();
    let compile = |request: &Value| part::<String>(request, "text").parse();
    compare_selectors("label-text", &requests, compile, Selector::matches);
}

#[test]
fn field_selector_texts() {
    let (mut random, count) = random("field selector texts");
    let requests: Vec<Value> =
        (0..count).map(|_| json!({"text": field_text(&mut random), "sets": sets(&mut random)})).collect();
    let compile = |request: &Value| part::<String>(request, "text").parse();
    compare_selectors("field-selector", &requests, compile, |selector: &FieldSelector, set| {
        selector.matches(|field| set.get(field).map_or("", String::as_str))
    });
}

#[derive(Deserialize)]
struct SyntaxReply {
    errors: Option<Vec<String>>,
}

#[test]
fn label_keys_and_values() {
    let (mut random, count) = random("label keys and values");
    let mut texts: Vec<String> = (0..count).map(|_| odd_word(&mut random)).collect();
    texts.extend((60..66).map(|length| "a".repeat(length)));
    texts.extend((250..256).map(|length| format!("{}/b", "a".repeat(length))));
    for (op, check) in
        [("label-key", syntax::check_key as fn(&str) -> Vec<String>), ("label-value", syntax::check_value)]
    {
        let Some(replies) = ask_texts::<SyntaxReply>(op, &texts) else { return };
        let mut differences = Vec::new();
        for (text, reply) in texts.iter().zip(replies) {
            let (ours, theirs) = (check(text), reply.errors.unwrap_or_default());
            if ours != theirs {
                differences.push(format!("{op} {text:?}: {ours:?} instead of {theirs:?}"));
            }
        }
        report(&differences);
    }
}

#[derive(Deserialize)]
struct NodeReply {
    error: Option<String>,
    nodes: Option<Vec<NodeMatch>>,
    scores: Option<Vec<i64>>,
}

#[derive(Deserialize)]
struct NodeMatch {
    error: Option<String>,
    matches: bool,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    labels: Labels,
}

/// Verdicts for each node, as ours and theirs are compared.
type Verdicts = Vec<Result<bool, String>>;

fn verdicts(replies: Option<Vec<NodeMatch>>) -> Verdicts {
    let reply = |reply: NodeMatch| reply.error.map_or(Ok(reply.matches), Err);
    replies.unwrap_or_default().into_iter().map(reply).collect()
}

#[test]
fn node_selectors() {
    let (mut random, count) = random("node selectors");
    let requests: Vec<Value> = (0..count / 2)
        .map(|_| json!({"selector": node_selector(&mut random), "nodes": nodes(&mut random)}))
        .collect();
    let Some(replies) = ask::<NodeReply>("node-selector", &requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        let selector: core::NodeSelector = part(request, "selector");
        let compiled = NodeSelector::new(&selector, "");
        let matches = |node: Node| compiled.matches(&node.labels, &node.name).map_err(|e| e.to_string());
        let ours: Verdicts = part::<Vec<Node>>(request, "nodes").into_iter().map(matches).collect();
        let checked = NodeSelector::new_checked(&selector, "").err().map(|error| error.to_string());
        let theirs = verdicts(reply.nodes);
        if ours != theirs || checked != reply.error {
            differences.push(format!("{request}:\n  {ours:?} {checked:?}\n  {theirs:?} {:?}", reply.error));
        }
    }
    report(&differences);
}

#[test]
fn preferred_terms() {
    let (mut random, count) = random("preferred terms");
    let requests: Vec<Value> = (0..count / 2)
        .map(|_| {
            let weighted =
                |random: &mut Random| json!({"weight": random.below(7), "preference": node_term(random)});
            let terms: Vec<Value> = (0..random.below(4)).map(|_| weighted(&mut random)).collect();
            json!({"terms": terms, "nodes": nodes(&mut random)})
        })
        .collect();
    let Some(replies) = ask::<NodeReply>("preferred-terms", &requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        let terms: Vec<core::PreferredSchedulingTerm> = part(request, "terms");
        let ours = PreferredTerms::new(&terms, "").map_err(|error| error.to_string()).map(|terms| {
            let score = |node: Node| terms.score(&node.labels, &node.name);
            part::<Vec<Node>>(request, "nodes").into_iter().map(score).collect::<Vec<_>>()
        });
        let theirs = reply.error.map_or_else(|| Ok(reply.scores.unwrap_or_default()), Err);
        if ours != theirs {
            differences.push(format!("{request}:\n  {ours:?}\n  {theirs:?}"));
        }
    }
    report(&differences);
}

#[test]
fn node_affinity_of_pods() {
    let (mut random, count) = random("node affinity of pods");
    let requests: Vec<Value> = (0..count / 2)
        .map(|_| {
            let mut spec = json!({"containers": []});
            if random.once_in(2) {
                spec["nodeSelector"] = sets(&mut random).swap_remove(0);
            }
            if random.once_in(2) {
                let required = node_selector(&mut random);
                spec["affinity"] =
                    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            }
            json!({"spec": spec, "nodes": nodes(&mut random)})
        })
        .collect();
    let Some(replies) = ask::<NodeReply>("pod-affinity", &requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        let required = RequiredNodeAffinity::of(&part(request, "spec"));
        let matches = |node: Node| required.matches(&node.labels, &node.name).map_err(|e| e.to_string());
        let ours: Verdicts = part::<Vec<Node>>(request, "nodes").into_iter().map(matches).collect();
        let theirs = verdicts(reply.nodes);
        if ours != theirs {
            differences.push(format!("{request}:\n  {ours:?}\n  {theirs:?}"));
        }
    }
    report(&differences);
}

#[test]
fn tolerations() {
    let (mut random, count) = random("tolerations");
    let requests: Vec<Value> = (0..count)
        .map(|_| {
            let mut toleration = json!({});
            for (field, choices) in [
                ("key", &["a", "b", ""][..]),
                ("operator", &["Equal", "Exists", "Gt", "Lt", "", "exists"]),
                ("value", &["1", "2", ""]),
                ("effect", &["NoSchedule", "NoExecute", "PreferNoSchedule", ""]),
            ] {
                if !random.once_in(4) {
                    toleration[field] = json!(random.pick(choices));
                }
            }
            let taint = json!({
                "key": random.pick(&["a", "b"]),
                "value": random.pick(&["1", "2", ""]),
                "effect": random.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]),
            });
            json!({"toleration": toleration, "taint": taint})
        })
        .collect();
    let Some(replies) = ask::<NodeMatch>("toleration", &requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        let ours = tolerates(&part(request, "toleration"), &part(request, "taint"));
        if ours != reply.matches {
            differences.push(format!("{request}: {ours} instead of {}", reply.matches));
        }
    }
    report(&differences);
}

const KEYS: [&str; 6] = ["a", "b", "cores", "koordinator.sh/x", "in", "metadata.name"];
const VALUES: [&str; 7] = ["1", "2", "16", "", "x", "in", "-3"];
/// Characters that labels may not have, or not everywhere.
const ODD: &str = "ab1-_./ <>&\"\\\u{e9}\u{301}\u{a0}\u{7}\n\u{2028}\u{1f600}";

fn odd_word(random: &mut Random) -> String {
    let most = *random.pick(&[&3, &8, &70]);
    let alphabet = random.pick(&["ab1-_./", ODD]);
    let word = random.word(alphabet, most);
    if random.once_in(4) { format!("{}/{word}", random.pick(&["a.b", "A", "", "-a"])) } else { word }
}

fn key(random: &mut Random) -> String {
    if random.once_in(12) { odd_word(random) } else { random.pick(&KEYS).to_owned() }
}

fn value(random: &mut Random) -> String {
    if random.once_in(12) { odd_word(random) } else { random.pick(&VALUES[..6]).to_owned() }
}

fn sets(random: &mut Random) -> Vec<Value> {
    (0..4)
        .map(|_| {
            let labels: Labels = (0..random.below(4))
                .map(|_| (random.pick(&KEYS).to_owned(), random.pick(&VALUES).to_owned()))
                .collect();
            json!(labels)
        })
        .collect()
}

fn nodes(random: &mut Random) -> Vec<Value> {
    let labels = sets(random).into_iter();
    labels.map(|labels| json!({"name": random.pick(&["1", "x", "n1", ""]), "labels": labels})).collect()
}

fn expression(random: &mut Random, operators: &[&str]) -> Value {
    let mut expression = json!({"key": key(random), "operator": random.pick(operators)});
    if !random.once_in(4) {
        let most = *random.pick(&[&1, &1, &3]);
        expression["values"] = (0..=random.below(most)).map(|_| value(random)).collect();
    } else if random.once_in(2) {
        expression["values"] = json!([]);
    }
    expression
}

fn label_selector(random: &mut Random) -> Value {
    if random.once_in(20) {
        return Value::Null;
    }
    let mut selector = json!({});
    // Upstream walks labels in random order and reports the first fault, so one label only.
    if random.once_in(2) {
        selector["matchLabels"] = json!({key(random): value(random)});
    }
    if random.once_in(2) {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "In", "Gt", "exists", "\u{e9}\n"];
        let operators = if random.once_in(3) { &operators[..] } else { &operators[..4] };
        selector["matchExpressions"] = (0..random.below(3)).map(|_| expression(random, operators)).collect();
    }
    selector
}

fn label_text(random: &mut Random) -> String {
    let mut terms = Vec::new();
    for _ in 0..random.below(4) {
        let key = key(random);
        let values: Vec<String> = (0..random.below(4)).map(|_| value(random)).collect();
        terms.push(match random.below(8) {
            0 => key,
            1 => format!("!{key}"),
            2 => format!("{key} in ({})", values.join(",")),
            3 => format!("{key} notin ({})", values.join(" , ")),
            4 => format!("{key}{}{}", random.pick(&[">", "<", " > "]), value(random)),
            _ => format!("{key}{}{}", random.pick(&["=", "==", "!=", " = ", "=!"]), value(random)),
        });
    }
    let text = terms.join(random.pick(&[",", ", ", " ,"]));
    random.spoil(text, "()=!<>, \0inx")
}

fn field_text(random: &mut Random) -> String {
    let mut terms = Vec::new();
    for _ in 0..random.below(4) {
        let value = if random.once_in(4) { random.word("ab\\,=!\u{e9}", 6) } else { value(random) };
        terms.push(format!("{}{}{value}", random.pick(&KEYS), random.pick(&["=", "==", "!=", ""])));
    }
    random.spoil(terms.join(","), "\\=!,x")
}

fn node_selector(random: &mut Random) -> Value {
    let terms: Vec<Value> = (0..random.below(3)).map(|_| node_term(random)).collect();
    json!({"nodeSelectorTerms": terms})
}

fn node_term(random: &mut Random) -> Value {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", ""];
    let operators = if random.once_in(4) { &operators[..] } else { &operators[..6] };
    let mut term = json!({});
    if !random.once_in(4) {
        term["matchExpressions"] = (0..random.below(3)).map(|_| expression(random, operators)).collect();
    }
    if random.once_in(3) {
        let operators = if random.once_in(3) { operators } else { &operators[..2] };
        let mut field = expression(random, operators);
        if !random.once_in(4) {
            field["key"] = json!("metadata.name");
        }
        term["matchFields"] = json!([field]);
    }
    term
}
