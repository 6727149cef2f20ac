//! Which programs run, in which order.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use super::*;
use crate::decide::hooks::tc::{Match, PrivateClass};

/// Notes what is run, and answers as an empty kernel would; or one that has all, and more.
#[derive(Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
    has_all: bool,
    /// The scheduler at the root of one that has all.
    tree: &'static str,
    /// Lines with this are refused.
    refused: &'static str,
    /// Lines with this hang.
    hangs: &'static str,
}

/// A class whose pod is gone, and one whose pod had another address.
const CLASSES: &str = "class htb 1:1 root rate 8Kbit\nclass htb 1:2 parent 1:1 prio 1\n\
    class htb 1:7 parent 1:1 prio 2\nclass htb 1:2a parent 1:1 prio 2\n";
const FILTERS: &str = "\
    filter parent 1: protocol ip pref 1 cgroup chain 0 handle 0x2 \n\
    filter parent 1: protocol ip pref 2 cgroup chain 0 handle 0x3 \n\
    filter parent 1: protocol ip pref 3 cgroup chain 0 handle 0x4 \n\
    filter parent 1: protocol ip pref 7 cgroup chain 0 handle 0x7 \n\
    filter parent 1: protocol ip pref 42 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 flowid 1:2a not_in_hw \n  \
    match 0a000009/ffffffff at 12\n\
    filter parent 1: protocol ip pref 43 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 flowid 1:2b not_in_hw \n  \
    match 0a000003/ffffffff at 12\n";

/// One of each set and one too many, and one that is not ours.
const RULES: &str = "-P POSTROUTING ACCEPT\n\
    -A POSTROUTING -m set --match-set system_class src -j CLASSIFY --set-class 0001:0002\n\
    -A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 0001:0003\n\
    -A POSTROUTING -m set --match-set be_class src -j CLASSIFY --set-class 1:4\n\
    -A POSTROUTING -m set --match-set be_class src -j CLASSIFY --set-class 1:4\n\
    -A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 0001:0009\n";

impl Programs for Notes {
    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        let line = words.join(" ");
        self.lines.lock().unwrap().push(line.clone());
        if !self.hangs.is_empty() && line.contains(self.hangs) {
            return Err(Fault::Hung(line));
        }
        let is_refused = !self.refused.is_empty() && line.contains(self.refused);
        if is_refused {
            return Err(Fault::Refused(line, "no".into()));
        }
        let answer = match line.as_str() {
            _ if !self.has_all => "",
            "tc qdisc show dev eth0" => self.tree,
            "tc class show dev eth0" => CLASSES,
            "tc filter show dev eth0" => FILTERS,
            "iptables -w 2 -t mangle -S POSTROUTING" => RULES,
            "ipset list -name" => "system_class\nls_class\nbe_class\nls_class6\n",
            "ipset list ls_class" => "Name: ls_class\nMembers:\n10.0.0.9\n",
            _ => "",
        };
        Ok(answer.to_owned())
    }
}

fn desired() -> Desired {
    let class = |minor, rate, prio| Class { minor, rate, ceil: 1000, prio };
    let mut pods = PodPlan::default();
    pods.addresses.insert("ls_class", BTreeSet::from([Ipv4Addr::new(10, 0, 0, 1)]));
    for (uid, minor, host) in [("u", 0x2a, 2), ("v", 0x2b, 3)] {
        let packets = Match::Address(Ipv4Addr::new(10, 0, 0, host));
        pods.classes.insert(uid.into(), PrivateClass { class: class(minor, 50, 2), packets });
    }
    Desired {
        device: "eth0".into(),
        classes: [class(1, 1000, 0), class(2, 0, 1), class(3, 200, 2), class(4, 100, 3)],
        pods,
    }
}

fn note(root: &Root, is_made: bool) {
    shaper::Mark { device: "eth0".into(), is_made }.write(&shaper::mark(root)).unwrap();
}

fn shape() -> Order {
    Order::Shape { desired: Arc::new(desired()), hz: 1_000_000_000 }
}

