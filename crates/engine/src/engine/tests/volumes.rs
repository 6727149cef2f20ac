//! Pods that wait for volumes, from the first attempt to the bind.

use super::*;

fn class(lab: &mut Lab, provisioner: &str) {
    lab.take(json!({"type": "storage", "object": {"kind": "StorageClass", "metadata": {"name": "w"},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}}));
}

fn claim(lab: &mut Lab, version: u64, rest: &Value) {
    let mut object = json!({"kind": "PersistentVolumeClaim", "metadata": {"namespace": "d", "name": "c", "uid": "u",
        "resourceVersion": version.to_string()}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "w",
        "resources": {"requests": {"storage": "5Gi"}}}});
    merge(&mut object, rest);
    lab.take(json!({"type": "storage", "object": object}));
}

fn volume(lab: &mut Lab, version: u64, rest: &Value) {
    let mut object = json!({"kind": "PersistentVolume", "metadata": {"name": "v", "uid": "v",
        "resourceVersion": version.to_string()}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "w",
        "capacity": {"storage": "10Gi"}}, "status": {"phase": "Available"}});
    merge(&mut object, rest);
    lab.take(json!({"type": "storage", "object": object}));
}

fn mounting() -> Value {
    json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
}

fn bound() -> Value {
    json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}})
}

fn taken() -> Value {
    json!({"spec": {"claimRef": {"namespace": "d", "name": "c", "uid": "u"}}})
}

/// A pod whose volume was found and is being written.
fn underway() -> Lab {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("p", "1", mounting());
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!() };
    assert!(
        message.starts_with("0/1 nodes are available: persistentvolumeclaim \"c\" not found."),
        "{message}"
    );
    claim(&mut lab, 1, &json!({}));
    lab.tick(5);
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!("its own claim wakes it") };
    let want = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert!(message.starts_with(want), "{message}");
    class(&mut lab, "kubernetes.io/no-provisioner");
    lab.tick(10);
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!("its class wakes it") };
    let want = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
    assert!(message.starts_with(want), "{message}");
    volume(&mut lab, 2, &json!({}));
    lab.tick(10);
    lab.said();
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "a volume wakes it");
    let commands = lab.engine.take_commands();
    let [Command::Prepare(plan)] = commands.as_slice() else { panic!("{commands:?}") };
    assert!(plan.nominates && plan.volumes.len() == 1 && plan.claims.is_empty(), "scheduler-core#6.11.V8");
    lab
}

#[test]
fn a_pod_is_bound_when_its_volume_is() {
    let mut lab = underway();
    lab.outcome("p", Outcome::Prepared);
    volume(&mut lab, 3, &taken());
    assert_eq!(lab.said(), [""; 0], "the claim does not know its volume yet");
    claim(&mut lab, 4, &bound());
    assert_eq!(lab.said(), ["bind p to n1"]);
}

#[test]
fn news_that_outrun_the_answer_are_not_lost() {
    let mut lab = underway();
    volume(&mut lab, 3, &taken());
    claim(&mut lab, 4, &bound());
    assert_eq!(lab.said(), [""; 0]);
    lab.outcome("p", Outcome::Prepared);
    assert_eq!(lab.said(), ["bind p to n1"]);
}

#[test]
fn a_binding_that_fails_gives_the_volume_back() {
    type Ends = fn(&mut Lab);
    let cases: [(&str, Ends); 4] = [
        (
            "running PreBind plugin \"VolumeBinding\": binding volumes: ClaimRef got reset for pv \"v\"",
            |lab| {
                lab.outcome("p", Outcome::Prepared);
                volume(lab, 3, &json!({}));
            },
        ),
        ("running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded", |lab| {
            lab.outcome("p", Outcome::Prepared);
            lab.tick(599);
            assert_eq!(lab.said(), [""; 0]);
            lab.tick(1);
        }),
        ("running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded", |lab| {
            lab.outcome("p", Outcome::Prepared);
            lab.tick(100);
            // The clock is set back by a year.
            lab.now = lab.now - std::time::Duration::from_secs(365 * 86_400);
            lab.tick(0);
            lab.tick(499);
            assert_eq!(lab.said(), [""; 0]);
            lab.tick(1);
        }),
        ("conflict", |lab| lab.outcome("p", Outcome::PrepareFailed { message: "conflict".to_owned() })),
    ];
    for (want, ends) in cases {
        let mut lab = underway();
        ends(&mut lab);
        let said = lab.said();
        assert_eq!(said[0], format!("FailedScheduling p: {want}"), "{said:?}");
        let storage = lab.engine.cluster().storage();
        assert!(storage.claim_of(storage.volume("v").unwrap()).is_none(), "{want}");
        lab.tick(20);
        assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "{want}");
    }
}

#[test]
fn a_node_that_goes_ends_the_wait() {
    let mut lab = underway();
    lab.outcome("p", Outcome::Prepared);
    lab.take(json!({"type": "nodeGone", "name": "n1"}));
    let want = "FailedScheduling p: running PreBind plugin \"VolumeBinding\": binding volumes: failed to get node \"n1\": \
                node \"n1\" not found";
    assert_eq!(lab.said()[0], want);
}

#[test]
fn a_pod_that_is_deleted_does_not_wait_for_its_volume() {
    type Goes = fn(&mut Lab);
    let goes: [(&str, Goes); 2] = [
        ("gone", |lab| lab.gone("p")),
        ("going", |lab| {
            let mut rest = mounting();
            rest["metadata"] = json!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
            lab.add("p", "1", rest);
        }),
    ];
    for (name, go) in goes {
        let mut lab = underway();
        lab.outcome("p", Outcome::Prepared);
        assert_eq!(lab.engine.binding_count(), 1);
        go(&mut lab);
        assert_eq!((lab.engine.binding_count(), lab.engine.cluster().assumed_count()), (0, 0), "{name}");
        let storage = lab.engine.cluster().storage();
        assert!(storage.claim_of(storage.volume("v").unwrap()).is_none(), "{name}: the volume is free again");
        volume(&mut lab, 3, &taken());
        claim(&mut lab, 4, &bound());
        lab.tick(1000);
        assert_eq!(lab.said(), [""; 0], "{name}: nothing is bound or complained of");
        lab.add("q", "4", json!({}));
        assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "{name}");
    }
}

#[test]
fn bound_volumes_take_no_writes() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    class(&mut lab, "kubernetes.io/no-provisioner");
    volume(&mut lab, 1, &taken());
    claim(&mut lab, 2, &bound());
    lab.add("p", "1", mounting());
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
    assert_eq!(lab.said(), ["bind p to n1"], "scheduler-core#6.11.V3");
}
