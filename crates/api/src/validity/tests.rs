use super::*;
use crate::keys::pod::annotation::RESERVE_POD;
use crate::keys::pod::label::{PRIORITY, PRIORITY_CLASS, QOS_CLASS};
use crate::pod::sketch::{Sketch, pod};

const CPU_2: &[(&str, &str)] = &[("cpu", "2")];

/// The steps stop at the first that finds something.
fn first(reserve: FieldErrors, rest: FieldErrors) -> String {
    let errors = if reserve.is_empty() { rest } else { reserve };
    if errors.is_empty() { "ok".to_string() } else { errors.to_string() }
}

fn created(pod: &Pod) -> String {
    first(check_reserve_pod(None, pod), check_create(pod))
}

fn updated(old: Pod, new: Pod) -> String {
    let rest = check_update(&old, &new, UpdateOptions::default());
    first(check_reserve_pod(Some(&old), &new), rest)
}

#[test]
fn matrix() {
    use PriorityClass::{Batch, Free, Mid, Prod};
    let columns = [None, Some(Prod), Some(Mid), Some(Batch), Some(Free)];
    for (qos, row) in [
        (None, [true; 5]),
        (Some(Qos::Lse), [true; 5]),
        (Some(Qos::Lsr), [false, true, false, false, false]),
        (Some(Qos::Ls), [true; 5]),
        (Some(Qos::Be), [false, false, true, true, true]),
        (Some(Qos::System), [true; 5]),
    ] {
        for (class, want) in columns.into_iter().zip(row) {
            assert_eq!(is_allowed(qos, class), want, "{qos:?} {class:?}");
        }
    }
}

#[test]
fn on_create() {
    let lsr = || pod().qos("LSR").priority(9500);
    let combination = |qos: &str, class: &str| {
        format!(
            "Pod: Forbidden: koordinator.sh/qosClass={qos} and priorityClass={class} cannot be used in combination"
        )
    };
    let batch = "labels.koordinator.sh/qosClass: Required value: must specify koordinator QoS BE with koordinator colocation resources";
    let cpu = |text: &str| {
        format!(
            "pod.spec.containers[*].resources.requests: Invalid value: \"{text}\": the requested CPUs of LSR Pod must be integer"
        )
    };
    let no_cpu =
        "pod.spec.containers[*].resources.requests: Required value: LSR Pod must declare the requested CPUs";
    for (key, pod, want) in [
        ("api#10.11", pod().qos("BE").priority(9500), combination("BE", "koord-prod")),
        ("api#10.12", pod().qos("LSR").container(CPU_2, &[]), combination("LSR", "")),
        ("api#10.13", pod().qos("LSE").priority(5500).container(CPU_2, &[]), "ok".into()),
        ("api#10.14", lsr().container(&[("cpu", "1500m")], &[]), cpu("1500m")),
        ("api#10.15", pod().qos("LS").container(&[("kubernetes.io/batch-cpu", "1000")], &[]), batch.into()),
        (
            "api#10.93",
            pod()
                .qos("LSR")
                .priority(5500)
                .container(&[("cpu", "1500m"), ("kubernetes.io/batch-cpu", "1")], &[]),
            format!("[{batch}, {}, {}]", combination("LSR", "koord-batch"), cpu("1500m")),
        ),
        (
            "api#10.94",
            lsr().container(&[("cpu", "1500m")], &[]).container(&[("cpu", "500m")], &[]),
            "ok".into(),
        ),
        ("api#10.95 overhead", lsr().container(CPU_2, &[]).overhead(&[("cpu", "250m")]), cpu("2250m")),
        ("api#10.95 init", lsr().container(CPU_2, &[]).init(&[("cpu", "2500m")], &[]), cpu("2500m")),
        ("api#10.96", pod().qos("LSE").priority(9500), no_cpu.into()),
        (
            "api#10.97 limits",
            pod().qos("LS").container(&[], &[("kubernetes.io/batch-cpu", "1")]),
            "ok".into(),
        ),
        ("api#10.97 zero", pod().qos("LS").container(&[("kubernetes.io/batch-cpu", "0")], &[]), "ok".into()),
        ("api#10.97 mid", pod().qos("LS").container(&[("kubernetes.io/mid-cpu", "1000")], &[]), "ok".into()),
        ("rounded up to whole milli", lsr().container(&[("cpu", "1999999u")], &[]), "ok".into()),
        (
            "batch memory of a pod without QoS",
            pod().container(&[("kubernetes.io/batch-memory", "1Gi")], &[]),
            batch.into(),
        ),
        (
            "reserve pod",
            pod().annotation(RESERVE_POD, "true"),
            "annotations.scheduling.koordinator.sh/reserve-pod: Forbidden: cannot set in annotations".into(),
        ),
    ] {
        assert_eq!(created(&pod), want, "{key}");
    }
}

