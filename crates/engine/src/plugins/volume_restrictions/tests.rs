//! Disks and claims that cannot be shared.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::engine::input::StorageKind;
use crate::framework::event::Event;
use crate::framework::{Delta, Nominating, PostFilter, PostFilterInput, PostFiltered};
use crate::plugins::default_preemption;
use crate::plugins::volume_world::{World, mounts};
use crate::profile::args::DefaultPreemptionArgs;
use crate::random::Random;
use crate::schedule::Failure;

fn gce(read_only: bool) -> Value {
    json!([{"name": "v", "gcePersistentDisk": {"pdName": "x", "readOnly": read_only}}])
}

fn rbd(monitors: &[&str], image: &str, read_only: bool) -> Value {
    json!([{"name": "v", "rbd": {"monitors": monitors, "image": image, "pool": "p", "readOnly": read_only}}])
}

#[test]
fn a_disk_is_mounted_once() {
    let ebs = |id: &str| json!([{"name": "v", "awsElasticBlockStore": {"volumeID": id, "readOnly": true}}]);
    let iscsi = |iqn: &str, read_only: bool| json!([{"name": "v", "iscsi": {"iqn": iqn, "lun": 0, "targetPortal": "t", "readOnly": read_only}}]);
    for (name, there, wanted, fits) in [
        ("scheduler-core#6.11.V18", gce(false), gce(true), false),
        ("scheduler-core#6.11.V18 both read-only", gce(true), gce(true), true),
        ("ebs", ebs("x"), ebs("x"), false),
        ("another ebs", ebs("y"), ebs("x"), true),
        ("iscsi", iscsi("x", false), iscsi("x", true), false),
        ("iscsi read-only", iscsi("x", true), iscsi("x", true), true),
        ("rbd, one monitor in common", rbd(&["1", "2"], "i", false), rbd(&["2", "3"], "i", true), false),
        ("rbd, no monitor in common", rbd(&["1"], "i", false), rbd(&["2"], "i", false), true),
        ("rbd, another image", rbd(&["1"], "i", false), rbd(&["1"], "j", false), true),
        ("rbd read-only", rbd(&["1"], "i", true), rbd(&["1"], "i", true), true),
        ("different kinds", gce(false), ebs("x"), true),
    ] {
        let mut world = World::new();
        assert!(world.cluster.remove_node("b"));
        world.place("other", "a", there);
        let pod = world.pod("p", wanted, json!({}));
        let want = if fits { "a" } else { "1 node(s) had no available disk" };
        assert_eq!(world.verdict(&pod), want, "{name}");
        if !fits {
            assert_eq!(world.curable(&pod), [world.row("a")], "{name}: the other can be taken away");
        }
    }
}

const IN_USE: &str = "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use \
                      by another pod";

/// A claim that one pod may mount.
fn once_pod(world: &mut World, name: &str) {
    world.volume(&format!("pv-{name}"), "5Gi", json!({}));
    let modes = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    world.bound_claim(name, &format!("pv-{name}"), modes);
}

#[test]
fn a_claim_for_one_pod_is_mounted_once() {
    let mut world = World::new();
    once_pod(&mut world, "c");
    let pod = world.pod_of("p", &["c"]);
    assert_eq!(world.verdict(&pod), "a b");
    let holder = world.place("holder", "a", mounts(&["c"]));
    assert_eq!(world.verdict(&pod), IN_USE, "scheduler-core#6.11.V17");
    assert_eq!(world.curable(&pod).len(), 2, "scheduler-core#6.11.V17");
    // A ghost's pods are nobody's concern.
    assert!(world.cluster.remove_node("a"));
    assert_eq!(world.verdict(&pod), "b");
    assert!(world.cluster.release(&holder.uid));
    world.node("a", json!({}));
    assert_eq!(world.verdict(&pod), "a b");
    let elsewhere =
        world.pod("x", mounts(&["c"]), json!({"metadata": {"namespace": "e"}, "spec": {"nodeName": "a"}}));
    assert_eq!(world.cluster.confirm(elsewhere), None);
    assert_eq!(world.verdict(&pod), "a b", "a claim of that name in another namespace");
}

/// Notes on which nodes the pod would fit without these pods.
#[derive(Default)]
struct Removal {
    pods: Vec<Arc<Pod>>,
    fits: Mutex<Vec<Row>>,
}

