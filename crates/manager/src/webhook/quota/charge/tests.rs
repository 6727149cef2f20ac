use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use koord_api::keys::pod::annotation::REPLACE_RESOURCES;
use koord_api::keys::pod::label::QUOTA_NAME;
use koord_api::keys::quota::annotation::{ADMISSION, CHILD_REQUEST};

use super::super::sketch::{Cluster, Sketch, amounts, quota};
use super::*;

/// A quota as it is counted against; texts are `cpu=1 memory=1Gi`, or JSON as it stands.
fn state(used: &str, admission: Option<&str>, max: &str) -> QuotaState {
    let json = |text: &str| match text {
        "" => String::new(),
        text if text.contains('=') => ChildRequest(amounts(text)).text(),
        text => text.to_owned(),
    };
    let mut quota = quota("q").max(max).annotation(CHILD_REQUEST, &json(used));
    if let Some(admission) = admission {
        quota = quota.annotation(ADMISSION, &json(admission));
    }
    QuotaState::new(QuotaKey::of(&quota, ""), &quota)
}

/// The verdict on one pod: the usage to be written, `ok` without a write, or the refusal.
fn verdict(quota: &QuotaState, request: &str) -> String {
    let mut batch = Batch::new([amounts(request)]);
    match batch.judge(quota) {
        Some(charge) => format!("write {}", charge.child_request),
        None => match batch.verdicts().next().unwrap() {
            Ok(()) => "ok".to_owned(),
            Err(text) => text,
        },
    }
}

