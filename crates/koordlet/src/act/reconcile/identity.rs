//! Group identity on the node: the kernel's switches, groups of classes, pods, host applications, and what is left.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use koord_api::qos::KubeQos;
use koord_linux::cgroup::{Cgroups, Dir};
use koord_linux::resource::Resource;
use koord_linux::root::Root;
use koord_linux::system::SystemFile;

use super::super::{Ground, Hands, Setting};
use super::{below, sandboxes, timed};
use crate::apply::dir_of;
use crate::decide::hooks::group_identity::{
    Dangling, Rule, Switches, application_wishes, class_wishes, kernel_wishes, pod_wish, rule_changed,
};
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Place};
use crate::state::Snapshot;

/// The rule in force.
#[derive(Default)]
pub(super) struct Identity {
    rule: Option<Rule>,
}

impl Identity {
    pub(super) fn turn(
        &mut self,
        setting: &Setting,
        ground: &Ground<'_>,
        hands: &mut Hands<'_>,
        is_first: bool,
    ) {
        let Some((rule, kernel)) = identity(setting, ground.snapshot) else { return };
        let start = Instant::now();
        let apps = ground.snapshot.host_applications();
        let is_changed = self.rule.replace(rule) != Some(rule);
        let mut wishes = Vec::new();
        if is_changed && (is_first || ground.news.slo) {
            let sandboxes = sandboxes(&setting.cgroups, ground.snapshot);
            let dangling = dangling(&setting.cgroups, ground);
            let below = |pod: &Pod| below(pod, sandboxes.get(&pod.id.uid));
            wishes = rule_changed(&rule, kernel, ground.pods, below, apps, &dangling);
        } else if rule.is_in_force(kernel) {
            wishes.extend(kernel_wishes(&rule, kernel));
            wishes.extend(class_wishes(&rule));
            wishes.extend(application_wishes(&rule, apps));
        }
        let mut report = hands.apply(ground, &Batch::Each(wishes));
        let mut own = Vec::new();
        for pod in ground.pods.iter().filter(|pod| pod.is_active()) {
            match pod_wish(&rule, kernel, pod) {
                Ok(wish) => own.extend(wish),
                Err(error) => tracing::debug!(pod = %pod.name, error, "the identity of a pod cannot be read"),
            }
        }
        report = report.and(hands.apply(ground, &Batch::Each(own)));
        timed(&setting.metrics, "pod", "cpu.bvt_warp_ns", start, report);
    }
}

/// What identities follow from; none where the kernel has none, or no strategy is known.
pub(in crate::act) fn identity(setting: &Setting, snapshot: &Snapshot) -> Option<(Rule, Switches)> {
    let slo = snapshot.slo.as_deref()?;
    let kernel = switches(&setting.root);
    let in_kube_root = setting.cgroups.path(Resource::BvtWarpNs, &setting.cgroups.kube_root());
    let is_there = kernel.group_identity.is_some() || in_kube_root.is_ok_and(|path| path.exists());
    is_there.then(|| (Rule::of(&slo.qos), kernel))
}

/// The kernel's switches; none where there is no such file.
pub(in crate::act) fn switches(root: &Root) -> Switches {
    let is_on = |file: SystemFile| Some(fs::read_to_string(file.path(root)).ok()?.trim() == "1");
    Switches {
        group_identity: is_on(SystemFile::SchedGroupIdentityEnabled),
        core_sched: is_on(SystemFile::SchedCore),
    }
}

/// Pods' groups on disk that no pod of the list owns.
fn dangling(cgroups: &Cgroups, ground: &Ground<'_>) -> Vec<Dangling> {
    let driver = cgroups.driver();
    let known: BTreeSet<Dir> = ground.pods.iter().filter_map(|pod| dir_of(&pod.place(), driver)).collect();
    let place = |dir: &Dir| Place::Dir(dir.as_str().into());
    let mut found = Vec::new();
    for kube_qos in KubeQos::ALL {
        let class = cgroups.qos_dir(kube_qos);
        for name in cgroups.children(&class).unwrap_or_default() {
            let pod = class.child(&name);
            if known.contains(&pod) || driver.parse_pod_name(&name).is_err() {
                continue;
            }
            let containers = cgroups.children(&pod).unwrap_or_default();
            let containers = containers.iter().map(|name| place(&pod.child(name))).collect();
            found.push(Dangling { kube_qos, pod: place(&pod), containers });
        }
    }
    found
}
