//! Network QoS through the kernel's traffic control: classes, filters and sets of addresses, by the programs that make
//! them. Spec: koordlet-enforce 15.9.
//!
//! Programs run only when something changed, and now and then to repair what others changed.

mod programs;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, class_id};
use koord_linux::resource::Resource;
use koord_linux::root::Root;

use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::hooks::tc::{self, Class, MAJOR, Match, NodeClass, PodPlan};
use crate::decide::wish::Batch;
use crate::state::News;
pub(super) use programs::{Host, Programs};

/// How often everything is looked at though nothing changed.
const REPAIR_EVERY: Duration = Duration::from_secs(60);
/// Ticks of the packet scheduler in a second, where the kernel does not tell.
const HZ_DEFAULT: i64 = 1_000_000_000;
/// Minor numbers from here on are of single pods.
const PRIVATE_MIN: u32 = 5;
/// Classes that pods share.
const SHARED: [NodeClass; 3] = [NodeClass::System, NodeClass::Ls, NodeClass::Be];

/// The strategy and what it remembers.
pub(super) struct Tc {
    programs: Box<dyn Programs>,
    /// Names the device as long as something of ours may be on it, so that another run can take it away.
    mark: PathBuf,
    /// What was last made, and when.
    made: Option<(Desired, Instant)>,
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
        Tc { programs, mark: mark(root), made: None, complaint: String::new() }
    }
}

/// Takes away what an earlier run made.
pub(super) fn give_back(root: &Root, programs: Box<dyn Programs>) {
    Tc::new(root, programs).remove();
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
        let desired = match tc::is_on(&slo.qos) {
            true => tc::classes(&slo.qos, &slo.system).map(Some).map_err(|error| error.to_string()),
            false => Ok(None),
        };
        let classes = match desired {
            Ok(Some(classes)) => classes,
            Ok(None) => return self.remove(),
            // Without a bandwidth nothing can be shaped; what is there stays.
            Err(error) => return self.complain(&error),
        };
        let Some(device) = default_device(setting) else {
            return self.complain("no default route, so no device to shape");
        };
        let pods = tc::pods(ground.pods, &existing(&setting.cgroups, ground));
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
        if let Err(error) = note(&self.mark, &desired.device) {
            return self.complain(&format!("{}: {error}", self.mark.display()));
        }
        match self.make(&desired, hz(setting)) {
            Ok(()) => {
                let message = format!("update traffic classes of {}", desired.device);
                hands.applier.auditor().record(3, Subject::Node, "netqos reconcile", message);
                self.made = Some((desired, ground.now));
            }
            Err(error) => self.complain(&error),
        }
    }
}

impl Tc {
    fn complain(&mut self, complaint: &str) {
        if self.complaint != complaint {
            tracing::warn!(complaint, "traffic is not shaped as it should be");
            complaint.clone_into(&mut self.complaint);
        }
    }

    /// Makes what is not there. Every step may be repeated.
    fn make(&self, desired: &Desired, hz: i64) -> Result<(), String> {
        let device = desired.device.as_str();
        let present = self.run(&["tc", "qdisc", "show", "dev", device])?;
        if !present.contains("qdisc htb 1: root") {
            self.run(&[
                "tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "2",
            ])?;
        }
        for class in &desired.classes {
            let parent = if class.minor == NodeClass::Root.minor() { "1:" } else { "1:1" };
            self.class(device, parent, class, hz)?;
        }
        let filters = self.run(&["tc", "filter", "show", "dev", device])?;
        for (prio, class) in (1..).zip(SHARED) {
            self.group_filter(device, &filters, prio, class.minor())?;
        }
        for class in SHARED {
            self.address_set(class, &desired.pods)?;
        }
        for (uid, own) in &desired.pods.classes {
            self.class(device, "1:1", &own.class, hz)?;
            let minor = own.class.minor;
            match &own.packets {
                Match::Group => self.group_filter(device, &filters, minor, minor)?,
                Match::Address(ip) => self.address_filter(device, &filters, minor, ip)?,
            }
            tracing::debug!(%uid, minor, "a pod has a traffic class of its own");
        }
        for minor in &desired.pods.gone {
            let (prio, id) = (minor.to_string(), class_name(*minor));
            // One that is gone needs no removing.
            let _ = self.run(&["tc", "filter", "del", "dev", device, "parent", "1:", "prio", &prio]);
            let _ = self.run(&["tc", "class", "del", "dev", device, "classid", &id]);
        }
        Ok(())
    }

