//! Which programs run, in which order.

use std::sync::Mutex;

use super::*;
use crate::decide::hooks::tc::PrivateClass;

/// Notes what is run, and answers as an empty kernel would; or one that has all.
#[derive(Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
    has_all: bool,
}

impl Programs for Notes {
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let line = words.join(" ");
        self.lines.lock().unwrap().push(line.clone());
        match (self.has_all, line.as_str()) {
            (true, "tc qdisc show dev eth0") => Ok("qdisc htb 1: root refcnt 2 r2q 10 default 0x2".into()),
            (true, "tc filter show dev eth0") => {
                Ok("filter cgroup handle 0x2 \nfilter cgroup handle 0x3 \nfilter cgroup handle 0x4 ".into())
            }
            (true, "ipset list ls_class") => Ok("Name: ls_class\nMembers:\n10.0.0.9\n".into()),
            (false, line) if line.contains(" -C ") => Err("no such rule".into()),
            _ => Ok(String::new()),
        }
    }
}

fn desired() -> Desired {
    let class = |minor, rate, prio| Class { minor, rate, ceil: 1000, prio };
    let mut pods = PodPlan::default();
    pods.addresses.insert("ls_class", BTreeSet::from(["10.0.0.1".to_owned()]));
    let own = PrivateClass { class: class(0x2a, 50, 0), packets: Match::Address("10.0.0.2".into()) };
    pods.classes.insert("u".into(), own);
    pods.gone = vec![7];
    Desired {
        device: "eth0".into(),
        classes: [class(1, 1000, 0), class(2, 0, 1), class(3, 200, 2), class(4, 100, 3)],
        pods,
    }
}

fn run(has_all: bool) -> Vec<String> {
    let notes = Notes { has_all, ..Notes::default() };
    Tc::new(&Root::host("/nowhere"), Box::new(notes.clone())).make(&desired(), 1_000_000_000).unwrap();
    std::mem::take(&mut *notes.lines.lock().unwrap())
}

#[test]
fn an_empty_kernel_gets_everything() {
    let lines = run(false);
    for line in [
        "tc qdisc replace dev eth0 root handle 1: htb default 2",
        "tc class replace dev eth0 parent 1: classid 1:1 htb rate 1000bps ceil 1000bps burst 1600 prio 0",
        "tc class replace dev eth0 parent 1:1 classid 1:3 htb rate 200bps ceil 1000bps burst 1600 prio 2",
        "tc filter add dev eth0 protocol ip prio 1 parent 1: handle 2: cgroup",
        "ipset create -exist ls_class hash:ip",
        "ipset add -exist ls_class 10.0.0.1",
        "iptables -t mangle -A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 1:3",
        "tc class replace dev eth0 parent 1:1 classid 1:2a htb rate 50bps ceil 1000bps burst 1600 prio 0",
        "tc filter add dev eth0 protocol ip parent 1: prio 42 u32 match ip src 10.0.0.2/32 classid 1:2a",
        "tc class del dev eth0 classid 1:7",
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
    let lines = run(true);
    for part in ["qdisc replace", "handle 2: cgroup", " -A POSTROUTING"] {
        assert!(!lines.iter().any(|line| line.contains(part)), "{part}");
    }
    assert!(lines.iter().any(|line| line == "ipset del -exist ls_class 10.0.0.9"));
}

/// By the same run, and by another that knows of it by the mark alone.
#[test]
fn what_was_made_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    let notes = Notes::default();
    give_back(&root, Box::new(notes.clone()));
    assert!(notes.lines.lock().unwrap().is_empty(), "nothing was made");
    note(&mark(&root), "eth0").unwrap();
    give_back(&root, Box::new(notes.clone()));
    let lines = std::mem::take(&mut *notes.lines.lock().unwrap());
    assert_eq!(lines[0], "tc qdisc del dev eth0 root");
    assert_eq!(lines.iter().filter(|line| line.starts_with("ipset destroy")).count(), 3);
    give_back(&root, Box::new(notes.clone()));
    assert!(notes.lines.lock().unwrap().is_empty(), "once is enough");
}
