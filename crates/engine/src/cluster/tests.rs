//! Order, ghosts and the ledger against its recount.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn node(name: &str, labels: serde_json::Value) -> core::Node {
    let object = json!({"metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/x": "3"}}});
    serde_json::from_value(object).unwrap()
}

fn pod(name: &str, node: &str, cpu: &str) -> core::Pod {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": "a"}}, "spec": {
        "nodeName": node,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "a"}}}]}},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/x": "1"}},
            "ports": [{"containerPort": 1, "hostPort": 80}]}]}}),
    )
    .unwrap()
}

#[test]
fn nodes_are_visited_zone_by_zone() {
    let zone = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
    let beta = json!({"failure-domain.beta.kubernetes.io/zone": "z2"});
    let regional = json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z1"});
    let mut cluster = Cluster::default();
    let order = |cluster: &mut Cluster| {
        let rows = cluster.visiting_order().to_vec();
        rows.iter().map(|row| cluster.node(*row).name.to_string()).collect::<Vec<_>>().join(" ")
    };
    for name in ["a1", "a2", "a3"] {
        cluster.set_node(&node(name, zone("z1")));
    }
    cluster.set_node(&node("b1", zone("z2")));
    cluster.set_node(&node("c1", json!({})));
    cluster.set_node(&node("c2", json!({})));
    cluster.set_node(&node("d1", regional));
    cluster.set_node(&node("e1", beta));
    assert_eq!(order(&mut cluster), "a1 b1 c1 d1 a2 e1 c2 a3", "scheduler-core#2.2.O1");
    cluster.remove_node("a1");
    assert_eq!(order(&mut cluster), "a2 b1 c1 d1 a3 e1 c2", "scheduler-core#2.2.O2");
    cluster.set_node(&node("a2", zone("z9")));
    assert_eq!(order(&mut cluster), "a2 b1 c1 d1 a3 e1 c2", "scheduler-core#2.2.O3");
    cluster.set_node(&node("a1", zone("z1")));
    assert_eq!(order(&mut cluster), "a3 b1 c1 d1 a2 a1 e1 c2", "scheduler-core#2.2.O4");
    cluster.remove_node("b1");
    cluster.remove_node("e1");
    assert_eq!(order(&mut cluster), "a3 c1 d1 a2 a1 c2", "scheduler-core#2.2.O5");
    cluster.set_node(&node("b9", zone("z2")));
    assert_eq!(order(&mut cluster), "a3 c1 d1 a2 b9 a1 c2", "scheduler-core#2.2.O5");
}

#[test]
fn pods_alike_share_a_class() {
    let mut cluster = Cluster::default();
    let (a, b) = (cluster.compile(&pod("a", "", "1")), cluster.compile(&pod("b", "n", "1")));
    assert!(Arc::ptr_eq(&a.class, &b.class));
    let other = cluster.compile(&pod("c", "", "2"));
    assert!(!Arc::ptr_eq(&a.class, &other.class));
}

#[test]
fn a_ghost_lives_as_long_as_its_pods() {
    let mut cluster = Cluster::default();
    let early = Arc::new(cluster.compile(&pod("p", "late", "1")));
    assert_eq!(cluster.confirm(early), None);
    assert_eq!(cluster.node_count(), 0);
    let row = cluster.row("late").unwrap();
    assert!(!cluster.columns.is_real[row.index()]);
    assert!(cluster.set_node(&node("late", json!({}))));
    assert_eq!((cluster.columns.cpu.free(row), cluster.node_count()), (3000, 1));
    assert!(cluster.remove_node("late"));
    assert!(cluster.row("late").is_some() && cluster.node_count() == 0);
    assert!(cluster.release("p"));
    assert!(cluster.row("late").is_none());
}

