//! What classes, drivers, their nodes and attachments must look like.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::rules::{self, Faults};
use super::super::{FieldError, Path, internal, names};

const PARAMETERS_MAX: i64 = 512;
const PARAMETERS_MAX_BYTES: i64 = 256 * 1024;
const METADATA_MAX_BYTES: i64 = 256 * 1024;
const ERROR_MAX_BYTES: i64 = 1024;
const NODE_ID_MAX: i64 = 256;
const DRIVER_NAME_MAX: i64 = 63;
const TOKEN_MIN_SECONDS: i64 = 600;
const TOKEN_MAX_SECONDS: i64 = 1 << 32;
const UPDATE_PERIOD_MIN_SECONDS: i64 = 10;

pub(super) fn class(class: &Value, old: Option<&Value>) -> Faults {
    let mut errors = Vec::new();
    let root = Path::root;
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            errors.extend(frozen(class, old, field));
        }
        let (new, old) = (&class["volumeBindingMode"], &old["volumeBindingMode"]);
        errors.extend(rules::immutable(new, old, &root("volumeBindingMode")));
        return errors;
    }
    errors.extend(provisioner(&class["provisioner"], &root("provisioner")));
    errors.extend(parameters(&class["parameters"], true, &root("parameters")));
    if !rules::text(&class["reclaimPolicy"]).is_empty() {
        errors.extend(rules::one_of(&class["reclaimPolicy"], &["Delete", "Retain"], &root("reclaimPolicy")));
    }
    let modes = ["Immediate", "WaitForFirstConsumer"];
    errors.extend(rules::one_of(&class["volumeBindingMode"], &modes, &root("volumeBindingMode")));
    errors.extend(topologies(&class["allowedTopologies"], &root("allowedTopologies")));
    errors
}

/// A field that may not change, in the words of classes.
fn frozen(new: &Value, old: &Value, field: &str) -> Option<FieldError> {
    let is_same = rules::same(&new[field], &old[field]);
    (!is_same)
        .then(|| FieldError::forbidden(&Path::root(field), format!("updates to {field} are forbidden.")))
}

fn provisioner(value: &Value, path: &Path<'_>) -> Faults {
    let name = rules::text(value);
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let lower = name.to_lowercase();
    rules::faults(names::is_qualified_name(&lower), &lower, path).collect()
}

fn parameters(value: &Value, allow_empty: bool, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let empty = Map::new();
    let parameters = value.as_object().unwrap_or(&empty);
    if i64::try_from(parameters.len()).is_ok_and(|count| count > PARAMETERS_MAX) {
        return vec![FieldError::too_long(path, PARAMETERS_MAX)];
    }
    if parameters.contains_key("") {
        errors.push(FieldError::invalid(path, "", "field can not be empty."));
    }
    if size(parameters) > PARAMETERS_MAX_BYTES {
        errors.push(FieldError::too_long(path, PARAMETERS_MAX_BYTES));
    }
    if !allow_empty && parameters.is_empty() {
        errors.push(FieldError::required(path, "must contain at least one key/value pair"));
    }
    errors
}

/// Bytes of keys and values together.
fn size(map: &Map<String, Value>) -> i64 {
    map.iter().map(|(key, value)| rules::length(key) + rules::length(rules::text(value))).sum()
}

fn topologies(terms: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let mut seen: Vec<BTreeMap<&str, Vec<&str>>> = Vec::new();
    for (i, term) in rules::list(terms).iter().enumerate() {
        let term_path = path.index(i);
        let at = term_path.child("matchLabelExpressions");
        let mut keys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (j, expression) in rules::list(&term["matchLabelExpressions"]).iter().enumerate() {
            let at = at.index(j);
            let values: Vec<&str> = rules::list(&expression["values"]).iter().map(rules::text).collect();
            if values.is_empty() {
                errors.push(FieldError::required(&at.child("values"), ""));
            }
            for (k, value) in values.iter().enumerate().filter(|(k, value)| values[..*k].contains(value)) {
                errors.push(FieldError::duplicate(&at.child("values").index(k), *value));
            }
            let key = rules::text(&expression["key"]);
            errors.extend(rules::faults(names::is_qualified_name(key), key, &at.child("key")));
            if keys.contains_key(key) {
                errors.push(FieldError::duplicate(&at.child("key"), key));
            }
            let mut values = values;
            values.sort_unstable();
            values.dedup();
            keys.insert(key, values);
        }
        if seen.contains(&keys) {
            errors.push(FieldError::duplicate(&at, ""));
        }
        seen.push(keys);
    }
    errors
}

