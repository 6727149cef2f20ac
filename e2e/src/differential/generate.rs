//! Scenarios from seeds: small clusters, and pods that ask for everything a scheduler looks at.
//!
//! Pure. `theme` says how often each feature is drawn, `nodes`, `pods`, `constraints` and `volumes` draw it. All
//! objects are valid: one that the API server refuses is a fault of this module.

use serde_json::{Value, json};

use super::random::Random;
use super::scenario::{Scenario, Step, is_kind, name, namespace};
use theme::{Chances, Theme};
use volumes::Storage;

mod constraints;
mod nodes;
mod pods;
mod theme;
mod volumes;

const APPS: [&str; 4] = ["web", "db", "job", "cache"];
const REVISIONS: [&str; 3] = ["0", "1", "2"];
const NAMESPACES: [&str; 3] = ["default", "team-a", "team-b"];
const IMAGES: [&str; 6] = ["img/a:1", "img/b:1", "img/c:1", "img/d:2", "img/e", "registry.test:5000/img/f"];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const RACK: &str = "rack";
const WIDGET: &str = "example.com/widget";

/// The scenario of a seed.
pub fn scenario(seed: u64) -> Scenario {
    let theme = Theme::of(seed);
    let mut maker = Maker {
        random: Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        theme,
        chances: theme.chances(),
        nodes: Vec::new(),
        placed: Vec::new(),
        storage: Storage::new(seed),
    };
    let base = maker.base();
    let count = maker.random.between(8, 18);
    let steps = (1..=count).flat_map(|number| maker.steps(number)).collect();
    Scenario { family: theme.name().to_owned(), seed, base, steps }
}

/// A scenario in the making.
struct Maker {
    random: Random,
    theme: Theme,
    chances: Chances,
    nodes: Vec<Value>,
    /// Pods that may stand on a node: `namespace/name`.
    placed: Vec<String>,
    storage: Storage,
}

impl Maker {
    fn base(&mut self) -> Vec<Value> {
        let mut base = fixed();
        self.make_nodes();
        if self.random.percent(self.chances.workloads) {
            base.extend(self.workloads());
        }
        if self.random.percent(self.chances.claims) {
            base.extend(self.make_storage());
        }
        if self.random.percent(self.chances.budgets) {
            base.extend(self.budgets());
        }
        base.extend(self.nodes.clone());
        for number in 0..self.standing_count() {
            let node = name(self.random.pick(&self.nodes)).to_owned();
            base.push(self.standing_pod(&format!("b-{number:02}"), &node));
        }
        base
    }

    fn standing_count(&mut self) -> usize {
        let nodes = self.nodes.len();
        match self.theme {
            Theme::Preemption => nodes * self.random.between(1, 4),
            _ => self.random.below(nodes + 1),
        }
    }

