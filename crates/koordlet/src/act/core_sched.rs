//! Core scheduling on the node: reads cookies, takes the one step that the ledger names, and tells it what came of it.
//! Spec: koordlet-enforce 15.5.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{fs, io};

use koord_api::qos::Qos;
use koord_linux::cgroup::{Cgroups, Dir, ids};
use koord_linux::core_sched::{self, Scope};
use koord_linux::resource::Resource;
use koord_linux::system::SystemFile;

use super::leave::Trace;
use super::reconcile::{kernel_switches, sandboxes};
use super::{Ground, Hands, Setting, Strategy};
use crate::apply::dir_of;
use crate::audit::Subject;
use crate::decide::hooks::core_sched::cookies::{Ledger, Observed, Outcome, Step};
use crate::decide::hooks::core_sched::{Kernel, Rule, Want, kernel_wishes};
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Cause, Place};
use crate::metrics::Metric;
use crate::state::News;

/// Results of a change, in the order of the processes; or why none was changed.
pub(super) type Changed = io::Result<Vec<io::Result<()>>>;

/// Cookies of processes. The kernel has them, or does not.
pub(super) trait Cookies: Send {
    fn is_supported(&self) -> bool;

    /// 0 for none.
    fn cookie(&self, pid: u32) -> io::Result<u64>;

    /// Gives a process one that nobody else has.
    fn create(&self, pid: u32) -> io::Result<()>;

    /// Gives each of `to` the cookie of `from`.
    fn share(&self, from: u32, to: &[u32]) -> Changed;

    fn clear(&self, pids: &[u32]) -> Changed;
}

/// The kernel's own.
struct OfKernel;

impl Cookies for OfKernel {
    fn is_supported(&self) -> bool {
        core_sched::is_supported()
    }

    fn cookie(&self, pid: u32) -> io::Result<u64> {
        core_sched::cookie(pid)
    }

    fn create(&self, pid: u32) -> io::Result<()> {
        core_sched::create(pid, Scope::Process)
    }

    fn share(&self, from: u32, to: &[u32]) -> Changed {
        core_sched::share(from, to, Scope::Process)
    }

    fn clear(&self, pids: &[u32]) -> Changed {
        core_sched::clear(pids, Scope::Process)
    }
}

/// The strategy and what it remembers.
pub(super) struct CoreSched {
    cookies: Box<dyn Cookies>,
    ledger: Ledger,
    /// Whether cookies of an earlier run were taken over.
    has_adopted: bool,
    was_on: bool,
}

/// A container, or a sandbox, and the processes in it.
struct Unit<'a> {
    pod: &'a Pod,
    name: &'a str,
    id: Arc<str>,
    want: Want,
    pids: Vec<u32>,
}

impl Unit<'_> {
    fn key(&self) -> String {
        format!("{}/{}", self.pod.id.uid, self.id)
    }
}

impl Default for CoreSched {
    fn default() -> CoreSched {
        CoreSched::new(Box::new(OfKernel))
    }
}

impl Strategy for CoreSched {
    fn is_urgent(&self, news: News) -> bool {
        news.pods || news.slo
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        let Some(kernel) = kernel(setting, &*self.cookies) else { return };
        let rule = Rule::of(&slo.qos);
        if !rule.is_on() && !self.was_on && self.has_adopted {
            return;
        }
        if rule.is_on() {
            let has_identity = kernel_switches(&setting.root).group_identity.is_some();
            hands.apply(ground, &Batch::Each(kernel_wishes(kernel, has_identity)));
        }
        hands.apply(ground, &Batch::Each(rule.idle_wishes()));
        let units = units(setting, ground, &rule);
        if !self.has_adopted {
            self.adopt(ground, &units);
        }
        for unit in &units {
            self.settle(setting, ground, hands, &rule, unit);
        }
        self.ledger.sweep(ground.uptime);
        self.was_on = rule.is_on();
    }
}