pub(super) fn attributes_class(class: &Value, old: Option<&Value>) -> Faults {
    let mut errors: Faults = Vec::new();
    for field in ["driverName", "parameters"] {
        errors.extend(old.and_then(|old| frozen(class, old, field)));
    }
    errors.extend(provisioner(&class["driverName"], &Path::root("driverName")));
    errors.extend(parameters(&class["parameters"], false, &Path::root("parameters")));
    errors
}

fn driver_name(name: &str, path: &Path<'_>) -> Faults {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    if rules::length(name) > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(path, DRIVER_NAME_MAX));
    }
    errors.extend(rules::faults(names::is_subdomain(&name.to_lowercase()), name, path));
    errors
}

pub(super) fn node(node: &Value, old: Option<&Value>) -> Faults {
    let spec = Path::root("spec");
    let path = spec.child("drivers");
    let drivers = rules::list(&node["spec"]["drivers"]);
    let mut errors = Vec::new();
    for (i, driver) in drivers.iter().enumerate() {
        errors.extend(node_driver(driver, &drivers[..i], &path.index(i)));
    }
    for before in old.into_iter().flat_map(|old| rules::list(&old["spec"]["drivers"])) {
        let Some(now) = drivers.iter().find(|driver| driver["name"] == before["name"]) else { continue };
        // How many volumes fit may change while the driver runs.
        let mut now = now.clone();
        now["allocatable"] = Value::Null;
        let mut before = before.clone();
        before["allocatable"] = Value::Null;
        let shown = internal::compact("CSINodeDriver", &now);
        errors.extend(rules::immutable_as(&now, &before, &shown, &path));
    }
    errors
}

fn node_driver(driver: &Value, before: &[Value], path: &Path<'_>) -> Faults {
    let name = rules::text(&driver["name"]);
    let mut errors = driver_name(name, &path.child("name"));
    let id = rules::text(&driver["nodeID"]);
    let id_path = path.child("nodeID");
    if id.is_empty() {
        errors.push(FieldError::required(&id_path, ""));
    }
    if rules::length(id) > NODE_ID_MAX {
        let detail = format!("must be {NODE_ID_MAX} characters or less");
        errors.push(FieldError::invalid(&id_path, id, detail));
    }
    let allocatable = path.child("allocatable");
    errors.extend(rules::non_negative(&driver["allocatable"]["count"], &allocatable.child("count")));
    if before.iter().any(|other| other["name"] == name) {
        errors.push(FieldError::duplicate(&path.child("name"), name));
    }
    let keys: Vec<&str> = rules::list(&driver["topologyKeys"]).iter().map(rules::text).collect();
    for (i, key) in keys.iter().enumerate() {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if keys[..i].contains(key) {
            errors.push(FieldError::duplicate(path, *key));
        }
        errors.extend(rules::faults(names::is_qualified_name(key), key, path));
    }
    errors
}

pub(super) fn driver(driver: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &driver["spec"];
    let mut errors = Vec::new();
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    errors.extend(rules::one_of(&spec["fsGroupPolicy"], &policies, &path.child("fsGroupPolicy")));
    errors.extend(token_requests(&spec["tokenRequests"], &path.child("tokenRequests")));
    let modes = path.child("volumeLifecycleModes");
    for mode in rules::list(&spec["volumeLifecycleModes"]) {
        errors.extend(rules::one_of(mode, &["Persistent", "Ephemeral"], &modes));
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < UPDATE_PERIOD_MIN_SECONDS) {
        let at = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.push(FieldError::invalid(&at, period.clone(), "must be greater than or equal to 10 seconds"));
    }
    let in_secrets = &spec["serviceAccountTokenInSecrets"];
    if rules::is_set(in_secrets) && rules::list(&spec["tokenRequests"]).is_empty() {
        let at = path.child("serviceAccountTokenInSecrets");
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid(&at, in_secrets.clone(), detail));
    }
    if let Some(old) = old.map(|old| &old["spec"]) {
        // The name in the message is Kubernetes' own slip.
        let attach = path.child("attachedRequired");
        errors.extend(rules::immutable(&spec["attachRequired"], &old["attachRequired"], &attach));
        let field = "volumeLifecycleModes";
        errors.extend(rules::immutable(&spec[field], &old[field], &modes));
    }
    errors
}

