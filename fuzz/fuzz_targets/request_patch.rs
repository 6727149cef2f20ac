//! Patches of the sandbox: a document and, behind a zero byte, a patch of every kind. Merging twice is merging once,
//! and what apply made can be applied again.
#![no_main]

use koord_sandbox::patch::apply::{self, Context};
use koord_sandbox::patch::fieldset::FieldSet;
use koord_sandbox::patch::{json, merge, strategic};
use koord_sandbox::schema::builtin;
use koord_sandbox::schema::decode::decode_value;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const POD: &str = "io.k8s.api.core.v1.Pod";

fuzz_target!(|text: &str| {
    let Some((document, patch)) = text.split_once('\0') else { return };
    let Ok(document @ Value::Object(_)) = serde_json::from_str::<Value>(document) else { return };
    let bytes = patch.as_bytes();
    let _ = json::apply(document.clone(), bytes);
    if let Ok(merged) = merge::apply(document.clone(), bytes) {
        assert_eq!(merge::apply(merged.clone(), bytes).ok(), Some(merged));
    }
    let schema = builtin::by_name(POD).expect("pods are built in");
    let Ok(pod) = decode_value(&document, schema, "Pod") else { return };
    let _ = strategic::apply(pod.value.clone(), bytes, schema);
    let Ok(wanted) = serde_json::from_str::<Value>(patch) else { return };
    let ignored = FieldSet::of_paths(["status"]);
    let context = Context {
        schema,
        builtin: true,
        api_version: "v1",
        kind: "Pod",
        manager: "fuzz",
        subresource: "",
        now: "2024-01-01T00:00:00Z",
        ignored: &ignored,
    };
    let Ok(applied) = apply::apply(Some(&pod.value), &wanted, true, &context) else { return };
    let _ = apply::apply(Some(&applied), &wanted, false, &context);
});
