//! Limits of drivers, counted and translated.

use serde_json::{Value, json};

use super::*;
use crate::engine::input::StorageKind;
use crate::framework::event::Event;
use crate::plugins::volume_world::{World, mounts};

const EXCEEDED: &str = "2 node(s) exceed max volume count";

fn limit(world: &mut World, driver: &str, count: Option<i32>) {
    for node in ["a", "b"] {
        csi_node(world, node, driver, count, "");
    }
}

fn csi_node(
    world: &mut World,
    node: &str,
    driver: &str,
    count: Option<i32>,
    migrated: &str,
) -> crate::cluster::StorageChange {
    let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": migrated});
    let driver = json!({"name": driver, "nodeID": node, "allocatable": {"count": count}});
    world.put(
        StorageKind::CsiNode,
        json!({"metadata": {"name": node, "annotations": annotations}, "spec": {"drivers": [driver]}}),
    )
}

/// A claim that is bound to a volume of a driver.
fn attached(world: &mut World, claim: &str, driver: &str) {
    let source = json!({"csi": {"driver": driver, "volumeHandle": format!("h-{claim}")}});
    bound_to(world, claim, source);
}

fn bound_to(world: &mut World, claim: &str, source: Value) {
    world.volume(&format!("pv-{claim}"), "5Gi", json!({"spec": source}));
    world.bound_claim(claim, &format!("pv-{claim}"), json!({}));
}

/// A claim whose volume is still to be made.
fn unbound(world: &mut World, claim: &str, provisioner: &str) {
    world.class("w", "WaitForFirstConsumer", provisioner, json!({}));
    world.claim(claim, json!({}));
}

fn attachment(name: &str, driver: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"attacher": driver, "nodeName": "a",
        "source": {"persistentVolumeName": volume}}, "status": {"attached": true}})
}

#[test]
fn a_node_takes_so_many_volumes() {
    let mut world = World::new();
    limit(&mut world, "csi.test", Some(1));
    for claim in ["c1", "c2", "new"] {
        attached(&mut world, claim, "csi.test");
    }
    attached(&mut world, "other", "csi.other");
    world.place("p1", "a", mounts(&["c1"]));
    world.place("p2", "b", mounts(&["c2"]));
    let pod = world.pod_of("p", &["new"]);
    assert_eq!(world.verdict(&pod), EXCEEDED, "scheduler-core#6.11.V16");
    assert_eq!(world.curable(&pod).len(), 2, "scheduler-core#6.11.V16");
    let same = world.pod_of("q", &["c1"]);
    assert_eq!(world.verdict(&same), "a", "scheduler-core#6.11.V16 the same volume again");
    let other = world.pod_of("r", &["other"]);
    assert_eq!(world.verdict(&other), "a b", "no limit for that driver");
    limit(&mut world, "csi.test", None);
    assert_eq!(world.verdict(&pod), "a b", "no number is no limit");
    limit(&mut world, "csi.test", Some(2));
    assert_eq!(world.verdict(&pod), "a b");
    let both = world.pod_of("s", &["new", "new", "c1"]);
    assert_eq!(world.verdict(&both), "a", "each volume counts once");
}

#[test]
fn attachments_count_beside_pods() {
    let mut world = World::new();
    limit(&mut world, "csi.test", Some(2));
    for claim in ["c1", "left", "new"] {
        attached(&mut world, claim, "csi.test");
    }
    world.place("p1", "a", mounts(&["c1"]));
    let pod = world.pod_of("p", &["new"]);
    let put = |world: &mut World, object| drop(world.put(StorageKind::VolumeAttachment, object));
    put(&mut world, attachment("at1", "csi.test", "pv-c1"));
    assert_eq!(world.verdict(&pod), "a b", "the pod's own attachment is the same volume");
    put(&mut world, attachment("at2", "csi.test", "pv-left"));
    assert_eq!(world.verdict(&pod), "b", "a volume that has not been detached yet");
    put(&mut world, attachment("at2", "csi.test", "pv-unknown"));
    assert_eq!(world.verdict(&pod), "a b", "nobody knows what it is");
    put(&mut world, attachment("at2", "csi.test", "pv-left"));
    world.cluster.remove_storage(StorageKind::VolumeAttachment, "", "at2").unwrap();
    assert_eq!(world.verdict(&pod), "a b");
}

