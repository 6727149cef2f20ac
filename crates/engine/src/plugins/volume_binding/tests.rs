//! The spec's worked examples, what is written, and when it has taken effect.

use serde_json::{Value, json};

use super::*;
use crate::cluster::storage::StorageChange;
use crate::engine::input::StorageKind;
use crate::framework::Code;
use crate::framework::event::{Action, Event, Resource};
use crate::plugins::testing::merged;
use crate::plugins::volume_world::{NOW, World, mounts, only_on};
use crate::schedule::Failure;

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn allowed(zone: &str) -> Value {
    json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]})
}

/// A class whose volumes are made by a driver that tells how much room it has.
fn tracked(world: &mut World) {
    world.class("w", "WaitForFirstConsumer", "csi.test", json!({}));
    world.put(
        StorageKind::CsiDriver,
        json!({"metadata": {"name": "csi.test"}, "spec": {"storageCapacity": true}}),
    );
}

fn capacity(world: &mut World, zone: &str, rest: Value) -> StorageChange {
    let object = json!({"metadata": {"name": zone, "namespace": "csi"}, "storageClassName": "w",
        "nodeTopology": {"matchLabels": {ZONE: zone}}});
    world.put(StorageKind::CsiStorageCapacity, merged(object, &rest))
}

#[test]
fn worked_examples() {
    let immediate = "pod has unbound immediate PersistentVolumeClaims";
    let affinity = "2 node(s) didn't match PersistentVolume's node affinity";
    let nothing = "2 node(s) didn't find available persistent volumes to bind";
    let no_room = "2 node(s) did not have enough free storage";
    type Setup = fn(&mut World);
    let cases: &[(&str, Setup, &str)] = &[
        (
            "scheduler-core#6.11.V1",
            |world| {
                world.class("i", "Immediate", "csi.test", json!({}));
                world.claim("c", json!({"spec": {"storageClassName": "i"}}));
            },
            immediate,
        ),
        (
            "scheduler-core#6.11.V1 class unknown",
            |world| drop(world.claim("c", json!({"spec": {"storageClassName": "x"}}))),
            immediate,
        ),
        (
            "scheduler-core#6.11.V1 class unset",
            |world| drop(world.claim("c", json!({"spec": {"storageClassName": null}}))),
            immediate,
        ),
        (
            "scheduler-core#6.11.V1 class empty",
            |world| drop(world.claim("c", json!({"spec": {"storageClassName": ""}}))),
            immediate,
        ),
        (
            "a volume without the annotation is not bound",
            |world| {
                world.waiting_class();
                world.claim("c", json!({"spec": {"volumeName": "pv"}}));
            },
            immediate,
        ),
        (
            "scheduler-core#6.11.V2",
            |world| world.bound_claim("c", "pv", json!({})),
            "persistentvolume \"pv\" not found",
        ),
        (
            "scheduler-core#6.11.V3",
            |world| {
                world.volume("pv", "5Gi", json!({"spec": only_on(HOST, &["b"])}));
                world.bound_claim("c", "pv", json!({}));
            },
            "b",
        ),
        (
            "scheduler-core#6.11.V4",
            |world| {
                world.volume("pv", "5Gi", json!({"spec": only_on(HOST, &["x"])}));
                world.bound_claim("c", "pv", json!({}));
            },
            affinity,
        ),
        (
            "scheduler-core#6.11.V5",
            |world| {
                world.volume("pv", "5Gi", json!({}));
                world.bound_claim(
                    "c",
                    "pv",
                    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                );
            },
            "persistentvolumeclaim \"c\" is being deleted",
        ),
        (
            "scheduler-core#6.11.V6",
            |world| world.bound_claim("c", "pv", json!({"status": {"phase": "Lost"}})),
            "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"pv\"",
        ),
        (
            "scheduler-core#6.11.V7",
            |world| {
                world.waiting_class();
                world.claim("c", json!({}));
            },
            nothing,
        ),
        (
            "scheduler-core#6.11.V8",
            |world| {
                world.waiting_class();
                world.claim("c", json!({}));
                world.volume("small", "1Gi", json!({"spec": only_on(HOST, &["a"])}));
                world.volume("large", "10Gi", json!({"spec": only_on(HOST, &["b"])}));
            },
            "b",
        ),
        (
            "scheduler-core#6.11.V9",
            |world| {
                world.class("w", "WaitForFirstConsumer", "csi.test", allowed("z2"));
                world.claim("c", json!({}));
            },
            "b",
        ),
        (
            "scheduler-core#6.11.V10",
            |world| {
                world.class("w", "WaitForFirstConsumer", "csi.test", json!({}));
                let selected = json!({"volume.kubernetes.io/selected-node": "a"});
                world.claim("c", json!({"metadata": {"annotations": selected}}));
            },
            "a",
        ),
        (
            "scheduler-core#6.11.V11",
            |world| {
                tracked(world);
                world.claim("c", json!({}));
            },
            no_room,
        ),
        (
            "scheduler-core#6.11.V12",
            |world| {
                tracked(world);
                capacity(world, "z1", json!({"capacity": "1Gi"}));
                capacity(world, "z2", json!({"capacity": "5Gi"}));
                world.claim("c", json!({}));
            },
            "b",
        ),
        (
            "scheduler-core#6.11.V13",
            |world| {
                tracked(world);
                capacity(world, "z1", json!({"capacity": "50Gi", "maximumVolumeSize": "4Gi"}));
                world.claim("c", json!({}));
            },
            no_room,
        ),
        (
            "two reasons on one node",
            |world| {
                world.waiting_class();
                world.claim("c", json!({"spec": {"storageClassName": "w"}}));
                world.volume("pv", "5Gi", json!({"spec": only_on(HOST, &["x"])}));
                world.bound_claim("e", "pv", json!({}));
            },
            "2 node(s) didn't find available persistent volumes to bind, 2 node(s) didn't match PersistentVolume's node \
             affinity",
        ),
        (
            "a class that says nothing of its mode",
            |world| {
                world.put(StorageKind::StorageClass, json!({"metadata": {"name": "w"}, "provisioner": "p"}));
                world.claim("c", json!({}));
            },
            "error: running PreFilter plugin \"VolumeBinding\": VolumeBindingMode not set for StorageClass \"w\"",
        ),
    ];
    for (name, setup, want) in cases {
        let mut world = World::new();
        setup(&mut world);
        let claims: &[&str] =
            if world.cluster.storage().claim("d", "e").is_some() { &["c", "e"] } else { &["c"] };
        let pod = world.pod_of("p", claims);
        assert_eq!(world.verdict(&pod), *want, "{name}");
        if let Err(Failure::Unfit(unfit)) = world.attempt(&pod) {
            assert!(world.curable(&pod).is_empty(), "{name}: no pod in the way");
            // DynamicResources was not asked when the pod itself is refused.
            let is_of_pod = unfit.diagnosis.pod.is_some();
            let whole = format!("0/2 nodes are available: {want}. not found");
            assert_eq!(unfit.message() == whole, is_of_pod, "{name}");
        }
    }
}