    fn class(&self, device: &str, parent: &str, class: &Class, hz: i64) -> Result<(), String> {
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
    fn group_filter(&self, device: &str, present: &str, prio: u32, minor: u32) -> Result<(), String> {
        if present.contains(&format!("handle 0x{minor:x} "))
            || present.ends_with(&format!("handle 0x{minor:x}"))
        {
            return Ok(());
        }
        let (prio, handle) = (prio.to_string(), format!("{minor}:"));
        let words = [
            "tc", "filter", "add", "dev", device, "protocol", "ip", "prio", &prio, "parent", "1:", "handle",
            &handle, "cgroup",
        ];
        self.run(&words).map(drop)
    }

    /// Packets from one address.
    fn address_filter(&self, device: &str, present: &str, minor: u32, ip: &str) -> Result<(), String> {
        let id = class_name(minor);
        if present.contains(&format!("flowid {id}")) {
            return Ok(());
        }
        let (prio, source) = (minor.to_string(), format!("{ip}/32"));
        let words = [
            "tc", "filter", "add", "dev", device, "protocol", "ip", "parent", "1:", "prio", &prio, "u32",
            "match", "ip", "src", &source, "classid", &id,
        ];
        self.run(&words).map(drop)
    }

    /// The set of a class's addresses, with a rule that classifies what comes from them.
    fn address_set(&self, class: NodeClass, pods: &PodPlan) -> Result<(), String> {
        let Some(set) = class.address_set() else { return Ok(()) };
        self.run(&["ipset", "create", "-exist", set, "hash:ip"])?;
        let listed = self.run(&["ipset", "list", set])?;
        let members = listed.split_once("Members:").map_or("", |(_, members)| members);
        let present: BTreeSet<&str> = members.split_whitespace().collect();
        let wanted: BTreeSet<&str> =
            pods.addresses.get(set).into_iter().flatten().map(String::as_str).collect();
        for ip in wanted.difference(&present) {
            self.run(&["ipset", "add", "-exist", set, ip])?;
        }
        for ip in present.difference(&wanted) {
            self.run(&["ipset", "del", "-exist", set, ip])?;
        }
        let id = class_name(class.minor());
        if self.run(&rule("-C", set, &id)).is_err() {
            self.run(&rule("-A", set, &id))?;
        }
        Ok(())
    }

    /// Takes everything away that we made, in this run or in an earlier one.
    fn remove(&mut self) {
        self.made = None;
        let Ok(device) = fs::read_to_string(&self.mark) else { return };
        // What is gone already needs no removing.
        let _ = self.run(&["tc", "qdisc", "del", "dev", device.trim(), "root"]);
        for class in SHARED {
            let Some(set) = class.address_set() else { continue };
            let _ = self.run(&rule("-D", set, &class_name(class.minor())));
            let _ = self.run(&["ipset", "destroy", set]);
        }
        // Found again, it costs the next run a few programs that find nothing.
        let _ = fs::remove_file(&self.mark);
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
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
fn rule<'a>(operation: &'a str, set: &'a str, class: &'a str) -> [&'a str; 14] {
    [
        "iptables",
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

/// Classes of pods as their groups tell them: an earlier run's are found again.
fn existing(cgroups: &Cgroups, ground: &Ground<'_>) -> BTreeMap<Arc<str>, u32> {
    let of = |pod: &crate::decide::snapshot::Pod| {
        let dir = cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid);
        let id = cgroups.read(Resource::NetClassId, &dir, class_id).ok()?;
        let minor = id & 0xffff;
        (id >> 16 == MAJOR && minor >= PRIVATE_MIN).then(|| (pod.id.uid.clone(), minor))
    };
    ground.pods.iter().filter_map(of).collect()
}
