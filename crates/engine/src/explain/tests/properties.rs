//! Whatever is claimed is so: every change that is offered, made for real, gets the pod placed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::explain::Change;

/// A small cluster with one pod that waits.
#[derive(Clone, Debug)]
struct World {
    nodes: Vec<Value>,
    pods: Vec<Value>,
    waiting: Value,
}

const HOSTNAME: &str = "kubernetes.io/hostname";

fn selector(app: u8) -> Value {
    json!({"matchLabels": {"app": format!("a{app}")}})
}

fn key(kind: u8) -> &'static str {
    if kind == 0 { "zone" } else { HOSTNAME }
}

fn nodes() -> impl Strategy<Value = Vec<Value>> {
    let one = (1..5u8, 0..3u8, 0..8u8, prop::bool::weighted(0.2), 1..4u8);
    prop::collection::vec(one, 1..5).prop_map(|list| {
        let make = |(index, (cpu, zone, taint, is_cordoned, pods)): (usize, (u8, u8, u8, bool, u8))| {
            let mut extra = json!({
                "metadata": {"labels": {"disk": if cpu % 2 == 0 { "ssd" } else { "hdd" }}},
                "spec": {"unschedulable": is_cordoned, "taints": []},
                "status": {"allocatable": {"cpu": cpu.to_string(), "pods": pods.to_string()}},
            });
            // Some nodes lack the label.
            if zone < 2 {
                extra["metadata"]["labels"]["zone"] = json!(format!("z{zone}"));
            }
            let mut taints = Vec::new();
            if taint < 2 {
                taints.push(json!({"key": "team", "value": format!("t{taint}"), "effect": "NoSchedule"}));
            }
            if taint == 1 {
                taints.push(json!({"key": "slow", "effect": "NoExecute"}));
            }
            if is_cordoned {
                taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
            }
            extra["spec"]["taints"] = json!(taints);
            node(&format!("n{index}"), extra)
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

fn terms() -> impl Strategy<Value = Value> {
    prop::collection::vec((0..3u8, 0..2u8), 0..3).prop_map(|terms| {
        let term = |(app, kind)| json!({"topologyKey": key(kind), "labelSelector": selector(app)});
        terms.into_iter().map(term).collect()
    })
}

fn placed() -> impl Strategy<Value = Vec<(u8, u8, u8, i32, bool, Value)>> {
    let one = (0..5u8, 1..3u8, 0..3u8, -1..2i32, prop::bool::weighted(0.1), terms());
    prop::collection::vec(one, 0..8)
}

type Wishes = (u8, u8, Value, Value, u8, u8, bool, u8);

fn wishes() -> impl Strategy<Value = Wishes> {
    (1..6u8, 0..3u8, terms(), terms(), 0..5u8, 0..5u8, prop::bool::weighted(0.2), 0..6u8)
}

fn affinity(pods: &Value, anti: &Value) -> Value {
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pods},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": anti}})
}

fn waiting((cpu, app, pods, anti, selects, spreads, has_port, required): Wishes) -> Value {
    // Affinity to pods is rarely met by chance: at most one term of it.
    let pods: Value = pods.as_array().unwrap().iter().take(usize::from(spreads == 0)).cloned().collect();
    let mut x = pod(
        "x",
        &cpu.to_string(),
        "",
        json!({"metadata": {"labels": {"app": format!("a{app}")}},
        "spec": {"affinity": affinity(&pods, &anti)}}),
    );
    match selects {
        0 => x["spec"]["nodeSelector"] = json!({"zone": "z0"}),
        1 => x["spec"]["nodeSelector"] = json!({"zone": "z1", "disk": "ssd"}),
        _ => {}
    }
    if required < 2 {
        let mut expressions = vec![json!({"key": "disk", "operator": "In", "values": ["ssd"]})];
        if required == 1 {
            expressions.push(json!({"key": "zone", "operator": "Exists"}));
        }
        x["spec"]["affinity"]["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": expressions}]}});
    }
    if spreads < 3 {
        x["spec"]["topologySpreadConstraints"] = json!([{"topologyKey": key(spreads % 2), "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector(app),
            "nodeTaintsPolicy": if spreads == 2 { "Honor" } else { "Ignore" }}]);
    }
    if has_port {
        x["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    }
    x
}

fn world() -> impl Strategy<Value = World> {
    (nodes(), placed(), wishes()).prop_map(|(nodes, placed, wishes)| {
        let pods =
            placed.into_iter().enumerate().map(|(index, (at, cpu, app, priority, is_leaving, anti))| {
                let at = format!("n{}", usize::from(at) % nodes.len());
                let mut extra = json!({"metadata": {"labels": {"app": format!("a{app}")}},
                "spec": {"priority": priority, "affinity": affinity(&json!([]), &anti)}});
                if is_leaving {
                    extra["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
                }
                let mut placed = pod(&format!("p{index}"), &cpu.to_string(), &at, extra);
                if app == 0 {
                    placed["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
                }
                placed
            });
        World { pods: pods.collect(), nodes, waiting: waiting(wishes) }
    })
}

impl World {
    fn lab(&self) -> Lab {
        let mut lab = Lab::of(&self.nodes, &self.pods);
        lab.pod(&self.waiting);
        lab
    }

    fn forget_pod(&mut self, name: &str) {
        self.pods.retain(|pod| pod["metadata"]["name"] != *name.strip_prefix("default/").unwrap());
    }

    /// Makes a change for real.
    fn make(&mut self, change: &Change) {
        let spec = &mut self.waiting["spec"];
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        match change {
            Change::RemoveGates { .. } => {}
            Change::WaitForPod { pod, .. } => self.forget_pod(&pod.clone()),
            Change::RemovePod { holder, .. } => self.forget_pod(&holder.pod.clone()),
            Change::LowerRequest { resource, to, .. } => {
                spec["containers"][0]["resources"]["requests"][resource] = json!(to);
            }
            Change::Uncordon { node } => {
                let node = self.nodes.iter_mut().find(|known| known["metadata"]["name"] == **node).unwrap();
                node["spec"]["unschedulable"] = json!(false);
                let taints = node["spec"]["taints"].as_array_mut().unwrap();
                taints.retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
            }
            Change::Tolerate { key, value, effect } => {
                spec["tolerations"] =
                    json!([{"key": key, "operator": "Equal", "value": value, "effect": effect}]);
            }
            Change::DropNodeSelector { labels } => {
                let all = spec["nodeSelector"].as_object_mut().unwrap();
                all.retain(|key, value| !labels.contains(&format!("{key}={}", value.as_str().unwrap())));
            }
            Change::DropNodeAffinity { condition } => drop_condition(spec, condition),
            Change::RaiseMaxSkew { to, .. } => spec["topologySpreadConstraints"][0]["maxSkew"] = json!(to),
            Change::SoftenSpread { .. } => {
                spec["topologySpreadConstraints"][0]["whenUnsatisfiable"] = json!("ScheduleAnyway");
            }
            Change::DropPodAffinity { topology_key, pods } => {
                drop_term(&mut spec["affinity"]["podAffinity"][required], topology_key, pods);
            }
            Change::DropPodAntiAffinity { topology_key, pods } => {
                drop_term(&mut spec["affinity"]["podAntiAffinity"][required], topology_key, pods);
            }
            Change::DropHostPort { .. } => spec["containers"][0]["ports"] = json!([]),
            Change::AddNode { like, at_least } => self.add_node(like, at_least),
        }
    }

    fn add_node(&mut self, like: &str, at_least: &BTreeMap<String, String>) {
        let model = self.nodes.iter().find(|known| known["metadata"]["name"] == *like);
        let mut new = model.cloned().unwrap();
        new["metadata"]["name"] = json!("new");
        new["metadata"]["labels"][HOSTNAME] = json!("new");
        for (resource, amount) in at_least {
            new["status"]["allocatable"][resource] = json!(amount);
        }
        self.nodes.push(new);
    }
}

fn drop_condition(spec: &mut Value, condition: &str) {
    let affinity = &mut spec["affinity"]["nodeAffinity"];
    let terms = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let expressions = terms[0]["matchExpressions"].as_array_mut().unwrap();
    let key = condition.split(' ').next().unwrap();
    expressions.retain(|expression| !condition.is_empty() && expression["key"] != *key);
    if expressions.is_empty() {
        *affinity = Value::Null;
    }
}

/// One of the terms that read so.
fn drop_term(terms: &mut Value, key: &str, pods: &str) {
    let terms = terms.as_array_mut().unwrap();
    let reads_so = |term: &Value| {
        let app = term["labelSelector"]["matchLabels"]["app"].as_str().unwrap();
        term["topologyKey"] == *key && pods == format!("pods with app={app}")
    };
    let at = terms.iter().position(reads_so).unwrap();
    terms.remove(at);
}

/// Where the pod goes, if anywhere.
fn node_of_x(world: &World) -> Option<String> {
    let mut lab = world.lab();
    lab.settle().iter().find_map(|command| match command {
        Command::Bind(binding) => Some(binding.node.to_string()),
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_change_that_is_offered_helps(world in world()) {
        let mut lab = world.lab();
        let explanation = lab.explain("x");
        let placed = node_of_x(&world);
        prop_assert_eq!(placed.is_some(), explanation.nodes_that_fit > 0);
        prop_assert_eq!(explanation.message.is_none(), explanation.nodes_that_fit > 0);
        for fix in &explanation.changes {
            let mut changed = world.clone();
            changed.make(&fix.change);
            let node = node_of_x(&changed);
            prop_assert!(node.is_some(), "{} does not help:\n{}", fix.sentence(), explanation.to_text());
            let fitting = changed.lab().explain("x").nodes_that_fit;
            prop_assert!(fitting >= fix.nodes, "{}: {} nodes", fix.sentence(), fitting);
        }
        // Nodes are refused for what the message says, and the counts add up.
        if explanation.nodes_that_fit == 0 {
            let most = explanation.reasons.iter().map(|cause| cause.nodes).sum::<usize>();
            prop_assert!(most >= explanation.nodes, "{:?}", explanation.reasons);
        }
    }
}