#[test]
fn ephemeral_volumes_wait_for_their_claim() {
    let mut world = World::new();
    world.class("w", "WaitForFirstConsumer", "csi.test", json!({}));
    let pod = world.pod("p", json!([{"name": "v", "ephemeral": {}}]), json!({}));
    assert_eq!(
        world.verdict(&pod),
        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"",
        "scheduler-core#6.11.V19"
    );
    let owner = |uid: &str| {
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]}})
    };
    world.claim("p-v", owner("other"));
    assert_eq!(world.verdict(&pod), "PVC d/p-v was not created for pod d/p (pod is not owner)");
    world.claim("p-v", owner("p"));
    assert_eq!(world.verdict(&pod), "a b");
}

#[test]
fn missing_claims_are_named_one_at_a_time() {
    let mut world = World::new();
    let pod = world.pod_of("p", &["c1", "c2"]);
    assert_eq!(world.verdict(&pod), "persistentvolumeclaim \"c1\" not found", "scheduler-core#4.2.T13");
    let plain = world.pod("q", json!([{"name": "e", "emptyDir": {}}]), json!({}));
    assert!(plain.class.volumes.is_empty());
    assert_eq!(world.verdict(&plain), "a b");
}

#[test]
fn the_smallest_claim_chooses_first() {
    let mut world = World::new();
    world.waiting_class();
    for (name, size) in [("large", "8Gi"), ("small", "4Gi")] {
        world.claim(name, json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    }
    for (name, size) in [("v5", "5Gi"), ("v10", "10Gi")] {
        world.volume(name, size, json!({"spec": only_on(HOST, &["a"])}));
    }
    let pod = world.pod_of("p", &["large", "small"]);
    let (row, slots) = world.reserve(&pod);
    assert_eq!(row, world.row("a"), "scheduler-core#6.11.V20");
    assert_eq!(bound(&world.plan(&pod, row, &slots)), ["v5=small", "v10=large"], "scheduler-core#6.11.V20");
}

/// Volumes and the claims written into them.
fn bound(plan: &BindPlan) -> Vec<String> {
    let pair = |volume: &k8s_openapi::api::core::v1::PersistentVolume| {
        let claim = volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap();
        format!("{}={}", volume.metadata.name.as_ref().unwrap(), claim.name.as_ref().unwrap())
    };
    plan.volumes.iter().map(pair).collect()
}

#[test]
fn the_volume_that_fits_best_is_taken() {
    for (name, claim, volumes, want) in [
        ("the smallest", json!({}), vec![("v9", "9Gi", json!({})), ("v7", "7Gi", json!({}))], Some("v7")),
        ("exactly as large", json!({}), vec![("v", "5Gi", json!({}))], Some("v")),
        ("too small", json!({}), vec![("v", "5119Mi", json!({}))], None),
        (
            "the first by name of equal ones",
            json!({}),
            vec![("v2", "5Gi", json!({})), ("v1", "5Gi", json!({}))],
            Some("v1"),
        ),
        ("other class", json!({}), vec![("v", "5Gi", json!({"spec": {"storageClassName": "x"}}))], None),
        ("released", json!({}), vec![("v", "5Gi", json!({"status": {"phase": "Released"}}))], None),
        (
            "on its way out",
            json!({}),
            vec![("v", "5Gi", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))],
            None,
        ),
        ("other mode", json!({}), vec![("v", "5Gi", json!({"spec": {"volumeMode": "Block"}}))], None),
        (
            "other access mode",
            json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            vec![("v", "5Gi", json!({}))],
            None,
        ),
        (
            "other attributes class",
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            vec![("v", "5Gi", json!({}))],
            None,
        ),
        (
            "by selector",
            json!({"spec": {"selector": {"matchLabels": {"disk": "fast"}}}}),
            vec![("v1", "5Gi", json!({})), ("v2", "6Gi", json!({"metadata": {"labels": {"disk": "fast"}}}))],
            Some("v2"),
        ),
        (
            "meant for the claim, though larger",
            json!({}),
            vec![
                ("v1", "5Gi", json!({})),
                ("v2", "50Gi", json!({"spec": {"claimRef": {"namespace": "d", "name": "c"}}})),
            ],
            Some("v2"),
        ),
        (
            "meant for an earlier claim of that name",
            json!({}),
            vec![("v", "5Gi", json!({"spec": {"claimRef": {"namespace": "d", "name": "c", "uid": "old"}}}))],
            None,
        ),
        (
            "meant for the claim and out of reach, whatever else there is",
            json!({}),
            vec![
                ("v1", "5Gi", json!({})),
                ("v2", "5Gi", {
                    let mut spec = only_on(HOST, &["x"]);
                    spec["claimRef"] = json!({"namespace": "d", "name": "c"});
                    json!({"spec": spec})
                }),
            ],
            None,
        ),
        ("zones", json!({}), vec![("v", "5Gi", json!({"spec": only_on(ZONE, &["z1", "z2"])}))], Some("v")),
    ] {
        let mut world = World::new();
        world.waiting_class();
        world.claim("c", claim);
        for (volume, size, rest) in volumes {
            world.volume(volume, size, rest);
        }
        let pod = world.pod_of("p", &["c"]);
        let Some(want) = want else {
            assert!(world.attempt(&pod).is_err(), "{name}");
            continue;
        };
        let (row, slots) = world.reserve(&pod);
        assert_eq!(bound(&world.plan(&pod, row, &slots)), [format!("{want}=c")], "{name}");
    }
}

