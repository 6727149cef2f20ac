//! Pods: containers, sizes, ports, priorities.

use serde_json::{Map, Value, json};

use super::theme::Theme;
use super::{APPS, IMAGES, Maker, NAMESPACES, REVISIONS, WIDGET};

impl Maker {
    pub(super) fn pod(&mut self, name: &str) -> Value {
        let space = match self.random.percent(self.chances.other_namespace) {
            true => self.random.word(&NAMESPACES[1..]),
            false => NAMESPACES[0],
        };
        let app = self.random.word(&APPS);
        let mut labels = json!({"app": app, "v": self.random.word(&REVISIONS)});
        if self.random.percent(20) {
            labels["track"] = json!(self.random.word(&["stable", "canary"]));
        }
        let mut meta = json!({"name": name, "namespace": space, "labels": labels});
        if self.random.percent(self.chances.owned) {
            meta["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
                "uid": "5d2f3a1e-0000-4000-8000-000000000001", "controller": true}]);
        }
        let mut spec = Map::new();
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(0));
        spec.insert("containers".to_owned(), self.containers());
        if self.random.percent(self.chances.init) {
            spec.insert("initContainers".to_owned(), self.init_containers());
        }
        if self.random.percent(self.chances.overhead) {
            spec.insert("runtimeClassName".to_owned(), json!("kata"));
        }
        if self.random.percent(self.chances.pod_level) {
            self.ask_as_a_pod(&mut spec);
        }
        if self.random.percent(self.chances.priority) {
            spec.insert("priorityClassName".to_owned(), json!(self.priority_class()));
        }
        if self.random.percent(self.chances.gates) {
            spec.insert("schedulingGates".to_owned(), json!([{"name": "example.com/wait"}]));
        }
        self.constrain(&mut spec, app);
        self.add_volumes(&mut spec);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    }

    /// Amounts for the pod as a whole, which may not be less than those of its containers.
    fn ask_as_a_pod(&mut self, spec: &mut Map<String, Value>) {
        let containers = spec.iter_mut().filter(|(field, _)| field.ends_with("ontainers"));
        for container in containers.filter_map(|(_, list)| list.as_array_mut()).flatten() {
            container["resources"] = match self.random.percent(50) {
                true => json!({"requests": {"cpu": "50m"}}),
                false => json!({}),
            };
        }
        let mut requests = Map::new();
        if self.random.percent(80) {
            requests.insert("cpu".to_owned(), json!(self.random.word(&["300m", "1", "2500m"])));
        }
        if self.random.percent(80) {
            requests.insert("memory".to_owned(), json!(self.random.word(&["300Mi", "1Gi", "6Gi"])));
        }
        if !requests.is_empty() {
            spec.insert("resources".to_owned(), json!({"requests": requests}));
        }
    }

    fn priority_class(&mut self) -> &'static str {
        match self.theme {
            Theme::Preemption => self.random.word(&["low", "low", "mid", "mid", "high", "high", "polite"]),
            _ => self.random.word(&["low", "mid", "high"]),
        }
    }

    fn containers(&mut self) -> Value {
        let count = if self.random.percent(20) { 2 } else { 1 };
        let mut made = Vec::new();
        let mut ports_used = Vec::new();
        for number in 0..count {
            let mut container = json!({"name": format!("c{number}"), "image": self.random.word(&IMAGES)});
            let resources = self.resources(number == 0);
            container["resources"] = resources;
            if self.random.percent(self.chances.ports) {
                let port = self.port();
                let id = (port["hostPort"].clone(), port["protocol"].clone());
                if !ports_used.contains(&id) {
                    ports_used.push(id);
                    container["ports"] = json!([port]);
                }
            }
            made.push(container);
        }
        json!(made)
    }

    fn port(&mut self) -> Value {
        let number = self.random.between(8000, 8002);
        let mut port =
            json!({"containerPort": 80, "hostPort": number, "protocol": self.random.word(&["TCP", "UDP"])});
        if self.random.percent(40) {
            port["hostIP"] = json!(self.random.word(&["10.0.0.1", "10.0.0.2", "0.0.0.0"]));
        }
        port
    }

    fn resources(&mut self, is_first: bool) -> Value {
        let mut requests = Map::new();
        let mut limits = Map::new();
        if self.random.percent(75) {
            requests.insert("cpu".to_owned(), json!(self.cpu()));
        }
        if self.random.percent(75) {
            requests.insert("memory".to_owned(), json!(self.memory()));
        }
        if self.random.percent(10) {
            requests
                .insert("ephemeral-storage".to_owned(), json!(self.random.word(&["1Gi", "15Gi", "60Gi"])));
        }
        if is_first && self.random.percent(self.chances.widgets) {
            let amount = json!(self.random.between(1, 3).to_string());
            requests.insert(WIDGET.to_owned(), amount.clone());
            limits.insert(WIDGET.to_owned(), amount);
        }
        // Huge pages go with ordinary amounts only.
        if is_first && self.random.percent(4) && requests.contains_key("cpu") {
            requests.insert("hugepages-2Mi".to_owned(), json!("128Mi"));
            limits.insert("hugepages-2Mi".to_owned(), json!("128Mi"));
        }
        if self.random.percent(8) && !requests.contains_key("memory") {
            // A limit without a request becomes one.
            limits.insert("memory".to_owned(), json!("700Mi"));
        }
        json!({"requests": requests, "limits": limits})
    }

    fn cpu(&mut self) -> &'static str {
        match self.theme {
            Theme::Preemption => self.random.word(&["500m", "1", "1500m", "2", "2", "3"]),
            _ => {
                self.random.word(&["0", "1m", "50m", "100m", "250m", "500m", "999m", "1", "1500m", "2", "3"])
            }
        }
    }

    fn memory(&mut self) -> &'static str {
        let sizes = ["0", "1", "64Mi", "100M", "200Mi", "512Mi", "1Gi", "1.5Gi", "2Gi", "5Gi"];
        self.random.word(&sizes)
    }

    fn init_containers(&mut self) -> Value {
        let mut made = Vec::new();
        for number in 0..self.random.between(1, 3) {
            let requests = json!({"cpu": self.cpu(), "memory": self.memory()});
            let mut container = json!({"name": format!("i{number}"), "image": self.random.word(&IMAGES),
                "resources": {"requests": requests}});
            if self.random.percent(50) {
                container["restartPolicy"] = json!("Always");
                if self.random.percent(self.chances.ports) {
                    container["ports"] = json!([{"containerPort": 81, "hostPort": 8010}]);
                }
            }
            made.push(container);
        }
        json!(made)
    }
}