fn token_requests(requests: &Value, path: &Path<'_>) -> Faults {
    let requests = rules::list(requests);
    let mut errors = Vec::new();
    for (i, request) in requests.iter().enumerate() {
        let at = path.index(i);
        if requests[..i].iter().any(|other| other["audience"] == request["audience"]) {
            errors.push(FieldError::duplicate(&at.child("audience"), request["audience"].clone()));
            continue;
        }
        let Some(seconds) = request["expirationSeconds"].as_i64() else { continue };
        let at = at.child("expirationSeconds");
        if seconds < TOKEN_MIN_SECONDS {
            errors.push(FieldError::invalid(&at, seconds, "may not specify a duration less than 10 minutes"));
        }
        if seconds > TOKEN_MAX_SECONDS {
            errors.push(FieldError::invalid(
                &at,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            ));
        }
    }
    errors
}

pub(super) fn capacity(capacity: &Value, old: Option<&Value>) -> Faults {
    let topology = Path::root("nodeTopology");
    let class = Path::root("storageClassName");
    let mut errors = Vec::new();
    if let Some(old) = old {
        let new = &capacity["nodeTopology"];
        let shown = rules::show_selector(new);
        errors.extend(rules::immutable_as(new, &old["nodeTopology"], &shown, &topology));
        errors.extend(rules::immutable(&capacity["storageClassName"], &old["storageClassName"], &class));
        return errors;
    }
    errors.extend(rules::label_selector(&capacity["nodeTopology"], &topology));
    let name = rules::text(&capacity["storageClassName"]);
    errors.extend(rules::faults(names::is_subdomain(name), name, &class));
    if let Some(quantity) = capacity["capacity"].as_str().filter(|quantity| quantity.starts_with('-')) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&Path::root("capacity"), quantity, detail));
    }
    errors
}

pub(super) fn attachment(attachment: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &attachment["spec"];
    let mut errors = Vec::new();
    let attacher = rules::text(&spec["attacher"]);
    if attacher.is_empty() {
        errors.push(FieldError::required(&path.child("attacher"), ""));
    }
    let source = path.child("source");
    let volume = &spec["source"]["persistentVolumeName"];
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (rules::is_set(&spec["source"]["inlineVolumeSpec"]), volume.as_str()) {
        (false, None) => errors.push(FieldError::required(&source, one)),
        (true, Some(_)) => errors.push(FieldError::forbidden(&source, one)),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required(&source.child("persistentVolumeName"), detail));
        }
        _ => {}
    }
    let node = rules::text(&spec["nodeName"]);
    errors.extend(rules::faults(names::is_subdomain(node), node, &path.child("nodeName")));
    errors.extend(attachment_status(&attachment["status"]));
    let Some(old) = old else {
        // On creation both are judged once more, by stricter rules.
        errors.extend(driver_name(attacher, &path.child("attacher")));
        let at = source.child("persistentVolumeName");
        if let Some(volume) = volume.as_str() {
            errors.extend(rules::faults(names::is_subdomain(volume), volume, &at));
        }
        return errors;
    };
    let shown = internal::compact("VolumeAttachmentSpec", spec);
    errors.extend(rules::immutable_as(spec, &old["spec"], &shown, &path));
    errors
}

fn attachment_status(status: &Value) -> Faults {
    let path = Path::root("status");
    let mut errors = Vec::new();
    if status["attachmentMetadata"].as_object().is_some_and(|map| size(map) > METADATA_MAX_BYTES) {
        errors.push(FieldError::too_long(&path.child("attachmentMetadata"), METADATA_MAX_BYTES));
    }
    for field in ["attachError", "detachError"] {
        let at = path.child(field);
        if rules::length(rules::text(&status[field]["message"])) > ERROR_MAX_BYTES {
            errors.push(FieldError::too_long(&at.child("message"), METADATA_MAX_BYTES));
        }
        if let Some(code) = status[field]["errorCode"].as_i64().filter(|code| *code < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.push(FieldError::invalid(&at.child("errorCode"), code, detail));
        }
    }
    errors
}