#[test]
fn volumes_that_are_still_to_be_made_count() {
    let mut world = World::new();
    limit(&mut world, "csi.test", Some(1));
    unbound(&mut world, "c1", "csi.test");
    unbound(&mut world, "c2", "csi.test");
    let pod = world.pod_of("p", &["c2"]);
    assert_eq!(world.verdict(&pod), "a b");
    world.place("p1", "a", mounts(&["c1"]));
    assert_eq!(world.verdict(&pod), "b");
    let pair = world.pod_of("q", &["c1", "c2"]);
    assert_eq!(world.verdict(&pair), EXCEEDED);
}

#[test]
fn in_tree_volumes_count_for_their_driver() {
    let all = "kubernetes.io/portworx-volume";
    let azure = |kind: &str| json!({"azureDisk": {"diskName": "d", "diskURI": "/d", "kind": kind}});
    for (name, driver, source, migrated, is_counted) in [
        ("ebs", "ebs.csi.aws.com", json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}), "", true),
        ("gce", "pd.csi.storage.gke.io", json!({"gcePersistentDisk": {"pdName": "d"}}), "", true),
        ("azure", "disk.csi.azure.com", azure("Managed"), "", true),
        ("azure, not managed", "disk.csi.azure.com", azure("Shared"), "", false),
        ("cinder", "cinder.csi.openstack.org", json!({"cinder": {"volumeID": "c"}}), "", true),
        ("portworx", "pxd.portworx.com", json!({"portworxVolume": {"volumeID": "p"}}), "", false),
        ("portworx, moved", "pxd.portworx.com", json!({"portworxVolume": {"volumeID": "p"}}), all, true),
        ("nfs", "nfs", json!({"nfs": {"server": "s", "path": "/"}}), "", false),
    ] {
        let want = if is_counted { EXCEEDED } else { "a b" };
        let mut world = World::new();
        for node in ["a", "b"] {
            csi_node(&mut world, node, driver, Some(0), migrated);
        }
        bound_to(&mut world, "c", source.clone());
        let pod = world.pod_of("p", &["c"]);
        assert_eq!(world.verdict(&pod), want, "{name} by a claim");
        let mut inline = source;
        inline["name"] = json!("v");
        let pod = world.pod("q", json!([inline]), json!({}));
        assert_eq!(world.verdict(&pod), want, "{name} in the pod");
    }
    let mut world = World::new();
    limit(&mut world, "ebs.csi.aws.com", Some(0));
    unbound(&mut world, "c", "kubernetes.io/aws-ebs");
    let pod = world.pod_of("p", &["c"]);
    assert_eq!(world.verdict(&pod), EXCEEDED, "to be made by the in-tree name");
}

#[test]
fn claims_are_looked_up_for_the_new_pod_only() {
    let mut world = World::new();
    world.framework.pre_filters = vec![build()];
    world.framework.filters = vec![build()];
    limit(&mut world, "csi.test", Some(1));
    let pod = world.pod_of("p", &["c"]);
    let want = "2 looking up PVC d/c: persistentvolumeclaim \"c\" not found";
    assert_eq!(world.verdict(&pod), want);
    attached(&mut world, "c", "csi.test");
    world.place("x", "a", mounts(&["gone", "gone-too"]));
    world.place("y", "b", json!([{"name": "v", "ephemeral": {}}, {"name": "w", "ephemeral": {}}]));
    world.claim("y-v", json!({}));
    assert_eq!(world.verdict(&pod), "a b", "claims of others that are missing or not theirs");
    let foreign = world.pod("z", json!([{"name": "v", "ephemeral": {}}]), json!({}));
    world.claim("z-v", json!({}));
    let want = "error: running \"NodeVolumeLimits\" filter plugin: PVC d/z-v was not created for pod d/z (pod is not owner)";
    assert_eq!(world.verdict(&foreign), want);
}

