//! Shares of cache and memory bandwidth by class: groups, their lines, and who belongs to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use koord_api::crd::node_slo::ResourceQosStrategy;
use koord_api::qos::Qos;
use koord_linux::cgroup::{Cgroups, ids};
use koord_linux::resource::Resource;

use super::leave::{Trace, note_mount};
use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::resctrl::{self, GROUPS, Platform, Vendor};
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Cause, Place, Wish};
use crate::metrics::Metric;
use crate::state::Hardware;

/// The strategy and what it remembers.
#[derive(Default)]
pub(super) struct ResctrlClasses {
    /// Ids of the caches; they do not change while the machine runs.
    cache_ids: Vec<u32>,
    /// Whether the file system and the classes' groups were there when it was last looked.
    has_groups: bool,
    /// Whether the last try to mount failed, so that it is told once.
    is_broken: bool,
    /// Groups whose threads could not be read, so that it is told once.
    unreadable: BTreeSet<Qos>,
}

impl Strategy for ResctrlClasses {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let (Some(slo), Some(hardware)) =
            (ground.snapshot.slo.as_deref(), ground.snapshot.hardware.as_deref())
        else {
            return;
        };
        if !hardware.info.can_allocate() || !self.is_ready(setting, hands) {
            return;
        }
        if let Some(platform) = platform(hardware, &self.cache_ids, hands) {
            let plan = resctrl::schemata(&slo.qos, &platform);
            for (class, problem) in &plan.problems {
                tracing::debug!(?class, %problem, "a line of resctrl is left out");
            }
            for line in plan.wishes {
                if hands.apply(ground, &Batch::Each(vec![line.clone()])).written > 0 {
                    tell_line(&slo.qos, ground.pods, &line, hands);
                }
            }
        }
        let is_on = |pod: &Pod| resctrl::group(&slo.qos, pod).is_some();
        if !ground.pods.iter().any(is_on) {
            return;
        }
        let present = self.present(hands);
        let threads: HashMap<&str, Vec<u32>> = ground
            .pods
            .iter()
            .filter(|pod| is_on(pod))
            .map(|pod| (&*pod.id.uid, threads(&setting.cgroups, pod)))
            .collect();
        let of = |pod: &Pod| threads.get(&*pod.id.uid).map_or(&[][..], Vec::as_slice);
        let wishes = resctrl::tasks(&slo.qos, ground.pods, &present, of);
        let report = hands.apply(ground, &Batch::Each(wishes));
        if report.written > 0 {
            let now = self.present(hands);
            tell_joined(&slo.qos, ground.pods, [&present, &now], of, hands);
        }
    }
}

/// Tells the pods of a class that its line was written.
fn tell_line(qos: &ResourceQosStrategy, pods: &[Pod], line: &Wish, hands: &Hands<'_>) {
    let Place::Resctrl(group) = &line.place else { return };
    let is_theirs = |pod: &&Pod| resctrl::group(qos, pod).is_some_and(|class| class.as_str() == &**group);
    for pod in pods.iter().filter(is_theirs) {
        let message = line.audit_message(None);
        hands.applier.records().tell_pod(&pod.id.uid, "", line.cause.reason(), &message);
    }
}

/// Tells pods that were in no group of their class before which one they are in now. Threads come and go meanwhile, so
/// the groups are looked at again.
fn tell_joined<'t>(
    qos: &ResourceQosStrategy,
    pods: &[Pod],
    [before, now]: [&BTreeMap<Qos, BTreeSet<u32>>; 2],
    threads: impl Fn(&Pod) -> &'t [u32],
    hands: &Hands<'_>,
) {
    for pod in pods {
        let Some(class) = resctrl::group(qos, pod) else { continue };
        let (Some(before), Some(now)) = (before.get(&class), now.get(&class)) else { continue };
        let count = threads(pod).iter().filter(|id| now.contains(id)).count();
        if count > 0 && !threads(pod).iter().any(|id| before.contains(id)) {
            let (group, label) = (class.as_str(), pod.qos.map_or("none", Qos::as_str));
            let message = format!("add {count} tasks to resctrl group {group}; QoS {label}");
            hands.applier.records().tell_pod(&pod.id.uid, "", Cause::ResctrlTasks.reason(), &message);
        }
    }
}

