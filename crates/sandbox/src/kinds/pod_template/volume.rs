//! Volumes of a pod, the claims they make, and where containers mount them.

use std::collections::BTreeMap;

use koord_api::quantity::Quantity;
use serde_json::Value;

use super::super::check::{
    Faults, dns_label, label_selector, one_of, one_of_required, required, rule, subdomain,
};
use super::super::resources::{amount, check_amount};
use super::super::tree::{flag, has, int, list, part, text, texts};
use super::super::{FieldError, Path, meta, names, quote};
use super::container::{PULL_POLICIES, is_privileged};
use super::{Place, env};

/// Sound volumes by name.
pub(crate) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
pub(crate) const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Seconds a token must last at least, and at most.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

/// Every source in Kubernetes' order, with what a fault of a second one is called, and the texts it
/// cannot do without.
const SOURCES: &[(&str, &str, &[&str])] = &[
    ("emptyDir", "emptyDir", &[]),
    ("hostPath", "hostPath", &[]),
    ("gitRepo", "gitRepo", &["repository"]),
    ("gcePersistentDisk", "gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", "awsElasticBlockStore", &["volumeID"]),
    ("secret", "secret", &["secretName"]),
    ("nfs", "nfs", &["server", "path"]),
    ("iscsi", "iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", "glusterfs", &["endpoints", "path"]),
    ("flocker", "flocker", &[]),
    ("persistentVolumeClaim", "persistentVolumeClaim", &["claimName"]),
    ("rbd", "rbd", &["image"]),
    ("cinder", "cinder", &["volumeID"]),
    ("cephfs", "cephFS", &[]),
    ("quobyte", "quobyte", &["registry", "volume"]),
    ("downwardAPI", "downwarAPI", &[]),
    ("fc", "fc", &[]),
    ("flexVolume", "flexVolume", &["driver"]),
    ("configMap", "configMap", &["name"]),
    ("azureFile", "azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", "vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", "photonPersistentDisk", &["pdID"]),
    ("portworxVolume", "portworxVolume", &["volumeID"]),
    ("azureDisk", "azureDisk", &["diskName", "diskURI"]),
    ("storageos", "storageos", &["volumeName"]),
    ("projected", "projected", &[]),
    ("scaleIO", "scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", "csi", &[]),
    ("ephemeral", "ephemeral", &[]),
    ("image", "image", &[]),
];

pub(super) fn check_all<'a>(
    spec: &'a Value,
    place: Place<'_>,
    path: &Path<'_>,
    out: &mut Faults,
) -> Volumes<'a> {
    let mut sound = Volumes::new();
    let volumes = list(spec, "volumes");
    let pod = match place {
        Place::Pod(name) => name,
        Place::Template => "",
    };
    let is_made = |claim: &str| {
        let of_pod = |v: &&Value| has(v, "ephemeral") && format!("{pod}-{}", text(v, "name")) == claim;
        !pod.is_empty() && volumes.iter().any(|v| of_pod(&v))
    };
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let at = path.child("name");
        let name = text(volume, "name");
        let mut faults = Faults::new();
        check_sources(volume, place, &path, &mut faults);
        match name {
            "" => faults.push(FieldError::required(&at, "")),
            _ => dns_label(name, &at, &mut faults),
        }
        if sound.contains_key(name) {
            faults.push(FieldError::duplicate(&at, name));
        }
        if faults.is_empty() {
            sound.insert(name, volume);
        }
        out.extend(faults);
        let claim = text(&volume["persistentVolumeClaim"], "claimName");
        if !claim.is_empty() && is_made(claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            let path = path.child("persistentVolumeClaim");
            out.push(FieldError::invalid(&path.child("claimName"), claim, detail));
        }
    }
    sound
}

fn check_sources(volume: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Faults) {
    let mut is_found = false;
    for (field, shown, needed) in SOURCES {
        let Some(source) = part(volume, field) else { continue };
        if is_found {
            let detail = "may not specify more than 1 volume type";
            out.push(FieldError::forbidden(&path.child(shown), detail));
            continue;
        }
        is_found = true;
        let at = path.child(field);
        needed.iter().for_each(|text| required(source, text, &at, out));
        check_source(field, source, place, &at, out);
        if *field == "ephemeral" {
            claim_name(volume, place, path, out);
        }
    }
    if !is_found {
        out.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn check_source(field: &str, source: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Faults) {
    match field {
        "emptyDir" if part(source, "sizeLimit").is_some_and(|limit| amount(limit) < Quantity::ZERO) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            out.push(FieldError::forbidden(&path.child("sizeLimit"), detail));
        }
        "hostPath" => host_path(source, path, out),
        "secret" | "configMap" => {
            mode(source, "defaultMode", path, out);
            keys(source, path, out);
        }
        "nfs" if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') => {
            let value = text(source, "path");
            out.push(FieldError::invalid(&path.child("path"), value, "must be an absolute path"));
        }
        "downwardAPI" => {
            mode(source, "defaultMode", path, out);
            list(source, "items").iter().for_each(|file| downward_file(file, path, out));
        }
        "projected" => projected(source, path, out),
        "csi" => csi(source, path, out),
        "ephemeral" => match part(source, "volumeClaimTemplate") {
            None => out.push(FieldError::required(&path.child("volumeClaimTemplate"), "")),
            Some(template) => claim_template(template, &path.child("volumeClaimTemplate"), out),
        },
        "image" => {
            if place != Place::Template {
                required(source, "reference", path, out);
            }
            one_of_required(text(source, "pullPolicy"), PULL_POLICIES, &path.child("pullPolicy"), out);
        }
        _ => {}
    }
}

