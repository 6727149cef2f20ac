//! Admission of pods: the spec of a profile and, behind a zero byte, a body as the API server would send it. Whatever
//! comes is answered, and the patch of the answer gives exactly the pod that was meant.
#![no_main]

use std::sync::LazyLock;

use koord_api::gate::{Component, Gates};
use koord_api::patch::diff::diff;
use koord_api::patch::json;
use koord_api::rewrite::profile::{PriorityClassFacts, Profiles};
use koord_api::rewrite::trace;
use koord_manager::webhook::facts::Facts;
use koord_manager::webhook::handler::Aside;
use koord_manager::webhook::pod::mutate;
use koord_manager::webhook::review::{Verdict, decode, encode, encode_error};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// A cluster with one priority class, and all steps on.
static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let gates = Gates::parse(Component::Manager, "MultiQuotaTree=true,ExtendedResourceSpecMid=true");
    let mut facts = Facts::new(gates.expect("known gates"), "koordinator-system");
    let batch = PriorityClassFacts { value: 5000, preemption_policy: Some("Never".into()) };
    facts.priority_classes = std::sync::Arc::new([("koord-batch".to_owned(), batch)].into());
    facts
});

fuzz_target!(|text: &str| {
    let Some((spec, body)) = text.split_once('\0') else { return };
    let request = match decode(body.as_bytes()) {
        Ok(request) => request,
        Err(error) => {
            assert!(!encode_error(&error).is_empty());
            return;
        }
    };
    let profile = serde_json::from_str::<Value>(spec)
        .ok()
        .and_then(|spec| serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).ok());
    let facts = Facts { profiles: Profiles::new(&profile).into(), ..FACTS.clone() };
    for profile in facts.profiles.iter() {
        let _ = profile.faults(&facts.priority_classes);
    }
    let mut aside = Aside { dice: &mut || 50, step: &mut |_, _| () };
    let answer = mutate(&request, &facts, &mut aside);
    let told: Value = serde_json::from_slice(&encode(&request, &answer)).expect("an answer is JSON");
    assert_eq!(told["response"]["uid"], json!(request.uid));
    if let Verdict::Changed(pod) = &answer.verdict {
        let patch = serde_json::to_vec(&diff(&request.object, pod)).expect("a patch is JSON");
        assert_eq!(json::apply(request.object.clone(), &patch).as_ref(), Ok(pod));
        let _ = trace::trace(pod, &facts.profiles, None, &facts.priority_classes);
        let _ = trace::moved_amounts(pod);
    }
});