#[test]
fn on_update() {
    let ls = |priority| pod().qos("LS").priority(priority);
    let immutable =
        |path: &str, value: &str| format!("{path}: Invalid value: \"{value}\": field is immutable");
    for (key, old, new, want) in [
        ("api#10.16 same class", ls(9100), ls(9200), "ok".to_string()),
        ("api#10.16 other class", ls(9100), ls(5500), immutable("spec.priority", "koord-batch")),
        (
            "api#10.98 from label to priority",
            pod().label(PRIORITY_CLASS, "koord-prod"),
            pod().priority(9100),
            "ok".to_string(),
        ),
        ("api#10.98 unknown QoS", pod().qos("foo"), pod(), "ok".to_string()),
        ("QoS removed", ls(9100), pod().priority(9100), immutable("labels.koordinator.sh/qosClass", "")),
        (
            "sub-priority",
            pod().label(PRIORITY, "1"),
            pod().label(PRIORITY, "2"),
            immutable("labels.koordinator.sh/priority", "2"),
        ),
        (
            "order of errors",
            pod().qos("LS").priority(9100),
            pod().qos("BE").priority(9900).label(PRIORITY, "1"),
            format!(
                "[{}, {}, Pod: Forbidden: koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination]",
                immutable("labels.koordinator.sh/qosClass", "BE"),
                immutable("labels.koordinator.sh/priority", "1"),
            ),
        ),
    ] {
        assert_eq!(updated(old, new), want, "{key}");
    }
    let options = UpdateOptions { allow_sub_priority_change: true };
    assert!(check_update(&pod().label(PRIORITY, "1"), &pod(), options).is_empty());
}

/// A running pod that breaks today's rules may still be patched where the patch does not touch them.
#[test]
fn an_update_of_a_running_pod_is_judged_by_what_it_changes() {
    let on_node = |pod: Pod| pod.edit(|spec| spec.node_name = Some("n1".to_string()));
    for (name, old) in [
        ("BE without priority", pod().qos("BE")),
        ("LSR with a fraction", pod().qos("LSR").priority(9500).container(&[("cpu", "1500m")], &[])),
        ("batch without BE", pod().container(&[("kubernetes.io/batch-cpu", "1")], &[])),
        ("reserve pod", pod().annotation(RESERVE_POD, "true")),
    ] {
        assert_ne!(created(&old), "ok", "{name}");
        let patched = || old.clone().annotation("a", "b");
        assert_eq!(updated(old.clone(), patched()), created(&old), "{name}: not yet on a node");
        assert_eq!(updated(on_node(old.clone()), on_node(patched())), "ok", "{name}: running");
        let mut going = old.clone();
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(updated(going, patched()), "ok", "{name}: going");
    }
    let old = on_node(pod().qos("LSR").priority(9500).container(CPU_2, &[]));
    let new = old.clone().edit(|spec| spec.containers.clear()).container(&[("cpu", "2500m")], &[]);
    assert!(updated(old, new).contains("must be integer"));
}

#[test]
fn warnings_beyond_the_matrix() {
    let both = |qos: &str, priority| combination_warning(&pod().label(QOS_CLASS, qos).priority(priority));
    for (qos, priority) in [
        ("LSE", 9500),
        ("LSR", 9500),
        ("LS", 9500),
        ("LS", 7500),
        ("BE", 7500),
        ("BE", 5500),
        ("BE", 3500),
        ("SYSTEM", 2_000_000_000),
        ("foo", 5500),
    ] {
        assert_eq!(both(qos, priority), None, "{qos} {priority}");
    }
    let text = "koordinator.sh/qosClass=LSE with priorityClass=koord-batch is not an intended combination; LSE goes with koord-prod";
    assert_eq!(both("LSE", 5500).as_deref(), Some(text));
    let text = "koordinator.sh/qosClass=SYSTEM with priorityClass=koord-prod is not an intended combination; SYSTEM goes with priorities of system classes";
    assert_eq!(both("SYSTEM", 9500).as_deref(), Some(text));
    assert!(both("LS", 5500).is_some_and(|text| text.ends_with("LS goes with koord-prod, koord-mid")));
}
