use k8s_openapi::api::core::v1::{NodeStatus, PodTemplateSpec};

use super::*;
use crate::crd::device::{DeviceInfo, DeviceSpec};
use crate::crd::elastic_quota::ElasticQuotaSpec;
use crate::crd::reservation::{ReservationSpec, ReservationStatus};
use crate::gate::Component;
use crate::keys::node::annotation::RESERVATION;
use crate::keys::pod::annotation::REPLACE_RESOURCES;
use crate::keys::pod::label::PRIORITY_CLASS;
use crate::pod::sketch::{Sketch, amounts, pod};

const OFF: PodTransform =
    PodTransform { replace_resources: false, priority: false, preemption_policy: false };

fn transformed(transform: PodTransform, before: Pod) -> Pod {
    let mut pod = before.clone();
    transform.apply(&mut pod, |error| panic!("{error}"));
    assert!(pod == before || transform.concerns(&before), "a pod that is changed is one of concern");
    pod
}

/// Requests, limits and overhead in canonical text.
fn lists(pod: &Pod) -> [String; 3] {
    let spec = pod.spec.as_ref().unwrap();
    let resources = spec.containers[0].resources.clone().unwrap_or_default();
    [resources.requests, resources.limits, spec.overhead.clone()]
        .map(|list| wire_text(&list.unwrap_or_default()))
}

fn wire_text(list: &BTreeMap<String, WireQuantity>) -> String {
    list.iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect::<Vec<_>>().join(" ")
}

fn list(amounts: &[(&str, &str)]) -> ResourceList {
    amounts.iter().map(|(name, amount)| (name.to_string(), amount.parse().unwrap())).collect()
}

fn names(list: &ResourceList) -> Vec<&str> {
    list.keys().map(String::as_str).collect()
}

#[test]
fn old_names() {
    let requests = &[("koordinator.sh/batch-cpu", "1k"), ("kubernetes.io/gpu", "100")];
    let limits = &[("koordinator.sh/batch-cpu", "1k"), ("kubernetes.io/batch-cpu", "2k")];
    let got = transformed(OFF, pod().container(requests, limits).init(requests, &[]).overhead(requests));
    let renamed = "koordinator.sh/gpu=100 kubernetes.io/batch-cpu=1k";
    let kept = "koordinator.sh/batch-cpu=1k kubernetes.io/batch-cpu=2k";
    assert_eq!(lists(&got), [renamed, kept, renamed], "api#3.3.T1");
    let init = got.spec.unwrap().init_containers.unwrap().remove(0).resources.unwrap();
    assert_eq!(wire_text(&init.requests.unwrap()), renamed);
}

#[test]
fn old_names_in_allocated_devices() {
    let old = r#"{"gpu":[{"minor":3,"resources":{"kubernetes.io/gpu-core":"50","kubernetes.io/gpu-memory":"8Gi"}}]}"#;
    let new = r#"{"gpu":[{"minor":3,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"8Gi"}}]}"#;
    let got = transformed(OFF, pod().annotation(DEVICE_ALLOCATED, old));
    assert_eq!(annotation(&got, DEVICE_ALLOCATED), Some(new), "api#3.3.T2");
    let spaced = r#"{"gpu": [{"minor": 3, "resources": {"koordinator.sh/gpu-core": 50}}]}"#;
    let got = transformed(OFF, pod().annotation(DEVICE_ALLOCATED, spaced));
    assert_eq!(annotation(&got, DEVICE_ALLOCATED), Some(spaced), "text without old names stays");

    let mut broken = pod().annotation(DEVICE_ALLOCATED, "{");
    let mut reported = Vec::new();
    OFF.apply(&mut broken, |error| reported.push(error.key));
    assert_eq!(reported, [DEVICE_ALLOCATED]);
    assert_eq!(annotation(&broken, DEVICE_ALLOCATED), Some("{"));
}

#[test]
fn scheduler_name() {
    let named = |name: &str| pod().edit(|spec| spec.scheduler_name = Some(name.to_string()));
    let got = transformed(OFF, named("default-scheduler").label(SCHEDULER_NAME, "koord"));
    assert_eq!(got.spec.as_ref().unwrap().scheduler_name.as_deref(), Some("koord"), "api#3.3.T3");
    assert_eq!(annotation(&got, ORIGINAL_SCHEDULER_NAME), Some("default-scheduler"), "api#3.3.T3");
    let got = transformed(OFF, named("koord").label(SCHEDULER_NAME, "koord"));
    assert_eq!(annotation(&got, ORIGINAL_SCHEDULER_NAME), None);
    let got = transformed(OFF, named("koord").label(SCHEDULER_NAME, ""));
    assert_eq!(got.spec.unwrap().scheduler_name.as_deref(), Some("koord"), "an empty label is none");
}

