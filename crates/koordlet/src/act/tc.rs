//! Network QoS through the kernel's traffic control: classes, filters and sets of addresses, by the programs that make
//! them, which `shaper` knows. Spec: koordlet-enforce 15.9.
//!
//! Programs run only when something changed, and now and then to repair what others changed.

mod present;
mod programs;
mod shaper;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, class_id};
use koord_linux::resource::Resource;
use koord_linux::root::Root;

use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::hooks::tc::{self, Class, MAJOR, PRIVATE_MIN, PodPlan};
use crate::decide::wish::Batch;
use crate::state::News;
use programs::Fault;
pub(super) use programs::{Host, Programs};
use shaper::Shaper;

/// How often everything is looked at though nothing changed.
const REPAIR_EVERY: Duration = Duration::from_secs(60);
/// Ticks of the packet scheduler in a second, where the kernel does not tell.
const HZ_DEFAULT: i64 = 1_000_000_000;

/// The strategy and what it remembers.
pub(super) struct Tc {
    shaper: Shaper,
    /// What was last made, and when.
    made: Option<(Desired, Instant)>,
    /// Private classes by the uid of their pod; none before an earlier run's were looked for.
    numbers: Option<BTreeMap<Arc<str>, u32>>,
    /// After a program hung nothing is tried until then: the whole node would wait again.
    rests_until: Option<Instant>,
    /// What was last said about it, so that it is said once.
    complaint: String,
}

/// All that should be there.
#[derive(Clone, Debug, PartialEq)]
struct Desired {
    device: String,
    classes: [Class; 4],
    pods: PodPlan,
}

impl Tc {
    pub(super) fn new(root: &Root, programs: Box<dyn Programs>) -> Tc {
        Tc {
            shaper: Shaper::new(root, programs),
            made: None,
            numbers: None,
            rests_until: None,
            complaint: String::new(),
        }
    }
}

/// Takes away what an earlier run made. False when something may have stayed.
pub(super) fn give_back(root: &Root, programs: Box<dyn Programs>) -> bool {
    Shaper::new(root, programs)
        .remove()
        .inspect_err(|fault| tracing::warn!(%fault, "traffic stays shaped"))
        .is_ok()
}

impl Strategy for Tc {
    fn is_urgent(&self, news: News) -> bool {
        news.pods || news.slo
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        if self.rests_until.is_some_and(|until| ground.now < until) {
            return;
        }
        let desired = match tc::is_on(&slo.qos) {
            true => tc::classes(&slo.qos, &slo.system).map(Some).map_err(|error| error.to_string()),
            false => Ok(None),
        };
        let classes = match desired {
            Ok(Some(classes)) => classes,
            Ok(None) => {
                let removed = self.remove();
                return self.settle(ground.now, removed.err().into_iter().collect());
            }
            // Without a bandwidth nothing can be shaped; what is there stays.
            Err(error) => return self.complain(&error),
        };
        let Some(device) = default_device(setting) else {
            return self.complain("no default route, so no device to shape");
        };
        let numbers = self.numbers.get_or_insert_with(|| earlier(&setting.cgroups, ground));
        let pods = tc::pods(ground.pods, numbers);
        *numbers = pods.classes.iter().map(|(uid, own)| (uid.clone(), own.class.minor)).collect();
        for problem in &pods.problems {
            tracing::debug!(problem, "the traffic of a pod is not shaped");
        }
        hands.apply(ground, &Batch::Each(pods.wishes.clone()));
        let desired = Desired { device, classes, pods };
        let is_made = self.made.as_ref().is_some_and(|(made, at)| {
            *made == desired && ground.now.saturating_duration_since(*at) < REPAIR_EVERY
        });
        if is_made {
            return;
        }
        let is_elsewhere = fs::read_to_string(&self.shaper.mark).is_ok_and(|known| known != desired.device);
        if is_elsewhere && let Err(fault) = self.remove() {
            return self.settle(ground.now, vec![fault]);
        }
        if let Err(error) = shaper::note(&self.shaper.mark, &desired.device) {
            return self.complain(&format!("{}: {error}", self.shaper.mark.display()));
        }
        let faults = self.shaper.make(&desired, hz(setting));
        if faults.is_empty() {
            let message = format!("update traffic classes of {}", desired.device);
            hands.applier.auditor().record(3, Subject::Node, "netqos reconcile", message);
            self.made = Some((desired, ground.now));
        }
        self.settle(ground.now, faults);
    }
}

impl Tc {
    /// Takes note of what went wrong; of nothing, too.
    fn settle(&mut self, now: Instant, faults: Vec<Fault>) {
        let is_hung = faults.iter().any(|fault| matches!(fault, Fault::Hung(_)));
        self.rests_until = is_hung.then(|| now + REPAIR_EVERY);
        match faults.is_empty() {
            true => self.complaint.clear(),
            false => {
                let words: Vec<String> = faults.iter().map(Fault::to_string).collect();
                self.complain(&words.join("; "));
            }
        }
    }

    fn complain(&mut self, complaint: &str) {
        if self.complaint != complaint {
            tracing::warn!(complaint, "traffic is not shaped as it should be");
            complaint.clone_into(&mut self.complaint);
        }
    }

    fn remove(&mut self) -> Result<(), Fault> {
        self.made = None;
        self.numbers = None;
        self.shaper.remove()
    }
}

/// The device of the first default route.
fn default_device(setting: &Setting) -> Option<String> {
    let routes = fs::read_to_string(setting.root.proc.join("net/route")).ok()?;
    let mut rows = routes.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<&str>>());
    rows.find(|row| row.get(1) == Some(&"00000000")).and_then(|row| Some((*row.first()?).to_owned()))
}

fn hz(setting: &Setting) -> i64 {
    let text = fs::read_to_string(setting.root.proc.join("net/psched")).unwrap_or_default();
    let last = text.split_whitespace().last().and_then(|word| i64::from_str_radix(word, 16).ok());
    last.filter(|hz| *hz > 0).unwrap_or(HZ_DEFAULT)
}

/// Classes of pods that an earlier run made, as groups of v1 tell them. On v2 a pod finds its number again because the
/// search for it begins at the same place.
fn earlier(cgroups: &Cgroups, ground: &Ground<'_>) -> BTreeMap<Arc<str>, u32> {
    let of = |pod: &crate::decide::snapshot::Pod| {
        let dir = cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
        let id = cgroups.read(Resource::NetClassId, &dir, class_id).ok()?;
        let minor = id & 0xffff;
        (id >> 16 == MAJOR && minor >= PRIVATE_MIN).then(|| (pod.id.uid.clone(), minor))
    };
    ground.pods.iter().filter_map(of).collect()
}