#[test]
fn assumptions_are_confirmed_or_forgotten() {
    let mut cluster = Cluster::default();
    cluster.set_node(&node("a", json!({})));
    cluster.set_node(&node("b", json!({})));
    let a = cluster.row("a").unwrap();
    let waiting = Arc::new(cluster.compile(&pod("p", "", "1")));
    cluster.assume(waiting.clone(), a).unwrap();
    assert!(cluster.is_assumed("p"));
    let again = cluster.assume(waiting.clone(), a).unwrap_err();
    assert_eq!(again.to_string(), "pod d/p is in the cache, so can't be assumed");
    let elsewhere = Arc::new(cluster.compile(&pod("p", "b", "1")));
    let conflict = cluster.confirm(elsewhere).unwrap();
    assert_eq!(conflict.to_string(), "pod d/p was assumed on a but is on b");
    assert_eq!(cluster.forget("p").unwrap_err().to_string(), "pod d/p wasn't assumed so cannot be forgotten");
    assert_eq!(cluster.columns.cpu.free(a), 4000);
    assert_eq!(cluster.forget("nobody"), Ok(()));
    cluster.release("p");
    cluster.assume(waiting, a).unwrap();
    cluster.forget("p").unwrap();
    assert_eq!((cluster.pod_count(), cluster.assumed_count()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Node(u8),
    NodeGone(u8),
    Assume(u8, u8),
    Forget(u8),
    Seen(u8, u8, u8),
    Gone(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u8).prop_map(Step::Node),
        (0..4u8).prop_map(Step::NodeGone),
        (0..8u8, 0..4u8).prop_map(|(pod, node)| Step::Assume(pod, node)),
        (0..8u8).prop_map(Step::Forget),
        (0..8u8, 0..4u8, 1..4u8).prop_map(|(pod, node, cpu)| Step::Seen(pod, node, cpu)),
        (0..8u8).prop_map(Step::Gone),
    ]
}

proptest! {
    #[test]
    fn the_ledger_equals_a_recount_after_any_history(steps in prop::collection::vec(step(), 0..80)) {
        let mut cluster = Cluster::default();
        for step in steps {
            match step {
                Step::Node(n) => drop(cluster.set_node(&node(&format!("n{n}"), json!({"z": n.to_string()})))),
                Step::NodeGone(n) => drop(cluster.remove_node(&format!("n{n}"))),
                Step::Assume(p, n) => {
                    let record = Arc::new(cluster.compile(&pod(&format!("p{p}"), "", "1")));
                    if let Some(row) = cluster.row(&format!("n{n}")) {
                        let _ = cluster.assume(record, row);
                    }
                }
                Step::Forget(p) => drop(cluster.forget(&format!("p{p}"))),
                Step::Seen(p, n, cpu) => {
                    let object = pod(&format!("p{p}"), &format!("n{n}"), &cpu.to_string());
                    let record = Arc::new(cluster.compile(&object));
                    let _ = cluster.confirm(record);
                }
                Step::Gone(p) => drop(cluster.release(&format!("p{p}"))),
            }
            prop_assert_eq!(cluster.ledger(), cluster.recount());
            let real = (0..4).filter(|n| cluster.row(&format!("n{n}")).is_some_and(|row| cluster.node(row).is_real));
            prop_assert_eq!(real.count(), cluster.node_count());
            prop_assert_eq!(cluster.visiting_order().len(), cluster.node_count());
            check_matches(&mut cluster);
        }
    }
}

/// Every followed count equals one made from the pods.
fn check_matches(cluster: &mut Cluster) {
    let wanted = Arc::new(cluster.compile(&pod("asking", "", "1")));
    cluster.tidy();
    cluster.attend(&wanted.class);
    let term = &wanted.class.anti_affinity[0];
    let matching = cluster.matching();
    let id = matching.set(&term.pods).unwrap();
    let held = matching.known_meant_by(&wanted.class);
    let column = cluster.domains().key(term.topology_key).unwrap();
    let mut rows: HashMap<Row, i64> = HashMap::new();
    let mut domains = vec![0i64; column.len()];
    for held in cluster.all_held() {
        *rows.entry(held.row).or_default() += 1;
        domains[super::domains::at(column.of(held.row))] += 1;
    }
    let all = matching.all(id);
    assert_eq!(all.rows().collect::<HashMap<Row, i64>>(), rows);
    let mut counted = all.by_domain(term.topology_key).unwrap().to_vec();
    counted.resize(domains.len(), 0);
    assert_eq!(counted, domains);
    assert!(held.len() <= 1);
    let holders: i64 = held.iter().map(|id| matching.holders(*id).total()).sum();
    assert_eq!(holders, i64::try_from(cluster.pod_count()).unwrap());
}
