//! Hooks in reconciler mode: what follows from pods and rules is written whenever either changes, and repaired now and
//! then. Spec: koordlet-enforce 14.4, 14.5.
//!
//! Pods: on every list of the kubelet. Groups of classes and host applications: on every change of rules, and on a timer.

mod identity;
mod oom_score;
mod pod_resctrl;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use koord_api::annotation::ratio::Ratio;
use koord_api::cpuset::CpuSet;
use koord_api::number::nearest;
use koord_linux::cgroup::{Cgroups, sandbox};
use koord_linux::cpu_stat::quota_us;
use koord_linux::resource::Resource;

use super::{Ground, Hands, Setting, Strategy};
use crate::apply::{Report, dir_of};
use crate::decide::hooks::cpu_normalization::{self, Whose};
use crate::decide::hooks::{batch_resource, cpuset};
use crate::decide::snapshot::{Layout, Pod};
use crate::decide::wish::{Batch, Place, Wish};
use crate::metrics::{KoordletMetrics, Metric};
use crate::state::{News, Snapshot};
use identity::Identity;
pub(super) use identity::{identity, switches as kernel_switches};
pub(super) use pod_resctrl::PodResctrls;

/// All hooks and what they remember.
#[derive(Default)]
pub(super) struct Reconciler {
    identity: Identity,
    /// What quotas were last scaled by.
    scaled_by: Option<Ratio>,
    /// Whether quotas were looked at that an earlier run may have scaled.
    has_met_quotas: bool,
    /// What was last wrong with host applications, so that it is told once.
    refused: Vec<String>,
    resctrl: PodResctrls,
    /// Sandboxes by pod, as the disk had them when the pods were last told.
    sandboxes: HashMap<Arc<str>, Place>,
    has_run: bool,
}

#[cfg(test)]
impl Reconciler {
    pub(super) fn with_resctrl(resctrl: PodResctrls) -> Reconciler {
        Reconciler { resctrl, ..Reconciler::default() }
    }
}

impl Strategy for Reconciler {
    fn kept(&self) -> usize {
        self.sandboxes.len()
    }

    fn is_urgent(&self, news: News) -> bool {
        news != News::default()
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let news = ground.news;
        let is_first = !std::mem::replace(&mut self.has_run, true);
        if is_first || news.pods {
            self.sandboxes = sandboxes(&setting.cgroups, ground.snapshot);
        }
        if is_first || news.layout {
            show_pools(setting, ground.snapshot.layout.as_deref());
        }
        let is_on = |gate: &str| setting.gates.is_on(gate);
        if is_on("GroupIdentity") {
            self.identity.turn(setting, ground, hands, is_first);
        }
        if is_on("CPUSetAllocator") {
            self.cpusets(setting, ground, hands);
        }
        if is_on("BatchResource") {
            batch_resources(setting, ground, hands);
        }
        if is_on("CPUNormalization") {
            self.normalize(setting, ground, hands);
        }
        if is_on("OOMScoreAdj") {
            oom_score::turn(setting, ground, hands);
        }
        if is_on("Resctrl") {
            self.resctrl.turn(setting, ground, hands);
        }
    }
}

impl Reconciler {
    fn cpusets(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let start = Instant::now();
        let rules = ground.snapshot.layout.as_deref();
        let is_be_managed = setting.gates.is_on("BECPUManager");
        let is_unset_disabled = setting.hooks.is_quota_unset_disabled;
        let mut wishes: Vec<Wish> = Vec::new();
        for pod in ground.pods.iter().filter(|pod| pod.is_active()) {
            let sandbox = self.sandboxes.get(&pod.id.uid).cloned();
            match cpuset::pod_wishes(pod, sandbox, rules, is_be_managed, is_unset_disabled) {
                Ok(own) => wishes.extend(own),
                Err(error) => tracing::debug!(pod = %pod.name, error, "the CPUs of a pod cannot be told"),
            }
        }
        if let Some(rules) = rules {
            let (own, refused) = cpuset::application_wishes(ground.snapshot.host_applications(), rules);
            wishes.extend(own);
            for error in refused.iter().filter(|error| !self.refused.contains(error)) {
                tracing::warn!(error, "CPUs of a host application are left alone");
            }
            self.refused = refused;
        }
        let report = hands.apply(ground, &Batch::Each(wishes));
        timed(&setting.metrics, "container", "cpuset.cpus", start, report);
    }

