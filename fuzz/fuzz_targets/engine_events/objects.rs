//! Objects from bytes: mostly such as users write, and now and then such as no API server lets through.

use koord_api::keys;
use koord_engine::engine::Input;
use serde_json::{Map, Value, json};

use super::tape::Tape;

pub(crate) const STANDARD: &str = "default-scheduler";
pub(crate) const OURS: &str = "koord-scheduler";

const NAMESPACES: [&str; 3] = ["default", "team-a", ""];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const KEYS: [&str; 6] = [HOST, ZONE, "rack", "app", "", "not a key//"];
const VALUES: [&str; 8] = ["a", "b", "c", "1", "-5", "99999999999999999999", "", "white space"];
const QUANTITIES: [&str; 24] = [
    "1",
    "100m",
    "2",
    "500m",
    "1Gi",
    "4",
    "0",
    "200Mi",
    "-1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9223372036854775807m",
    "1e30",
    "-1e30",
    "8Ei",
    "7.9999Ei",
    "0.0000000001",
    "1n",
    "",
    "abc",
    "1.5.5",
    "4611686018427387904",
    "999999999999999999999999999999999999Ei",
];
const RESOURCES: [&str; 8] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "example.com/widget",
    "hugepages-2Mi",
    "attachable-volumes-x",
    "pods",
    "",
];
const INTEGERS: [i64; 12] = [1, 2, 0, 100, -1, 3, 10, 1_000_000, 2_147_483_647, -2_147_483_648, 50, 7];
const WIDE: [i64; 8] = [100_000_000, 0, 1, -1, i64::MAX, i64::MIN, 1 << 40, 23_000_000];
const TIMES: [&str; 4] =
    ["2023-11-14T22:13:20Z", "2027-01-15T08:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"];
const MANY: usize = 1000;

/// Makes objects, and few of the huge ones.
#[derive(Default)]
pub(crate) struct Maker {
    revision: u64,
    huge: u32,
}

impl Maker {
    /// What a line of this kind says; none when it is none.
    pub(crate) fn input(&mut self, kind: u8, tape: &mut Tape<'_>) -> Option<Input> {
        let value = match kind {
            b'p' => json!({"type": "pod", "object": self.pod(tape, false)}),
            b'P' => json!({"type": "pod", "object": self.pod(tape, true)}),
            b'd' => {
                let (namespace, name) = self.pod_name(tape);
                json!({"type": "podGone", "namespace": namespace, "uid": format!("uid-{name}"), "name": name})
            }
            b'n' => json!({"type": "node", "object": self.node(tape)}),
            b'x' => json!({"type": "nodeGone", "name": node_name(tape)}),
            b'g' => json!({"type": "namespace", "object":
                {"metadata": {"name": tape.pick(&NAMESPACES), "labels": labels(tape)}}}),
            b'm' => {
                json!({"type": "nodeMetric", "object": {"metadata": {"name": node_name(tape)}, "status": {
                "updateTime": tape.pick(&TIMES),
                "nodeMetric": {"nodeUsage": {"resources": amounts(tape)}}}}})
            }
            b'M' => json!({"type": "nodeMetricGone", "name": node_name(tape)}),
            b'G' => json!({"type": "namespaceGone", "name": tape.pick(&NAMESPACES)}),
            b'u' => json!({"type": "budget", "object": {
                "metadata": {"name": format!("b{}", tape.below(3)), "namespace": tape.pick(&NAMESPACES)},
                "spec": {"selector": self.selector(tape)},
                "status": {"disruptionsAllowed": tape.pick(&INTEGERS), "currentHealthy": 0, "desiredHealthy": 0,
                    "expectedPods": 0}}}),
            b'U' => json!({"type": "budgetGone", "namespace": tape.pick(&NAMESPACES),
                "name": format!("b{}", tape.below(3))}),
            b'w' => json!({"type": "workload", "object": workload(tape)}),
            b'W' => json!({"type": "workloadGone", "kind": tape.pick(&["Service", "ReplicaSet"]),
                "namespace": tape.pick(&NAMESPACES), "name": tape.pick(&VALUES)}),
            b'R' => json!({"type": "reservation", "object": self.reservation(tape)}),
            b'D' => {
                let name = reservation_name(tape);
                json!({"type": "reservationGone", "uid": format!("uid-{name}"), "name": name})
            }
            b'v' => json!({"type": "storage", "object": self.storage(tape)}),
            b'V' => {
                json!({"type": "storageGone", "kind": tape.pick(&["PersistentVolume", "PersistentVolumeClaim",
                "StorageClass", "CsiNode", "CsiDriver", "CsiStorageCapacity"]), "namespace": "default",
                "name": small_name(tape)})
            }
            _ => return None,
        };
        serde_json::from_value(value).ok()
    }

