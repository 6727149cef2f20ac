//! The programs that make classes, filters and sets of addresses, or take them away: which, and in which order.
//! Spec: koordlet-enforce 15.9.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use koord_linux::root::Root;

use super::Desired;
use super::errand::Order;
use super::present::{Filter, Present, Tree, rules_of};
use crate::decide::hooks::tc::{Class, MAJOR, Match, NodeClass, PodPlan, PrivateClass};
use crate::programs::{Fault, Programs};

/// Seconds that `iptables` may wait for others who change rules.
const WAIT_SECONDS: &str = "2";
/// What programs say that ask for something of a device, of a table or of a kernel that is not there.
const NOTHING_THERE: [&str; 3] =
    ["Cannot find device", "Table does not exist", "Cannot open session to kernel"];
/// In front of a device whose tree is not made yet.
const BEGUN: &str = "begun ";
/// Classes that pods share.
const SHARED: [NodeClass; 3] = [NodeClass::System, NodeClass::Ls, NodeClass::Be];

/// Makes the kernel have what is wanted.
pub(super) struct Shaper {
    programs: Box<dyn Programs>,
    /// Names the device as long as something of ours may be on it, so that another run can take it away.
    mark: PathBuf,
}

impl Shaper {
    pub(super) fn new(root: &Root, programs: Box<dyn Programs>) -> Shaper {
        Shaper { programs, mark: mark(root) }
    }

    /// Whether something of ours may be there.
    pub(super) fn has_mark(&self) -> bool {
        self.mark.exists()
    }

    /// Runs the programs of an order one after the other, and says what went wrong.
    pub(super) fn carry_out(&self, order: &Order) -> Vec<Fault> {
        match order {
            Order::Shape { desired, hz } => match self.settle_on(&desired.device) {
                Ok(is_ours) => self.make(desired, *hz, is_ours),
                Err(fault) => vec![fault],
            },
            Order::Remove => self.remove().err().into_iter().collect(),
        }
    }

    /// Leaves another device, and notes this one before anything is made on it. Says whether the tree there is ours.
    fn settle_on(&self, device: &str) -> Result<bool, Fault> {
        let known = Mark::read(&self.mark);
        if let Some(known) = &known {
            if known.device == device {
                return Ok(known.is_made);
            }
            self.remove()?;
        }
        self.note(&Mark { device: device.to_owned(), is_made: false })?;
        Ok(false)
    }

    fn note(&self, mark: &Mark) -> Result<(), Fault> {
        let refused =
            |error: std::io::Error| Fault::Refused(self.mark.display().to_string(), error.to_string());
        mark.write(&self.mark).map_err(refused)
    }

    /// Makes what is not there, and takes away what should not be. Every step may be repeated. One pod's fault does not
    /// stop the others; a program that hangs does.
    fn make(&self, desired: &Desired, hz: i64, is_ours: bool) -> Vec<Fault> {
        let present = match self.make_shared(desired, hz, is_ours) {
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
    fn make_shared(&self, desired: &Desired, hz: i64, is_ours: bool) -> Result<Present, Fault> {
        let device = desired.device.as_str();
        let qdiscs = self.run(&["tc", "qdisc", "show", "dev", device])?;
        let tree = Tree::of(&qdiscs);
        if tree == Tree::Foreign || (tree == Tree::LikeOurs && !is_ours) {
            // Its classes are somebody else's, and it cannot be changed into ours.
            self.run(&["tc", "qdisc", "del", "dev", device, "root"])?;
        }
        if tree != Tree::LikeOurs || !is_ours {
            // Not before: until now there may have been somebody else's, which could not be taken away.
            self.note(&Mark { device: device.to_owned(), is_made: true })?;
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
        self.rules()?;
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

    /// The set of a class's addresses.
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
        Ok(())
    }

    /// One rule for each set, which classifies what comes from its addresses.
    fn rules(&self) -> Result<(), Fault> {
        let listed = self.run(&LIST_RULES)?;
        for class in SHARED {
            let Some(set) = class.address_set() else { continue };
            let id = class_name(class.minor());
            match rules_of(&listed, set, class.minor()) {
                0 => drop(self.run(&rule("-A", set, &id))?),
                count => (1..count).try_for_each(|_| self.run(&rule("-D", set, &id)).map(drop))?,
            }
        }
        Ok(())
    }

    /// Takes everything away that we made, in this run or in an earlier one. Only what is there is taken away, so that a
    /// program which refuses has a reason, and the mark stays for another try.
    pub(super) fn remove(&self) -> Result<(), Fault> {
        let Some(Mark { device, is_made }) = Mark::read(&self.mark) else { return Ok(()) };
        let qdiscs = self.list(&["tc", "qdisc", "show", "dev", &device])?;
        if is_made && Tree::of(&qdiscs) == Tree::LikeOurs {
            self.run(&["tc", "qdisc", "del", "dev", &device, "root"])?;
        }
        let rules = self.list(&LIST_RULES)?;
        let sets = self.list(&["ipset", "list", "-name"])?;
        for class in SHARED {
            let Some(set) = class.address_set() else { continue };
            for _ in 0..rules_of(&rules, set, class.minor()) {
                self.run(&rule("-D", set, &class_name(class.minor())))?;
            }
            if sets.lines().any(|line| line.trim() == set) {
                self.run(&["ipset", "destroy", set])?;
            }
        }
        // Found again, it costs the next run a few programs that find nothing.
        let _ = fs::remove_file(&self.mark);
        Ok(())
    }

    /// What a program lists; nothing where the program itself is not there, nor what it would ask.
    fn list(&self, words: &[&str]) -> Result<String, Fault> {
        match self.run(words) {
            Err(Fault::Missing(_)) => Ok(String::new()),
            Err(Fault::Refused(_, said)) if NOTHING_THERE.iter().any(|words| said.contains(words)) => {
                Ok(String::new())
            }
            listed => listed,
        }
    }

    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        self.programs.run(words)
    }
}

pub(super) fn mark(root: &Root) -> PathBuf {
    root.state.join("shaped-device")
}

/// What is noted of the device that is shaped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) device: String,
    /// Whether the tree there is ours, once there is one. Before, something may be there that looks like it.
    pub(super) is_made: bool,
}

impl Mark {
    fn read(path: &Path) -> Option<Mark> {
        let text = fs::read_to_string(path).ok()?;
        let (device, is_made) =
            text.trim().strip_prefix(BEGUN).map_or((text.trim(), true), |device| (device, false));
        Some(Mark { device: device.to_owned(), is_made })
    }

    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let begun = if self.is_made { "" } else { BEGUN };
        fs::write(path, format!("{begun}{}", self.device))
    }
}

/// All rules among which ours stand.
const LIST_RULES: [&str; 7] = ["iptables", "-w", WAIT_SECONDS, "-t", "mangle", "-S", "POSTROUTING"];

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