pub(crate) fn host_path(source: &Value, path: &Path<'_>, out: &mut Faults) {
    let place = text(source, "path");
    if place.is_empty() {
        return out.push(FieldError::required(&path.child("path"), ""));
    }
    path_without_backsteps(place, &path.child("path"), out);
    if let Some(kind) = source.get("type").and_then(Value::as_str) {
        one_of(kind, HOST_PATH_TYPES, &path.child("type"), out);
    }
}

fn mode(source: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    if let Some(mode) = int(source, field).filter(|mode| !(0..=0o777).contains(mode)) {
        out.push(FieldError::invalid(&path.child(field), mode, FILE_MODE));
    }
}

fn keys(source: &Value, path: &Path<'_>, out: &mut Faults) {
    let path = path.child("items");
    for (i, item) in list(source, "items").iter().enumerate() {
        key_to_path(item, &path.index(i), out);
    }
}

fn key_to_path(item: &Value, path: &Path<'_>, out: &mut Faults) {
    required(item, "key", path, out);
    required(item, "path", path, out);
    file_path(text(item, "path"), &path.child("path"), out);
    mode(item, "mode", path, out);
}

fn downward_file(file: &Value, path: &Path<'_>, out: &mut Faults) {
    required(file, "path", path, out);
    file_path(text(file, "path"), &path.child("path"), out);
    match (part(file, "fieldRef"), part(file, "resourceFieldRef")) {
        (Some(field), other) => {
            env::field_ref(field, FIELDS, &path.child("fieldRef"), out);
            if other.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                out.push(FieldError::invalid(path, "resource", detail));
            }
        }
        (None, Some(resource)) => env::resource_ref(resource, true, &path.child("resourceFieldRef"), out),
        (None, None) => {
            let detail = "one of fieldRef and resourceFieldRef is required";
            out.push(FieldError::required(path, detail));
        }
    }
    mode(file, "mode", path, out);
}

fn projected(volume: &Value, path: &Path<'_>, out: &mut Faults) {
    mode(volume, "defaultMode", path, out);
    let mut seen: Vec<&str> = Vec::new();
    let sources = path.child("sources");
    for (i, source) in list(volume, "sources").iter().enumerate() {
        let at = sources.index(i);
        for field in ["secret", "configMap"] {
            let Some(found) = part(source, field) else { continue };
            let at = at.child(field);
            let name = text(found, "name");
            required(found, "name", &at, out);
            let items = at.child("items");
            for (i, item) in list(found, "items").iter().enumerate() {
                key_to_path(item, &items.index(i), out);
                once(text(item, "path"), name, &mut seen, path, out);
            }
        }
        if let Some(found) = part(source, "downwardAPI") {
            for file in list(found, "items") {
                downward_file(file, &at.child("downwardAPI"), out);
                once(text(file, "path"), text(file, "path"), &mut seen, path, out);
            }
        }
        if let Some(token) = part(source, "serviceAccountToken") {
            token_source(token, path, &at.child("serviceAccountToken"), out);
        }
        let count = source.as_object().map_or(0, |s| s.values().filter(|v| !v.is_null()).count());
        if count > 1 {
            out.push(FieldError::forbidden(&at, "may not specify more than 1 volume type per source"));
        }
    }
}

/// A path no other source has used.
fn once<'a>(file: &'a str, shown: &str, seen: &mut Vec<&'a str>, path: &Path<'_>, out: &mut Faults) {
    if file.is_empty() {
        return;
    }
    if seen.contains(&file) {
        out.push(FieldError::invalid(path, shown, "conflicting duplicate paths"));
    } else {
        seen.push(file);
    }
}

