//! The storage.k8s.io group: classes, drivers and what they can hold.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Hooks, Kind, cell, meta, names, rules};

mod validate;

const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Node labels of old, and what to say of them.
const DEPRECATED_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |kind, plural| Kind::builtin("storage.k8s.io/v1", kind, plural);
    let deleted = |mut kind: Kind| {
        kind.returns_deleted = true;
        kind.cluster_scoped()
    };
    let strict = |mut kind: Kind| {
        kind.unconditional_update = false;
        kind
    };
    vec![
        strict(deleted(kind("CSIDriver", "csidrivers"))).columns(driver_columns()).hooks(Hooks {
            default: default_driver,
            // Its generation begins with the first change.
            prepare_update: meta::bump_generation,
            validate: validate::driver,
            warn: warn_of_tokens,
            row: driver_row,
            ..Hooks::default()
        }),
        strict(deleted(kind("CSINode", "csinodes"))).columns(node_columns()).hooks(Hooks {
            validate: validate::node,
            row: |node, now| {
                vec![cell::name(node), cell::length(&node["spec"]["drivers"]), cell::age(node, now)]
            },
            ..Hooks::default()
        }),
        strict(kind("CSIStorageCapacity", "csistoragecapacities")).hooks(Hooks {
            validate: validate::capacity,
            warn: |capacity, _| warn_of_topology(capacity),
            ..Hooks::default()
        }),
        deleted(kind("StorageClass", "storageclasses")).short(&["sc"]).columns(class_columns()).hooks(
            Hooks {
                default: default_class,
                validate: validate::class,
                warn: |class, _| warn_of_class(class),
                row: class_row,
                ..Hooks::default()
            },
        ),
        strict(deleted(kind("VolumeAttachment", "volumeattachments")))
            .status()
            .columns(attachment_columns())
            .hooks(Hooks {
                prepare_status: meta::reset_for_status,
                validate: validate::attachment,
                validate_status: |new, old| validate::attachment(new, Some(old)),
                row: attachment_row,
                ..Hooks::default()
            }),
        // Differs: without Kubernetes' protection finalizer, for nothing here would take it off again.
        deleted(kind("VolumeAttributesClass", "volumeattributesclasses"))
            .short(&["vac"])
            .columns(vec![
                cell::name_column(),
                cell::documented("DriverName", "string", 0, ATTRIBUTES, "driverName"),
                cell::age_column(),
            ])
            .hooks(Hooks {
                name: names::subdomain,
                validate: validate::attributes_class,
                row: |class, now| {
                    vec![cell::name(class), cell::text(&class["driverName"]), cell::age(class, now)]
                },
                ..Hooks::default()
            }),
    ]
}

const ATTRIBUTES: &str = "io.k8s.api.storage.v1.VolumeAttributesClass";

fn default_class(class: &mut Value) {
    rules::default(class, "reclaimPolicy", "Delete");
    rules::default(class, "volumeBindingMode", "Immediate");
}