#[test]
fn a_claim_that_is_mounted_twice_gets_one_volume() {
    let mut world = World::new();
    world.waiting_class();
    world.claim("c", json!({}));
    world.volume("v1", "5Gi", json!({}));
    world.volume("v2", "5Gi", json!({}));
    let pod = world.pod_of("p", &["c", "c"]);
    let (row, slots) = world.reserve(&pod);
    assert_eq!(bound(&world.plan(&pod, row, &slots)), ["v1=c"]);
}

#[test]
fn a_bad_selector_is_an_error() {
    let mut world = World::new();
    world.waiting_class();
    let expression = json!([{"key": "k", "operator": "Near", "values": ["v"]}]);
    world.claim("c", json!({"spec": {"selector": {"matchExpressions": expression}}}));
    let pod = world.pod_of("p", &["c"]);
    let want = "error: running \"VolumeBinding\" filter plugin: error creating internal label selector for claim: d/c: \
                \"Near\" is not a valid label selector operator";
    assert_eq!(world.verdict(&pod), want);
}

#[test]
fn pods_do_not_take_each_others_volumes() {
    let mut world = World::new();
    world.waiting_class();
    world.volume("v", "5Gi", json!({}));
    world.claim("c1", json!({}));
    world.claim("c2", json!({}));
    let (first, second) = (world.pod_of("p1", &["c1"]), world.pod_of("p2", &["c2"]));
    let (row, mut slots) = world.reserve(&first);
    let taken = "2 node(s) didn't find available persistent volumes to bind";
    assert_eq!(world.verdict(&second), taken);
    world.unreserve(&first, row, &mut slots);
    assert_eq!(world.verdict(&second), "a b", "given back");
    world.unreserve(&first, row, &mut slots);
    let (row, mut slots) = world.reserve(&second);
    // The API tells that the volume is the first one's: our assumption is over, and taking it back changes nothing.
    world.volume(
        "v",
        "5Gi",
        json!({"spec": {"claimRef": {"namespace": "d", "name": "c1", "uid": "uid-c1"}}}),
    );
    world.unreserve(&second, row, &mut slots);
    assert_eq!(world.verdict(&second), taken);
    assert_eq!(world.verdict(&first), "a b");
}