#[test]
fn verdicts_on_one_pod() {
    let over = |text: &str| format!("exceeded quota: qns/q, {text}");
    for (name, used, admission, max, request, want) in [
        (
            "manager#18.X1",
            "cpu=9",
            None,
            "cpu=10",
            "cpu=2",
            over("requested: cpu=2, used: cpu=9, limited: cpu=10"),
        ),
        ("manager#18.X2", "cpu=9", None, "cpu=10", "cpu=1", r#"write {"cpu":"10"}"#.into()),
        (
            "manager#18.X3",
            "cpu=9",
            Some("memory=1Gi"),
            "cpu=10 memory=2Gi",
            "cpu=5 memory=1Gi",
            r#"write {"cpu":"14","memory":"1Gi"}"#.into(),
        ),
        ("manager#18.X4", "", None, "cpu=10", "nvidia.com/gpu=1", "ok".into()),
        (
            "manager#18.X5",
            "cpu=9 memory=1Gi",
            None,
            "cpu=10 memory=1Gi",
            "cpu=2 memory=1Gi",
            over("requested: cpu=2,memory=1Gi, used: cpu=9,memory=1Gi, limited: cpu=10,memory=1Gi"),
        ),
        (
            "manager#18.X6",
            "cpu=12 memory=0",
            None,
            "cpu=10 memory=1Gi",
            "memory=1Mi",
            r#"write {"cpu":"12","memory":"1Mi"}"#.into(),
        ),
        ("manager#18.X8", "", None, "foo/bar=10", "foo/bar=20", "ok".into()),
        (
            "manager#18.X9",
            "",
            Some("{}"),
            "cpu=10",
            "cpu=20",
            over("requested: cpu=20, used: , limited: cpu=10"),
        ),
        (
            "manager#18.X10",
            "cpu=9 memory=1",
            Some("memory=1Gi"),
            "cpu=10 memory=2Gi",
            "cpu=5 memory=1Gi",
            over("requested: memory=1Gi, used: memory=1, limited: memory=1Gi"),
        ),
        ("zeros ask for nothing", "cpu=20", None, "cpu=10", "cpu=0", "ok".into()),
    ] {
        assert_eq!(verdict(&state(used, admission, max), request), want, "{name}");
    }
    for (used, admission) in [("oops", None), ("", Some("oops"))] {
        let text = verdict(&state(used, admission, "cpu=10"), "cpu=2");
        assert!(text.starts_with("invalid character 'o'"), "manager#18.X7 {text}");
    }
    let both = verdict(&state("oops", Some("oops"), "cpu=10"), "cpu=2");
    assert!(both.starts_with("[invalid character") && both.contains(", invalid character"), "{both}");
}

#[test]
fn a_batch_is_judged_in_order_and_again_after_a_lost_write() {
    let mut batch = Batch::new(["cpu=4", "cpu=9", "gpu=1", "cpu=5"].map(amounts));
    let charge = batch.judge(&state("", None, "cpu=10")).unwrap();
    assert_eq!((charge.child_request.as_str(), charge.pods), (r#"{"cpu":"9"}"#, Some(2)));
    // Somebody else took one: what was let through still fits and is not judged again.
    let charge = batch.judge(&state("cpu=1", None, "cpu=10")).unwrap();
    assert_eq!((charge.child_request.as_str(), charge.pods), (r#"{"cpu":"10"}"#, None));
    // Two: only the first fits now.
    let charge = batch.judge(&state("cpu=2", None, "cpu=10")).unwrap();
    assert_eq!((charge.child_request.as_str(), charge.pods), (r#"{"cpu":"6"}"#, Some(1)));
    // Other resources are counted now, so all are judged again.
    let charge = batch.judge(&state("cpu=1", None, "cpu=10 memory=1")).unwrap();
    assert_eq!((charge.child_request.as_str(), charge.pods), (r#"{"cpu":"5"}"#, Some(1)));
    batch.close(&Ok(()));
    let passed: Vec<bool> = batch.verdicts().map(|verdict| verdict.is_ok()).collect();
    assert_eq!(passed, [true, false, true, false]);
}

fn pod(labels: &[(&str, &str)], requests: &str) -> Pod {
    let wire =
        |(name, amount): (String, koord_api::quantity::Quantity)| (name, WireQuantity(amount.to_string()));
    let requests = amounts(requests).into_iter().map(wire).collect();
    let resources =
        Some(ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() });
    let container = Container { name: "c".into(), resources, ..Container::default() };
    let mut pod =
        Pod { spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }), ..Pod::default() };
    pod.metadata.labels = Some(labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect());
    pod
}

#[test]
fn which_quota_is_charged() {
    let cluster = Cluster::with([
        quota("q"),
        quota("twice"),
        quota("twice").within("other"),
        quota("bound").namespaces(r#"["nsb"]"#),
    ]);
    let on = QuotaGates { admission: true, ..QuotaGates::default() };
    let on_update = QuotaGates { admission_on_update: true, ..on };
    let labelled = |name: &str| pod(&[(QUOTA_NAME, name)], "");
    let ask = |old: Option<&Pod>, new: &Pod, namespace: &str, gates| match target(
        old,
        new,
        namespace,
        cluster.ledger(),
        gates,
    ) {
        Ok(key) => key.map_or("none".to_owned(), |key| key.to_string()),
        Err(denial) => denial.message,
    };
    assert_eq!(ask(None, &labelled("q"), "ns", on), "qns/q");
    assert_eq!(ask(None, &labelled("q"), "ns", QuotaGates::default()), "none", "gate off");
    assert_eq!(ask(None, &labelled("ghost"), "ns", on), "elastic quota ghost not found", "manager#18.X11");
    let twice = "more than one elastic quota twice found";
    assert_eq!(ask(None, &labelled("twice"), "ns", on), twice, "manager#18.X11 two");
    assert_eq!(ask(None, &pod(&[], ""), "nsb", on), "qns/bound");
    for built_in in ["koordinator-default-quota", "koordinator-system-quota", "koordinator-root-quota"] {
        assert_eq!(ask(None, &labelled(built_in), "ns", on), "none", "{built_in}");
    }
    assert_eq!(ask(None, &pod(&[], ""), "ns", on), "none", "default quota");
    assert_eq!(ask(None, &pod(&[], ""), "nsb", QuotaGates { disable_default: true, ..on }), "none");
    let (q, bound) = (labelled("q"), labelled("bound"));
    assert_eq!(ask(Some(&bound), &q, "ns", on), "none", "updates are not counted");
    assert_eq!(ask(Some(&bound), &q, "ns", on_update), "qns/q", "unless the gate says so");
    assert_eq!(ask(Some(&q), &q, "ns", on_update), "none", "and the quota changes");
}

#[test]
fn what_a_pod_is_counted_with() {
    let now = Timestamp::from_second(1000).unwrap();
    let gates = QuotaGates::default();
    let plain = pod(&[], "cpu=1 x=2");
    assert_eq!(request(&plain, gates, now), amounts("cpu=1 x=2"));
    for phase in ["Failed", "Succeeded"] {
        let status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
        assert!(request(&Pod { status, ..plain.clone() }, gates, now).is_empty(), "{phase}");
    }
    let going = |seconds_ago: i64| {
        let mut pod = plain.clone();
        pod.metadata.deletion_timestamp = Some(Time(now - SignedDuration::from_secs(seconds_ago)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        pod
    };
    assert!(!request(&going(30), gates, now).is_empty());
    assert!(request(&going(31), gates, now).is_empty(), "it should be gone");

    let mut renamed = plain;
    let text = "x:nvidia.com/gpu,cpu:".to_owned();
    renamed.metadata.annotations = Some([(REPLACE_RESOURCES.to_owned(), text)].into());
    assert_eq!(request(&renamed, gates, now), amounts("cpu=1 x=2"), "gate off");
    let gates = QuotaGates { replace_resources: true, ..gates };
    assert_eq!(request(&renamed, gates, now), amounts("nvidia.com/gpu=2"));
}
