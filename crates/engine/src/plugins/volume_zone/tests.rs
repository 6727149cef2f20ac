//! Zones of volumes against zones of nodes.

use serde_json::json;

use super::*;
use crate::engine::input::StorageKind;
use crate::framework::event::Event;
use crate::plugins::volume_world::World;

#[test]
fn a_volume_is_mounted_in_its_zone() {
    let no_zone = "2 node(s) had no available volume zone";
    for (name, labels, want) in [
        ("scheduler-core#6.11.V14", json!({ZONE: "z3"}), no_zone),
        ("scheduler-core#6.11.V15", json!({ZONE: "z2__z9"}), "b"),
        ("scheduler-core#6.11.V15 beta", json!({BETA_ZONE: "z2"}), "b"),
        ("zone and region", json!({ZONE: "z2", REGION: "r1"}), no_zone),
        ("no label", json!({"app": "db"}), "a b"),
        ("a list that cannot be read", json!({ZONE: "z2__"}), "a b"),
        ("spaces", json!({ZONE: " z1 __z9"}), "a"),
    ] {
        let mut world = World::new();
        world.volume("pv", "5Gi", json!({"metadata": {"labels": labels}}));
        world.bound_claim("c", "pv", json!({}));
        let pod = world.pod_of("p", &["c"]);
        assert_eq!(world.verdict(&pod), want, "{name}");
        if want == no_zone {
            assert!(world.curable(&pod).is_empty(), "{name}");
            world.node("plain", json!({}));
            assert_eq!(world.verdict(&pod), "plain", "{name}: a node that says nothing passes");
        }
    }
}

#[test]
fn claims_must_have_a_volume_or_wait_for_one() {
    let mut world = World::new();
    // Alone: in the default profile VolumeBinding speaks first.
    world.framework.pre_filters = vec![build()];
    world.framework.filters = vec![build()];
    world.class("now", "Immediate", "csi.test", json!({}));
    world.class("later", "WaitForFirstConsumer", "csi.test", json!({}));
    world.put(StorageKind::StorageClass, json!({"metadata": {"name": "broken"}, "provisioner": "x"}));
    for (claim, want) in [
        (json!({"storageClassName": "later"}), "a b"),
        (json!({"storageClassName": "now"}), "PersistentVolume had no name"),
        (json!({"storageClassName": "none"}), "storageclass.storage.k8s.io \"none\" not found"),
        (json!({"storageClassName": ""}), "PersistentVolumeClaim had no pv name and storageClass name"),
        (json!({"storageClassName": "broken"}), "VolumeBindingMode not set for StorageClass \"broken\""),
        (json!({"volumeName": "gone"}), "persistentvolume \"gone\" not found"),
    ] {
        world.claim("c", json!({"spec": claim}));
        let pod = world.pod_of("p", &["c"]);
        assert_eq!(world.verdict(&pod), want, "{claim}");
    }
    let missing = world.pod_of("q", &["x"]);
    assert_eq!(world.verdict(&missing), "persistentvolumeclaim \"x\" not found");
    let nameless = world.pod_of("q", &[""]);
    assert_eq!(world.verdict(&nameless), "PersistentVolumeClaim had no name");
}

#[test]
fn what_wakes_a_pod() {
    let hooks = build();
    let mut world = World::new();
    let pod = world.pod_of("p", &["c"]);
    let class = |name: &str, mode: &str| json!({"metadata": {"name": name}, "provisioner": "x", "volumeBindingMode": mode});
    let volume = |zone: &str, size: &str| json!({"metadata": {"name": "v", "labels": {ZONE: zone}}, "spec": {"capacity": {"storage": size}}});
    let claim = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
    use StorageKind::{PersistentVolume, PersistentVolumeClaim, StorageClass};
    for (name, kind, object, want) in [
        ("waiting class", StorageClass, class("w", "WaitForFirstConsumer"), true),
        ("immediate class", StorageClass, class("i", "Immediate"), false),
        ("class changed", StorageClass, class("w", "WaitForFirstConsumer"), false),
        ("own claim", PersistentVolumeClaim, claim("d", "c"), true),
        ("own claim changed", PersistentVolumeClaim, claim("d", "c"), true),
        ("another claim", PersistentVolumeClaim, claim("d", "x"), false),
        ("another namespace", PersistentVolumeClaim, claim("e", "c"), false),
        ("volume", PersistentVolume, volume("z1", "1Gi"), true),
        ("volume, other size", PersistentVolume, volume("z1", "2Gi"), false),
        ("volume, other zone", PersistentVolume, volume("z2", "2Gi"), true),
    ] {
        let change = world.put(kind, object);
        assert_eq!(world.storage_wakes(&hooks, &pod, change), want, "{name}");
    }
    for (action, want) in
        [(Action::ADD, true), (Action::UPDATE_NODE_LABEL, true), (Action::UPDATE_NODE_CONDITION, false)]
    {
        let event = Event::new(Resource::Node, action);
        assert_eq!(world.wakes(&hooks, &pod, &event, &Change::None), want, "{action}");
    }
}