    /// Quotas under a ratio. Once it was applied to all, what burst moves every second anyway is left to it.
    fn normalize(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let cpu_normalization::Memory { ratio, is_known } = hands.shared.normalization;
        let can_meet = is_known && !ground.pods.is_empty();
        let is_first = can_meet && !std::mem::replace(&mut self.has_met_quotas, true);
        let is_new = std::mem::replace(&mut self.scaled_by, ratio) != ratio;
        let is_burst_on = setting.gates.is_on("CPUBurst") && !setting.qos.reconcile_interval.is_zero();
        let beside_burst = Whose::BesideBurst { is_pinned_left_out: setting.is_pinned_quota_unset() };
        let ratios = setting.ratios(ratio);
        let batch = match ratio {
            None if is_new => cpu_normalization::wishes(ground.pods, ratios, Whose::All),
            None if is_first => cpu_normalization::left_scaled(ground.pods, |place| quota(setting, place)),
            None => return,
            Some(_) if is_burst_on && !is_new => cpu_normalization::wishes(ground.pods, ratios, beside_burst),
            Some(_) => cpu_normalization::wishes(ground.pods, ratios, Whose::All),
        };
        let start = Instant::now();
        let report = hands.apply(ground, &batch);
        timed(&setting.metrics, "pod", "cpu.cfs_quota_us", start, report);
    }
}

/// The quota that a group has now; -1 is none.
fn quota(setting: &Setting, place: &Place) -> Option<i64> {
    let dir = dir_of(place, setting.cgroups.driver())?;
    let parse = |content: &[u8]| quota_us(setting.version(), content);
    setting.cgroups.read(Resource::CfsQuotaUs, &dir, parse).ok()
}

fn batch_resources(setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
    let start = Instant::now();
    let rule = batch_rule(ground.snapshot, hands.shared.normalization.ratio);
    let report = hands.apply(ground, &batch_resource::wishes(ground.pods, &rule));
    timed(&setting.metrics, "container", "batch-resource", start, report);
}

/// What quotas of best-effort pods follow from.
pub(super) fn batch_rule(snapshot: &Snapshot, ratio: Option<Ratio>) -> batch_resource::Rule {
    let threshold = snapshot.slo.as_deref().map(|slo| &slo.threshold);
    let is_quota_unset = threshold.is_some_and(batch_resource::Rule::is_quota_unset_by);
    batch_resource::Rule { is_quota_unset, ratio }
}

/// How long a hook took, and whether it went well.
///
/// Differs: values of several files and levels go out in one batch, and are told as one: `batch-resource` is shares, quota
/// and memory of pods and containers, where upstream has a row for each.
fn timed(metrics: &KoordletMetrics, level: &str, resource: &str, start: Instant, report: Report) {
    let status = if report.is_good() { "success" } else { "failed" };
    let millis = start.elapsed().as_secs_f64() * 1000.0;
    metrics.observe(Metric::ReconcilerDuration, &[level, resource, status], millis);
}