/// Kubernetes names the volume's path, not the source's, for the file.
fn token_source(token: &Value, volume: &Path<'_>, path: &Path<'_>, out: &mut Faults) {
    let seconds = int(token, "expirationSeconds").unwrap_or(0);
    let detail = match seconds {
        ..TOKEN_SECONDS_MIN => "may not specify a duration less than 10 minutes",
        TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX => "",
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    if !detail.is_empty() {
        out.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
    }
    match text(token, "path") {
        "" => out.push(FieldError::required(&volume.child("path"), "")),
        file => file_path(file, &volume.child("path"), out),
    }
}

pub(crate) fn csi_driver(driver: &str, path: &Path<'_>, out: &mut Faults) {
    if driver.is_empty() {
        return out.push(FieldError::required(path, ""));
    }
    if driver.len() > 63 {
        out.push(FieldError::too_long(path, 63));
    }
    rule(names::is_subdomain(&driver.to_lowercase()), driver, path, out);
}

fn csi(source: &Value, path: &Path<'_>, out: &mut Faults) {
    csi_driver(text(source, "driver"), &path.child("driver"), out);
    if let Some(secret) = part(source, "nodePublishSecretRef") {
        match text(secret, "name") {
            "" => out.push(FieldError::required(&path.child("nodePublishSecretRef").child("name"), "")),
            name => subdomain(name, &path.child("name"), out),
        }
    }
}

/// The claim made for an ephemeral volume is named after pod and volume.
fn claim_name(volume: &Value, place: Place<'_>, path: &Path<'_>, out: &mut Faults) {
    let (Place::Pod(pod), name) = (place, text(volume, "name")) else { return };
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{name}");
    for fault in names::is_subdomain(&claim) {
        let detail = format!("PVC name {}: {fault}", quote(&claim));
        out.push(FieldError::invalid(&path.child("name"), name, detail));
    }
}

fn claim_template(template: &Value, path: &Path<'_>, out: &mut Faults) {
    let at = path.child("metadata");
    out.extend(meta::validate_annotations(template, &at.child("annotations")));
    out.extend(meta::validate_labels(template["metadata"].get("labels"), &at.child("labels")));
    for (field, _) in template["metadata"].as_object().into_iter().flatten() {
        if !["annotations", "labels"].contains(&field.as_str())
            && !super::super::tree::is_empty(&template["metadata"], field)
        {
            out.push(FieldError::forbidden(&at.child(field), "cannot be set"));
        }
    }
    claim_spec(&template["spec"], &path.child("spec"), out);
}

/// `PersistentVolumeClaimSpec`.
pub(crate) fn claim_spec(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    if list(spec, "accessModes").is_empty() {
        out.push(FieldError::required(&path.child("accessModes"), "at least 1 access mode is required"));
    }
    label_selector(spec.get("selector"), &path.child("selector"), out);
    access_modes(spec, &path.child("accessModes"), out);
    let at = path.child("resources");
    let at = at.key("storage");
    match part(&spec["resources"]["requests"], "storage") {
        None => out.push(FieldError::required(&at, "")),
        Some(size) if amount(size) <= Quantity::ZERO => {
            out.push(FieldError::invalid(&at, size.clone(), "must be greater than zero"));
        }
        Some(size) => check_amount("storage", size, &at, out),
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        subdomain(class, &path.child("storageClassName"), out);
    }
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str) {
        one_of(mode, &["Block", "Filesystem"], &path.child("volumeMode"), out);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = part(spec, field) {
            data_source(source, &path.child(field), out);
        }
    }
    data_sources_agree(spec, path, out);
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        subdomain(class, &path.child("volumeAttributesClassName"), out);
    }
}

pub(crate) fn access_modes(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let modes = texts(spec, "accessModes");
    modes.iter().for_each(|mode| one_of(mode, ACCESS_MODES, path, out));
    let is_single = |mode: &&str| *mode == "ReadWriteOncePod";
    let is_other = |mode: &&str| ACCESS_MODES.contains(mode) && !is_single(mode);
    if modes.iter().any(is_single) && modes.iter().any(is_other) {
        out.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn data_source(source: &Value, path: &Path<'_>, out: &mut Faults) {
    required(source, "name", path, out);
    required(source, "kind", path, out);
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        out.push(FieldError::invalid(path, kind, detail));
    }
    if !group.is_empty() {
        subdomain(group, &path.child("apiGroup"), out);
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        dns_label(namespace, &path.child("namespace"), out);
    }
}

fn data_sources_agree(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let (Some(source), Some(reference)) = (part(spec, "dataSource"), part(spec, "dataSourceRef")) else {
        return;
    };
    let is_same = ["apiGroup", "kind", "name"].iter().all(|f| part(source, f) == part(reference, f));
    let detail = match (text(reference, "namespace").is_empty(), is_same) {
        (false, _) => "may not be specified when dataSourceRef.namespace is specified",
        (true, false) => "must match dataSourceRef",
        (true, true) => return,
    };
    // Kubernetes prints the path where it means the value, and a path prints as nothing.
    out.push(FieldError::invalid(path, serde_json::json!({}), detail));
}

pub(super) fn check_mounts(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, out: &mut Faults) {
    let devices = list(container, "volumeDevices");
    let mut points: Vec<&str> = Vec::new();
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let at = path.index(i);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        required(mount, "name", &at, out);
        if !volumes.contains_key(name) {
            out.push(FieldError::not_found(&at.child("name"), name));
        }
        required(mount, "mountPath", &at, out);
        if points.contains(&point) {
            out.push(FieldError::invalid(&at.child("mountPath"), point, "must be unique"));
        }
        points.push(point);
        if devices.iter().any(|d| text(d, "name") == name) {
            let detail = "must not already exist in volumeDevices";
            out.push(FieldError::invalid(&at.child("name"), name, detail));
        }
        if devices.iter().any(|d| text(d, "devicePath") == point) {
            let detail = "must not already exist as a path in volumeDevices";
            out.push(FieldError::invalid(&at.child("mountPath"), point, detail));
        }
        sub_paths(mount, &at, path, out);
        propagation(mount, container, path, out);
    }
}