    /// A pod that is on a node from the start. Nobody asks whether it fits there.
    fn standing_pod(&mut self, name: &str, node: &str) -> Value {
        let mut pod = self.pod(name);
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.remove("schedulingGates");
            spec.remove("volumes");
            spec.insert("nodeName".to_owned(), json!(node));
        }
        pod["status"] = json!({"phase": "Running"});
        self.placed.push(format!("{}/{name}", namespace(&pod)));
        pod
    }

    /// A pod to place, after changes now and then. Some wait for what comes if they find no node.
    fn steps(&mut self, number: usize) -> Vec<Step> {
        let mut step = Step::default();
        if self.random.percent(8) {
            step.delete.extend(self.some_pod());
        }
        if self.random.percent(12) {
            step.update.push(self.change_node());
        }
        let pod = self.pod(&format!("p-{number:02}"));
        let key = format!("{}/{}", namespace(&pod), name(&pod));
        step.create.push(pod);
        step.keep = self.random.percent(30);
        let mut steps = vec![step];
        if steps[0].keep {
            for event in 0..self.random.between(1, 3) {
                steps.push(self.event(number * 10 + event));
            }
        }
        self.placed.push(key);
        steps
    }

    /// One change that may let a pod fit.
    fn event(&mut self, number: usize) -> Step {
        let mut step = Step::default();
        match self.random.below(10) {
            0..=3 => step.delete.extend(self.some_pod()),
            4..=6 => step.update.push(self.change_node()),
            7 => {
                let node = name(self.random.pick(&self.nodes)).to_owned();
                step.create.push(self.standing_pod(&format!("e-{number:03}"), &node));
            }
            8 if self.nodes.len() > 2 => {
                let at = self.random.below(self.nodes.len());
                let node = self.nodes.remove(at);
                step.delete.push(format!("Node/{}", name(&node)));
            }
            _ => {
                let node = self.node(&format!("x{number:03}"), 3);
                self.nodes.push(node.clone());
                step.create.push(node);
            }
        }
        step
    }

    /// To be deleted.
    fn some_pod(&mut self) -> Option<String> {
        let count = self.placed.len();
        (count > 0).then(|| format!("Pod/{}", self.placed.swap_remove(self.random.below(count))))
    }

    /// Services and owners, by whose selectors pods are spread by default.
    fn workloads(&mut self) -> Vec<Value> {
        let mut made = Vec::new();
        for app in APPS {
            let selector = match self.random.below(3) {
                0 => json!({"app": app, "v": self.random.word(&REVISIONS)}),
                _ => json!({"app": app}),
            };
            let space = match self.random.percent(70) {
                true => "default",
                false => self.random.word(&NAMESPACES),
            };
            let meta = json!({"name": app, "namespace": space});
            if self.random.percent(60) {
                made.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": meta,
                    "spec": {"selector": selector, "ports": [{"port": 80}]}}));
            }
            if self.random.percent(60) {
                let template = json!({"metadata": {"labels": selector},
                    "spec": {"containers": [{"name": "c", "image": "img/a:1"}]}});
                made.push(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta,
                    "spec": {"replicas": 1, "selector": {"matchLabels": selector}, "template": template}}));
            }
        }
        made
    }

    fn budgets(&mut self) -> Vec<Value> {
        let apps = self.random.some(&APPS);
        let budget = |random: &mut Random, app: &str, number: usize| {
            let allowed = random.below(3);
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": format!("{app}-{number}"), "namespace": "default"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 3,
                    "desiredHealthy": 2, "expectedPods": 3}})
        };
        let mut made: Vec<Value> = apps.iter().map(|app| budget(&mut self.random, app, 0)).collect();
        if self.random.percent(30) {
            made.push(budget(&mut self.random, apps[0], 1));
        }
        made
    }
}

/// What every scenario has.
fn fixed() -> Vec<Value> {
    let class = |name: &str, value: i64, policy: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "preemptionPolicy": policy})
    };
    let space = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let made = vec![
        class("low", 1000, "PreemptLowerPriority"),
        class("mid", 5000, "PreemptLowerPriority"),
        class("high", 9000, "PreemptLowerPriority"),
        class("polite", 9000, "Never"),
        space("team-a", json!({"team": "a", "stage": "prod"})),
        space("team-b", json!({"team": "b"})),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
            "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "160Mi"}}}),
    ];
    debug_assert!(made.iter().any(|object| is_kind(object, "RuntimeClass")));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_and_cover_what_schedulers_look_at() {
        assert_eq!(scenario(5), scenario(5));
        assert_ne!(scenario(5).steps, scenario(5 + theme::COUNT).steps);
        let text = serde_json::to_string(&(0..150).map(scenario).collect::<Vec<_>>()).unwrap();
        for feature in [
            "matchFields",
            "nodeSelector",
            "podAffinity",
            "podAntiAffinity",
            "namespaceSelector",
            "minDomains",
            "matchLabelKeys",
            "mismatchLabelKeys",
            "nodeTaintsPolicy",
            "nodeAffinityPolicy",
            "hostPort",
            "hostIP",
            "schedulingGates",
            "kata",
            "restartPolicy",
            "ownerReferences",
            "persistentVolumeClaim",
            "priorityClassName",
            "unschedulable",
            "PodDisruptionBudget",
            "CSIStorageCapacity",
            "ReadWriteOncePod",
            "hugepages-2Mi",
            "Gt",
            "ephemeral-storage",
            "gcePersistentDisk",
        ] {
            assert!(text.contains(feature), "{feature}");
        }
    }

    #[test]
    fn names_are_unique() {
        for seed in 0..50 {
            let scenario = scenario(seed);
            let created = scenario.steps.iter().flat_map(|step| &step.create);
            let mut names: Vec<(&Value, &str, &str)> =
                scenario.base.iter().chain(created).map(|o| (&o["kind"], namespace(o), name(o))).collect();
            let count = names.len();
            names.sort_by_key(|(kind, space, name)| (kind.to_string(), *space, *name));
            names.dedup();
            assert_eq!(names.len(), count, "seed {seed}");
        }
    }
}
