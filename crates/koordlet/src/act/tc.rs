//! Network QoS through the kernel's traffic control: classes, filters and sets of addresses, by the programs that make
//! them. Spec: koordlet-enforce 15.9.
//!
//! A turn decides what should be there and orders it; programs run on a thread of their own (`errand`), in the order that
//! `shaper` knows. While an order is under way nothing else is ordered, and what became of it is what the next turn builds
//! on. Programs run only when something changed, and now and then to repair what others changed.

mod errand;
mod present;
mod shaper;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, Version, class_id};
use koord_linux::resource::Resource;
use koord_linux::root::Root;

use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::hooks::tc::{self, Class, MAJOR, PRIVATE_MIN, PodPlan};
use crate::decide::wish::{Batch, Place, Value};
use crate::metrics::Metric;
use crate::programs::{Fault, Programs};
use crate::records::{NETWORK, Records};
use crate::state::News;
use errand::{Errand, Order};
use shaper::Shaper;

/// How often everything is looked at though nothing changed.
const REPAIR_EVERY: Duration = Duration::from_secs(60);
/// Ticks of the packet scheduler in a second, where the kernel does not tell.
const HZ_DEFAULT: i64 = 1_000_000_000;

/// The strategy and what it remembers.
pub(super) struct Tc {
    shaper: Arc<Shaper>,
    /// The last order, until its outcome was taken over.
    errand: Option<Errand>,
    /// What is known to be there, and since when.
    made: Option<(Arc<Desired>, Instant)>,
    /// Private classes by the uid of their pod; none before an earlier run's were looked for.
    numbers: Option<BTreeMap<Arc<str>, u32>>,
    /// Classes of pods that were told of, and why, by uid.
    told: BTreeMap<Arc<str>, (Value, String)>,
    /// Pods whose group was written since: that left a record, which says it all.
    recorded: BTreeSet<Arc<str>>,
    /// Whether an earlier run shaped traffic, and told pods so.
    is_inherited: bool,
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

/// The device, and the numbers of its classes.
impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; bytes/s at least and at most:", self.device)?;
        for (name, class) in ["all", "SYSTEM", "LS", "BE"].iter().zip(&self.classes) {
            write!(f, " {name} {} {},", class.rate, class.ceil)?;
        }
        write!(f, " {} pods with limits of their own", self.pods.classes.len())
    }
}

impl Tc {
    pub(super) fn new(root: &Root, programs: Box<dyn Programs>) -> Tc {
        let shaper = Arc::new(Shaper::new(root, programs));
        Tc {
            is_inherited: shaper.has_mark(),
            shaper,
            errand: None,
            made: None,
            numbers: None,
            told: BTreeMap::new(),
            recorded: BTreeSet::new(),
            complaint: String::new(),
        }
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        if self.errand.as_ref().is_some_and(|errand| !errand.wait()) {
            tracing::warn!("programs of traffic control did not end; another run will find what they made");
        }
    }
}

/// Takes away what an earlier run made, and waits for it; says whether there was anything. None when something may have
/// stayed.
pub(super) fn give_back(root: &Root, programs: Box<dyn Programs>) -> Option<bool> {
    let shaper = Shaper::new(root, programs);
    let is_there = shaper.has_mark();
    let removed = shaper.remove().inspect_err(|fault| tracing::warn!(%fault, "traffic stays shaped"));
    removed.is_ok().then_some(is_there)
}

