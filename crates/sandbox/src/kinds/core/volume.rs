//! Persistent volumes.

use koord_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::super::cell::{access_modes, age, name};
use super::super::check::{Faults, IMMUTABLE, is_same, one_of, required, subdomain};
use super::super::diff;
use super::super::pod_template::{access_modes as check_modes, csi_driver, defaults, host_path};
use super::super::pod_template::{node_selector, node_term_warnings, path_without_backsteps};
use super::super::resources::amount;
use super::super::tree::{
    entries, fill, has, is_empty, list, part, part_mut, remove, set, text, text_entries,
};
use super::super::{Admission, FieldError, Hooks, Kind, Operation, Path, meta};
use super::claim::{BETA_CLASS, beta_class};
use super::{columns, protect};
use crate::status::ApiError;

const PROTECTION: &str = "kubernetes.io/pv-protection";
const RECLAIM: &[&str] = &["Delete", "Recycle", "Retain"];

/// Sources in Kubernetes' order, what a fault of a second one is called, and the texts each needs.
const SOURCES: &[(&str, &str, &[&str])] = &[
    ("hostPath", "hostPath", &[]),
    ("gcePersistentDisk", "gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", "awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", "glusterfs", &["endpoints", "path"]),
    ("flocker", "flocker", &[]),
    ("nfs", "nfs", &["server", "path"]),
    ("rbd", "rbd", &["image"]),
    ("quobyte", "quobyte", &["registry", "volume"]),
    ("cephfs", "cephFS", &[]),
    ("iscsi", "iscsi", &["targetPortal", "iqn"]),
    ("cinder", "cinder", &["volumeID"]),
    ("fc", "fc", &[]),
    ("flexVolume", "flexVolume", &["driver"]),
    ("azureFile", "azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", "vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", "photonPersistentDisk", &["pdID"]),
    ("portworxVolume", "portworxVolume", &["volumeID"]),
    ("azureDisk", "azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", "scaleIO", &["gateway", "system", "volumeName"]),
    ("local", "local", &[]),
    ("storageos", "storageos", &["volumeName"]),
    ("csi", "csi", &[]),
];

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "PersistentVolume", "persistentvolumes")
        .cluster_scoped()
        .short(&["pv"])
        .status()
        .columns(columns::persistentvolumes())
        .hooks(Hooks {
            default,
            prepare_create: |volume| {
                let now = volume["metadata"]["creationTimestamp"].clone();
                set(volume, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
            },
            validate,
            admit,
            warn: |volume, _| warn(volume),
            row,
            ..Hooks::default()
        });
    kind.returns_deleted = true;
    kind
}

fn default(volume: &mut Value) {
    if let Some(status) = part_mut(volume, "status") {
        fill(status, "phase", "Pending");
    }
    let Some(spec) = part_mut(volume, "spec") else { return };
    fill(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
    if let Some(path) = part_mut(spec, "hostPath")
        && !has(path, "type")
    {
        set(path, "type", "");
    }
    defaults::legacy_disk(spec);
    defaults::round_up(spec, "capacity");
}

fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.operation == Operation::Create && admission.subresource.is_empty() {
        protect(admission.object, PROTECTION);
    }
    Ok(())
}

fn validate(volume: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    let spec = &volume["spec"];
    let path = Path::root("spec");
    if list(spec, "accessModes").is_empty() {
        out.push(FieldError::required(&path.child("accessModes"), ""));
    }
    check_modes(spec, &path.child("accessModes"), &mut out);
    capacity(spec, &path.child("capacity"), &mut out);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        one_of(policy, RECLAIM, &path.child("persistentVolumeReclaimPolicy"), &mut out);
    }
    if let Some(affinity) = part(spec, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        match part(affinity, "required") {
            Some(selector) => node_selector(selector, &path.child("required"), &mut out),
            None => {
                let detail = "must specify required node constraints";
                out.push(FieldError::required(&path.child("required"), detail));
            }
        }
    }
    sources(spec, &path, &mut out);
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        subdomain(class, &path.child("storageClassName"), &mut out);
    }
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        one_of(mode, &["Block", "Filesystem"], &path.child("volumeMode"), &mut out);
    }
    attributes_class(spec, &path, &mut out);
    if let Some(old) = old {
        validate_update(spec, &old["spec"], &mut out);
    }
    out
}

fn capacity(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    if is_empty(spec, "capacity") {
        out.push(FieldError::required(path, ""));
    }
    if !has(&spec["capacity"], "storage") || entries(spec, "capacity").count() > 1 {
        let value = part(spec, "capacity").cloned().unwrap_or(Value::Null);
        out.push(FieldError::not_supported(path, value, ["storage"]));
    }
    for (name, value) in entries(spec, "capacity") {
        let size = amount(value);
        if size < Quantity::ZERO {
            let detail = "must be a valid resource quantity";
            out.push(FieldError::invalid(&path.key(name), size.value(), detail));
        }
        if size <= Quantity::ZERO {
            out.push(FieldError::invalid(&path.key(name), value.clone(), "must be greater than zero"));
        }
    }
}

