use koord_api::cpuset::CpuSet;
use proptest::prelude::*;

use super::*;
use crate::cgroup::Version::{V1, V2};
use crate::resource::current_value;

const NAMES: [&str; 3] = ["qos", "pod", "ctr"];

/// The writes of a chain of three groups, `name value` each. `refuse` says which the kernel does not take.
fn writes_unless(
    resource: Resource,
    version: Version,
    old: [&str; 3],
    new: [&str; 3],
    refuse: impl Fn(&str) -> bool,
) -> Vec<String> {
    let held = Held::Cgroup { resource, version };
    let items = (0..3).map(|depth| Item {
        held,
        depth,
        value: new[depth].to_owned(),
        current: current_value(resource, version, old[depth]).to_owned(),
    });
    let mut plan = Plan::new(items.collect());
    let mut log = Vec::new();
    while let Some(step) = plan.next_step() {
        let line = format!("{} {}", NAMES[step.item], step.value);
        plan.done(!refuse(&line));
        log.push(line);
    }
    log
}

fn writes(resource: Resource, version: Version, old: [&str; 3], new: [&str; 3]) -> Vec<String> {
    writes_unless(resource, version, old, new, |_| false)
}

#[test]
fn worked_examples_of_memory() {
    let min = |old, new| writes(Resource::MemoryMin, V1, old, new);
    // koordlet-enforce#18.101
    assert_eq!(min(["0", "0", "0"], ["4", "2", "2"]), ["qos 4", "pod 2", "ctr 2"]);
    // koordlet-enforce#18.102
    assert_eq!(min(["4", "2", "2"], ["0", "0", "0"]), ["ctr 0", "pod 0", "qos 0"]);
    // koordlet-enforce#18.103
    assert_eq!(min(["4", "2", "2"], ["6", "1", "1"]), ["qos 6", "ctr 1", "pod 1"]);
    // koordlet-enforce#18.230
    assert_eq!(min(["x", "2", "2"], ["4", "4", "4"]), ["pod 4", "ctr 4", "qos 4"]);
    let high = |new| writes(Resource::MemoryHigh, V2, ["max", "max", "max"], new);
    // koordlet-enforce#18.228
    assert_eq!(high(["9223372036854775807"; 3]), [""; 0]);
    // koordlet-enforce#18.229
    assert_eq!(high(["100"; 3]), ["ctr 100", "pod 100", "qos 100"]);
}

#[test]
fn worked_examples_of_quotas() {
    // koordlet-enforce#18.231
    let v1 = writes(Resource::CfsQuotaUs, V1, ["-1"; 3], ["300000", "200000", "200000"]);
    assert_eq!(v1, ["ctr 200000", "pod 200000", "qos 300000"]);
    let v2 = writes(Resource::CfsQuotaUs, V2, ["100000 100000"; 3], ["max", "200000", "200000"]);
    assert_eq!(v2, ["qos max", "pod 200000", "ctr 200000"]);
    let limited = writes(Resource::CfsQuotaUs, V2, ["max 100000"; 3], ["500000"; 3]);
    assert_eq!(limited, ["ctr 500000", "pod 500000", "qos 500000"]);
}

#[test]
fn worked_examples_of_cpusets() {
    // koordlet-enforce#18.233
    let moved = writes(Resource::CpusetCpus, V1, ["0-3"; 3], ["2-5"; 3]);
    assert_eq!(moved, ["qos 0-5", "pod 0-5", "ctr 0-5", "ctr 2-5", "pod 2-5", "qos 2-5"]);
    // koordlet-enforce#18.234
    assert_eq!(writes(Resource::CpusetCpus, V1, ["0,1,2"; 3], ["0-2"; 3]), [""; 0]);
}

#[test]
fn a_refused_write_is_tried_again_on_the_way_up() {
    let log = writes_unless(Resource::MemoryMin, V1, ["0"; 3], ["4", "2", "2"], |line| line == "qos 4");
    assert_eq!(log, ["qos 4", "pod 2", "ctr 2", "qos 4"]);
}