impl CoreSched {
    pub(super) fn new(cookies: Box<dyn Cookies>) -> CoreSched {
        CoreSched { cookies, ledger: Ledger::default(), has_adopted: false, was_on: false }
    }

    /// Takes over what an earlier run gave out.
    fn adopt(&mut self, ground: &Ground<'_>, units: &[Unit<'_>]) {
        for unit in units {
            let (Want::Group(group) | Want::NoCookie { group }) = &unit.want else { continue };
            let cookies = self.read(unit.pids.iter().copied());
            self.ledger.adopt(ground.uptime, &unit.key(), group, &cookies);
            self.has_adopted |= !cookies.is_empty();
        }
    }

    fn settle(
        &mut self,
        setting: &Setting,
        ground: &Ground<'_>,
        hands: &Hands<'_>,
        rule: &Rule,
        unit: &Unit<'_>,
    ) {
        let siblings = self.ledger.siblings(&unit.want);
        let known = self.read(unit.pids.iter().copied().chain(siblings));
        let seen = Observed { pids: &unit.pids, cookies: &known };
        let step = self.ledger.step(ground.uptime, &unit.key(), &unit.want, seen);
        if matches!(step, Step::Create { .. }) {
            Trace::Cookies.leave(&setting.root);
        }
        let outcome = self.take(&step);
        record(setting, hands, rule, unit, &step, &outcome);
        self.ledger.done(ground.uptime, &unit.key(), &step, seen, &outcome);
        if let Want::Group(group) = &unit.want
            && let Some(entry) = self.ledger.get(group)
        {
            let pod = unit.pod;
            let cookie = entry.cookie.to_string();
            let labels =
                [pod.name.as_str(), &pod.namespace, &pod.id.uid, unit.name, &unit.id, group, &cookie];
            setting.metrics.set(Metric::CoreSchedCookie, &labels, 1.0);
        }
    }
}

/// What a step leaves behind: a record and metrics.
fn record(
    setting: &Setting,
    hands: &Hands<'_>,
    rule: &Rule,
    unit: &Unit<'_>,
    step: &Step,
    outcome: &Outcome,
) {
    let (what, count) = match step {
        Step::Nothing | Step::Refresh { .. } => return,
        Step::Create { group, others, .. } => (format!("create cookie of group {group:?}"), others.len() + 1),
        Step::Assign { group, pids, .. } => (format!("assign cookie of group {group:?}"), pids.len()),
        Step::Clear { pids } => ("clear cookie".to_owned(), pids.len()),
    };
    let is_made = !matches!(step, Step::Create { .. }) || outcome.cookie.is_some();
    let is_good = is_made && outcome.failed.is_empty();
    let status = if is_good { "success" } else { "failed" };
    setting.metrics.count(Metric::NodeChange, &["core-sched-cookie", status]);
    if let Step::Create { group, .. } | Step::Assign { group, .. } = step {
        setting.metrics.count(Metric::CoreSchedManageStatus, &[group, status]);
    }
    if !is_good {
        return;
    }
    let pod = unit.pod;
    let qos = pod.qos.map_or("none", Qos::as_str);
    let class = rule.of_pod(pod);
    let message = format!("{what} for {count} processes; QoS {qos}, {class}");
    let subject =
        Subject::Pod { uid: &pod.id.uid, namespace: &pod.namespace, name: &pod.name, container: unit.name };
    hands.applier.records().record(3, subject, Cause::RuntimeHook.reason(), message);
}

/// What the kernel has of core scheduling; none when it has nothing.
fn kernel(setting: &Setting, cookies: &dyn Cookies) -> Option<Kernel> {
    if !setting.is_anolis {
        return cookies.is_supported().then_some(Kernel::Mainline);
    }
    if SystemFile::SchedCore.path(&setting.root).exists() {
        return Some(Kernel::Anolis { has_switch: true });
    }
    let features = fs::read_to_string(SystemFile::SchedFeatures.path(&setting.root)).ok()?;
    let has_feature = features.split_whitespace().any(|word| matches!(word, "CORE_SCHED" | "NO_CORE_SCHED"));
    has_feature.then_some(Kernel::Anolis { has_switch: false })
}

