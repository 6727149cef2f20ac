//! Recorded runs of the original koordlet on a generated node: what it wrote is what we wish for, and what it reported is
//! what we would report ([`report`]).
//!
//! A run is a node, its pods, a NodeSLO and phases that change them; after each phase stand the files that
//! differ from the start. Time is played in cycles of a second.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read is a failed test")]

mod report;
mod rig;

use koord_api::annotation::node_topology::CpuSharedPools;
use koord_api::annotation::ratio::CpuNormalizationRatio;
use koord_api::annotation::{Annotation, Annotations, read};
use koord_api::cpuset::CpuSet;
use koordlet::decide::cpu_burst::bucket::Buckets;
use koordlet::decide::hooks::cpu_normalization::Ratios;
use koordlet::decide::hooks::{batch_resource, cpuset, group_identity, share_pools};
use koordlet::decide::snapshot::Layout;
use koordlet::decide::wish::{Batch, Wish};
use koordlet::decide::{cpu_burst, cpu_suppress, memory_qos, resctrl, system_config};
use rig::{Rig, Tree};

/// What the hooks and the strategies that follow no load write.
fn quiet(rig: &Rig, layout: &Layout) -> Vec<Wish> {
    let slo = rig.slo();
    let pods = rig.pods();
    let mut wishes: Vec<Wish> = Vec::new();
    let rule = group_identity::Rule::of(&slo.qos);
    let kernel = group_identity::Switches::default();
    let apps = &slo.host_applications;
    wishes.extend(group_identity::rule_changed(&rule, kernel, &pods, |pod| rig.below(pod), apps, &[]));
    for pod in &pods {
        wishes.extend(group_identity::pod_wish(&rule, kernel, pod).unwrap());
        wishes.extend(cpuset::pod_wishes(pod, rig.sandbox(pod), Some(layout), false, false).unwrap());
    }
    wishes.extend(cpuset::application_wishes(apps, layout).0);
    let ratio = rig.node().cpu_normalization.and_then(Result::ok).map(|CpuNormalizationRatio(ratio)| ratio);
    let is_quota_unset = batch_resource::Rule::is_quota_unset_by(&slo.threshold);
    let rule = batch_resource::Rule { is_quota_unset, ratio };
    wishes.extend(batch_resource::wishes(&pods, &rule).wishes().cloned());
    wishes.extend(memory_qos::plan(&slo.qos, &rig.node(), &pods, 4096).batch.wishes().cloned());
    if let Some(platform) = rig.resctrl() {
        wishes.extend(resctrl::schemata(&slo.qos, &platform).wishes);
    }
    wishes.extend(system_config::plan(&slo.system, &rig.node(), None).wishes);
    wishes
}

/// One second of what follows the load.
fn second(rig: &Rig, layout: &Layout, tree: &mut Tree, memory: &mut cpu_suppress::Memory, second: u64) {
    let slo = rig.slo();
    let (node, pods, usage) = (rig.node(), rig.pods(), rig.usage());
    let old_cpus: CpuSet = tree.get("kubepods/besteffort/cpuset.cpus").unwrap_or("0-4095").parse().unwrap();
    let old_cpus = &old_cpus & layout.topology.all();
    let old_quota = tree.get("kubepods/besteffort/cpu.cfs_quota_us").map_or(-1, |text| text.parse().unwrap());
    let sample = cpu_suppress::Sample {
        node: Some(&node),
        pods: &pods,
        applications: &slo.host_applications,
        usage: &usage,
        layout: Some(layout),
        all_pods_cpus: None,
        old_cpus: &old_cpus,
        old_quota,
        groups: &rig.best_effort_groups(),
    };
    let switches = cpu_suppress::Switches { strategy: Some(&slo.threshold), is_cpu_manager_on: false };
    let plan = cpu_suppress::plan(&sample, switches, *memory);
    memory.settle(&plan, true);
    tree.write(plan.batches.iter().flat_map(Batch::wishes));
    let groups = rig.quota_groups(tree);
    let sample = cpu_burst::Sample {
        pods: &pods,
        usage: &usage,
        processors: Some(layout.topology.all().len()),
        groups: &groups,
        normalization: Ratios::default(),
        is_pinned_quota_unset: true,
        kernel: cpu_burst::Kernel { burst_max: 100_000_000, is_burst_within_quota: false },
    };
    let now = std::time::Duration::from_secs(second);
    let plan = cpu_burst::plan(now, &sample, &slo.burst, &mut Buckets::default(), &mut || 0.0);
    tree.write(plan.batches.iter().flat_map(Batch::wishes));
}

/// The node's layout as it was reported, after a check that we would report the same pools.
fn layout(rig: &Rig, reported: &Annotations) -> Layout {
    let layout = Layout::read(rig.topology(reported), reported);
    let node = layout.topology.all() - &layout.open_cpus();
    let withheld = share_pools::Withheld { node, ..share_pools::Withheld::default() };
    let pools = share_pools::share_pools(&layout.topology, &withheld, &rig.pods());
    assert_eq!((&pools.ls, &pools.be), (&layout.ls_pools, &layout.be_pools), "{}", rig.note);
    assert!(read::<CpuSharedPools>(reported).unwrap().is_some(), "{} missing", CpuSharedPools::KEY);
    layout
}

#[test]
fn strategies() {
    let mut rig = Rig::open("node-qos-1");
    let mut tree = Tree::default();
    let mut memory = cpu_suppress::Memory::default();
    let mut compared = 0;
    while let Some(phase) = rig.next_phase() {
        let layout = layout(&rig, &phase.topology);
        rig.prepare_quotas(&mut tree);
        for at in 0..phase.seconds {
            tree.write(quiet(&rig, &layout).iter());
            second(&rig, &layout, &mut tree, &mut memory, at);
        }
        compared += tree.compare(&phase, |_| true);
    }
    assert!(compared > 500, "only {compared} files");
}

#[test]
fn suppression() {
    let mut rig = Rig::open("node-suppress-1");
    let mut tree = Tree::default();
    let mut memory = cpu_suppress::Memory::default();
    let mut compared = 0;
    while let Some(phase) = rig.next_phase() {
        let layout = layout(&rig, &phase.topology);
        for at in 0..phase.seconds {
            second(&rig, &layout, &mut tree, &mut memory, at);
        }
        compared += tree.compare(&phase, |path| {
            path.starts_with("kubepods/besteffort") && path.ends_with("cpuset.cpus")
                || path == "kubepods/besteffort/cpu.cfs_quota_us"
        });
    }
    assert!(compared > 40, "only {compared} files");
}