fn sub_paths(mount: &Value, at: &Path<'_>, path: &Path<'_>, out: &mut Faults) {
    let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !sub.is_empty() {
        local_path(sub, &path.child("subPath"), out);
    }
    if !expression.is_empty() {
        if !sub.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            out.push(FieldError::invalid(&at.child("subPathExpr"), expression, detail));
        }
        local_path(expression, &path.child("subPathExpr"), out);
    }
}

fn propagation(mount: &Value, container: &Value, path: &Path<'_>, out: &mut Faults) {
    let mode = mount.get("mountPropagation").and_then(Value::as_str);
    if let Some(mode) = mode {
        let path = path.child("mountPropagation");
        one_of(mode, &["Bidirectional", "HostToContainer", "None"], &path, out);
        if mode == "Bidirectional" && !is_privileged(container) {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            out.push(FieldError::forbidden(&path, detail));
        }
    }
    let path = path.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                out.push(FieldError::forbidden(&path, "may only be specified when readOnly is true"));
            }
            if mode.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                out.push(FieldError::forbidden(&path, detail));
            }
        }
        Some(other) => one_of(other, &["Disabled", "Enabled", "IfPossible"], &path, out),
    }
}

pub(super) fn check_devices(container: &Value, volumes: &Volumes<'_>, path: &Path<'_>, out: &mut Faults) {
    let mounts = list(container, "volumeMounts");
    let (mut names, mut paths): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, device) in list(container, "volumeDevices").iter().enumerate() {
        let at = path.index(i);
        let (name, place) = (text(device, "name"), text(device, "devicePath"));
        let fault =
            |field: &str, value: &str, detail: &str| FieldError::invalid(&at.child(field), value, detail);
        required(device, "name", &at, out);
        if names.contains(&name) {
            out.push(fault("name", name, "must be unique"));
        }
        match volumes.get(name) {
            Some(volume) if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                out.push(fault("name", name, detail));
            }
            Some(_) => {}
            None => out.push(FieldError::not_found(&at.child("name"), name)),
        }
        required(device, "devicePath", &at, out);
        if paths.contains(&place) {
            out.push(fault("devicePath", place, "must be unique"));
        }
        match place.split('/').any(|step| step == "..") {
            true => out.push(fault("devicePath", place, "can not contain backsteps ('..')")),
            false => paths.push(place),
        }
        if mounts.iter().any(|m| text(m, "name") == name) {
            out.push(fault("name", name, "must not already exist in volumeMounts"));
        }
        if mounts.iter().any(|m| text(m, "mountPath") == place) {
            out.push(fault("devicePath", place, "must not already exist as a path in volumeMounts"));
        }
        if !name.is_empty() {
            names.push(name);
        }
    }
}

pub(crate) fn path_without_backsteps(place: &str, path: &Path<'_>, out: &mut Faults) {
    if place.split('/').any(|step| step == "..") {
        out.push(FieldError::invalid(path, place, "must not contain '..'"));
    }
}

/// A path below some folder.
pub(super) fn local_path(place: &str, path: &Path<'_>, out: &mut Faults) {
    if place.starts_with('/') {
        out.push(FieldError::invalid(path, place, "must be a relative path"));
    }
    path_without_backsteps(place, path, out);
}

/// A path for a file in a volume, where names with two dots are the kubelet's own.
fn file_path(place: &str, path: &Path<'_>, out: &mut Faults) {
    local_path(place, path, out);
    if place.starts_with("..") && !place.starts_with("../") {
        out.push(FieldError::invalid(path, place, "must not start with '..'"));
    }
}