impl ResctrlClasses {
    /// Threads of each group; a group that cannot be read has none to leave out.
    fn present(&mut self, hands: &Hands<'_>) -> BTreeMap<Qos, BTreeSet<u32>> {
        let mut present = BTreeMap::new();
        for class in GROUPS {
            match hands.applier.resctrl().tasks(class.as_str()) {
                Ok(ids) => {
                    self.unreadable.remove(&class);
                    present.insert(class, ids.into_iter().collect());
                }
                Err(error) => {
                    if self.unreadable.insert(class) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            error,
                            "threads of a resctrl group are not known; all are moved again"
                        );
                    }
                }
            }
        }
        present
    }

    /// Whether lines can be written: the groups are there. The root may be unreadable at one time and not at another.
    fn is_ready(&mut self, setting: &Setting, hands: &mut Hands<'_>) -> bool {
        let is_ready = self.has_all_groups(setting, hands);
        if is_ready && self.cache_ids.is_empty() {
            let schemata = hands.applier.resctrl().schemata("");
            self.cache_ids = schemata.map(|schemata| schemata.caches()).unwrap_or_default();
        }
        is_ready
    }

    /// Whether the file system is there with the classes' groups in it. Somebody may take either away at any time.
    fn has_all_groups(&mut self, setting: &Setting, hands: &mut Hands<'_>) -> bool {
        let resctrl = hands.applier.resctrl().clone();
        let is_there = |class: &Qos| resctrl.has(class.as_str());
        if std::mem::take(&mut self.has_groups) && GROUPS.iter().all(is_there) {
            self.has_groups = true;
            return true;
        }
        Trace::ResctrlClasses.leave(&setting.root);
        let created = resctrl.ensure_mounted().and_then(|mounted| {
            note_mount(&setting.root, hands.applier.records(), &setting.metrics, mounted);
            for group in GROUPS.map(Qos::as_str) {
                if hands.applier.ensure_resctrl(group)? {
                    let message = format!("create resctrl group {group}");
                    hands.applier.records().record(3, Subject::Group(group), "CreateCATGroup", message);
                    setting.metrics.count(Metric::NodeChange, &["resctrl-group", "success"]);
                }
            }
            Ok(())
        });
        match created {
            Ok(()) => (self.has_groups, self.is_broken) = (true, false),
            Err(error) => {
                setting.metrics.count(Metric::NodeChange, &["resctrl-group", "failed"]);
                if !std::mem::replace(&mut self.is_broken, true) {
                    tracing::warn!(error = &error as &dyn std::error::Error, "resctrl cannot be used");
                }
            }
        }
        self.has_groups
    }
}

/// None while the kernel does not tell the ways of the cache.
pub(super) fn platform(hardware: &Hardware, cache_ids: &[u32], hands: &Hands<'_>) -> Option<Platform> {
    // Before the mount the mask was not there to be read with the rest.
    let mask = match hardware.info.l3_mask.as_str() {
        "" => hands.applier.resctrl().l3_mask().ok()?,
        known => known.to_owned(),
    };
    let caches: BTreeSet<u32> = hardware.cpus.iter().map(|cpu| cpu.l3).collect();
    Some(Platform {
        vendor: Vendor::of(&hardware.info.vendor),
        cbm: Platform::cbm_of(&mask)?,
        cache_ids: cache_ids.to_vec(),
        cache_count: caches.len(),
    })
}

/// Threads of a pod's containers and sandbox: of all groups below its own.
fn threads(cgroups: &Cgroups, pod: &Pod) -> Vec<u32> {
    let dir = cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
    let children = cgroups.children(&dir).unwrap_or_default();
    let of = |name: String| cgroups.read(Resource::Tasks, &dir.child(&name), ids).unwrap_or_default();
    children.into_iter().flat_map(of).collect()
}