impl Strategy for Tc {
    fn is_urgent(&self, news: News) -> bool {
        news.pods || news.slo || self.errand.as_ref().is_some_and(Errand::has_ended)
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        if !self.is_free(ground.now, setting, hands.applier.records()) {
            return;
        }
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        if !tc::is_on(&slo.qos) {
            (self.numbers, self.is_inherited) = (None, false);
            self.told.clear();
            self.recorded.clear();
            match self.shaper.has_mark() {
                true => self.order(Order::Remove, ground.now),
                false => self.complaint.clear(),
            }
            return;
        }
        let classes = match tc::classes(&slo.qos, &slo.system) {
            Ok(classes) => classes,
            // Without a bandwidth nothing can be shaped; what is there stays.
            Err(error) => return self.complain(&error.to_string()),
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
        for wish in &pods.wishes {
            let is_written = hands.apply(ground, &Batch::Each(vec![wish.clone()])).written > 0;
            if let (true, Place::Pod(pod)) = (is_written, &wish.place) {
                self.recorded.insert(pod.uid.clone());
            }
        }
        if !self.recorded.is_empty() {
            let uids: BTreeSet<&Arc<str>> = ground.pods.iter().map(|pod| &pod.id.uid).collect();
            self.recorded.retain(|uid| uids.contains(uid));
        }
        let desired = Desired { device, classes, pods };
        let is_made = self.made.as_ref().is_some_and(|(made, at)| {
            **made == desired && ground.now.saturating_duration_since(*at) < REPAIR_EVERY
        });
        if !is_made {
            self.order(Order::Shape { desired: Arc::new(desired), hz: hz(setting) }, ground.now);
        }
    }
}

impl Tc {
    /// Takes over what became of the last order, and says whether there may be another: not while it is under way, nor at
    /// once when it failed. No retry of its own: the next turn is the retry.
    fn is_free(&mut self, now: Instant, setting: &Setting, records: &Records) -> bool {
        let Some(errand) = self.errand.take_if(|errand| errand.has_ended()) else {
            if self.errand.as_ref().is_some_and(|errand| errand.is_late(now)) {
                self.complain("programs do not come to an end; until they do, nothing is changed");
            }
            return self.errand.is_none();
        };
        let (order, faults) = errand.finish();
        let status = if faults.is_empty() { "success" } else { "failed" };
        setting.metrics.count(Metric::NodeChange, &["traffic-classes", status]);
        if !faults.is_empty() {
            let words: Vec<String> = faults.iter().map(Fault::to_string).collect();
            self.complain(&words.join("; "));
            return false;
        }
        self.complaint.clear();
        if matches!(order, Order::Remove) {
            records.record(
                3,
                Subject::Node,
                NETWORK,
                "remove traffic classes; no policy asks for them".to_owned(),
            );
        }
        if let Order::Shape { desired, .. } = order {
            let message = format!("update traffic classes of {desired}");
            records.record(3, Subject::Node, NETWORK, message);
            self.tell_pods(&desired.pods, setting.version(), records);
            self.made = Some((desired, now));
        }
        true
    }

    /// Says to which class their traffic goes now, to pods for whom that is new and that no record has told.
    fn tell_pods(&mut self, plan: &PodPlan, version: Version, records: &Records) {
        let (mut told, is_inherited) = (BTreeMap::new(), std::mem::take(&mut self.is_inherited));
        let recorded = std::mem::take(&mut self.recorded);
        for wish in &plan.wishes {
            let Place::Pod(pod) = &wish.place else { continue };
            let words = (wish.value.clone(), wish.why.to_string());
            let before = self.told.get(&pod.uid);
            let is_led = version == Version::V1 || plan.recognised.contains(&pod.uid);
            if !is_inherited && !recorded.contains(&pod.uid) && is_led && before != Some(&words) {
                let message = format!("update traffic class to {}{}", words.0, words.1);
                records.tell_pod(&pod.uid, "", NETWORK, &message);
            }
            // A pod that has no address yet is told once it has one.
            if is_led {
                told.insert(pod.uid.clone(), words);
            }
        }
        self.told = told;
    }

    /// What is there is not known again before the order has ended well.
    fn order(&mut self, order: Order, now: Instant) {
        self.made = None;
        match Errand::start(&self.shaper, order, now) {
            Ok(errand) => self.errand = Some(errand),
            Err(error) => self.complain(&format!("no thread for programs: {error}")),
        }
    }

    fn complain(&mut self, complaint: &str) {
        if self.complaint != complaint {
            tracing::warn!(complaint, "traffic is not shaped as it should be");
            complaint.clone_into(&mut self.complaint);
        }
    }
}

/// The device of the first default route.
fn default_device(setting: &Setting) -> Option<String> {
    let routes = fs::read_to_string(setting.root.proc.join("net/route")).ok()?;
    let mut rows = routes.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<&str>>());
    // A VPN's route to the lower half of all addresses has the same destination, and another mask.
    let is_default = |row: &Vec<&str>| row.get(1) == Some(&"00000000") && row.get(7) == Some(&"00000000");
    rows.find(is_default).and_then(|row| Some((*row.first()?).to_owned()))
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