fn sources(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let mut is_found = false;
    for (field, shown, needed) in SOURCES {
        let Some(source) = part(spec, field) else { continue };
        if is_found {
            let detail = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&path.child(shown), detail));
            continue;
        }
        is_found = true;
        let at = path.child(field);
        needed.iter().for_each(|text| required(source, text, &at, out));
        match *field {
            "hostPath" => host_path(source, &at, out),
            "local" => {
                match text(source, "path") {
                    "" => out.push(FieldError::required(&at.child("path"), "")),
                    place => path_without_backsteps(place, &at.child("path"), out),
                }
                if !has(spec, "nodeAffinity") {
                    let detail = "Local volume requires node affinity";
                    out.push(FieldError::required(&path.child("nodeAffinity"), detail));
                }
            }
            "csi" => {
                csi_driver(text(source, "driver"), &at.child("driver"), out);
                required(source, "volumeHandle", &at, out);
            }
            _ => {}
        }
    }
    if !is_found {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
    let is_root = text(&spec["hostPath"], "path").split('/').all(|step| ["", "."].contains(&step));
    if has(spec, "hostPath") && is_root && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        out.push(FieldError::forbidden(&path.child("persistentVolumeReclaimPolicy"), detail));
    }
}

fn attributes_class(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) else { return };
    let at = path.child("volumeAttributesClassName");
    match class {
        "" => out.push(FieldError::required(&at, "an empty string is disallowed")),
        _ => subdomain(class, &at, out),
    }
    if !has(spec, "csi") {
        let detail = "has to be specified when using volumeAttributesClassName";
        out.push(FieldError::required(&path.child("csi"), detail));
    }
}

fn validate_update(spec: &Value, old: &Value, out: &mut Faults) {
    let only_source = |spec: &Value| -> Value {
        let named = SOURCES.iter().filter_map(|(field, _, _)| Some((*field, part(spec, field)?.clone())));
        Value::Object(named.map(|(field, value)| (field.to_owned(), value)).collect::<Map<_, _>>())
    };
    let (mut source, known) = (only_source(spec), only_source(old));
    if has(&known, "csi") && !has(&known["csi"], "controllerExpandSecretRef") && has(&source, "csi") {
        remove(&mut source["csi"], "controllerExpandSecretRef");
    }
    if source != known {
        let detail = format!(
            "spec.persistentvolumesource is immutable after creation\n{}",
            diff::objects("PersistentVolumeSource", &known, &source)
        );
        out.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    if !is_same(spec.get("volumeMode"), old.get("volumeMode")) {
        out.push(FieldError::invalid("volumeMode", text(spec, "volumeMode"), IMMUTABLE));
    }
    if has(old, "nodeAffinity") && spec.get("nodeAffinity") != old.get("nodeAffinity") {
        let value = part(spec, "nodeAffinity").cloned().unwrap_or(Value::Null);
        let detail = "field is immutable, except for updating from beta label to GA";
        out.push(FieldError::invalid("nodeAffinity", value, detail));
    }
    if has(old, "volumeAttributesClassName") && !has(spec, "volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        out.push(FieldError::forbidden("spec.volumeAttributesClassName", detail));
    }
}

fn warn(volume: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let spec = &volume["spec"];
    let annotations = [
        (BETA_CLASS, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ];
    for (key, message) in annotations {
        if text_entries(&volume["metadata"], "annotations").any(|(k, _)| k == key) {
            out.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        out.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let root = Path::root("spec");
    let path = root.child("nodeAffinity");
    let path = path.child("required");
    let path = path.child("nodeSelectorTerms");
    for (i, term) in list(&spec["nodeAffinity"]["required"], "nodeSelectorTerms").iter().enumerate() {
        node_term_warnings(term, false, &path.index(i), &mut out);
    }
    for (field, shown, message) in [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ] {
        if has(spec, field) {
            out.push(format!("spec.{shown}: {message}"));
        }
    }
    out
}

fn row(volume: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let phase = if meta::is_deleting(volume) { "Terminating" } else { text(status, "phase") };
    let claim = part(spec, "claimRef").map(|c| format!("{}/{}", text(c, "namespace"), text(c, "name")));
    let unset = |field: &str| Value::from(part(spec, field).and_then(Value::as_str).unwrap_or("<unset>"));
    vec![
        name(volume),
        amount(&spec["capacity"]["storage"]).to_string().into(),
        access_modes(spec).into(),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase.into(),
        claim.unwrap_or_default().into(),
        beta_class(volume).unwrap_or_else(|| text(spec, "storageClassName")).into(),
        unset("volumeAttributesClassName"),
        text(status, "reason").into(),
        age(volume, now),
        unset("volumeMode"),
    ]
}