#[test]
fn the_quick_look_agrees_with_the_close_one() {
    let mut world = World::new();
    for claim in ["c0", "c1", "c2", "c3"] {
        attached(&mut world, claim, "csi.test");
    }
    world.place("p1", "a", mounts(&["c0", "c1"]));
    world.place("p2", "a", mounts(&["c1"]));
    world.put(StorageKind::VolumeAttachment, attachment("at", "csi.test", "pv-c0"));
    let pod = world.pod_of("p", &["c2", "c3", "c1"]);
    for count in 0..8 {
        limit(&mut world, "csi.test", Some(count));
        // c0 and c1 are there, c2 and c3 come.
        let fits_on_a = world.verdict(&pod).starts_with('a');
        assert_eq!(fits_on_a, count >= 4, "limit {count}");
    }
}

#[test]
fn what_wakes_a_pod() {
    let hooks = build();
    let mut world = World::new();
    let ephemeral = json!({"name": "e", "ephemeral": {}});
    let disk = json!({"name": "i", "awsElasticBlockStore": {"volumeID": "vol-1"}});
    let pod = world.pod_of("p", &["c"]);
    let inline = world.pod("q", json!([ephemeral, disk]), json!({}));
    for (name, count, want) in [
        ("new", Some(1), true),
        ("the same", Some(1), false),
        ("more", Some(2), true),
        ("fewer", Some(1), false),
        ("none", None, false),
    ] {
        let change = csi_node(&mut world, "a", "csi.test", count, "");
        assert_eq!(world.storage_wakes(&hooks, &pod, change), want, "{name}");
    }
    let change = csi_node(&mut world, "a", "csi.other", Some(1), "");
    assert!(world.storage_wakes(&hooks, &pod, change), "a driver more");
    for (name, resource, node, volumes, want) in [
        ("assigned", Resource::AssignedPod, "a", mounts(&["x"]), true),
        ("assumed", Resource::AssignedPod, "", mounts(&["x"]), true),
        ("never placed", Resource::UnscheduledPod, "", mounts(&["x"]), false),
        ("ephemeral", Resource::AssignedPod, "a", json!([{"name": "e", "ephemeral": {}}]), true),
        ("no claim", Resource::AssignedPod, "a", json!([{"name": "i", "csi": {"driver": "x"}}]), false),
    ] {
        let gone = world.pod("gone", volumes, json!({"spec": {"nodeName": node}}));
        let (event, change) =
            (Event::new(resource, Action::DELETE), Change::Pod { old: Some(gone), new: None });
        assert_eq!(world.wakes(&hooks, &pod, &event, &change), want, "{name}");
    }
    let claim = |name: &str| json!({"metadata": {"namespace": "d", "name": name}});
    for (name, claim, pod, want) in [
        ("own claim", claim("c"), &pod, true),
        ("own claim changed", claim("c"), &pod, false),
        ("another claim", claim("x"), &pod, false),
        ("own ephemeral claim", claim("q-e"), &inline, true),
    ] {
        let change = world.put(StorageKind::PersistentVolumeClaim, claim);
        assert_eq!(world.storage_wakes(&hooks, pod, change), want, "{name}");
    }
    for (driver, pod, want) in
        [("csi.test", &pod, true), ("csi.test", &inline, false), ("ebs.csi.aws.com", &inline, true)]
    {
        let object = attachment("at", driver, "pv");
        let added = world.put(StorageKind::VolumeAttachment, object);
        assert!(!world.storage_wakes(&hooks, pod, added), "{driver} attached");
        let gone = world.cluster.remove_storage(StorageKind::VolumeAttachment, "", "at").unwrap();
        assert_eq!(world.storage_wakes(&hooks, pod, gone), want, "{driver} detached");
    }
}