#[test]
fn a_shared_claim_goes_where_the_first_pod_goes() {
    let mut world = World::new();
    world.class("w", "WaitForFirstConsumer", "csi.test", json!({}));
    world.claim("c", json!({}));
    let (first, second) = (world.pod_of("p1", &["c"]), world.pod_of("p2", &["c"]));
    let (row, mut slots) = world.reserve(&first);
    let node = world.cluster.node(row).name.to_string();
    assert_eq!(world.verdict(&second), node);
    world.unreserve(&first, row, &mut slots);
    assert_eq!(world.verdict(&second), "a b");
}

#[test]
fn what_is_written_before_a_bind() {
    let mut world = World::new();
    world.waiting_class();
    world.claim("c", json!({}));
    world.volume("small", "1Gi", json!({"spec": only_on(HOST, &["a"])}));
    world.volume("large", "10Gi", json!({"spec": only_on(HOST, &["b"])}));
    let pod = world.pod_of("p", &["c"]);
    let (row, slots) = world.reserve(&pod);
    let plan = world.plan(&pod, row, &slots);
    let [volume] = plan.volumes.as_slice() else { panic!("{plan:?}") };
    assert_eq!(volume.metadata.name.as_deref(), Some("large"), "scheduler-core#6.11.V8");
    assert_eq!(volume.metadata.resource_version.as_deref(), Some("4"), "scheduler-core#6.11.V8");
    let annotations = volume.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["pv.kubernetes.io/bound-by-controller"], "yes");
    let want = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "d", "name": "c",
        "uid": "uid-c", "resourceVersion": "2"});
    assert_eq!(serde_json::to_value(&volume.spec.as_ref().unwrap().claim_ref).unwrap(), want);
    assert_eq!(plan.claims, []);
    assert_eq!(plan.settles_until, Some(NOW + Duration::from_secs(600)));

    let mut world = World::new();
    world.class("w", "WaitForFirstConsumer", "csi.test", allowed("z2"));
    world.claim("c", json!({}));
    let pod = world.pod_of("p", &["c"]);
    let (row, slots) = world.reserve(&pod);
    let plan = world.plan(&pod, row, &slots);
    let [claim] = plan.claims.as_slice() else { panic!("{plan:?}") };
    let selected = &claim.metadata.annotations.as_ref().unwrap()["volume.kubernetes.io/selected-node"];
    assert_eq!((selected.as_str(), &plan.volumes[..]), ("b", &[][..]), "scheduler-core#6.11.V9");
    assert!(!plan.is_empty());
}

