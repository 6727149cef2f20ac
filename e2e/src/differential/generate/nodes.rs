//! Nodes: sizes, places, taints, images; and how one changes later.

use serde_json::{Map, Value, json};

use super::theme::Theme;
use super::{HOST, IMAGES, Maker, RACK, WIDGET, ZONE};

const DISKS: [&str; 3] = ["ssd", "hdd", "nvme"];

impl Maker {
    pub(super) fn make_nodes(&mut self) {
        let count = match self.random.below(10) {
            0 => self.random.between(20, 40),
            1..=3 => self.random.between(10, 19),
            _ => self.random.between(3, 9),
        };
        let zones = self.random.between(1, 4);
        for number in 0..count {
            let node = self.node(&format!("n{number:02}"), zones);
            self.nodes.push(node);
        }
    }

    pub(super) fn node(&mut self, name: &str, zones: usize) -> Value {
        let mut spec = Map::new();
        let taints = self.taints();
        if !taints.is_empty() {
            spec.insert("taints".to_owned(), json!(taints));
        }
        if self.random.percent(7) {
            spec.insert("unschedulable".to_owned(), json!(true));
        }
        let allocatable = self.allocatable();
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": self.labels(name, zones)},
            "spec": spec,
            "status": {"capacity": allocatable, "allocatable": allocatable, "images": self.images()}})
    }

    fn labels(&mut self, name: &str, zones: usize) -> Value {
        let mut labels = Map::new();
        if self.random.percent(95) {
            labels.insert(HOST.to_owned(), json!(name));
        }
        if self.random.percent(90) {
            labels.insert(ZONE.to_owned(), json!(format!("z{}", self.random.below(zones))));
        }
        if self.random.percent(60) {
            labels.insert("topology.kubernetes.io/region".to_owned(), json!("r0"));
        }
        if self.random.percent(50) {
            labels.insert(RACK.to_owned(), json!(format!("r{}", self.random.below(3))));
        }
        labels.insert("disk".to_owned(), json!(self.random.word(&DISKS)));
        labels.insert("tier".to_owned(), json!(self.random.word(&["1", "2", "3", "04", "10", "x"])));
        Value::Object(labels)
    }

    fn taints(&mut self) -> Vec<Value> {
        let mut taints = Vec::new();
        if self.random.percent(15) {
            let value = self.random.word(&["a", "b"]);
            taints.push(json!({"key": "dedicated", "value": value, "effect": "NoSchedule"}));
        }
        for number in 0..self.random.below(4) {
            if self.random.percent(25) {
                taints.push(
                    json!({"key": format!("soft-{number}"), "value": "s", "effect": "PreferNoSchedule"}),
                );
            }
        }
        if self.random.percent(5) {
            taints.push(json!({"key": "drain", "effect": "NoExecute"}));
        }
        taints
    }

    fn allocatable(&mut self) -> Value {
        let cpu = match self.theme {
            Theme::Preemption => self.random.word(&["2", "3", "4", "4", "5500m"]),
            _ => self.random.word(&["1", "2", "4", "4", "8", "8", "16", "32", "3900m", "7910m"]),
        };
        let memory = self.random.word(&["2Gi", "8Gi", "8Gi", "16Gi", "31853Mi", "64Gi", "15G"]);
        let pods = match self.random.percent(12) {
            true => self.random.between(1, 4).to_string(),
            false => "110".to_owned(),
        };
        let mut amounts = Map::new();
        for (name, amount) in [("cpu", cpu), ("memory", memory), ("pods", &pods)] {
            amounts.insert(name.to_owned(), json!(amount));
        }
        if self.random.percent(70) {
            amounts.insert("ephemeral-storage".to_owned(), json!(self.random.word(&["20Gi", "100Gi"])));
        }
        if self.random.percent(35) {
            amounts.insert(WIDGET.to_owned(), json!(self.random.between(1, 6).to_string()));
        }
        if self.random.percent(15) {
            amounts.insert("hugepages-2Mi".to_owned(), json!("512Mi"));
        }
        Value::Object(amounts)
    }

    fn images(&mut self) -> Value {
        let mut images = Vec::new();
        // The same size everywhere: where nodes disagree, kube-scheduler takes the word of whoever came first.
        let sizes = [8, 60, 200, 450, 900, 1500];
        for (image, size) in IMAGES.into_iter().zip(sizes) {
            if self.random.percent(30) {
                let tagged = match image.rsplit('/').next().is_some_and(|last| last.contains(':')) {
                    true => image.to_owned(),
                    false => format!("{image}:latest"),
                };
                images.push(json!({"names": [tagged], "sizeBytes": size * 1024 * 1024}));
            }
        }
        json!(images)
    }

    /// One of the nodes, changed: closed or opened, other taints, labels or sizes.
    pub(super) fn change_node(&mut self) -> Value {
        let at = self.random.below(self.nodes.len());
        let mut node = self.nodes[at].clone();
        match self.random.below(5) {
            0 => {
                let is_closed = node["spec"]["unschedulable"] == json!(true);
                node["spec"]["unschedulable"] = json!(!is_closed);
            }
            1 => node["spec"]["taints"] = json!(self.taints()),
            2 => node["metadata"]["labels"][ZONE] = json!(format!("z{}", self.random.below(4))),
            3 => node["metadata"]["labels"]["disk"] = json!(self.random.word(&DISKS)),
            _ => {
                let amounts = self.allocatable();
                node["status"]["capacity"] = amounts.clone();
                node["status"]["allocatable"] = amounts;
            }
        }
        self.nodes[at] = node.clone();
        node
    }
}
