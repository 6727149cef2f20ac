//! Network QoS through the kernel's traffic control: classes, filters and sets of addresses, by the programs that make
//! them. Spec: koordlet-enforce 15.9.
//!
//! Programs run only when something changed, and now and then to repair what others changed.

mod present;
mod programs;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, class_id};
use koord_linux::resource::Resource;
use koord_linux::root::Root;

use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::hooks::tc::{self, Class, MAJOR, Match, NodeClass, PRIVATE_MIN, PodPlan, PrivateClass};
use crate::decide::wish::Batch;
use crate::metrics::Metric;
use crate::state::News;
use present::{Filter, Present};
use programs::Fault;
pub(super) use programs::{Host, Programs};

/// How often everything is looked at though nothing changed.
const REPAIR_EVERY: Duration = Duration::from_secs(60);
/// Ticks of the packet scheduler in a second, where the kernel does not tell.
const HZ_DEFAULT: i64 = 1_000_000_000;
/// Seconds that `iptables` may wait for others who change rules.
const WAIT_SECONDS: &str = "2";
/// Classes that pods share.
const SHARED: [NodeClass; 3] = [NodeClass::System, NodeClass::Ls, NodeClass::Be];

/// The strategy and what it remembers.
pub(super) struct Tc {
    programs: Box<dyn Programs>,
    /// Names the device as long as something of ours may be on it, so that another run can take it away.
    mark: PathBuf,
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
        Tc {
            programs,
            mark: mark(root),
            made: None,
            numbers: None,
            rests_until: None,
            complaint: String::new(),
        }
    }
}

/// Takes away what an earlier run made. False when something may have stayed.
pub(super) fn give_back(root: &Root, programs: Box<dyn Programs>) -> bool {
    Tc::new(root, programs)
        .remove()
        .inspect_err(|fault| tracing::warn!(%fault, "traffic stays shaped"))
        .is_ok()
}

