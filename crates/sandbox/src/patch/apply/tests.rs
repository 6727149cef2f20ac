//! Scenarios recorded from a real v1.35.4 API server, each step replayed on the state it left.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{builtin, crd, shape};

#[derive(serde::Deserialize)]
struct Recorded {
    schema: Value,
    scenarios: Vec<Scenario>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scenario {
    name: String,
    kind: String,
    api_version: String,
    steps: Vec<Step>,
}

#[derive(serde::Deserialize)]
struct Step {
    op: String,
    #[serde(default)]
    manager: String,
    #[serde(default)]
    sub: String,
    #[serde(default)]
    force: bool,
    body: Value,
    code: Option<u16>,
    message: Option<String>,
    #[serde(default)]
    causes: Vec<Value>,
    object: Option<Value>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("recorded.json")).unwrap()
}

/// The schema of the recorded custom resource, with the metadata every object has.
fn custom(schema: &Value) -> Schema {
    let mut schema = crd::parse(schema, "s").unwrap();
    let text = Schema { kind: crate::schema::Kind::String, ..Schema::default() };
    schema.properties.insert("apiVersion".into(), text.clone());
    schema.properties.insert("kind".into(), text);
    schema.properties.insert("metadata".into(), builtin::object_meta().clone());
    schema
}

/// Brings an outcome into the form the record has: defaults filled, times equal.
fn settle(mut object: Value, schema: &Schema, builtin: bool) -> Value {
    if builtin {
        object = decode::decode_value(&object, schema, "").unwrap().value;
        decode::complete(&mut object, schema);
    } else {
        shape::drop_nulls(&mut object, schema);
        shape::fill_defaults(&mut object, schema);
    }
    same_times(object)
}

/// Gives all entries one time and an order that does not depend on it.
fn same_times(mut object: Value) -> Value {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    if let Some(entries) = entries {
        for entry in entries.iter_mut().filter(|entry| entry.get("time").is_some()) {
            entry["time"] = "2026-01-01T00:00:00Z".into();
        }
        entries.sort_by_key(|entry| {
            (entry["operation"].to_string(), entry["manager"].to_string(), entry["subresource"].to_string())
        });
    }
    object
}

#[test]
fn recorded_scenarios() {
    let recorded = recorded();
    let custom = custom(&recorded.schema);
    for scenario in &recorded.scenarios {
        let group = scenario.api_version.split_once('/').map_or("", |(group, _)| group);
        let known = builtin::by_name(&builtin::type_name(group, "v1", &scenario.kind));
        let schema = known.unwrap_or(&custom);
        let mut live: Option<Value> = None;
        for (place, step) in scenario.steps.iter().enumerate() {
            let name = format!("{} step {place}", scenario.name);
            let ignored = match step.sub.as_str() {
                "status" => FieldSet::of_paths(["spec"]),
                _ => FieldSet::of_paths(["status"]),
            };
            let context = Context {
                schema,
                builtin: known.is_some(),
                api_version: &scenario.api_version,
                kind: &scenario.kind,
                manager: &step.manager,
                subresource: &step.sub,
                now: "2026-01-01T00:00:00Z",
                ignored: &ignored,
            };
            replay(&name, step, live.as_ref(), &context);
            live = step.object.clone().or(live);
        }
    }
}

fn replay(name: &str, step: &Step, live: Option<&Value>, context: &Context<'_>) {
    if step.op != "apply" {
        // What the object became is the patch's matter; here only who owns it counts.
        let want = same_times(step.object.clone().expect("recorded writes other than applies succeed"));
        let mut new = want.clone();
        match step.body.pointer("/metadata/managedFields") {
            Some(given) => new["metadata"]["managedFields"] = given.clone(),
            None => managed::strip(&mut new),
        }
        update(live, &mut new, context);
        assert_eq!(same_times(new), want, "{name}");
        return;
    }
    let outcome = apply(live, &step.body, step.force, context);
    match (&step.message, outcome) {
        // Refused later, by validation.
        (Some(_), _) if step.code == Some(422) => {}
        (Some(message), outcome) => {
            let error = outcome.expect_err(name);
            assert_eq!(&error.to_string(), message, "{name}");
            if let ApplyError::Conflict(conflicts) = error {
                // The API server lists managers in no order.
                let mut causes: Vec<Value> = conflicts
                    .iter()
                    .map(|one| json!({"reason": "FieldManagerConflict", "message": one.message(), "field": one.field()}))
                    .collect();
                let mut want = step.causes.clone();
                causes.sort_by_key(Value::to_string);
                want.sort_by_key(Value::to_string);
                assert_eq!(causes, want, "{name}");
            }
        }
        (None, outcome) => {
            let want = same_times(step.object.clone().expect("a step without error has an object"));
            // What a real server answers is already as Go would hold and write it.
            assert_eq!(settle(want.clone(), context.schema, context.builtin), want, "{name}");
            let mut object = settle(outcome.expect(name), context.schema, context.builtin);
            if let Some(status) = live.and_then(|live| live.get("status")) {
                // The kind keeps the status; only its own subresource may change it.
                object["status"] = status.clone();
            }
            // Deployments are defaulted by their kind; their record is compared, not their fields.
            match context.kind {
                "Deployment" => {
                    assert_eq!(
                        object["metadata"]["managedFields"], want["metadata"]["managedFields"],
                        "{name}"
                    );
                }
                _ if context.subresource.is_empty() => assert_eq!(object, want, "{name}"),
                _ => assert_eq!(
                    object["metadata"]["managedFields"], want["metadata"]["managedFields"],
                    "{name}"
                ),
            }
        }
    }
}