#[test]
fn bursts_stay_within_quotas() {
    let held = |resource| Held::Cgroup { resource, version: V1 };
    let item = |resource, value: &str, current: &str| Item {
        held: held(resource),
        depth: 1,
        value: value.to_owned(),
        current: current.to_owned(),
    };
    let run = |items: Vec<Item>| {
        let mut plan = Plan::new(items);
        let mut log = Vec::new();
        while let Some(step) = plan.next_step() {
            plan.done(true);
            log.push(step.value);
        }
        log
    };
    let burst = |value, current| item(Resource::CfsBurstUs, value, current);
    let quota = |value, current| item(Resource::CfsQuotaUs, value, current);
    assert_eq!(run(vec![burst("300", "100"), quota("400", "200")]), ["400", "300"]);
    assert_eq!(run(vec![quota("200", "400"), burst("100", "300")]), ["100", "200"]);
}

#[test]
fn files_of_many_parts_are_settled_part_by_part() {
    let held = Held::Cgroup { resource: Resource::ReadIops, version: V1 };
    let item =
        |value: &str, current: &str| Item { held, depth: 3, value: value.into(), current: current.into() };
    let mut plan =
        Plan::new(vec![item("8:0 5", "8:16 7"), item("8:16 0", "8:16 7"), item("8:32 0", "8:16 7")]);
    let mut log = Vec::new();
    while let Some(step) = plan.next_step() {
        plan.done(true);
        log.push(step.value);
    }
    assert_eq!(log, ["8:0 5", "8:16 0"]);
    let words =
        |value: &str| Item { held: Held::Words, depth: 0, value: value.into(), current: "A NO_B".into() };
    assert!(words("A").is_settled() && words("NO_B\n").is_settled() && !words("B").is_settled());
}

/// A group of the model: its parent, its value before, and the one it should get.
#[derive(Clone, Debug)]
struct Group {
    parent: Option<usize>,
    depth: usize,
    old: String,
    new: String,
}

/// The kernel's rule.
type Fits = fn(child: &str, parent: &str) -> bool;

/// A tree of at most three levels below one top group.
fn trees(
    value: impl Strategy<Value = (String, String)> + Clone + 'static,
) -> impl Strategy<Value = Vec<Group>> {
    let node = (any::<prop::sample::Index>(), value);
    prop::collection::vec(node, 1..14).prop_map(|nodes| {
        let mut groups: Vec<Group> = Vec::new();
        for (parent, (old, new)) in nodes {
            let parents: Vec<usize> = (0..groups.len()).filter(|at| groups[*at].depth < 3).collect();
            let parent = (!parents.is_empty()).then(|| parents[parent.index(parents.len())]);
            let depth = parent.map_or(0, |parent| groups[parent].depth + 1);
            groups.push(Group { parent, depth, old, new });
        }
        groups
    })
}

/// Makes both trees keep the rule by cutting children down.
fn cut(mut groups: Vec<Group>, cut_to: fn(child: &str, parent: &str) -> String) -> Vec<Group> {
    for at in 0..groups.len() {
        if let Some(parent) = groups[at].parent {
            groups[at].old = cut_to(&groups[at].old, &groups[parent].old);
            groups[at].new = cut_to(&groups[at].new, &groups[parent].new);
        }
    }
    groups
}

/// Plays the plan on the model: a write after which a group does not fit is a failure.
fn replay(resource: Resource, groups: &[Group], shuffled: &[usize], fits: Fits, refused: Option<usize>) {
    let items = shuffled.iter().map(|at| Item {
        held: Held::Cgroup { resource, version: V1 },
        depth: groups[*at].depth,
        value: groups[*at].new.clone(),
        current: groups[*at].old.clone(),
    });
    let mut plan = Plan::new(items.collect());
    let mut state: Vec<String> = groups.iter().map(|group| group.old.clone()).collect();
    let keeps_rule = |state: &[String]| {
        groups.iter().zip(state).all(|(group, value)| fits_above(groups, state, group, value, fits))
    };
    assert!(keeps_rule(&state), "the tree before");
    let mut steps = 0;
    while let Some(step) = plan.next_step() {
        let group = shuffled[step.item];
        let before = std::mem::replace(&mut state[group], step.value.clone());
        let holds = keeps_rule(&state);
        assert!(holds || refused.is_some(), "write {steps} breaks the rule: {step:?} in {groups:?}");
        let is_ok = holds && refused != Some(steps);
        if !is_ok {
            state[group] = before;
        }
        plan.done(is_ok);
        steps += 1;
        assert!(steps <= 2 * groups.len(), "each file is written at most twice");
    }
    if refused.is_none() {
        for (group, value) in groups.iter().zip(&state) {
            assert!(is_same(resource, &group.new, value), "{value} is not what {group:?} wants");
        }
    }
}