impl PostFilter for Removal {
    fn help(&self, input: &PostFilterInput<'_>, _: &mut Random) -> PostFiltered {
        for row in input.diagnosis.curable(input.order).iter().copied() {
            let (mut cycle, mut delta) = (input.cycle.clone(), Delta::default());
            for pod in self.pods.iter().filter(|pod| input.cycle.cluster.held(&pod.uid).unwrap().row == row) {
                delta.remove(input.cycle.cluster, row, pod);
                input.framework.suppose_removed(input.prepared, &mut cycle, pod, row);
            }
            let verdict =
                input.framework.check_beside_nominated(input.nominated, input.prepared, &cycle, row, &delta);
            if verdict.is_ok() {
                self.fits.lock().unwrap().push(row);
            }
        }
        let status = Status::unschedulable("", "");
        PostFiltered { status, nominating: Nominating::Keep, preemption: None }
    }
}

#[test]
fn taking_the_holder_away_frees_the_claim() {
    for (name, second_holder, want) in [("one holder", None, vec!["a"]), ("a holder left", Some("b"), vec![])]
    {
        let mut world = World::new();
        once_pod(&mut world, "c");
        let holder = world.place("holder", "a", mounts(&["c"]));
        let stranger = world.pod(
            "s",
            mounts(&["c"]),
            json!({"metadata": {"namespace": "e"}, "spec": {"nodeName": "b"}}),
        );
        assert_eq!(world.cluster.confirm(stranger.clone()), None);
        if let Some(node) = second_holder {
            world.place("second", node, mounts(&["c"]));
        }
        let removal = Arc::new(Removal { pods: vec![holder, stranger], fits: Mutex::default() });
        world.framework.post_filters = vec![Hooks::new("Removal").post_filter(removal.clone())];
        let pod = world.pod_of("p", &["c"]);
        assert!(world.attempt(&pod).is_err());
        let want: Vec<Row> = want.into_iter().map(|node| world.row(node)).collect();
        assert_eq!(*removal.fits.lock().unwrap(), want, "scheduler-core#6.11.V17 {name}");
    }
}

#[test]
fn a_more_important_pod_takes_the_claim() {
    for (name, priority, is_helped) in [("equal", 0, false), ("more important", 10, true)] {
        let mut world = World::new();
        once_pod(&mut world, "c");
        world.place("holder", "a", mounts(&["c"]));
        let preemption = default_preemption::build(&DefaultPreemptionArgs::default());
        world.framework.post_filters = vec![preemption];
        let pod = world.pod("p", mounts(&["c"]), json!({"spec": {"priority": priority}}));
        let Err(Failure::Unfit(unfit)) = world.attempt(&pod) else { panic!("{name}") };
        let victims = unfit.preemption.iter().flat_map(|preemption| &preemption.victims);
        let victims: Vec<&str> = victims.map(|victim| &*victim.key.name).collect();
        let (want, nominating): (&[&str], _) = match is_helped {
            true => (&["holder"], Nominating::Node(world.row("a"))),
            false => (&[], unfit.nominating),
        };
        assert_eq!(
            (victims.as_slice(), unfit.nominating),
            (want, nominating),
            "scheduler-core#6.11.V17 {name}"
        );
    }
}

#[test]
fn what_wakes_a_pod() {
    let hooks = build();
    let mut world = World::new();
    let mut volumes = mounts(&["c"]);
    volumes.as_array_mut().unwrap().extend(gce(true).as_array().unwrap().clone());
    let pod = world.pod("p", volumes, json!({}));
    let deleted = Event::new(Resource::AssignedPod, Action::DELETE);
    for (name, namespace, volumes, want) in [
        ("its claim", "d", mounts(&["x", "c"]), true),
        ("another claim", "d", mounts(&["x"]), false),
        ("its disk", "d", gce(false), true),
        ("its disk, read-only", "d", gce(true), false),
        ("another namespace", "e", mounts(&["c"]), false),
        ("no volume", "d", json!([]), false),
    ] {
        let gone = world.pod("gone", volumes, json!({"metadata": {"namespace": namespace}}));
        let change = Change::Pod { old: Some(gone), new: None };
        assert_eq!(world.wakes(&hooks, &pod, &deleted, &change), want, "{name}");
    }
    for (name, object, want) in [
        ("own claim", json!({"metadata": {"name": "c", "namespace": "d"}}), true),
        ("own claim changed", json!({"metadata": {"name": "c", "namespace": "d"}}), false),
        ("another claim", json!({"metadata": {"name": "x", "namespace": "d"}}), false),
        ("another namespace", json!({"metadata": {"name": "c", "namespace": "e"}}), false),
    ] {
        let change = world.put(StorageKind::PersistentVolumeClaim, object);
        assert_eq!(world.storage_wakes(&hooks, &pod, change), want, "{name}");
    }
    assert!(world.wakes(&hooks, &pod, &Event::new(Resource::Node, Action::ADD), &Change::None));
}
