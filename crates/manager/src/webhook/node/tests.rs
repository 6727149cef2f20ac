//! The cases of manager 9.2 and 19, as reviews.

use std::sync::Arc;

use koord_api::slo::key;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A node with these annotations (absent when empty) and allocatable cpu and memory.
fn node(ratios: &str, raw: &str, cpu: &str, memory: &str) -> Value {
    let mut node = json!({
        "metadata": {"name": "n1", "annotations": {"other": "stays"}},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}, "capacity": {"cpu": "64"}},
    });
    for (key, text) in [(AmplificationRatios::KEY, ratios), (RawAllocatable::KEY, raw)] {
        if !text.is_empty() {
            set_annotation(&mut node, key, text.to_owned());
        }
    }
    node
}

/// The answer to an UPDATE of `nodes` or one of its sub-resources.
fn request(sub_resource: &str, operation: Operation, old: &Value, new: &Value) -> Request {
    let mut request =
        Request { operation, object: new.clone(), old_object: old.clone(), ..Request::default() };
    request.resource.resource = "nodes".to_owned();
    request.sub_resource = sub_resource.to_owned();
    request
}

fn aside(answer: impl FnOnce(&mut Aside<'_>) -> Answer) -> Answer {
    answer(&mut Aside { dice: &mut || 0, step: &mut |_, _| () })
}

/// cpu, memory and raw annotation after a review.
fn review(old: &Value, new: &Value) -> Result<(String, String, String), String> {
    let answer =
        aside(|aside| mutate(&request("status", Operation::Update, old, new), &Facts::default(), aside));
    let after = match answer.verdict {
        Verdict::Changed(after) => after,
        Verdict::Allowed => new.clone(),
        Verdict::Denied(denial) => return Err(format!("{} {}", denial.code, denial.message)),
    };
    let shown = |name: &str| after["status"]["allocatable"][name].as_str().unwrap_or_default().to_owned();
    let raw = annotation(&after, RawAllocatable::KEY).unwrap_or_default().to_owned();
    let result = (shown(CPU), shown(MEMORY), raw);
    // Nothing but cpu, memory and the raw annotation may change.
    let (mut after, mut before) = (after, new.clone());
    for node in [&mut after, &mut before] {
        remove_annotation(node, RawAllocatable::KEY);
        if let Some(list) = node.pointer_mut("/status/allocatable").and_then(Value::as_object_mut) {
            list.retain(|name, _| !AMPLIFIED.contains(&name.as_str()));
        }
    }
    assert_eq!(after, before);
    Ok(result)
}

const RATIOS: &str = r#"{"cpu":1.88,"memory":1.20}"#;
const RAW: &str = r#"{"cpu":"62","memory":"250Gi"}"#;

#[test]
fn allocatable_is_raw_times_ratio() {
    let plain = || node("", "", "62", "250Gi");
    let amplified = || node(RATIOS, RAW, "116560m", "300Gi");
    for (key, old, new, cpu, memory, raw) in [
        ("manager#9.2.W1", plain(), node(RATIOS, "", "62", "250Gi"), "116560m", "300Gi", RAW),
        (
            "manager#9.2.W2",
            amplified(),
            node(RATIOS, RAW, "60", "250Gi"),
            "112800m",
            "300Gi",
            r#"{"cpu":"60","memory":"250Gi"}"#,
        ),
        ("manager#9.2.W3", amplified(), node("", RAW, "62", "250Gi"), "62", "250Gi", ""),
        ("manager#9.2.W4", amplified(), amplified(), "116560m", "300Gi", RAW),
        (
            "manager#9.2.W7",
            plain(),
            node(r#"{"cpu":1.00,"memory":0.50}"#, "", "62", "250Gi"),
            "62",
            "250Gi",
            RAW,
        ),
        (
            "manager#9.2.W8, manager#26.DB-34",
            amplified(),
            node(r#"{"cpu":1.50}"#, RAW, "116560m", "300Gi"),
            "93",
            "250Gi",
            RAW,
        ),
        (
            "manager#9.2.W9",
            node("", "", "3920m", "1Gi"),
            node(r#"{"cpu":1.33}"#, "", "3920m", "1Gi"),
            "5213m",
            "1Gi",
            r#"{"cpu":"3920m","memory":"1Gi"}"#,
        ),
        (
            "manager#9.2.W10, manager#26.DB-34",
            amplified(),
            node("", RAW, "116560m", "300Gi"),
            "62",
            "250Gi",
            "",
        ),
        (
            "an unreadable raw value is dropped with the feature",
            plain(),
            node("", "{", "62", "250Gi"),
            "62",
            "250Gi",
            "",
        ),
        (
            "a raw list that is null amplifies nothing",
            plain(),
            node(RATIOS, "null", "62", "250Gi"),
            "62",
            "250Gi",
            "null",
        ),
        (
            "an equal amount keeps its spelling",
            amplified(),
            node(RATIOS, RAW, "116.56", "300Gi"),
            "116.56",
            "300Gi",
            RAW,
        ),
        (
            "an amount that is none is passed on",
            amplified(),
            node(RATIOS, RAW, "lots", "250Gi"),
            "lots",
            "300Gi",
            r#"{"memory":"250Gi"}"#,
        ),
    ] {
        let want = (cpu.to_owned(), memory.to_owned(), raw.to_owned());
        assert_eq!(review(&old, &new), Ok(want), "{key}");
    }
    let value: Quantity = "300Gi".parse().unwrap();
    assert_eq!(value.value(), 322_122_547_200, "manager#9.2.W1");
}

#[test]
fn annotations_that_cannot_be_read_are_refused() {
    let echo = node(RATIOS, "oops", "62", "250Gi");
    let refused = review(&echo, &echo).unwrap_err();
    assert!(
        refused.starts_with("500 failed to unmarshal node raw allocatable: "),
        "manager#9.2.W5 {refused}"
    );
    let old = node("", "", "62", "250Gi");
    let refused = review(&old, &node("oops", "", "62", "250Gi")).unwrap_err();
    let want = "500 failed to unmarshal node resource amplification ratio: ";
    assert!(refused.starts_with(want), "manager#9.2.W6 {refused}");
    // Kubelet's next report replaces a raw value that cannot be read.
    let healed = review(&echo, &node(RATIOS, "oops", "60", "250Gi")).unwrap();
    assert_eq!(healed.2, r#"{"cpu":"60","memory":"250Gi"}"#);
}

#[test]
fn a_review_without_the_parts_we_look_at_stays_as_it_is() {
    for new in [
        json!({}),
        json!({"metadata": null, "status": null}),
        json!({"metadata": {"annotations": {(AmplificationRatios::KEY): RATIOS}}}),
        json!({"metadata": {"annotations": {(AmplificationRatios::KEY): RATIOS}}, "status": {"allocatable": {}}}),
        json!({"metadata": {"annotations": {(AmplificationRatios::KEY): 7}}, "status": {"allocatable": []}}),
    ] {
        let mut after = new.clone();
        assert_eq!(amplify(&Value::Null, &mut after), Ok(()), "{new}");
        assert_eq!(after, new);
    }
}

#[test]
fn labels_must_not_let_two_items_pick_a_node() {
    let item = |name: &str, label: &str| {
        format!(r#"{{"name":"{name}","nodeSelector":{{"matchLabels":{{"{label}":"1"}}}}}}"#)
    };
    let document = |items: &str| format!(r#"{{"nodeConfigs":[{items}]}}"#);
    let config = |text: String| Some(Arc::new(Texts::from([(key::COLOCATION.to_owned(), text)])));
    let two = config(document(&format!("{},{}", item("a", "x"), item("b", "y"))));
    let one = config(document(&item("a", "x")));
    let broken = config("{".to_owned());
    let labelled = |labels: Value| json!({"metadata": {"name": "n1", "labels": labels}});
    let (x, both) = (labelled(json!({"x": "1"})), labelled(json!({"x": "1", "y": "1"})));
    let conflict = concat!(
        r#"___{"reason":"ExistNodeConfict","message":{"config":"colocation-config","#,
        r#""strategies":["a","b"],"exampleNodes":["n1"]}}___"#,
    );
    let refused = || Answer::deny(400, conflict);
    let warned = Answer { warnings: vec![conflict.to_owned()], ..Answer::allow() };
    use Operation::{Create, Delete, Update};
    for (name, operation, old, new, config, want) in [
        ("new labels match both", Update, &x, &both, &two, refused()),
        ("a new node is only warned about", Create, &Value::Null, &both, &two, warned),
        ("labels did not change", Update, &both, &both, &two, Answer::allow()),
        ("one matches", Update, &both, &x, &two, Answer::allow()),
        ("one item", Update, &x, &both, &one, Answer::allow()),
        ("a broken document is not ours to refuse", Update, &x, &both, &broken, Answer::allow()),
        ("no ConfigMap", Update, &x, &both, &None, Answer::allow()),
        ("a node that goes", Delete, &both, &Value::Null, &two, Answer::allow()),
    ] {
        let facts = Facts { config: config.clone(), ..Facts::default() };
        let got = aside(|aside| validate(&request("", operation, old, new), &facts, aside));
        assert_eq!(got, want, "{name}");
    }
    let facts = Facts { config: two, ..Facts::default() };
    let status = request("status", Update, &x, &both);
    assert_eq!(
        aside(|aside| validate(&status, &facts, aside)),
        Answer::allow(),
        "labels of a status are not checked"
    );
}

#[test]
fn only_updates_of_a_status_are_amplified() {
    let new = node(RATIOS, "", "62", "250Gi");
    for (sub_resource, operation) in [("status", Operation::Create), ("", Operation::Update)] {
        let request = request(sub_resource, operation, &Value::Null, &new);
        assert_eq!(
            aside(|aside| mutate(&request, &Facts::default(), aside)),
            Answer::allow(),
            "{sub_resource} {operation:?}"
        );
    }
}

/// What happens to a node.
#[derive(Clone, Debug)]
enum Step {
    /// Kubelet reports cpu in thousandths and memory in bytes.
    Report(i64, i64),
    /// Somebody writes the status and leaves cpu and memory alone.
    Echo,
    /// The ratios are annotated, in hundredths, or taken off; no review is made of that.
    Annotate(Option<(u32, u32)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ratio = 50_u32..300;
    let step = prop_oneof![
        (1_000_i64..100_000, (1_i64 << 20)..(1 << 40)).prop_map(|(cpu, memory)| Step::Report(cpu, memory)),
        Just(Step::Echo),
        prop::option::of((ratio.clone(), ratio)).prop_map(Step::Annotate),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    /// After every write of the status a node shows what kubelet last reported, times its ratios.
    #[test]
    fn nothing_is_amplified_twice_or_forgotten(steps in steps()) {
        let mut reported = [Quantity::cores_milli(62_000), Quantity::bytes(250 << 30)];
        let mut ratios = None;
        let mut stored = node("", "", "62", "250Gi");
        for step in steps {
            let mut new = stored.clone();
            match step {
                Step::Annotate(next) => {
                    ratios = next;
                    remove_annotation(&mut stored, AmplificationRatios::KEY);
                    if let Some((cpu, memory)) = next {
                        let decimal = |hundredths: u32| format!("{}.{:02}", hundredths / 100, hundredths % 100);
                        let text = format!(r#"{{"cpu":{},"memory":{}}}"#, decimal(cpu), decimal(memory));
                        set_annotation(&mut stored, AmplificationRatios::KEY, text);
                    }
                    continue;
                }
                Step::Report(cpu, memory) => {
                    reported = [Quantity::cores_milli(cpu), Quantity::bytes(memory)];
                    for (name, amount) in AMPLIFIED.into_iter().zip(reported) {
                        new["status"]["allocatable"][name] = json!(amount.to_string());
                    }
                }
                Step::Echo => {}
            }
            amplify(&stored, &mut new).unwrap();
            stored = new;
            let factors = ratios.map_or([100, 100], |(cpu, memory)| [cpu, memory]);
            for ((name, amount), hundredths) in AMPLIFIED.into_iter().zip(reported).zip(factors) {
                let want = match hundredths {
                    ..=100 => amount,
                    _ => scale_milli_trunc(amount, f64::from(hundredths) / 100.0),
                };
                prop_assert_eq!(quantity(&stored["status"]["allocatable"][name]), Some(want), "{}", name);
            }
            prop_assert_eq!(annotation(&stored, RawAllocatable::KEY).is_some(), ratios.is_some());
        }
    }
}