#[test]
fn bound_claims_need_no_write() {
    let mut world = World::new();
    world.volume("pv", "5Gi", json!({"spec": only_on(HOST, &["b"])}));
    world.bound_claim("c", "pv", json!({}));
    let pod = world.pod_of("p", &["c"]);
    let (row, slots) = world.reserve(&pod);
    assert!(world.plan(&pod, row, &slots).is_empty(), "scheduler-core#6.11.V3");
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(true), "scheduler-core#6.11.V3");
}

#[test]
fn what_already_reads_as_wanted_is_only_waited_for() {
    let mut world = World::new();
    world.waiting_class();
    world.claim("c", json!({}));
    // A person wrote the name alone: the UID is still to be added, and the mark of programs is not.
    let reference = json!({"namespace": "d", "name": "c"});
    world.volume("v", "5Gi", json!({"spec": {"claimRef": reference}}));
    let pod = world.pod_of("p", &["c"]);
    let (row, mut slots) = world.reserve(&pod);
    let plan = world.plan(&pod, row, &slots);
    assert_eq!(bound(&plan), ["v=c"]);
    assert_eq!(plan.volumes[0].metadata.annotations, None);
    world.unreserve(&pod, row, &mut slots);
    // The write has come round, and the attempt failed for another reason.
    let reference = json!({"namespace": "d", "name": "c", "uid": "uid-c"});
    world.volume("v", "5Gi", json!({"spec": {"claimRef": reference}}));
    let (row, slots) = world.reserve(&pod);
    let plan = world.plan(&pod, row, &slots);
    assert_eq!((plan.volumes.len(), plan.is_empty()), (0, false));
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false));
    world.bound_claim("c", "v", json!({}));
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(true));
}

/// A pod on its way to node a that needs a volume bound, or made.
fn underway(is_made: bool) -> (World, Arc<Pod>, Row, Slots) {
    let mut world = World::new();
    match is_made {
        true => drop(world.class("w", "WaitForFirstConsumer", "csi.test", allowed("z1"))),
        false => {
            world.waiting_class();
            world.volume("v", "5Gi", json!({"spec": only_on(HOST, &["a"])}));
        }
    }
    world.claim("c", json!({}));
    let pod = world.pod_of("p", &["c"]);
    let (row, slots) = world.reserve(&pod);
    (world, pod, row, slots)
}

/// The claim as the provisioner leaves it.
fn made(world: &mut World, annotations: Value, volume: &str) {
    world.claim("c", json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}}));
}

