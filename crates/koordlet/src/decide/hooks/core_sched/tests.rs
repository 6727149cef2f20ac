use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use koord_api::slo::defaults;

use super::cookies::{Ledger, Observed, Outcome, Step};
use super::*;
use crate::decide::sketch::{PodSketch, pod};

const GROUP: &str = "koordinator.sh/core-sched-group-id";
const POLICY: &str = "koordinator.sh/core-sched-policy";

fn strategy(lsr: bool, ls: bool, be: bool) -> ResourceQosStrategy {
    let mut strategy = defaults::qos();
    strategy.policies.as_mut().unwrap().cpu_policy = Some(CpuPolicy::CoreSched);
    let classes = [&mut strategy.lsr_class, &mut strategy.ls_class, &mut strategy.be_class];
    for (class, is_on) in classes.into_iter().flatten().zip([lsr, ls, be]) {
        class.cpu_qos.as_mut().unwrap().enable = Some(is_on);
    }
    strategy
}

#[test]
fn groups() {
    let rule = Rule::of(&strategy(true, true, true));
    let group = |name: &str| Want::Group(name.to_string());
    let ls = || pod("u1").qos("LS");
    let g1 = || ls().label(GROUP, "g1");
    for (key, pod, want) in [
        ("koordlet-enforce#18.96", ls(), group("-expeller")),
        ("koordlet-enforce#18.96", ls().label(POLICY, "exclusive"), group("u1-expeller")),
        ("koordlet-enforce#18.97", ls().label(POLICY, "none"), Want::NoCookie { group: String::new() }),
        ("koordlet-enforce#18.210", g1(), group("g1-expeller")),
        ("koordlet-enforce#18.210", g1().label(POLICY, "exclusive"), group("u1-expeller")),
        ("koordlet-enforce#18.210", g1().label(POLICY, "none"), Want::NoCookie { group: String::new() }),
        ("best effort", pod("u1").qos("BE"), group("")),
        ("system", pod("u1").qos("SYSTEM"), Want::Untouched),
    ] {
        assert_eq!(rule.want(&pod.read()), want, "{key}");
    }
    let guaranteed = pod("u1").kube_qos("Guaranteed").read();
    assert_eq!(Rule::of(&strategy(false, true, true)).want(&guaranteed), group("-expeller"));
}

#[test]
fn idle_and_switches() {
    let mut idle = strategy(true, true, true);
    idle.be_class.as_mut().unwrap().cpu_qos.as_mut().unwrap().sched_idle = Some(1);
    let values: Vec<String> =
        Rule::of(&idle).idle_wishes().iter().map(|wish| wish.value.to_string()).collect();
    assert_eq!(values, ["0", "0", "1"]);
    let files = |kernel, has_identity| -> Vec<String> {
        let wishes = kernel_wishes(kernel, has_identity);
        wishes.iter().map(|wish| format!("{} {}", wish.file.name(), wish.value)).collect()
    };
    assert_eq!(files(Kernel::Mainline, false), Vec::<String>::new());
    let anolis = files(Kernel::Anolis { has_switch: true }, true);
    assert_eq!(anolis, ["sched_group_identity_enabled 0", "sched_core 1"]);
    assert_eq!(files(Kernel::Anolis { has_switch: false }, false), ["sched_features CORE_SCHED\n"]);
}

/// A kernel that numbers new cookies from 1000, and the ledger beside it.
struct Machine {
    cookies: BTreeMap<u32, u64>,
    next: u64,
    ledger: Ledger,
    rule: Rule,
}

impl Machine {
    fn reconcile(&mut self, sketch: &PodSketch, pids: &[u32]) {
        let pod = sketch.read();
        let want = self.rule.want(&pod);
        for pid in pids {
            self.cookies.entry(*pid).or_insert(0);
        }
        let container = format!("{}/c", pod.id.uid);
        let cookies = self.cookies.clone();
        let seen = Observed { pids, cookies: &cookies };
        let step = self.ledger.step(Duration::ZERO, &container, &want, seen);
        let mut outcome = Outcome::default();
        match &step {
            Step::Nothing | Step::Refresh { .. } => {}
            Step::Assign { from, pids, .. } => self.give(self.cookies[from], pids),
            Step::Create { first, others, .. } => {
                outcome.cookie = Some(self.next);
                self.give(self.next, &[*first]);
                self.give(self.next, others);
                self.next += 1;
            }
            Step::Clear { pids } => self.give(0, pids),
        }
        self.ledger.done(Duration::ZERO, &container, &step, seen, &outcome);
    }

    fn give(&mut self, cookie: u64, pids: &[u32]) {
        for pid in pids {
            self.cookies.insert(*pid, cookie);
        }
    }

    fn of(&self, pids: &[u32]) -> Vec<u64> {
        pids.iter().map(|pid| self.cookies[pid]).collect()
    }