fn default_driver(driver: &mut Value) {
    let spec = &mut driver["spec"];
    rules::default(spec, "attachRequired", true);
    for flag in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        rules::default(spec, flag, false);
    }
    rules::default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if rules::list(&spec["volumeLifecycleModes"]).is_empty() {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

fn warn_of_tokens(driver: &Value, old: Option<&Value>) -> Vec<String> {
    let tokens = &driver["spec"]["tokenRequests"];
    let is_new = old.is_none_or(|old| !rules::same(tokens, &old["spec"]["tokenRequests"]));
    let is_open = driver["spec"]["serviceAccountTokenInSecrets"].is_null();
    if !is_new || !is_open || rules::list(tokens).is_empty() {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
    vec![text.to_owned()]
}

fn deprecated(label: &str) -> Option<&'static str> {
    DEPRECATED_NODE_LABELS.iter().find(|(known, _)| *known == label).map(|(_, why)| *why)
}

fn warn_of_class(class: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, term) in rules::list(&class["allowedTopologies"]).iter().enumerate() {
        for (j, expression) in rules::list(&term["matchLabelExpressions"]).iter().enumerate() {
            if let Some(why) = deprecated(rules::text(&expression["key"])) {
                warnings.push(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {why}"));
            }
        }
    }
    warnings
}

fn warn_of_topology(capacity: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let topology = &capacity["nodeTopology"];
    for (i, expression) in rules::list(&topology["matchExpressions"]).iter().enumerate() {
        let key = rules::text(&expression["key"]);
        if let Some(why) = deprecated(key) {
            warnings.push(format!("nodeTopology.matchExpressions[{i}].key: {key} is {why}"));
        }
    }
    for label in topology["matchLabels"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        if let Some(why) = deprecated(label) {
            warnings.push(format!("nodeTopology.matchLabels.{label}: {why}"));
        }
    }
    warnings
}

fn class_columns() -> Vec<Column> {
    let class = "io.k8s.api.storage.v1.StorageClass";
    vec![
        cell::name_column(),
        cell::documented("Provisioner", "string", 0, class, "provisioner"),
        cell::documented("ReclaimPolicy", "string", 0, class, "reclaimPolicy"),
        cell::documented("VolumeBindingMode", "string", 0, class, "volumeBindingMode"),
        cell::documented("AllowVolumeExpansion", "string", 0, class, "allowVolumeExpansion"),
        cell::age_column(),
    ]
}

fn class_row(class: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = &class["metadata"]["annotations"];
    let is_default = DEFAULT_CLASS.iter().any(|key| annotations[*key] == "true");
    let name =
        if is_default { format!("{} (default)", meta::name(class)) } else { meta::name(class).to_owned() };
    vec![
        Value::from(name),
        cell::text(&class["provisioner"]),
        Value::from(class["reclaimPolicy"].as_str().unwrap_or("Delete")),
        Value::from(class["volumeBindingMode"].as_str().unwrap_or("Immediate")),
        cell::flag(&class["allowVolumeExpansion"], false),
        cell::age(class, now),
    ]
}

fn node_columns() -> Vec<Column> {
    let drivers = "Drivers indicates the number of CSI drivers registered on the node";
    vec![cell::name_column(), Column::new("Drivers", "integer", 0, drivers), cell::age_column()]
}

fn driver_columns() -> Vec<Column> {
    let spec = "io.k8s.api.storage.v1.CSIDriverSpec";
    vec![
        cell::name_column(),
        cell::documented("AttachRequired", "boolean", 0, spec, "attachRequired"),
        cell::documented("PodInfoOnMount", "boolean", 0, spec, "podInfoOnMount"),
        cell::documented("StorageCapacity", "boolean", 0, spec, "storageCapacity"),
        cell::documented("TokenRequests", "string", 0, spec, "tokenRequests"),
        cell::documented("RequiresRepublish", "boolean", 0, spec, "requiresRepublish"),
        cell::documented("Modes", "string", 0, spec, "volumeLifecycleModes"),
        cell::age_column(),
    ]
}

fn driver_row(driver: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &driver["spec"];
    let tokens = match spec["tokenRequests"].as_array() {
        Some(list) => cell::join(list.iter().map(|token| rules::text(&token["audience"])), ","),
        None => "<unset>".to_owned(),
    };
    let modes = match cell::join(rules::list(&spec["volumeLifecycleModes"]).iter().map(rules::text), ",") {
        none if none.is_empty() => "<none>".to_owned(),
        modes => modes,
    };
    vec![
        cell::name(driver),
        cell::flag(&spec["attachRequired"], true),
        cell::flag(&spec["podInfoOnMount"], false),
        cell::flag(&spec["storageCapacity"], false),
        Value::from(tokens),
        cell::flag(&spec["requiresRepublish"], false),
        Value::from(modes),
        cell::age(driver, now),
    ]
}

fn attachment_columns() -> Vec<Column> {
    let spec = "io.k8s.api.storage.v1.VolumeAttachmentSpec";
    let (source, status) =
        ("io.k8s.api.storage.v1.VolumeAttachmentSource", "io.k8s.api.storage.v1.VolumeAttachmentStatus");
    vec![
        cell::name_column(),
        Column { format: "name".into(), ..cell::documented("Attacher", "string", 0, spec, "attacher") },
        cell::documented("PV", "string", 0, source, "persistentVolumeName"),
        cell::documented("Node", "string", 0, spec, "nodeName"),
        cell::documented("Attached", "boolean", 0, status, "attached"),
        cell::age_column(),
    ]
}

fn attachment_row(attachment: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &attachment["spec"];
    vec![
        cell::name(attachment),
        cell::text(&spec["attacher"]),
        cell::text(&spec["source"]["persistentVolumeName"]),
        cell::text(&spec["nodeName"]),
        cell::flag(&attachment["status"]["attached"], false),
        cell::age(attachment, now),
    ]
}