fn config_map(schema: &Schema, ignored: &FieldSet, check: impl Fn(&Context<'_>)) {
    check(&Context {
        schema,
        builtin: true,
        api_version: "v1",
        kind: "ConfigMap",
        manager: "m",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        ignored,
    });
}

#[test]
fn ten_updaters_are_kept_apart() {
    let schema = builtin::by_name("io.k8s.api.core.v1.ConfigMap").unwrap();
    config_map(schema, &FieldSet::new(), |context| {
        let mut live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {}});
        update(None, &mut live, context);
        for count in 0..14 {
            let (manager, now) = (format!("m{count:02}"), format!("2026-01-01T00:00:{count:02}Z"));
            let mut new = live.clone();
            new["data"][manager.as_str()] = "x".into();
            update(Some(&live), &mut new, &Context { manager: &manager, now: &now, ..*context });
            live = new;
        }
        let managed = Managed::of(&live).unwrap();
        assert_eq!(managed.entries.len(), 10);
        let ancient =
            managed.entries.iter().find(|entry| entry.identity.manager == "ancient-changes").unwrap();
        let mut all = ancient.fields.clone();
        managed.entries.iter().for_each(|entry| all = all.union(&entry.fields));
        assert_eq!(all.paths().iter().filter(|path| path.len() == 2).count(), 14);
    });
}

#[test]
fn a_write_that_says_nothing_new_keeps_its_time() {
    let old = json!({"metadata": {"managedFields": [{"manager": "a", "time": "1"}]}, "data": {"a": "1"}});
    let mut new = json!({"metadata": {"managedFields": [{"manager": "a", "time": "2"}]}, "data": {"a": "1"}});
    managed::keep_times(&old, &mut new);
    assert_eq!(new, old);
    let mut changed =
        json!({"metadata": {"managedFields": [{"manager": "a", "time": "2"}]}, "data": {"a": "2"}});
    let before = changed.clone();
    managed::keep_times(&old, &mut changed);
    assert_eq!(changed, before);
}

#[test]
fn names_of_managers() {
    for (given, agent, want) in [
        ("me", "kubectl/v1.35", "me"),
        ("", "kubectl/v1.35 (linux)", "kubectl"),
        ("", "", ""),
        ("", "a\u{1}b/1", "ab"),
    ] {
        assert_eq!(managed::manager_name(given, agent), want);
    }
}

/// A small object of the recorded custom resource.
fn any_spec() -> impl Strategy<Value = Value> {
    let set = prop::collection::btree_set("[a-c]", 1..3).prop_map(|set| json!(set));
    let items = prop::collection::vec(("[a-c]", prop::option::of(0..3_i64)), 1..3).prop_map(|pairs| {
        let mut seen = Vec::new();
        let mut items = Vec::new();
        for (name, v) in pairs {
            if !seen.contains(&name) {
                items.push(v.map_or(json!({ "name": name }), |v| json!({"name": name, "v": v})));
                seen.push(name);
            }
        }
        json!(items)
    });
    let dict = prop::collection::btree_map("[a-c]", 0..3_i64, 1..3).prop_map(|dict| json!(dict));
    // Without any owned field there would be no record, and the next apply would begin one.
    (prop::option::of(set), prop::option::of(items), prop::option::of(dict), 0..3_i64).prop_map(
        |(set, items, dict, n)| {
            let mut spec = json!({});
            for (name, value) in [("set", set), ("map", items), ("dict", dict), ("n", Some(n.into()))] {
                value.into_iter().for_each(|value| spec[name] = value);
            }
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Applying again changes nothing, what was applied is there, and an applier that asks for
    /// nothing leaves what others applied.
    #[test]
    fn applies(first in any_spec(), second in any_spec()) {
        let schema = custom(&recorded().schema);
        let ignored = FieldSet::of_paths(["status"]);
        let object = |spec: &Value| json!({
            "apiVersion": "x.io/v1", "kind": "L", "metadata": {"name": "x", "namespace": "default"}, "spec": spec});
        let context = |manager: &'static str| Context {
            schema: &schema, builtin: false, api_version: "x.io/v1", kind: "L", manager, subresource: "",
            now: "2026-01-01T00:00:00Z", ignored: &ignored,
        };
        let one = apply(None, &object(&first), false, &context("one")).unwrap();
        prop_assert_eq!(&apply(Some(&one), &object(&first), false, &context("one")).unwrap(), &one);
        let two = apply(Some(&one), &object(&second), true, &context("two")).unwrap();
        prop_assert_eq!(&apply(Some(&two), &object(&second), false, &context("two")).unwrap(), &two);
        let of = Type::of(&schema);
        let wanted = typed::field_set(&object(&second), of);
        prop_assert!(wanted.difference(&typed::field_set(&two, of)).is_empty());
        prop_assert!(typed::compare(&typed::merge(&two, &object(&second), of), &two, of) == typed::Comparison::default());
        let gone = apply(Some(&one), &object(&json!({})), true, &context("two")).unwrap();
        let mut left = gone;
        managed::strip(&mut left);
        let mut before = one.clone();
        managed::strip(&mut before);
        shape::drop_nulls(&mut left, &schema);
        prop_assert_eq!(left, before);
    }
}