#[test]
fn replaced_resources() {
    let batch_cpu = "kubernetes.io/batch-cpu";
    let given = pod()
        .annotation(REPLACE_RESOURCES, "cpu:kubernetes.io/batch-cpu,memory:")
        .container(&[("cpu", "1500m"), ("memory", "1Gi")], &[("cpu", "2"), (batch_cpu, "7")])
        .overhead(&[("cpu", "250m"), ("memory", "1Gi")]);
    assert_eq!(transformed(OFF, given.clone()), given, "api#3.3.T4");
    let got = transformed(PodTransform { replace_resources: true, ..OFF }, given);
    let want =
        ["kubernetes.io/batch-cpu=1500", "cpu=2 kubernetes.io/batch-cpu=7", "kubernetes.io/batch-cpu=250"];
    assert_eq!(lists(&got), want, "api#3.3.T5");
}

#[test]
fn priority_and_preemption() {
    let on = PodTransform { priority: true, ..OFF };
    let priority = |pod: Pod| transformed(on, pod).spec.unwrap().priority;
    assert_eq!(priority(pod().priority(9500).label(PRIORITY_CLASS, "koord-batch")), Some(9500), "api#3.3.T6");
    assert_eq!(priority(pod().qos("BE")), Some(5500), "api#3.3.T6");

    let on = PodTransform { preemption_policy: true, ..OFF };
    let policy = |pod: Pod| transformed(on, pod).spec.unwrap().preemption_policy.unwrap();
    assert_eq!(policy(pod()), "Never", "api#3.3.T7");
    let preempt = "PreemptLowerPriority";
    assert_eq!(policy(pod().label(PREEMPTION_POLICY, preempt)), preempt, "api#3.3.T7");
    assert_eq!(policy(pod().label(PREEMPTION_POLICY, "x")), "Never", "api#3.3.T7");
}

#[test]
fn switched_by_gates() {
    let gates = Gates::parse(Component::Scheduler, "PriorityTransformer=true").unwrap();
    assert_eq!(PodTransform::new(&gates), PodTransform { priority: true, ..OFF });
}

#[test]
fn other_objects() {
    let both = [("koordinator.sh/batch-cpu", "1k"), ("kubernetes.io/gpu-core", "100")];
    let renamed = ["koordinator.sh/gpu-core", "kubernetes.io/batch-cpu"];

    let wire = Some(amounts(&both));
    let status = NodeStatus { allocatable: wire.clone(), capacity: wire.clone(), ..NodeStatus::default() };
    let mut n = Node { status: Some(status), ..Node::default() };
    node(&mut n);
    for list in
        [n.status.as_ref().unwrap().allocatable.as_ref(), n.status.as_ref().unwrap().capacity.as_ref()]
    {
        assert!(list.unwrap().keys().eq(&renamed), "{list:?}");
    }

    let info = DeviceInfo {
        device_type: crate::crd::device::DeviceType::Gpu,
        resources: list(&both),
        ..DeviceInfo::default()
    };
    let mut d = Device { spec: Some(DeviceSpec { devices: vec![info] }), ..Device::default() };
    device(&mut d);
    let resources = &d.spec.unwrap().devices[0].resources;
    assert_eq!(names(resources), ["koordinator.sh/batch-cpu", "koordinator.sh/gpu-core"]);

    let spec = ElasticQuotaSpec { min: list(&both), max: list(&both) };
    let mut q = ElasticQuota { spec: Some(spec), ..ElasticQuota::default() };
    elastic_quota(&mut q);
    let spec = q.spec.unwrap();
    assert_eq!(names(&spec.min), ["kubernetes.io/batch-cpu", "kubernetes.io/gpu-core"]);
    assert_eq!(names(&spec.max), ["kubernetes.io/batch-cpu", "kubernetes.io/gpu-core"]);

    let template = PodTemplateSpec { spec: pod().container(&both, &[]).spec, ..PodTemplateSpec::default() };
    let mut r = Reservation {
        spec: Some(ReservationSpec { template: Some(template), ..ReservationSpec::default() }),
        status: Some(ReservationStatus { allocatable: list(&both), ..ReservationStatus::default() }),
        ..Reservation::default()
    };
    reservation(&mut r);
    let template = r.spec.unwrap().template.unwrap().spec.unwrap();
    assert!(
        template.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap().keys().eq(&renamed)
    );
    assert_eq!(names(&r.status.unwrap().allocatable), renamed);
}