/// The lines that were run, and how many faults were told.
fn run(notes: Notes) -> (Vec<String>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    if notes.has_all {
        note(&root, true);
    }
    let shaper = Shaper::new(&root, Box::new(notes.clone()));
    let faults = shaper.carry_out(&shape()).len();
    (std::mem::take(&mut *notes.lines.lock().unwrap()), faults)
}

fn with_all() -> Notes {
    Notes { has_all: true, tree: OURS, ..Notes::default() }
}

const OURS: &str = "qdisc htb 1: root refcnt 2 r2q 10 default 0x2 direct_packets_stat 0";

/// A tree of somebody else goes as a whole: his classes are not taken for strays among ours. koordlet-enforce 15.9
#[test]
fn only_our_own_tree_is_kept() {
    let foreign = "qdisc htb 1: root refcnt 2 r2q 10 default 0x30 direct_packets_stat 0";
    let (removal, root) =
        ("tc qdisc del dev eth0 root", "tc qdisc replace dev eth0 root handle 1: htb default 2");
    for (name, tree, is_noted, want) in [
        ("ours", OURS, true, &[][..]),
        ("ours, as older programs show it", "qdisc htb 1: root refcnt 2 r2q 10 default 2", true, &[]),
        ("foreign", foreign, true, &[removal, root]),
        ("like ours, and never noted", OURS, false, &[removal, root]),
        ("another kind", "qdisc mq 0: root", true, &[root]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        if is_noted {
            note(&root, true);
        }
        let notes = Notes { tree, ..with_all() };
        Shaper::new(&root, Box::new(notes.clone())).carry_out(&shape());
        let lines = std::mem::take(&mut *notes.lines.lock().unwrap());
        let changes: Vec<&String> =
            lines.iter().filter(|line| line.contains("qdisc") && !line.contains("show")).collect();
        assert_eq!(changes, want, "{name}");
    }
}

/// Nor after it could not be taken away at first: what looks like ours is ours once we have made it.
#[test]
fn a_tree_that_stays_is_not_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    let removal = "tc qdisc del dev eth0 root";
    for (refused, want) in [(removal, 1), ("", 1), (removal, 0)] {
        let notes = Notes { refused, ..with_all() };
        Shaper::new(&root, Box::new(notes.clone())).carry_out(&shape());
        let lines = notes.lines.lock().unwrap();
        assert_eq!(lines.iter().filter(|line| *line == removal).count(), want, "{lines:?}");
    }
    note(&root, false);
    let notes = with_all();
    assert_eq!(give_back(&root, Box::new(notes.clone())), Some(true));
    assert!(!notes.lines.lock().unwrap().iter().any(|line| line == removal), "it was never ours");
}

#[test]
fn numbers_are_told() {
    let want = "eth0; bytes/s at least and at most: all 1000 1000, SYSTEM 0 1000, LS 200 1000, BE 100 1000, \
                2 pods with limits of their own";
    assert_eq!(desired().to_string(), want);
}

#[test]
fn an_empty_kernel_gets_everything() {
    let (lines, faults) = run(Notes::default());
    assert_eq!(faults, 0);
    for line in [
        "tc qdisc replace dev eth0 root handle 1: htb default 2",
        "tc class replace dev eth0 parent 1: classid 1:1 htb rate 1000bps ceil 1000bps burst 1600 prio 0",
        "tc class replace dev eth0 parent 1:1 classid 1:3 htb rate 200bps ceil 1000bps burst 1600 prio 2",
        "tc filter add dev eth0 protocol ip prio 1 parent 1: handle 2: cgroup",
        "ipset create -exist ls_class hash:ip",
        "ipset add -exist ls_class 10.0.0.1",
        "iptables -w 2 -t mangle -A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 1:3",
        "tc class replace dev eth0 parent 1:1 classid 1:2a htb rate 50bps ceil 1000bps burst 1600 prio 2",
        "tc filter add dev eth0 protocol ip parent 1: prio 42 u32 match ip src 10.0.0.2/32 classid 1:2a",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} in\n{}", lines.join("\n"));
    }
    let at = |part: &str| lines.iter().position(|line| line.contains(part));
    assert!(
        at("qdisc replace") < at("classid 1:1 ") && at("classid 1:1 ") < at("classid 1:3"),
        "parents come first"
    );
}