    fn entry(&self, group: &str) -> Option<(u64, Vec<u32>)> {
        self.ledger.get(group).map(|entry| (entry.cookie, entry.pids.iter().copied().collect()))
    }
}

#[test]
fn cookies_in_sequence() {
    let rule = Rule::of(&strategy(true, true, true));
    let mut machine = Machine { cookies: BTreeMap::new(), next: 1000, ledger: Ledger::default(), rule };
    let a = pod("a").qos("LS");
    let b = pod("b").qos("LS");
    let c = pod("c").qos("BE");
    let d = pod("d").qos("LS").label(POLICY, "exclusive");
    machine.reconcile(&a, &[100, 101]);
    assert_eq!(machine.of(&[100, 101]), [1000, 1000], "koordlet-enforce#18.246");
    assert_eq!(machine.entry("-expeller"), Some((1000, vec![100, 101])), "koordlet-enforce#18.246");
    machine.reconcile(&b, &[200]);
    assert_eq!(machine.entry("-expeller"), Some((1000, vec![100, 101, 200])), "koordlet-enforce#18.247");
    assert_eq!(machine.of(&[200]), [1000], "koordlet-enforce#18.247");
    machine.reconcile(&c, &[300]);
    assert_eq!(machine.entry(""), Some((1001, vec![300])), "koordlet-enforce#18.248");
    machine.reconcile(&d, &[400]);
    assert_eq!(machine.entry("d-expeller"), Some((1002, vec![400])), "koordlet-enforce#18.249");
    machine.reconcile(&b.clone().label(GROUP, "g1"), &[200]);
    assert_eq!(machine.entry("g1-expeller"), Some((1003, vec![200])), "koordlet-enforce#18.250");
    assert_eq!(machine.entry("-expeller"), Some((1000, vec![100, 101])), "koordlet-enforce#18.250");
    machine.reconcile(&b.clone().label(POLICY, "none"), &[200]);
    assert_eq!(machine.of(&[200]), [0], "koordlet-enforce#18.251");
    assert_eq!(machine.entry("g1-expeller"), None, "koordlet-enforce#18.251");
    machine.reconcile(&b, &[200]);
    assert_eq!(machine.of(&[200]), [1000], "koordlet-enforce#18.252");
    let before = machine.ledger.clone();
    machine.reconcile(&d, &[]);
    assert_eq!(machine.ledger, before, "koordlet-enforce#18.253");
    machine.rule = Rule::of(&strategy(false, false, true));
    machine.reconcile(&a, &[100, 101]);
    machine.reconcile(&d, &[400]);
    assert_eq!(machine.of(&[100, 101, 400, 300]), [0, 0, 0, 1001], "koordlet-enforce#18.254");
    assert_eq!(machine.entry("d-expeller"), None, "koordlet-enforce#18.254");
}

#[test]
fn lost_cookies_and_unreadable_processes() {
    let mut ledger = Ledger::default();
    let seconds = Duration::from_secs;
    let group = Want::Group("g".to_string());
    ledger.adopt(seconds(0), "a/c", "g", &BTreeMap::from([(1, 0), (2, 7), (3, 8)]));
    assert_eq!(
        ledger.get("g").map(|entry| (entry.cookie, entry.pids.clone())),
        Some((7, BTreeSet::from([2])))
    );
    assert_eq!(ledger.siblings(&group), [2]);
    let blind = BTreeMap::new();
    let step = ledger.step(seconds(1), "b/c", &group, Observed { pids: &[9], cookies: &blind });
    assert_eq!(step, Step::Nothing, "nothing of it can be read");
    let lost = BTreeMap::from([(2, 0), (9, 0)]);
    let step = ledger.step(seconds(1), "b/c", &group, Observed { pids: &[9], cookies: &lost });
    assert_eq!(step, Step::Create { group: "g".into(), first: 9, others: vec![] }, "no sibling vouches");
    let mut old = Ledger::default();
    old.adopt(seconds(0), "a/c", "g", &BTreeMap::from([(2, 7)]));
    old.sweep(seconds(300));
    assert!(old.get("g").is_some());
    old.sweep(seconds(301));
    assert!(old.get("g").is_none());
}

#[test]
fn reasons_are_told() {
    let rule = Rule { be: Class { is_enabled: true, is_expeller: false, is_idle: true }, ..Rule::default() };
    let told: Vec<String> = rule.idle_wishes().iter().map(|wish| wish.audit_message(None)).collect();
    let want = "update cpu.idle to 1; class of BestEffort pods: enable true, coreExpeller false, schedIdle 1";
    assert!(told.contains(&want.to_owned()), "{told:?}");
    let switch = &kernel_wishes(Kernel::Mainline, true)[0];
    let want = "update sched_group_identity_enabled to 0; cpuPolicy coreSched is on, which excludes group identities";
    assert_eq!(switch.audit_message(None), want);
}