#[test]
fn reserved_amounts_are_not_offered() {
    const BATCH: &str = "kubernetes.io/batch-cpu";
    const OLD_BATCH: &str = "koordinator.sh/batch-cpu";
    let n1 = r#"{"resources":{"cpu":"5"}}"#;
    for (key, offered, reservation, want) in [
        ("scheduler-core#9.9.N1", &[("cpu", "32"), ("memory", "64Gi")][..], n1, "cpu=27 memory=64Gi"),
        ("scheduler-core#9.9.N2", &[("cpu", "32")], r#"{"reservedCPUs":"0-3"}"#, "cpu=28"),
        (
            "scheduler-core#9.9.N3",
            &[("cpu", "32")],
            r#"{"resources":{"cpu":"10"},"reservedCPUs":"0-1"}"#,
            "cpu=30",
        ),
        ("scheduler-core#9.9.N4", &[("cpu", "4")], r#"{"resources":{"cpu":"6"}}"#, "cpu=0"),
        (
            "scheduler-core#9.9.N5",
            &[("cpu", "32")],
            r#"{"reservedCPUs":"0-3","applyPolicy":"ReservedCPUsOnly"}"#,
            "cpu=32",
        ),
        (
            "scheduler-core#9.9.N6",
            &[("cpu", "32"), (BATCH, "10000")],
            n1,
            "cpu=27 kubernetes.io/batch-cpu=10000",
        ),
        ("scheduler-core#9.9.N7", &[("cpu", "32")], "{bad", "cpu=32"),
        (
            "scheduler-core#9.9.N8",
            &[("cpu", "32")],
            r#"{"resources":{"cpu":"5"},"reservedCPUs":"x-y"}"#,
            "cpu=32",
        ),
        (
            "scheduler-core#9.9.N9",
            &[("cpu", "32")],
            r#"{"resources":{"cpu":"1500m","example.com/x":"5"}}"#,
            "cpu=30500m",
        ),
        (
            "scheduler-core#9.9.N10",
            &[("cpu", "32"), (BATCH, "10000")],
            r#"{"resources":{"kubernetes.io/batch-cpu":"5000"}}"#,
            "cpu=32 kubernetes.io/batch-cpu=10000",
        ),
        (
            "scheduler-core#9.9.N11",
            &[("cpu", "32"), (OLD_BATCH, "10000")],
            r#"{"resources":{"cpu":"1"}}"#,
            "cpu=31 kubernetes.io/batch-cpu=10000",
        ),
        (
            "scheduler-core#9.9.N12",
            &[(OLD_BATCH, "10000"), (BATCH, "5")],
            "",
            "koordinator.sh/batch-cpu=10000 kubernetes.io/batch-cpu=5",
        ),
        (
            "scheduler-core#9.9.N14",
            &[("cpu", "32")],
            r#"{"resources":{"cpu":"5"},"applyPolicy":"Foo"}"#,
            "cpu=32",
        ),
        ("scheduler-core#9.9.N15", &[("cpu", "32")], r#"{"reservedCPUs":"0-3,2,8"}"#, "cpu=27"),
        ("scheduler-core#9.9.N16", &[("cpu", "32")], r#"{"resources":{"cpu":"-5"}}"#, "cpu=32"),
        (
            "scheduler-core#9.9.N17",
            &[("cpu", "1500m"), ("memory", "512Mi")],
            r#"{"resources":{"cpu":"700m","memory":"1Gi"}}"#,
            "cpu=800m memory=0",
        ),
    ] {
        let mut node = Node::default();
        let wire = Some(amounts(offered));
        node.status = Some(NodeStatus { allocatable: wire.clone(), capacity: wire, ..NodeStatus::default() });
        if !reservation.is_empty() {
            let entry = (RESERVATION.to_string(), reservation.to_string());
            node.metadata.annotations = Some([entry].into());
        }
        let got: Vec<(String, String)> =
            allocatable(&node).into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
        let canonical = |pair: &str| {
            let (name, amount) = pair.split_once('=').unwrap();
            (name.to_string(), amount.parse::<Quantity>().unwrap().to_string())
        };
        assert_eq!(got, want.split(' ').map(canonical).collect::<Vec<_>>(), "{key}");
        assert_eq!(node.status.unwrap().capacity.unwrap(), amounts(offered), "{key}: capacity stays");
    }
}

#[test]
fn old_device_names_of_nodes() {
    let names = ["gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga"];
    let old: BTreeMap<String, WireQuantity> =
        names.iter().map(|name| (format!("kubernetes.io/{name}"), WireQuantity("100".into()))).collect();
    let status = NodeStatus { allocatable: Some(old.clone()), capacity: Some(old), ..NodeStatus::default() };
    let mut given = Node { status: Some(status), ..Node::default() };
    let want: std::collections::BTreeSet<String> =
        names.iter().map(|name| format!("koordinator.sh/{name}")).collect();
    assert!(allocatable(&given).into_keys().eq(want.iter().cloned()), "scheduler-core#9.9.N13");
    node(&mut given);
    let status = given.status.unwrap();
    assert!(status.capacity.unwrap().into_keys().eq(want.iter().cloned()), "scheduler-core#9.9.N13 capacity");
    assert!(status.allocatable.unwrap().into_keys().eq(want), "scheduler-core#9.9.N13 allocatable");
}
