//! Of pods that are gone nothing is kept beyond its time: after churn as much is remembered as if none had been.

#![allow(clippy::unwrap_used)]

#[path = "../examples/day/world.rs"]
mod world;

use koord_testkit::node_tree::Cgroup;
use koordlet::run::Kept;
use world::World;

const CONTAINERS: usize = 8;
const CHURN_MINUTES: u32 = 3;
/// Samples stay for an hour, which is the longest.
const LATER_MINUTES: u32 = 70;

fn seconds(world: &mut World, count: u32) {
    (0..count).for_each(|_| world.second().unwrap());
}

/// What is kept long after so many pods were replaced in each of some minutes.
fn kept_after(cgroup: Cgroup, replaced: usize) -> Kept {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), cgroup, CONTAINERS, 1_700_000_000_000).unwrap();
    seconds(&mut world, 60);
    let fresh = world.brain.kept();
    for _ in 0..CHURN_MINUTES {
        world.tree.replace(replaced).unwrap();
        seconds(&mut world, 60);
        assert_eq!(world.brain.kept().groups, fresh.groups, "only pods that live are measured");
    }
    if replaced > 0 {
        assert!(world.brain.kept().series > fresh.series, "samples outlive their pods for a while");
    }
    (0..LATER_MINUTES).for_each(|_| world.leap(60).unwrap());
    // Everything about the living is there again, and everything else has had its turn of being looked at.
    seconds(&mut world, 130);
    world.brain.kept()
}

#[test]
fn nothing_is_kept_of_pods_that_are_gone() {
    for cgroup in [Cgroup::V1, Cgroup::V2] {
        let (calm, churned) = (kept_after(cgroup, 0), kept_after(cgroup, 2));
        assert!(calm.groups > CONTAINERS && calm.series > 0 && calm.models > 0, "{calm:?}");
        assert!(calm.by_strategies > 0 && calm.by_applier > 0 && calm.shown > 0, "{calm:?}");
        assert_eq!(churned, calm, "{cgroup:?}");
    }
}