/// Containers and sandboxes of active pods, oldest pods first; init containers while they run.
fn units<'a>(setting: &Setting, ground: &Ground<'a>, rule: &Rule) -> Vec<Unit<'a>> {
    let sandboxes = sandboxes(&setting.cgroups, ground.snapshot);
    let mut pods: Vec<&Pod> = ground.pods.iter().filter(|pod| pod.is_active()).collect();
    pods.sort_by_key(|pod| pod.created_seconds);
    let mut units = Vec::new();
    for pod in pods {
        let want = rule.want(pod);
        if want == Want::Untouched {
            continue;
        }
        let containers = pod.hooked_containers().filter(|container| container.is_running);
        let containers =
            containers.filter_map(|container| Some((container.name.as_str(), container.place(pod)?)));
        let sandbox = sandboxes.get(&pod.id.uid).map(|place| ("", place.clone()));
        for (name, place) in containers.chain(sandbox) {
            let Place::Container(_, id) = &place else { continue };
            let dir = dir_of(&place, setting.cgroups.driver());
            let pids = dir.and_then(|dir| setting.cgroups.read(Resource::Procs, &dir, ids).ok());
            let Some(pids) = pids else { continue };
            units.push(Unit { pod, name, id: id.clone(), want: want.clone(), pids });
        }
    }
    units
}

/// Takes the cookies of all processes of pods away, whoever gave them, and says how many had one.
pub(super) fn give_back(cgroups: &Cgroups) -> usize {
    clear_below(cgroups, &cgroups.kube_root(), &OfKernel)
}

pub(super) fn clear_below(cgroups: &Cgroups, group: &Dir, cookies: &dyn Cookies) -> usize {
    let pids = cgroups.read(Resource::Procs, group, ids).unwrap_or_default();
    let has_one = |pid: &u32| cookies.cookie(*pid).is_ok_and(|cookie| cookie != 0);
    let pids: Vec<u32> = pids.into_iter().filter(has_one).collect();
    let stay = if pids.is_empty() { BTreeSet::new() } else { failed(&pids, cookies.clear(&pids)) };
    if !stay.is_empty() {
        tracing::warn!(group = group.as_str(), processes = ?stay, "cookies of core scheduling stay");
    }
    let children = cgroups.children(group).unwrap_or_default();
    let below = children.iter().map(|name| clear_below(cgroups, &group.child(name), cookies));
    pids.len() - stay.len() + below.sum::<usize>()
}

impl CoreSched {
    /// Cookies that can be read.
    fn read(&self, pids: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
        pids.filter_map(|pid| Some((pid, self.cookies.cookie(pid).ok()?))).collect()
    }

    /// Does what the ledger says.
    fn take(&self, step: &Step) -> Outcome {
        let assign = |from: u32, pids: &[u32]| failed(pids, self.cookies.share(from, pids));
        match step {
            Step::Nothing | Step::Refresh { .. } => Outcome::default(),
            Step::Assign { from, pids, .. } => Outcome { cookie: None, failed: assign(*from, pids) },
            Step::Clear { pids } => Outcome { cookie: None, failed: failed(pids, self.cookies.clear(pids)) },
            Step::Create { first, others, .. } => {
                let made = self.cookies.create(*first).and_then(|()| self.cookies.cookie(*first));
                let Ok(cookie) = made else { return Outcome::default() };
                Outcome { cookie: Some(cookie), failed: assign(*first, others) }
            }
        }
    }
}

fn failed(pids: &[u32], results: Changed) -> BTreeSet<u32> {
    match results {
        Ok(results) => {
            pids.iter().zip(results).filter(|(_, result)| result.is_err()).map(|(pid, _)| *pid).collect()
        }
        Err(_) => pids.iter().copied().collect(),
    }
}
