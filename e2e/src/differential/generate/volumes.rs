//! Volumes and claims: bound, waiting for a consumer, lacking, limited.

use serde_json::{Map, Value, json};

use super::{HOST, Maker, ZONE, name};

const DRIVER: &str = "csi.example.com";

/// What pods can ask for.
pub(super) struct Storage {
    /// Before each name, for the names of volumes live longer in a scheduler than a scenario.
    prefix: String,
    claims: Vec<String>,
}

impl Storage {
    pub(super) fn new(seed: u64) -> Storage {
        Storage { prefix: format!("s{seed}"), claims: Vec::new() }
    }
}

impl Maker {
    pub(super) fn make_storage(&mut self) -> Vec<Value> {
        let mut made = classes();
        let mut claims: Vec<Value> = Vec::new();
        let mut volumes: Vec<Value> = Vec::new();
        for number in 0..self.random.between(4, 8) {
            let pair = format!("{}-bound-{number}", self.storage.prefix);
            let mode = self.mode();
            claims.push(bound_claim(&pair, mode));
            volumes.push(self.bound_volume(&pair, mode));
        }
        for number in 0..self.random.between(2, 6) {
            let name = format!("{}-free-{number}", self.storage.prefix);
            volumes.push(self.free_volume(&name));
        }
        for number in 0..self.random.between(3, 7) {
            let name = format!("{}-wait-{number}", self.storage.prefix);
            claims.push(self.waiting_claim(&name));
        }
        self.storage.claims = claims.iter().map(|claim| name(claim).to_owned()).collect();
        self.storage.claims.push(format!("{}-missing", self.storage.prefix));
        made.extend(claims);
        made.extend(volumes);
        let node_names: Vec<String> = self.nodes.iter().map(|node| name(node).to_owned()).collect();
        for node in &node_names {
            if self.random.percent(60) {
                let driver = json!({"name": DRIVER, "nodeID": node, "topologyKeys": [ZONE],
                    "allocatable": {"count": self.random.between(1, 4)}});
                made.push(
                    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                    "spec": {"drivers": [driver]}}),
                );
            }
        }
        for zone in 0..self.random.below(4) {
            let size = self.random.word(&["2Gi", "20Gi"]);
            made.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                "metadata": {"name": format!("{}-z{zone}", self.storage.prefix), "namespace": "default"},
                "storageClassName": "made-later", "capacity": size,
                "nodeTopology": {"matchLabels": {ZONE: format!("z{zone}")}}}));
        }
        made
    }

    fn mode(&mut self) -> &'static str {
        self.random.word(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])
    }

    fn bound_volume(&mut self, name: &str, mode: &str) -> Value {
        let mut labels = Map::new();
        if self.random.percent(30) {
            let zone = self.random.word(&["z0", "z1", "z0__z1"]);
            labels.insert(ZONE.to_owned(), json!(zone));
        }
        let mut spec = json!({"capacity": {"storage": "1Gi"},
            "accessModes": [mode], "storageClassName": "now",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
            "csi": {"driver": DRIVER, "volumeHandle": name}});
        if self.random.percent(40) {
            spec["nodeAffinity"] = self.volume_affinity();
        }
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
            "spec": spec, "status": {"phase": "Bound"}})
    }

    fn free_volume(&mut self, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"speed": self.random.word(&["fast", "slow"])}},
            "spec": {"capacity": {"storage": self.random.word(&["1Gi", "5Gi", "10Gi", "50Gi"])},
                "accessModes": ["ReadWriteOnce"], "storageClassName": "found-later",
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/mnt/disk"},
                "nodeAffinity": self.volume_affinity()},
            "status": {"phase": "Available"}})
    }

    fn volume_affinity(&mut self) -> Value {
        let (key, value) = match self.random.percent(50) {
            true => (HOST, name(self.random.pick(&self.nodes)).to_owned()),
            false => (ZONE, format!("z{}", self.random.below(3))),
        };
        json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}})
    }

    fn waiting_claim(&mut self, name: &str) -> Value {
        let class = self.random.word(&["found-later", "found-later", "made-later", "made-in-z0", "now"]);
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": self.random.word(&["1Gi", "4Gi", "8Gi", "30Gi"])}}});
        if class == "found-later" && self.random.percent(25) {
            spec["selector"] = json!({"matchLabels": {"speed": "fast"}});
        }
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": "Pending"}})
    }

    pub(super) fn add_volumes(&mut self, spec: &mut Map<String, Value>) {
        let mut volumes = Vec::new();
        if !self.storage.claims.is_empty() && self.random.percent(75) {
            let count = if self.random.percent(25) { 2 } else { 1 };
            // Each once: kube-scheduler looks for a volume as often as a claim is mounted, and we do not.
            let mut claims: Vec<String> =
                (0..count).map(|_| self.random.pick(&self.storage.claims).clone()).collect();
            claims.dedup();
            for (number, claim) in claims.iter().enumerate() {
                volumes.push(json!({"name": format!("claim-{number}"),
                    "persistentVolumeClaim": {"claimName": claim}}));
            }
        }
        if self.random.percent(self.chances.inline_volumes) {
            let disk = self.random.word(&["disk-a", "disk-b"]);
            let is_read_only = self.random.percent(40);
            volumes.push(match self.random.below(4) {
                0 | 1 => json!({"name": "inline", "gcePersistentDisk": {"pdName": disk, "readOnly": is_read_only}}),
                2 => json!({"name": "inline", "awsElasticBlockStore": {"volumeID": disk, "readOnly": is_read_only}}),
                _ => json!({"name": "inline", "iscsi": {"targetPortal": "10.0.0.9:3260",
                    "iqn": format!("iqn.2001-04.com.example:{disk}"), "lun": 0, "readOnly": is_read_only}}),
            });
        }
        if !volumes.is_empty() {
            spec.insert("volumes".to_owned(), json!(volumes));
        }
    }
}

/// Classes of volumes, and the driver behind them.
fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode})
    };
    let mut zonal = class("made-in-z0", "other.example.com", "WaitForFirstConsumer");
    zonal["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}]}]);
    vec![
        class("now", DRIVER, "Immediate"),
        class("found-later", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        class("made-later", DRIVER, "WaitForFirstConsumer"),
        zonal,
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"storageCapacity": true, "attachRequired": true}}),
    ]
}

fn bound_claim(name: &str, mode: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": {
            "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"accessModes": [mode], "storageClassName": "now", "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"}})
}