/// The sandbox of every pod that has exactly one group more than containers. While the id of one is not told there is none,
/// for its group could be taken for the sandbox's.
pub(super) fn sandboxes(cgroups: &Cgroups, snapshot: &Snapshot) -> HashMap<Arc<str>, Place> {
    let mut found = HashMap::new();
    for state in snapshot.pods.iter().filter(|state| state.pod.is_active()) {
        let known: Vec<&str> = state.init_ids.iter().chain(&state.container_ids).map(|id| &**id).collect();
        match sandbox::find(cgroups, &state.dir, &known, state.container_ids.len()) {
            Ok(Some(id)) => {
                let place = Place::Container(state.pod.id.clone(), id.to_string().into());
                found.insert(state.uid().clone(), place);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, pod = %state.pod.name, "no sandbox");
            }
        }
    }
    found
}

/// How many CPUs pods share, and which.
fn show_pools(setting: &Setting, layout: Option<&Layout>) {
    let Some(layout) = layout else { return };
    let metrics = &setting.metrics;
    for (pools, count, each) in [
        (&layout.ls_pools, Metric::SharePoolCpuCores, Metric::SharePoolInfo),
        (&layout.be_pools, Metric::BeSharePoolCpuCores, Metric::BeSharePoolInfo),
    ] {
        let mut cpus = CpuSet::new();
        for pool in pools {
            cpus = &cpus | &pool.cpuset.parse().unwrap_or_default();
        }
        metrics.set(count, &[], nearest(i64::try_from(cpus.len()).unwrap_or(i64::MAX)));
        if setting.gates.is_on("PerCPUMetric") {
            metrics.reset(each);
            cpus.iter().for_each(|cpu| metrics.set(each, &[&cpu.to_string()], 1.0));
        }
    }
}

/// Groups below a pod's: its containers and its sandbox.
fn below(pod: &Pod, sandboxes: Option<&Place>) -> Vec<Place> {
    let containers = pod.with_init_containers().filter_map(|container| container.place(pod));
    containers.chain(sandboxes.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use koord_api::qos::KubeQos;
    use koord_linux::cgroup::{Driver, Version};
    use koord_linux::root::Root;
    use serde_json::json;

    use super::*;
    use crate::state::PodState;

    /// Spec: koordlet-observe 2.2.
    #[test]
    fn a_group_that_may_be_a_containers_is_no_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let cgroups = Cgroups::new(&root, Version::V2, Driver::Cgroupfs);
        let status = |id: &str| json!({ "name": id, "containerID": id });
        for (name, groups, regular, init, want) in [
            ("all told", vec!["1", "2", "9"], vec!["containerd://1", "containerd://2"], vec![], Some("9")),
            // The sandbox's group is gone, or not there yet: what is left is the second container's.
            ("one is not told", vec!["1", "2"], vec!["containerd://1", ""], vec![], None),
            ("one is not told, with a sandbox", vec!["1", "9"], vec!["containerd://1", ""], vec![], None),
            ("an init container is not told", vec!["1", "9"], vec!["containerd://1"], vec![""], None),
            (
                "an init container",
                vec!["1", "3", "9"],
                vec!["containerd://1"],
                vec!["containerd://3"],
                Some("9"),
            ),
        ] {
            let pod = cgroups.listing(&Driver::Cgroupfs.pod_dir(KubeQos::Guaranteed, name));
            groups.iter().for_each(|group| std::fs::create_dir_all(pod.join(group)).unwrap());
            let object = json!({ "metadata": { "name": "web", "namespace": "shop", "uid": name },
                "status": { "phase": "Running", "qosClass": "Guaranteed",
                    "containerStatuses": regular.into_iter().map(status).collect::<Vec<_>>(),
                    "initContainerStatuses": init.into_iter().map(status).collect::<Vec<_>>() } });
            let state = PodState::read(&serde_json::from_value(object).unwrap(), Driver::Cgroupfs);
            let snapshot = Snapshot { pods: [Arc::new(state)].into(), ..Snapshot::default() };
            let found = sandboxes(&cgroups, &snapshot).into_values().next();
            let want = want.map(|id| format!("containerd://{id}"));
            let found = found.map(|place| match place {
                Place::Container(_, id) => id.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(found, want, "{name}");
        }
    }
}