/// A quota of -1 is whatever the next group above has, so the nearest limit counts.
fn fits_above(groups: &[Group], state: &[String], group: &Group, value: &str, fits: Fits) -> bool {
    let mut above = group.parent;
    while let Some(parent) = above {
        if state[parent] != "-1" {
            return fits(value, &state[parent]);
        }
        above = groups[parent].parent;
    }
    true
}

fn number_fits(child: &str, parent: &str) -> bool {
    child == "-1" || child.parse::<i64>().unwrap() <= parent.parse::<i64>().unwrap()
}

fn cpus_fit(child: &str, parent: &str) -> bool {
    child.parse::<CpuSet>().unwrap().is_subset(&parent.parse::<CpuSet>().unwrap())
}

fn orders(count: usize) -> impl Strategy<Value = Vec<usize>> {
    Just((0..count).collect::<Vec<usize>>()).prop_shuffle()
}

fn quotas() -> impl Strategy<Value = (String, String)> + Clone {
    let quota = prop_oneof![1 => Just(-1i64), 3 => 1i64..8];
    (quota.clone(), quota).prop_map(|(old, new)| (old.to_string(), new.to_string()))
}

fn cpusets() -> impl Strategy<Value = (String, String)> + Clone {
    let cpus = prop::collection::btree_set(0u32..6, 1..6);
    (cpus.clone(), cpus).prop_map(|(old, new)| {
        let list = |cpus: std::collections::BTreeSet<u32>| cpus.into_iter().collect::<CpuSet>().to_string();
        (list(old), list(new))
    })
}

/// A child's quota under its parent's own value; below `-1` anything goes that fits further up.
fn cut_quotas(groups: Vec<Group>) -> Vec<Group> {
    let mut groups = groups;
    for at in 0..groups.len() {
        for pick in [0, 1] {
            let value = |group: &Group| if pick == 0 { group.old.clone() } else { group.new.clone() };
            let mut above = groups[at].parent;
            while let Some(parent) = above {
                let limit = value(&groups[parent]);
                if limit != "-1" {
                    let own = value(&groups[at]);
                    if !number_fits(&own, &limit) {
                        if pick == 0 { groups[at].old = limit } else { groups[at].new = limit }
                    }
                    break;
                }
                above = groups[parent].parent;
            }
        }
    }
    groups
}

fn cut_cpus(child: &str, parent: &str) -> String {
    let (child, parent): (CpuSet, CpuSet) = (child.parse().unwrap(), parent.parse().unwrap());
    let shared = &child & &parent;
    if shared.is_empty() { parent.to_string() } else { shared.to_string() }
}

fn with_order(groups: Vec<Group>) -> impl Strategy<Value = (Vec<Group>, Vec<usize>)> {
    let order = orders(groups.len());
    (Just(groups), order)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn quotas_never_exceed_those_above(
        (groups, order) in trees(quotas()).prop_map(cut_quotas).prop_flat_map(with_order),
        refused in prop::option::weighted(0.3, 0usize..8),
    ) {
        replay(Resource::CfsQuotaUs, &groups, &order, number_fits, refused);
    }

    #[test]
    fn cpusets_stay_within_those_above(
        (groups, order) in trees(cpusets()).prop_map(|groups| cut(groups, cut_cpus)).prop_flat_map(with_order),
        refused in prop::option::weighted(0.3, 0usize..8),
    ) {
        replay(Resource::CpusetCpus, &groups, &order, cpus_fit, refused);
    }

    #[test]
    fn protections_stay_within_those_above(
        (groups, order) in trees((0i64..8, 0i64..8).prop_map(|(old, new)| (old.to_string(), new.to_string())))
            .prop_map(|groups| cut(groups, |child, parent| {
                child.parse::<i64>().unwrap().min(parent.parse().unwrap()).to_string()
            }))
            .prop_flat_map(with_order),
    ) {
        replay(Resource::MemoryMin, &groups, &order, number_fits, None);
    }
}