#[test]
fn bindings_settle_or_fail() {
    let taken = json!({"namespace": "d", "name": "c", "uid": "uid-c"});
    let (mut world, pod, row, slots) = underway(false);
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false), "the write has not come round");
    let mut spec = only_on(HOST, &["a"]);
    spec["claimRef"] = taken.clone();
    world.volume("v", "5Gi", json!({"spec": spec}));
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false), "the claim does not know yet");
    world.bound_claim("c", "v", json!({}));
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(true));

    type Happens = fn(&mut World);
    let failures: [(&str, Happens); 5] = [
        ("pv \"v\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms", |world| {
            world.volume("v", "5Gi", json!({"spec": only_on(HOST, &["b"])}));
        }),
        ("ClaimRef got reset for pv \"v\"", |world| drop(world.volume("v", "5Gi", json!({})))),
        ("failed to check binding: persistentvolumes \"v\" not found", |world| {
            world.cluster.remove_storage(StorageKind::PersistentVolume, "", "v").unwrap();
        }),
        ("failed to check binding: persistentvolumeclaims \"d/c\" not found", |world| {
            world.cluster.remove_storage(StorageKind::PersistentVolumeClaim, "d", "c").unwrap();
        }),
        ("failed to get node \"a\": node \"a\" not found", |world| {
            assert!(world.cluster.remove_node("a"));
        }),
    ];
    for (want, happens) in failures {
        let (mut world, pod, row, slots) = underway(false);
        happens(&mut world);
        let status = world.is_settled(&pod, row, &slots).unwrap_err();
        assert_eq!((status.code, status.plugin), (Code::Error, NAME));
        assert_eq!(status.to_string(), format!("binding volumes: {want}"));
    }
}

#[test]
fn provisioning_settles_or_fails() {
    let selected = || json!({"volume.kubernetes.io/selected-node": "a"});
    let both =
        || json!({"volume.kubernetes.io/selected-node": "a", "pv.kubernetes.io/bind-completed": "yes"});
    let (mut world, pod, row, slots) = underway(true);
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false), "the write has not come round");
    made(&mut world, selected(), "");
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false), "not made yet");
    made(&mut world, both(), "v");
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(false), "the volume has not come yet");
    world.volume("v", "5Gi", json!({"spec": only_on(HOST, &["a"])}));
    assert_eq!(world.is_settled(&pod, row, &slots), Ok(true));
    world.volume("v", "5Gi", json!({"spec": only_on(HOST, &["b"])}));
    let out_of_reach =
        "binding volumes: pv \"v\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms";
    assert_eq!(world.is_settled(&pod, row, &slots).unwrap_err().to_string(), out_of_reach);
    for (annotations, want) in [
        (json!({"x": "y"}), "provisioning failed for PVC \"c\""),
        (json!({"volume.kubernetes.io/selected-node": "b"}), "provisioning failed for PVC \"c\""),
        (json!(null), "selectedNode annotation reset for PVC \"c\""),
    ] {
        made(&mut world, annotations, "");
        let status = world.is_settled(&pod, row, &slots).unwrap_err();
        assert_eq!(status.to_string(), format!("binding volumes: {want}"));
    }
    world.cluster.remove_storage(StorageKind::PersistentVolumeClaim, "d", "c").unwrap();
    let status = world.is_settled(&pod, row, &slots).unwrap_err();
    let want = "binding volumes: failed to check provisioning pvc: persistentvolumeclaims \"d/c\" not found";
    assert_eq!(status.to_string(), want);
}

#[test]
fn in_tree_volumes_are_reached_by_their_drivers_labels() {
    let mut world = World::new();
    let zone = "topology.ebs.csi.aws.com/zone";
    world.node("a", json!({zone: "e1"}));
    world.node("b", json!({zone: "e2"}));
    let mut spec = only_on(ZONE, &["e1"]);
    spec["awsElasticBlockStore"] = json!({"volumeID": "vol-1"});
    world.volume("pv", "5Gi", json!({"spec": spec}));
    world.bound_claim("c", "pv", json!({}));
    let pod = world.pod_of("p", &["c"]);
    assert_eq!(
        world.verdict(&pod),
        "2 node(s) didn't match PersistentVolume's node affinity",
        "not moved yet"
    );
    for node in ["a", "b"] {
        let annotations =
            json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/x,kubernetes.io/aws-ebs"});
        world.put(
            StorageKind::CsiNode,
            json!({"metadata": {"name": node, "annotations": annotations}, "spec": {"drivers": []}}),
        );
    }
    assert_eq!(world.verdict(&pod), "a");
    let broken = json!({"awsElasticBlockStore": {"volumeID": "aws://x"}});
    world.volume("pv", "5Gi", json!({"spec": broken}));
    let want = "error: running \"VolumeBinding\" filter plugin: could not translate pv: failed to translate Kubernetes ID \
                to EBS Volume ID Invalid format for AWS volume (aws://x)";
    assert_eq!(world.verdict(&pod), want);
}