    pub(crate) fn pod_name(&self, tape: &mut Tape<'_>) -> (String, String) {
        let number = tape.below(16);
        (NAMESPACES[usize::from(number % 5 == 4)].to_owned(), format!("p{number}"))
    }

    fn pod(&mut self, tape: &mut Tape<'_>, is_placed: bool) -> Value {
        let (namespace, name) = self.pod_name(tape);
        self.revision += 1;
        let uid = if tape.chance(16) { format!("uid-{name}-again") } else { format!("uid-{name}") };
        let mut pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels(tape),
            "resourceVersion": self.revision.to_string()},
            "spec": {"schedulerName": tape.pick(&[STANDARD, STANDARD, OURS, "other"]),
                "priority": tape.pick(&INTEGERS), "containers": self.containers(tape)}});
        if tape.chance(8) {
            pod["metadata"]["annotations"] = annotations(tape);
        }
        if tape.chance(16) {
            pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        if is_placed {
            pod["spec"]["nodeName"] = json!(node_name(tape));
            pod["status"] = json!({"phase": tape.pick(&["Running", "Pending", "Running", "Failed"])});
            if tape.chance(2) {
                pod["status"]["startTime"] = json!(tape.pick(&TIMES));
            }
        } else if tape.chance(10) {
            pod["status"] = json!({"nominatedNodeName": node_name(tape)});
        }
        self.constrain(tape, &mut pod["spec"]);
        pod
    }

    fn constrain(&mut self, tape: &mut Tape<'_>, spec: &mut Value) {
        if tape.chance(3) {
            let mut affinity = Map::new();
            for kind in ["podAffinity", "podAntiAffinity"] {
                if tape.chance(2) {
                    affinity.insert(kind.to_owned(), self.pod_affinity(tape));
                }
            }
            if tape.chance(2) {
                affinity.insert("nodeAffinity".to_owned(), self.node_affinity(tape));
            }
            spec["affinity"] = Value::Object(affinity);
        }
        if tape.chance(4) {
            spec["topologySpreadConstraints"] =
                json!((0..self.count(tape)).map(|number| self.spread(tape, number)).collect::<Vec<Value>>());
        }
        if tape.chance(5) {
            spec["tolerations"] = json!([{"key": tape.pick(&KEYS), "value": tape.pick(&VALUES),
                "operator": tape.pick(&["Exists", "Equal", "", "Gt", "Bogus"]),
                "effect": tape.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule", "", "Bogus"])}]);
        }
        if tape.chance(8) {
            spec["schedulingGates"] = json!([{"name": "wait"}]);
        }
        if tape.chance(5) {
            spec["volumes"] = json!(
                (0..self.count(tape).min(20)).map(|number| volume(tape, number)).collect::<Vec<Value>>()
            );
        }
        if tape.chance(10) {
            spec["overhead"] = amounts(tape);
        }
        if tape.chance(10) {
            spec["resources"] = json!({"requests": amounts(tape)});
        }
        if tape.chance(6) {
            spec["initContainers"] = self.containers(tape);
        }
        if tape.chance(8) {
            spec["preemptionPolicy"] = json!(tape.pick(&["Never", "PreemptLowerPriority", "Bogus"]));
        }
        if tape.chance(16) {
            spec["nodeSelector"] = json!({tape.pick(&KEYS): tape.pick(&VALUES)});
        }
    }

    fn containers(&mut self, tape: &mut Tape<'_>) -> Value {
        let count = if tape.chance(32) { 0 } else { 1 + tape.below(2) };
        let mut made = Vec::new();
        for number in 0..count {
            let mut container = json!({"name": format!("c{number}"), "image": tape.pick(&["a", "b:1", "", "c/d:2"]),
                "resources": {"requests": amounts(tape)}});
            if tape.chance(6) {
                container["ports"] = json!([{"containerPort": 1, "hostPort": tape.pick(&INTEGERS),
                    "protocol": tape.pick(&["TCP", "UDP", "", "Bogus"]),
                    "hostIP": tape.pick(&["", "0.0.0.0", "10.0.0.1", "bogus"])}]);
            }
            if tape.chance(6) {
                container["restartPolicy"] = json!("Always");
            }
            made.push(container);
        }
        json!(made)
    }

    /// Mostly few; a thousand at times.
    fn count(&mut self, tape: &mut Tape<'_>) -> usize {
        if tape.chance(64) && self.huge < 2 {
            self.huge += 1;
            return MANY;
        }
        tape.below(4)
    }

    fn pod_affinity(&mut self, tape: &mut Tape<'_>) -> Value {
        let required: Vec<Value> = (0..self.count(tape)).map(|number| self.pod_term(tape, number)).collect();
        let count = self.count(tape);
        let preferred: Vec<Value> = (0..count)
            .map(|number| json!({"weight": tape.pick(&INTEGERS), "podAffinityTerm": self.pod_term(tape, number)}))
            .collect();
        json!({"requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred})
    }

    fn pod_term(&mut self, tape: &mut Tape<'_>, number: usize) -> Value {
        let selector = match number < 4 {
            true => self.selector(tape),
            false => json!({"matchLabels": {"app": format!("v{number}")}}),
        };
        let mut term = json!({"topologyKey": tape.pick(&KEYS), "labelSelector": selector});
        if tape.chance(6) {
            term["namespaces"] = json!([tape.pick(&NAMESPACES)]);
        }
        if tape.chance(6) {
            term["namespaceSelector"] = self.selector(tape);
        }
        term
    }

    fn node_affinity(&mut self, tape: &mut Tape<'_>) -> Value {
        let required: Vec<Value> = (0..self.count(tape)).map(|_| node_term(tape)).collect();
        let preferred: Vec<Value> = (0..tape.below(3))
            .map(|_| json!({"weight": tape.pick(&INTEGERS), "preference": node_term(tape)}))
            .collect();
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred})
    }

    fn spread(&mut self, tape: &mut Tape<'_>, number: usize) -> Value {
        let mut spread = json!({"topologyKey": tape.pick(&KEYS), "maxSkew": tape.pick(&INTEGERS),
        "whenUnsatisfiable": tape.pick(&["DoNotSchedule", "ScheduleAnyway", "Bogus"]),
        "labelSelector": match number < 4 {
            true => self.selector(tape),
            false => json!({"matchLabels": {"app": format!("v{number}")}}),
        }});
        if tape.chance(4) {
            spread["minDomains"] = json!(tape.pick(&INTEGERS));
        }
        if tape.chance(4) {
            spread["matchLabelKeys"] = json!([tape.pick(&KEYS)]);
        }
        if tape.chance(4) {
            spread["nodeTaintsPolicy"] = json!(tape.pick(&["Honor", "Ignore", "Bogus"]));
        }
        spread
    }

    fn selector(&mut self, tape: &mut Tape<'_>) -> Value {
        match tape.below(5) {
            0 | 1 => json!({"matchLabels": {tape.pick(&KEYS): tape.pick(&VALUES)}}),
            2 => json!({}),
            3 => Value::Null,
            _ => json!({"matchExpressions": [requirement(tape)]}),
        }
    }

    fn node(&mut self, tape: &mut Tape<'_>) -> Value {
        let name = node_name(tape);
        self.revision += 1;
        let mut labels = labels(tape);
        if tape.chance(8) {
            labels[HOST] = Value::Null;
        } else {
            labels[HOST] = json!(name);
        }
        labels[ZONE] = json!(format!("z{}", tape.below(3)));
        if let Some(fields) = labels.as_object_mut() {
            fields.retain(|_, value| value.is_string());
        }
        let mut node = json!({"metadata": {"name": name, "labels": labels, "resourceVersion": self.revision.to_string()},
            "spec": {}, "status": {}});
        if !tape.chance(16) {
            let mut allocatable = amounts(tape);
            let plain = [("cpu", "8"), ("memory", "16Gi"), ("pods", "20")];
            for (resource, amount) in plain {
                if !tape.chance(8) {
                    allocatable[resource] = json!(amount);
                }
            }
            if tape.chance(16) {
                allocatable["pods"] = json!(tape.pick(&QUANTITIES));
            }
            node["status"]["allocatable"] = allocatable;
        }
        if tape.chance(4) {
            node["spec"]["taints"] = json!([{"key": tape.pick(&KEYS), "value": tape.pick(&VALUES),
                "effect": tape.pick(&["NoSchedule", "PreferNoSchedule", "NoExecute", "Bogus"])}]);
        }
        if tape.chance(8) {
            node["spec"]["unschedulable"] = json!(true);
        }
        if tape.chance(3) {
            node["status"]["images"] = json!([{"names": ["a:latest", tape.pick(&["b:1", "", "c/d:2"])], "sizeBytes": tape.pick(&WIDE)}]);
        }
        if tape.chance(8) {
            node["metadata"]["annotations"] = annotations(tape);
        }
        node
    }

    fn reservation(&mut self, tape: &mut Tape<'_>) -> Value {
        let name = reservation_name(tape);
        self.revision += 1;
        let uid = if tape.chance(16) { format!("uid-{name}-again") } else { format!("uid-{name}") };
        let mut object = json!({"metadata": {"name": name, "uid": uid, "labels": labels(tape),
            "creationTimestamp": tape.pick(&TIMES), "resourceVersion": self.revision.to_string()},
            "spec": {"ttl": tape.pick(&["24h", "0s", "1s"]), "allocateOnce": tape.chance(2),
                "preAllocation": tape.chance(3),
                "owners": [{"labelSelector": self.selector(tape).as_object().cloned().unwrap_or_default()}],
                "template": {"spec": {"schedulerName": tape.pick(&[OURS, OURS, STANDARD, "other"]),
                    "containers": self.containers(tape)}}}});
        if tape.chance(2) {
            object["spec"]["allocatePolicy"] = json!(tape.pick(&["Aligned", "Restricted"]));
        }
        if tape.chance(16) {
            object["spec"]["unschedulable"] = json!(true);
        }
        if tape.chance(16) {
            object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        if tape.chance(2) {
            object["status"] = json!({"phase": tape.pick(&["Available", "Available", "Waiting", "Succeeded", "Failed", "Pending"]),
                "nodeName": node_name(tape), "allocatable": amounts(tape), "allocated": amounts(tape)});
        }
        object
    }

    fn storage(&mut self, tape: &mut Tape<'_>) -> Value {
        let name = small_name(tape);
        self.revision += 1;
        let meta = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": self.revision.to_string()});
        let class = small_name(tape);
        match tape.below(6) {
            0 => {
                json!({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"storageClassName": class,
                "accessModes": [tape.pick(&["ReadWriteOnce", "ReadWriteOncePod", "Bogus"])],
                "volumeName": if tape.chance(3) { small_name(tape) } else { "" },
                "resources": {"requests": {"storage": tape.pick(&QUANTITIES)}}},
                "status": {"phase": tape.pick(&["Pending", "Bound", "Lost"])}})
            }
            1 => json!({"kind": "PersistentVolume", "metadata": meta, "spec": {"storageClassName": class,
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": tape.pick(&QUANTITIES)},
                "csi": {"driver": class, "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [node_term(tape)]}}},
                "status": {"phase": tape.pick(&["Available", "Bound", "Failed"])}}),
            2 => json!({"kind": "StorageClass", "metadata": meta, "provisioner": class,
                "volumeBindingMode": tape.pick(&["WaitForFirstConsumer", "Immediate", "Bogus"])}),
            3 => json!({"kind": "CsiNode", "metadata": {"name": node_name(tape)}, "spec": {"drivers": [
                {"name": class, "nodeID": "n", "allocatable": {"count": tape.pick(&INTEGERS)}}]}}),
            4 => {
                json!({"kind": "CsiDriver", "metadata": {"name": class}, "spec": {"storageCapacity": tape.chance(2)}})
            }
            _ => json!({"kind": "CsiStorageCapacity", "metadata": meta, "storageClassName": class,
                "capacity": tape.pick(&QUANTITIES), "maximumVolumeSize": tape.pick(&QUANTITIES),
                "nodeTopology": self.selector(tape)}),
        }
    }
}

fn node_name(tape: &mut Tape<'_>) -> String {
    match tape.below(9) {
        8 => String::new(),
        number => format!("n{number}"),
    }
}

fn reservation_name(tape: &mut Tape<'_>) -> &'static str {
    tape.pick(&["r0", "r1", "r2"])
}

fn small_name(tape: &mut Tape<'_>) -> &'static str {
    tape.pick(&["v0", "v1", "v2", "v3"])
}

fn labels(tape: &mut Tape<'_>) -> Value {
    let mut labels = json!({"app": tape.pick(&VALUES)});
    if tape.chance(3) {
        labels[tape.pick(&KEYS)] = json!(tape.pick(&VALUES));
    }
    labels
}

fn amounts(tape: &mut Tape<'_>) -> Value {
    let mut amounts = Map::new();
    for _ in 0..tape.below(4) {
        amounts.insert(tape.pick(&RESOURCES).to_owned(), json!(tape.pick(&QUANTITIES)));
    }
    Value::Object(amounts)
}

fn requirement(tape: &mut Tape<'_>) -> Value {
    let values: Vec<&str> = (0..tape.below(3)).map(|_| tape.pick(&VALUES)).collect();
    json!({"key": tape.pick(&KEYS), "values": values,
        "operator": tape.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Bogus", ""])})
}

fn node_term(tape: &mut Tape<'_>) -> Value {
    let mut term = Map::new();
    if !tape.chance(4) {
        term.insert("matchExpressions".to_owned(), json!([requirement(tape)]));
    }
    if tape.chance(4) {
        let operator = tape.pick(&["In", "NotIn", "Exists", "Gt"]);
        let field = json!({"key": tape.pick(&["metadata.name", "bogus"]), "operator": operator,
            "values": [node_name(tape)]});
        term.insert("matchFields".to_owned(), json!([field]));
    }
    Value::Object(term)
}

/// Texts that nobody can read, under keys that somebody does.
fn annotations(tape: &mut Tape<'_>) -> Value {
    let text = tape.pick(&[
        "{}",
        "{",
        "null",
        "[]",
        "{\"nodeNames\": [\"n1\"], \"preferredNodeNames\": [\"n2\", 5]}",
        "{\"nodeNames\": [\"n1\"]}",
        "{\"resources\": {\"cpu\": \"-9e99\"}}",
        "{\"resources\": {\"cpu\": \"2\"}, \"applyPolicy\": \"Bogus\"}",
        "{\"cpu\": 1e300, \"memory\": \"NaN\"}",
        "{\"name\": \"r1\", \"uid\": \"uid-r1\"}",
        "{\"name\": \"r0\", \"uid\": \"uid-r0\"}",
        "\u{0}",
    ]);
    let key = tape.pick(&[
        keys::pod::annotation::SCHEDULING_HINT,
        keys::node::annotation::RESERVATION,
        keys::node::annotation::RESOURCE_AMPLIFICATION_RATIO,
        keys::node::annotation::RAW_ALLOCATABLE,
        keys::pod::annotation::RESERVATION_ALLOCATED,
        keys::pod::annotation::RESERVATION_AFFINITY,
        keys::pod::annotation::EXACT_MATCH_RESERVATION,
    ]);
    json!({key: text})
}

fn workload(tape: &mut Tape<'_>) -> Value {
    let meta = json!({"name": tape.pick(&VALUES), "namespace": tape.pick(&NAMESPACES)});
    let labels = labels(tape);
    match tape.below(2) {
        0 => json!({"kind": "Service", "metadata": meta, "spec": {"selector": labels}}),
        _ => json!({"kind": "ReplicaSet", "metadata": meta, "spec": {"selector": {"matchLabels": labels}}}),
    }
}

fn volume(tape: &mut Tape<'_>, number: usize) -> Value {
    let name = format!("v{number}");
    match tape.below(5) {
        0 | 1 => json!({"name": name, "persistentVolumeClaim": {"claimName": small_name(tape)}}),
        2 => json!({"name": name, "gcePersistentDisk": {"pdName": small_name(tape)}}),
        3 => json!({"name": name, "ephemeral": {}}),
        _ => json!({"name": name, "csi": {"driver": small_name(tape)}}),
    }
}
