//! Pods with their own share of cache and memory bandwidth: a group each, as long as the pod is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use koord_api::annotation::Annotation as _;
use koord_api::annotation::node_side::PodResctrl;
use koord_linux::cgroup::ids;
use koord_linux::error::Error;
use koord_linux::resctrl::Resctrl;
use koord_linux::resource::Resource;

use super::super::leave::note_mount;
use super::super::{Ground, Hands, Setting, resctrl};
use crate::apply::Applier;
use crate::audit::Subject;
use crate::decide::hooks::pod_resctrl::{
    EVENT_CREATED, EVENT_REASON, EVENT_REMOVED, GROUP_PREFIX, group_name, leftovers, schemata,
};
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Cause, File, Place, Value, Wish};
use crate::metrics::Metric;
use crate::records::Records;

/// What is remembered: whom groups were made for, so that their end can be told.
pub(in crate::act) struct PodResctrls {
    cache_ids: Vec<u32>,
    /// Namespace and name of the pod, by its uid.
    owners: BTreeMap<String, (String, String)>,
    remove: Remove,
}

/// Takes a group away: the kernel takes its files with it, a plain file system does not.
pub(in crate::act) type Remove = fn(&Resctrl, &str) -> Result<(), Error>;

impl Default for PodResctrls {
    fn default() -> PodResctrls {
        PodResctrls::new(Resctrl::remove)
    }
}

impl PodResctrls {
    pub(in crate::act) fn new(remove: Remove) -> PodResctrls {
        PodResctrls { cache_ids: Vec::new(), owners: BTreeMap::new(), remove }
    }

    pub(super) fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(hardware) =
            ground.snapshot.hardware.as_deref().filter(|hardware| hardware.info.can_allocate())
        else {
            return;
        };
        let resctrl = hands.applier.resctrl().clone();
        let wanted: Vec<(&Pod, &PodResctrl)> = ground.pods.iter().filter_map(own).collect();
        if !wanted.is_empty() {
            match resctrl.ensure_mounted() {
                Ok(mounted) => note_mount(&setting.root, hands.applier.records(), &setting.metrics, mounted),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    return tracing::debug!(error, "resctrl cannot be used");
                }
            }
            if self.cache_ids.is_empty() {
                self.cache_ids = resctrl.schemata("").map(|schemata| schemata.caches()).unwrap_or_default();
            }
            if let Some(platform) = resctrl::platform(hardware, &self.cache_ids, hands) {
                for (pod, wanted) in wanted {
                    self.group(setting, pod, hands.applier);
                    let lines = schemata(wanted, &platform);
                    for problem in &lines.problems {
                        tracing::debug!(pod = %pod.name, %problem, "a line of resctrl is left out");
                    }
                    let wishes =
                        lines.wish(&pod.id.uid, &platform).into_iter().chain(tasks(setting, pod, &resctrl));
                    hands.apply(ground, &Batch::Each(wishes.collect()));
                }
            }
        }
        self.remove_leftovers(setting, ground, &resctrl, hands);
    }

    /// Makes the group of a pod, and tells when it is new.
    fn group(&mut self, setting: &Setting, pod: &Pod, applier: &mut Applier) {
        let name = group_name(&pod.id.uid);
        let is_new = match applier.ensure_resctrl(&name) {
            Ok(is_new) => is_new,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::debug!(error, pod = %pod.name, "no resctrl group");
            }
        };
        self.owners.insert(pod.id.uid.to_string(), (pod.namespace.clone(), pod.name.clone()));
        if is_new {
            setting.metrics.count(Metric::NodeChange, &["resctrl-group", "success"]);
            setting.note(&pod.namespace, &pod.name, &pod.id.uid, EVENT_REASON, EVENT_CREATED);
            let (namespace, pod) = (&*pod.namespace, &*pod.name);
            let message = format!("create resctrl group {name}; annotation {}", PodResctrl::KEY);
            record(applier.records(), namespace, pod, message);
        }
    }

    fn remove_leftovers(
        &mut self,
        setting: &Setting,
        ground: &Ground<'_>,
        resctrl: &Resctrl,
        hands: &Hands<'_>,
    ) {
        let Ok(names) = resctrl.groups() else { return };
        let groups: BTreeMap<String, u64> = names
            .into_iter()
            .filter(|name| name.starts_with(GROUP_PREFIX))
            .map(|name| (name.clone(), age_seconds(resctrl, &name)))
            .collect();
        let uids: BTreeSet<&str> =
            ground.pods.iter().filter(|pod| pod.is_active()).map(|pod| &*pod.id.uid).collect();
        for name in leftovers(&groups, &uids) {
            if let Err(error) = (self.remove)(resctrl, name) {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    group = name,
                    "a group cannot be removed"
                );
                continue;
            }
            setting.metrics.count(Metric::NodeChange, &["resctrl-group", "success"]);
            let uid = name.strip_prefix(GROUP_PREFIX).unwrap_or_default();
            if let Some((namespace, pod)) = self.owners.remove(uid) {
                setting.note(&namespace, &pod, uid, EVENT_REASON, EVENT_REMOVED);
                let message = format!("remove resctrl group {name}; the pod has ended");
                record(hands.applier.records(), &namespace, &pod, message);
            }
        }
    }
}

/// For the audit log alone: the pod has an event of its own about it.
fn record(records: &Records, namespace: &str, name: &str, message: String) {
    let subject = Subject::Pod { uid: "", namespace, name, container: "" };
    records.auditor().record(3, subject, Cause::RuntimeHook.reason(), message);
}

fn own(pod: &Pod) -> Option<(&Pod, &PodResctrl)> {
    let wanted = pod.resctrl.as_ref().ok()?.as_ref()?;
    pod.is_active().then_some((pod, wanted))
}

/// Threads of a pod that are not in its group yet.
fn tasks(setting: &Setting, pod: &Pod, resctrl: &Resctrl) -> Option<Wish> {
    let cgroups = &setting.cgroups;
    let name = group_name(&pod.id.uid);
    let present: BTreeSet<u32> = resctrl.tasks(&name).ok()?.into_iter().collect();
    let dir = cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
    let children = cgroups.children(&dir).unwrap_or_default();
    let of = |child: &String| cgroups.read(Resource::Tasks, &dir.child(child), ids).unwrap_or_default();
    let missing: Vec<u32> = children.iter().flat_map(of).filter(|id| !present.contains(id)).collect();
    let place = Place::Resctrl(name.into());
    (!missing.is_empty())
        .then(|| Wish::new(place, File::ResctrlTasks, Value::Tasks(missing), Cause::RuntimeHook))
}

/// How long ago a group was made; one whose age cannot be told is young.
fn age_seconds(resctrl: &Resctrl, name: &str) -> u64 {
    let path = resctrl.schemata_path(name);
    let made = path.parent().and_then(|dir| dir.metadata().ok()?.modified().ok());
    made.and_then(|made| SystemTime::now().duration_since(made).ok()).map_or(0, |age| age.as_secs())
}