#[test]
fn what_wakes_a_pod() {
    let hooks = build(&VolumeBindingArgs::default());
    let mut world = World::new();
    let ephemeral = json!({"name": "e", "ephemeral": {}});
    let inline = json!({"name": "i", "csi": {"driver": "csi.test"}});
    let mut volumes = mounts(&["c"]);
    volumes.as_array_mut().unwrap().extend([ephemeral, inline]);
    let pod = world.pod("p", volumes, json!({}));
    let csi_node = |plugins: &str| {
        let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": plugins});
        json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {"drivers": []}})
    };
    let driver =
        |name: &str, tracks: bool| json!({"metadata": {"name": name}, "spec": {"storageCapacity": tracks}});
    let class = |zone: &str| {
        let mut class = allowed(zone);
        class["metadata"] = json!({"name": "w"});
        class["provisioner"] = json!("csi.test");
        class
    };
    let room = |limit: Option<&str>| json!({"metadata": {"name": "r", "namespace": "csi"}, "storageClassName": "w", "capacity": limit});
    let claim =
        |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}});
    use StorageKind::*;
    for (name, kind, object, want) in [
        ("class", StorageClass, class("z1"), true),
        ("class, the same", StorageClass, class("z1"), false),
        ("class, other zones", StorageClass, class("z2"), true),
        ("own claim", PersistentVolumeClaim, claim("d", "c"), true),
        ("own claim changed", PersistentVolumeClaim, claim("d", "c"), true),
        ("own ephemeral claim", PersistentVolumeClaim, claim("d", "p-e"), true),
        ("another claim", PersistentVolumeClaim, claim("d", "x"), false),
        ("a claim of another namespace", PersistentVolumeClaim, claim("x", "c"), false),
        ("volume", PersistentVolume, json!({"metadata": {"name": "v"}}), true),
        ("volume changed", PersistentVolume, json!({"metadata": {"name": "v"}}), true),
        ("csi node", CsiNode, csi_node("x"), true),
        ("csi node, the same", CsiNode, csi_node("x"), false),
        ("csi node, moved", CsiNode, csi_node("x,y"), true),
        ("driver", CsiDriver, driver("csi.test", true), false),
        ("driver tracks no more", CsiDriver, driver("csi.test", false), true),
        ("driver tracks again", CsiDriver, driver("csi.test", true), false),
        ("another driver", CsiDriver, driver("x", true), false),
        ("another driver tracks no more", CsiDriver, driver("x", false), false),
        ("capacity", CsiStorageCapacity, room(None), true),
        ("capacity known", CsiStorageCapacity, room(Some("1Gi")), true),
        ("capacity shrunk", CsiStorageCapacity, room(Some("1Mi")), false),
        ("capacity grown", CsiStorageCapacity, room(Some("2Mi")), true),
        (
            "attachment",
            VolumeAttachment,
            json!({"metadata": {"name": "at"}, "spec": {"attacher": "x", "nodeName": "a", "source": {}}}),
            false,
        ),
    ] {
        let change = world.put(kind, object);
        assert_eq!(world.storage_wakes(&hooks, &pod, change), want, "{name}");
    }
    let gone = world.cluster.remove_storage(PersistentVolume, "", "v").unwrap();
    assert!(!world.storage_wakes(&hooks, &pod, gone), "a volume less");
    for (action, want) in [
        (Action::ADD, true),
        (Action::UPDATE_NODE_LABEL, true),
        (Action::UPDATE_NODE_ALLOCATABLE, false),
        (Action::DELETE, false),
    ] {
        let event = Event::new(Resource::Node, action);
        assert_eq!(world.wakes(&hooks, &pod, &event, &crate::framework::Change::None), want, "{action}");
    }
}
