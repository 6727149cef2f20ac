//! What pods ask of nodes and of each other.

use serde_json::{Map, Value, json};

use super::{APPS, HOST, Maker, NAMESPACES, RACK, REVISIONS, ZONE, name};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl Maker {
    pub(super) fn constrain(&mut self, spec: &mut Map<String, Value>, app: &str) {
        if self.random.percent(self.chances.node_selector) {
            let disk = self.random.word(&["ssd", "ssd", "hdd", "nvme", "tape"]);
            spec.insert("nodeSelector".to_owned(), json!({"disk": disk}));
        }
        if self.random.percent(self.chances.tolerations) {
            spec.insert("tolerations".to_owned(), self.tolerations());
        }
        let mut affinity = Map::new();
        affinity.extend(self.node_affinity().map(|value| ("nodeAffinity".to_owned(), value)));
        let (required, preferred) = (self.chances.affinity, self.chances.pod_preference);
        affinity.extend(self.pod_affinity(app, required, preferred).map(|v| ("podAffinity".to_owned(), v)));
        let required = self.chances.anti_affinity;
        affinity
            .extend(self.pod_affinity(app, required, preferred).map(|v| ("podAntiAffinity".to_owned(), v)));
        if !affinity.is_empty() {
            spec.insert("affinity".to_owned(), Value::Object(affinity));
        }
        if self.random.percent(self.chances.spread) {
            spec.insert("topologySpreadConstraints".to_owned(), self.spread(app));
        }
    }

    fn tolerations(&mut self) -> Value {
        let mut made = Vec::new();
        for _ in 0..self.random.between(1, 3) {
            made.push(match self.random.below(7) {
                0 => json!({"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}),
                1 => json!({"key": "dedicated", "operator": "Exists"}),
                2 => json!({"key": "soft-0", "operator": "Exists", "effect": "PreferNoSchedule"}),
                3 => json!({"key": "soft-1", "operator": "Equal", "value": "s"}),
                4 => json!({"key": "drain", "operator": "Exists", "effect": "NoExecute"}),
                5 => json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}),
                _ => json!({"operator": "Exists"}),
            });
        }
        json!(made)
    }

    fn node_affinity(&mut self) -> Option<Value> {
        let mut made = Map::new();
        if self.random.percent(self.chances.node_affinity) {
            let count = self.random.between(1, 2);
            let terms: Vec<Value> = (0..count).map(|_| self.node_term(true)).collect();
            made.insert(REQUIRED.to_owned(), json!({"nodeSelectorTerms": terms}));
        }
        if self.random.percent(self.chances.node_preference) {
            let count = self.random.between(1, 3);
            let terms: Vec<Value> = (0..count)
                .map(|_| json!({"weight": self.random.between(1, 100), "preference": self.node_term(false)}))
                .collect();
            made.insert(PREFERRED.to_owned(), json!(terms));
        }
        (!made.is_empty()).then_some(Value::Object(made))
    }

    fn node_term(&mut self, with_fields: bool) -> Value {
        let mut term = Map::new();
        if with_fields && self.random.percent(25) {
            let names = [name(self.random.pick(&self.nodes)).to_owned(), "n99".to_owned()];
            let operator = self.random.word(&["In", "In", "NotIn"]);
            let name = self.random.pick(&names).clone();
            let field = json!({"key": "metadata.name", "operator": operator, "values": [name]});
            term.insert("matchFields".to_owned(), json!([field]));
        }
        if term.is_empty() || self.random.percent(40) {
            let count = self.random.between(1, 2);
            let list: Vec<Value> = (0..count).map(|_| self.node_requirement()).collect();
            term.insert("matchExpressions".to_owned(), json!(list));
        }
        Value::Object(term)
    }

    fn node_requirement(&mut self) -> Value {
        match self.random.below(7) {
            0 => {
                json!({"key": "disk", "operator": "In", "values": self.random.some(&["ssd", "hdd", "nvme"])})
            }
            1 => json!({"key": "disk", "operator": "NotIn", "values": self.random.some(&["ssd", "hdd"])}),
            2 => json!({"key": "tier", "operator": "Gt", "values": [self.random.word(&["0", "1", "2"])]}),
            3 => json!({"key": "tier", "operator": "Lt", "values": [self.random.word(&["2", "3", "9"])]}),
            4 => json!({"key": self.random.word(&[RACK, ZONE]), "operator": "Exists"}),
            5 => json!({"key": RACK, "operator": "DoesNotExist"}),
            _ => json!({"key": ZONE, "operator": "In", "values": self.random.some(&["z0", "z1", "z2"])}),
        }
    }

    fn pod_affinity(&mut self, app: &str, required: usize, preferred: usize) -> Option<Value> {
        let mut made = Map::new();
        if self.random.percent(required) {
            let count = if self.random.percent(20) { 2 } else { 1 };
            let terms: Vec<Value> = (0..count).map(|_| self.pod_term(app)).collect();
            made.insert(REQUIRED.to_owned(), json!(terms));
        }
        if self.random.percent(preferred) {
            let count = self.random.between(1, 2);
            let terms: Vec<Value> = (0..count)
                .map(
                    |_| json!({"weight": self.random.between(1, 100), "podAffinityTerm": self.pod_term(app)}),
                )
                .collect();
            made.insert(PREFERRED.to_owned(), json!(terms));
        }
        (!made.is_empty()).then_some(Value::Object(made))
    }

    fn pod_term(&mut self, app: &str) -> Value {
        let key = self.random.word(&[ZONE, ZONE, HOST, HOST, RACK]);
        let mut term = json!({"topologyKey": key, "labelSelector": self.pod_selector(app)});
        if self.random.percent(20) {
            term["namespaces"] = json!(self.random.some(&NAMESPACES));
        }
        if self.random.percent(20) {
            // None that matches a namespace without labels: kube-scheduler 1.35 takes the namespaces of other pods for
            // such when it looks at the terms of the pod itself.
            term["namespaceSelector"] = match self.random.below(3) {
                0 => json!({}),
                1 => json!({"matchLabels": {"team": "a"}}),
                _ => json!({"matchExpressions": [{"key": "stage", "operator": "Exists"}]}),
            };
        }
        // A key may not be named twice.
        if !names_track(&term["labelSelector"]) && self.random.percent(10) {
            let field = self.random.word(&["matchLabelKeys", "mismatchLabelKeys"]);
            term[field] = json!(["track"]);
        }
        term
    }

    fn pod_selector(&mut self, app: &str) -> Value {
        match self.random.below(8) {
            0..=2 => json!({"matchLabels": {"app": app}}),
            3 | 4 => json!({"matchLabels": {"app": self.random.word(&APPS)}}),
            5 => json!({"matchExpressions": [
                {"key": "v", "operator": "In", "values": self.random.some(&REVISIONS)}]}),
            6 => {
                json!({"matchExpressions": [{"key": "track", "operator": self.random.word(&["Exists", "DoesNotExist"])}]})
            }
            _ => json!({}),
        }
    }

    fn spread(&mut self, app: &str) -> Value {
        let mut made: Vec<Value> = Vec::new();
        for _ in 0..self.random.between(1, 3) {
            let key = self.random.word(&[ZONE, ZONE, HOST, RACK]);
            let when = self.random.word(&["DoNotSchedule", "ScheduleAnyway"]);
            let is_there = |one: &Value| one["topologyKey"] == key && one["whenUnsatisfiable"] == when;
            if made.iter().any(is_there) {
                continue;
            }
            let mut one =
                json!({"topologyKey": key, "whenUnsatisfiable": when, "maxSkew": self.random.between(1, 3)});
            if self.random.percent(95) {
                one["labelSelector"] = self.pod_selector(app);
            }
            if when == "DoNotSchedule" && self.random.percent(30) {
                one["minDomains"] = json!(self.random.between(1, 5));
            }
            for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
                if self.random.percent(30) {
                    one[policy] = json!(self.random.word(&["Honor", "Ignore"]));
                }
            }
            let is_open = one.get("labelSelector").is_some_and(|selector| !names_track(selector));
            if is_open && self.random.percent(15) {
                one["matchLabelKeys"] = json!(["track"]);
            }
            made.push(one);
        }
        json!(made)
    }
}

fn names_track(selector: &Value) -> bool {
    selector.to_string().contains("track")
}
