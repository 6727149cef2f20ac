//! Best-effort pods with CPUs of their own, by the gate BECPUManager. Spec: koordlet-enforce 5.7.

use super::*;

/// Groups below a pod with NUMA nodes are the cpuset hook's alone, the sandbox too: two writers would take turns.
/// Spec: koordlet-enforce 5.7.
#[test]
fn with_the_cpu_manager_placed_pods_have_one_writer() {
    let numa = r#"{"numaNodeResources":[{"node":0,"resources":{"kubernetes.io/batch-cpu":"1k"}}]}"#;
    let placed =
        pod("batch").qos("BE").kube_qos("BestEffort").container("main", &[], &[]).placed(numa).running();
    let pods = vec![placed.read(), best_effort("free")];
    let mut world = World::new(Version::V1, "-feature-gates=BECPUManager=true", threshold("cpuset"), pods);
    let layout =
        Layout { be_pools: vec![CpuSharedPool { socket: 0, node: 0, cpuset: "4-7".to_owned() }], ..layout() };
    world.snapshot.layout = Some(Arc::new(layout));
    let states = [PodState::read(placed.object(), Driver::Cgroupfs)];
    world.snapshot.pods = states.map(Arc::new).to_vec().into();
    let dirs = ["", "/podbatch", "/podbatch/batch-main", "/podbatch/5a", "/podfree", "/podfree/free-main"];
    for dir in dirs {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "3\n");
    }
    let held = |world: &World| dirs.map(|dir| world.get(&format!("{BE}{dir}/cpuset.cpus")));
    for second in 0..3 {
        world.second();
        assert_eq!(held(&world), ["0-7", "0-7", "4-7", "4-7", "0-7", "0-7"], "second {second}");
    }
    let told = world.records("AdjustBEByNodeCPUUsage");
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["besteffort", "batch", "free", "main"],
        "once each, and of containers only that of free"
    );
}

/// The sandbox of a placed pod whose second container has no id yet is nobody else's, and must not hold up its parents.
#[test]
fn with_the_cpu_manager_a_sandbox_that_is_not_known_yet_has_all_cpus() {
    let numa = r#"{"numaNodeResources":[{"node":0,"resources":{"kubernetes.io/batch-cpu":"1k"}}]}"#;
    let placed = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &[], &[]);
    let placed = placed.container("late", &[], &[]).running().pulling().placed(numa);
    let pods = vec![placed.read()];
    let mut world = World::new(Version::V1, "-feature-gates=BECPUManager=true", threshold("cpuset"), pods);
    let layout =
        Layout { be_pools: vec![CpuSharedPool { socket: 0, node: 0, cpuset: "4-7".to_owned() }], ..layout() };
    world.snapshot.layout = Some(Arc::new(layout));
    world.snapshot.pods = [Arc::new(PodState::read(placed.object(), Driver::Cgroupfs))].into();
    let dirs = ["", "/podbatch", "/podbatch/batch-main", "/podbatch/5a"];
    for dir in dirs {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-9\n");
    }
    world.second();
    assert_eq!(dirs.map(|dir| world.get(&format!("{BE}{dir}/cpuset.cpus"))), ["0-7", "0-7", "4-7", "0-7"]);
}
