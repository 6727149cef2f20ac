//! CPU suppression on the node: reads what best-effort pods have, writes what they may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use koord_api::cpuset::CpuSet;
use koord_api::number::nearest;
use koord_api::qos::KubeQos;
use koord_linux::cgroup::{Cgroups, Dir, cpus};
use koord_linux::cpu_stat::quota_us;
use koord_linux::resource::Resource;

use super::files::Files;
use super::usage::{self, Sum};
use super::{Ground, Hands, Setting, Strategy};
use crate::apply::{Settled, dir_of};
use crate::decide::convert::UNLIMITED;
use crate::decide::cpu_suppress::cpuset::NoChoice;
use crate::decide::cpu_suppress::{self, Memory, Plan, Sample, Switches, Verdict};
use crate::decide::snapshot::{BestEffortGroup, Level, Pod};
use crate::decide::wish::Place;
use crate::metrics::Metric;
use crate::state::News;

/// What was last worked out, for whoever asks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Today(Arc<Mutex<Option<Verdict>>>);

impl Today {
    /// None before the first turn.
    pub fn verdict(&self) -> Option<Verdict> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, verdict: Verdict) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
    }
}

/// The strategy and what it remembers.
pub(super) struct Suppress {
    memory: Memory,
    cpus: Files,
    quota: Files,
    settled: Settled,
    groups: Vec<BestEffortGroup>,
    today: Today,
}

impl Suppress {
    pub(super) fn new(today: Today) -> Suppress {
        Suppress {
            memory: Memory::default(),
            cpus: Files::new(Resource::CpusetCpus),
            quota: Files::new(Resource::CfsQuotaUs),
            settled: Settled::default(),
            groups: Vec::new(),
            today,
        }
    }
}

impl Strategy for Suppress {
    /// A new policy moves the quota of all best-effort pods, and hooks move those of single pods at once: the quota above
    /// them must be out of the way first. New pods have groups that nobody has looked at.
    fn is_urgent(&self, news: News) -> bool {
        news.slo || news.pods
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let cgroups = &setting.cgroups;
        if ground.news.pods || self.groups.is_empty() {
            self.groups = best_effort_groups(cgroups, ground.pods);
        }
        let best_effort = Place::Kube(KubeQos::BestEffort);
        let version = cgroups.version();
        let all_pods = Place::Kube(KubeQos::Guaranteed);
        let all_pods_cpus = self.cpus.read(cgroups, &all_pods, cpus).filter(|cpus| !cpus.is_empty());
        let old_cpus = self.cpus.read(cgroups, &best_effort, cpus).unwrap_or_default();
        let quota = |content: &[u8]| quota_us(version, content);
        let old_quota = self.quota.read(cgroups, &best_effort, quota).unwrap_or(UNLIMITED);
        let mut usage =
            usage::cpu(ground.store, usage::recent(ground.now_ms, setting.collect.interval), Sum::Last);
        usage::keep_listed(&mut usage, ground.pods);
        let snapshot = ground.snapshot;
        let sample = Sample {
            node: snapshot.node.as_deref().map(|node| &node.node),
            pods: ground.pods,
            applications: snapshot.host_applications(),
            usage: &usage,
            layout: snapshot.layout.as_deref(),
            all_pods_cpus: all_pods_cpus.as_ref(),
            old_cpus: &old_cpus,
            old_quota,
            groups: &self.groups,
        };
        let switches = Switches {
            strategy: snapshot.slo.as_deref().map(|slo| &slo.threshold),
            is_cpu_manager_on: setting.gates.is_on("BECPUManager"),
        };
        let mut plan = cpu_suppress::plan(&sample, switches, self.memory);
        let recovery = plan.take_recovery();
        let batches = std::mem::take(&mut plan.batches);
        hands.settle(ground, batches, &mut self.settled);
        let is_written = recovery.is_some_and(|batch| hands.apply(ground, &batch).is_good());
        self.memory.settle(&plan, is_written);
        show(&plan, &old_cpus, setting);
        self.tell(plan.verdict);
    }

    fn kept(&self) -> usize {
        self.groups.len() + self.cpus.len() + self.quota.len()
    }
}

impl Suppress {
    /// Publishes the verdict, and logs when its kind changes.
    fn tell(&self, verdict: Verdict) {
        if verdict.is_news(self.today.verdict().as_ref()) {
            match verdict.fault() {
                Some(fault) => tracing::warn!(%fault, "best-effort pods keep their CPUs"),
                None => tracing::info!(?verdict, "suppression of best-effort pods"),
            }
        }
        self.today.set(verdict);
    }
}

fn show(plan: &Plan, old_cpus: &CpuSet, setting: &Setting) {
    let cores = |milli: i64| nearest(milli) / 1000.0;
    let count = |count: usize| nearest(i64::try_from(count).unwrap_or(i64::MAX));
    let budget = match &plan.verdict {
        Verdict::ByCpuset { budget, choice } => {
            let now = match choice {
                Ok(choice) => choice.cpus.len(),
                // They keep what others have for themselves, and were given nothing.
                Err(NoChoice::NoCpu) => 0,
                Err(NoChoice::NoTopology) => old_cpus.len(),
            };
            setting.metrics.set(Metric::BeSuppressCpuCores, &["cpuset"], count(now));
            budget
        }
        Verdict::ByQuota { budget, choice } => {
            let quota = choice.quota.unwrap_or(choice.before);
            setting.metrics.set(Metric::BeSuppressCpuCores, &["cfsQuota"], nearest(quota) / 100_000.0);
            budget
        }
        Verdict::Skipped(_) | Verdict::Off | Verdict::Managed => return,
    };
    setting.metrics.set(Metric::BeSuppressLsUsedCpuCores, &[], cores(budget.ls_used_milli));
}

/// Groups below that of best-effort pods, as the disk has them; those of pods we know under their names.
fn best_effort_groups(cgroups: &Cgroups, pods: &[Pod]) -> Vec<BestEffortGroup> {
    let driver = cgroups.driver();
    let mut known: HashMap<Dir, Place> = HashMap::new();
    let mut uids: HashMap<Dir, Arc<str>> = HashMap::new();
    for pod in pods.iter().filter(|pod| pod.id.kube_qos == KubeQos::BestEffort) {
        uids.extend(dir_of(&pod.place(), driver).map(|dir| (dir, pod.id.uid.clone())));
        let containers = pod.with_init_containers().filter_map(|container| container.place(pod));
        let places = containers.chain([pod.place()]);
        known.extend(places.filter_map(|place| Some((dir_of(&place, driver)?, place))));
    }
    let place = |dir: &Dir| known.get(dir).cloned().unwrap_or_else(|| Place::Dir(dir.as_str().into()));
    let children = |dir: &Dir| cgroups.children(dir).unwrap_or_default();
    let top = cgroups.qos_dir(KubeQos::BestEffort);
    let mut groups = Vec::new();
    for name in children(&top) {
        let dir = top.child(&name);
        let group = |dir: &Dir, level: Level, pod| BestEffortGroup { place: place(dir), level, pod };
        let pod = uids.get(&dir).cloned();
        groups.push(group(&dir, Level::Pod, pod.clone()));
        groups
            .extend(children(&dir).iter().map(|name| group(&dir.child(name), Level::Container, pod.clone())));
    }
    groups
}