fn mark(root: &Root) -> PathBuf {
    root.var_run.join("koordlet").join("shaped-device")
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
        let is_elsewhere = fs::read_to_string(&self.mark).is_ok_and(|known| known != desired.device);
        if is_elsewhere && let Err(fault) = self.remove() {
            return self.settle(ground.now, vec![fault]);
        }
        if let Err(error) = note(&self.mark, &desired.device) {
            return self.complain(&format!("{}: {error}", self.mark.display()));
        }
        let faults = self.make(&desired, hz(setting));
        let status = if faults.is_empty() { "success" } else { "failed" };
        setting.metrics.count(Metric::NodeChange, &["traffic-classes", status]);
        if faults.is_empty() {
            let message = format!("update traffic classes of {desired}");
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

    /// Makes what is not there, and takes away what should not be. Every step may be repeated. One pod's fault does not
    /// stop the others; a program that hangs does.
    fn make(&self, desired: &Desired, hz: i64) -> Vec<Fault> {
        let present = match self.make_shared(desired, hz) {
            Ok(present) => present,
            Err(fault) => return vec![fault],
        };
        let device = desired.device.as_str();
        let own = &desired.pods.classes;
        let wanted: BTreeSet<u32> = own.values().map(|own| own.class.minor).collect();
        // Filters first: a class that one points to cannot go. And an address may have another pod now.
        let filters = present.stray_filters(&wanted);
        let classes = present.stray_classes(&wanted);
        let removals = (filters.iter().map(|prio| self.remove_filter(device, *prio)))
            .chain(classes.iter().map(|minor| self.remove_class(device, *minor)));
        let additions = own.iter().map(|(uid, own)| {
            tracing::debug!(%uid, minor = own.class.minor, "a pod has a traffic class of its own");
            self.make_private(device, own, &present, hz)
        });
        let mut faults = Vec::new();
        for fault in removals.chain(additions).filter_map(Result::err) {
            let is_hung = matches!(fault, Fault::Hung(_));
            faults.push(fault);
            if is_hung {
                break;
            }
        }
        faults
    }

    /// What all pods share, and what the kernel has besides.
    fn make_shared(&self, desired: &Desired, hz: i64) -> Result<Present, Fault> {
        let device = desired.device.as_str();
        let qdiscs = self.run(&["tc", "qdisc", "show", "dev", device])?;
        if !qdiscs.contains("qdisc htb 1: root") {
            self.run(&[
                "tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "2",
            ])?;
        }
        for class in &desired.classes {
            let parent = if class.minor == NodeClass::Root.minor() { "1:" } else { "1:1" };
            self.class(device, parent, class, hz)?;
        }
        let classes = self.run(&["tc", "class", "show", "dev", device])?;
        let filters = self.run(&["tc", "filter", "show", "dev", device])?;
        let present = Present::read(&classes, &filters);
        for (prio, class) in (1..).zip(SHARED) {
            if !present.has_group(class.minor()) {
                self.group_filter(device, prio, class.minor())?;
            }
        }
        for class in SHARED {
            self.address_set(class, &desired.pods)?;
        }
        Ok(present)
    }

    /// A pod's class and the filter that leads to it, which has the number of the class as its prio.
    fn make_private(
        &self,
        device: &str,
        own: &PrivateClass,
        present: &Present,
        hz: i64,
    ) -> Result<(), Fault> {
        let minor = own.class.minor;
        self.class(device, "1:1", &own.class, hz)?;
        let wanted = match own.packets {
            Match::Group => Filter::Group(minor),
            Match::Address(ip) => Filter::Source { ip, minor },
        };
        match present.at(minor) {
            Some(filters) if filters == [wanted] => return Ok(()),
            // Of another address or another kind: neither can be changed into what is wanted.
            Some(_) => self.remove_filter(device, minor)?,
            None => {}
        }
        match own.packets {
            Match::Group => self.group_filter(device, minor, minor),
            Match::Address(ip) => self.address_filter(device, minor, ip),
        }
    }

    fn remove_filter(&self, device: &str, prio: u32) -> Result<(), Fault> {
        let prio = prio.to_string();
        self.run(&["tc", "filter", "del", "dev", device, "protocol", "ip", "parent", "1:", "prio", &prio])
            .map(drop)
    }

    fn remove_class(&self, device: &str, minor: u32) -> Result<(), Fault> {
        self.run(&["tc", "class", "del", "dev", device, "classid", &class_name(minor)]).map(drop)
    }

    fn class(&self, device: &str, parent: &str, class: &Class, hz: i64) -> Result<(), Fault> {
        let id = class_name(class.minor);
        // Of this program `bps` are bytes. A rate of nothing is refused.
        let rate = |bytes: i64| format!("{}bps", bytes.max(1));
        let (guaranteed, most) = (rate(class.rate), rate(class.ceil));
        let (burst, prio) = (class.buffer(hz).to_string(), class.prio.to_string());
        let words = [
            "tc",
            "class",
            "replace",
            "dev",
            device,
            "parent",
            parent,
            "classid",
            &id,
            "htb",
            "rate",
            &guaranteed,
            "ceil",
            &most,
            "burst",
            &burst,
            "prio",
            &prio,
        ];
        self.run(&words).map(drop)
    }

    /// Packets of groups with this class id.
    fn group_filter(&self, device: &str, prio: u32, minor: u32) -> Result<(), Fault> {
        let (prio, handle) = (prio.to_string(), format!("{minor}:"));
        let words = [
            "tc", "filter", "add", "dev", device, "protocol", "ip", "prio", &prio, "parent", "1:", "handle",
            &handle, "cgroup",
        ];
        self.run(&words).map(drop)
    }

    /// Packets from one address.
    fn address_filter(&self, device: &str, minor: u32, ip: Ipv4Addr) -> Result<(), Fault> {
        let (id, prio, source) = (class_name(minor), minor.to_string(), format!("{ip}/32"));
        let words = [
            "tc", "filter", "add", "dev", device, "protocol", "ip", "parent", "1:", "prio", &prio, "u32",
            "match", "ip", "src", &source, "classid", &id,
        ];
        self.run(&words).map(drop)
    }

    /// The set of a class's addresses, with a rule that classifies what comes from them.
    fn address_set(&self, class: NodeClass, pods: &PodPlan) -> Result<(), Fault> {
        let Some(set) = class.address_set() else { return Ok(()) };
        self.run(&["ipset", "create", "-exist", set, "hash:ip"])?;
        let listed = self.run(&["ipset", "list", set])?;
        let members = listed.split_once("Members:").map_or("", |(_, members)| members);
        let present: BTreeSet<Ipv4Addr> =
            members.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let none = BTreeSet::new();
        let wanted = pods.addresses.get(set).unwrap_or(&none);
        for ip in wanted.difference(&present) {
            self.run(&["ipset", "add", "-exist", set, &ip.to_string()])?;
        }
        for ip in present.difference(wanted) {
            self.run(&["ipset", "del", "-exist", set, &ip.to_string()])?;
        }
        let id = class_name(class.minor());
        match self.run(&rule("-C", set, &id)) {
            Err(Fault::Refused(..)) => self.run(&rule("-A", set, &id)).map(drop),
            checked => checked.map(drop),
        }
    }

    /// Takes everything away that we made, in this run or in an earlier one. Ends early when a program hangs.
    fn remove(&mut self) -> Result<(), Fault> {
        self.made = None;
        self.numbers = None;
        let Ok(device) = fs::read_to_string(&self.mark) else { return Ok(()) };
        self.run_if_there(&["tc", "qdisc", "del", "dev", device.trim(), "root"])?;
        for class in SHARED {
            let Some(set) = class.address_set() else { continue };
            self.run_if_there(&rule("-D", set, &class_name(class.minor())))?;
            self.run_if_there(&["ipset", "destroy", set])?;
        }
        // Found again, it costs the next run a few programs that find nothing.
        let _ = fs::remove_file(&self.mark);
        Ok(())
    }

    /// Removes something that may be gone already, which the programs refuse.
    fn run_if_there(&self, words: &[&str]) -> Result<(), Fault> {
        match self.run(words) {
            Err(fault @ Fault::Hung(_)) => Err(fault),
            _ => Ok(()),
        }
    }

    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        self.programs.run(words)
    }
}

/// Writes the name of the device down, where it is not yet.
fn note(mark: &Path, device: &str) -> std::io::Result<()> {
    if fs::read_to_string(mark).is_ok_and(|known| known == device) {
        return Ok(());
    }
    mark.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(mark, device)
}

/// A rule of the mangle table about a set.
fn rule<'a>(operation: &'a str, set: &'a str, class: &'a str) -> [&'a str; 16] {
    [
        "iptables",
        "-w",
        WAIT_SECONDS,
        "-t",
        "mangle",
        operation,
        "POSTROUTING",
        "-m",
        "set",
        "--match-set",
        set,
        "src",
        "-j",
        "CLASSIFY",
        "--set-class",
        class,
    ]
}

/// As the program spells it: numbers are hexadecimal.
fn class_name(minor: u32) -> String {
    format!("{MAJOR}:{minor:x}")
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