#[test]
fn what_is_there_is_not_made_again() {
    let (lines, faults) = run(with_all());
    assert_eq!(faults, 0);
    for part in ["qdisc replace", "2: cgroup", " -A POSTROUTING", "10.0.0.3", "prio 43"] {
        assert!(!lines.iter().any(|line| line.contains(part)), "{part}");
    }
    let removed: Vec<&String> = lines.iter().filter(|line| line.contains(" -D ")).collect();
    assert!(removed.len() == 1 && removed[0].contains("be_class"), "one of two: {removed:?}");
    assert!(lines.iter().any(|line| line == "ipset del -exist ls_class 10.0.0.9"));
}

/// koordlet-enforce 15.9: filter and class of a pod that is gone, and the filter of an address that moved.
#[test]
fn pods_leave_and_move() {
    let (lines, _) = run(with_all());
    let changes: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.contains(" del dev ") || line.contains("filter add"))
        .collect();
    assert_eq!(
        changes,
        [
            "tc filter del dev eth0 protocol ip parent 1: prio 7",
            "tc class del dev eth0 classid 1:7",
            "tc filter del dev eth0 protocol ip parent 1: prio 42",
            "tc filter add dev eth0 protocol ip parent 1: prio 42 u32 match ip src 10.0.0.2/32 classid 1:2a",
        ]
    );
}

#[test]
fn one_pods_fault_does_not_stop_the_others() {
    let ends_with_the_other = |lines: &[String]| lines.iter().any(|line| line.contains("classid 1:2b"));
    let (lines, faults) = run(Notes { refused: "10.0.0.2/32", ..Notes::default() });
    assert_eq!((ends_with_the_other(&lines), faults), (true, 1));
    let (lines, faults) = run(Notes { hangs: "10.0.0.2/32", ..Notes::default() });
    assert_eq!((ends_with_the_other(&lines), faults), (false, 1), "others would hang as well");
}

/// By the same run, and by another that knows of it by the mark alone.
#[test]
fn what_was_made_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    let notes = Notes::default();
    assert_eq!(give_back(&root, Box::new(notes.clone())), Some(false));
    assert!(notes.lines.lock().unwrap().is_empty(), "nothing was made");
    let shaper = Shaper::new(&root, Box::new(Notes::default()));
    assert!(shaper.carry_out(&shape()).is_empty() && shaper.has_mark());
    // A lock that others hold is no proof that a rule is not there.
    for (refused, hangs) in
        [("", "iptables"), ("-S POSTROUTING", ""), ("-D POSTROUTING", ""), ("destroy", "")]
    {
        let notes = Notes { refused, hangs, ..with_all() };
        assert!(give_back(&root, Box::new(notes)).is_none(), "to be tried again: {refused}{hangs}");
    }
    let notes = with_all();
    assert_eq!(give_back(&root, Box::new(notes.clone())), Some(true));
    let lines = std::mem::take(&mut *notes.lines.lock().unwrap());
    assert_eq!(lines[1], "tc qdisc del dev eth0 root");
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count(" -D "), count("ipset destroy")), (4, 3));
    assert_eq!(give_back(&root, Box::new(notes.clone())), Some(false));
    assert!(notes.lines.lock().unwrap().is_empty(), "once is enough");
}

/// The device went, the table or the kernel's part with it, or the program: there is nothing to take away.
#[test]
fn what_is_gone_is_not_waited_for() {
    struct Gone(Fault);
    impl Programs for Gone {
        fn run(&self, _: &[&str]) -> Result<String, Fault> {
            Err(self.0.clone())
        }
    }
    let said = |said: &str| Fault::Refused("words".into(), said.into());
    for (fault, want) in [
        (said("Cannot find device \"eth0\""), Some(true)),
        (said("can't initialize iptables table `mangle': Table does not exist"), Some(true)),
        (said("ipset v7.17: Cannot open session to kernel."), Some(true)),
        (Fault::Missing("tc".into()), Some(true)),
        (said("Another app is currently holding the xtables lock"), None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        note(&root, true);
        assert_eq!(give_back(&root, Box::new(Gone(fault.clone()))), want, "{fault}");
    }
}
