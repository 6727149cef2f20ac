//! The resource.k8s.io group: devices and claims to them. Only data here; nothing allocates.
//!
//! Differs: of claims and slices the parts a scheduler relies on are checked; CEL expressions,
//! attributes, capacities and allocation results are taken as they are.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::rules::{self, Faults};
use super::{Column, FieldError, Hooks, Kind, Path, cell, internal, meta, names};

const REQUESTS_MAX: i64 = 32;
const DEVICES_MAX: i64 = 128;
const POOL_NAME_MAX: i64 = 253;
const DRIVER_NAME_MAX: i64 = 63;

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |kind, plural| {
        let mut kind = Kind::builtin("resource.k8s.io/v1", kind, plural);
        kind.returns_deleted = true;
        kind
    };
    let plain =
        Hooks { row: |object, now| vec![cell::name(object), cell::age(object, now)], ..Hooks::default() };
    vec![
        kind("DeviceClass", "deviceclasses")
            .cluster_scoped()
            .generation()
            .columns(vec![cell::name_column(), cell::age_column()])
            .hooks(plain),
        kind("ResourceClaim", "resourceclaims").status().columns(claim_columns()).hooks(Hooks {
            default: |claim| default_requests(claim.pointer_mut("/spec/devices")),
            prepare_create: |claim| drop_tolerations(claim.pointer_mut("/spec/devices")),
            prepare_update: |claim, _| drop_tolerations(claim.pointer_mut("/spec/devices")),
            validate: validate_claim,
            validate_status: validate_claim_status,
            row: claim_row,
            ..Hooks::default()
        }),
        kind("ResourceClaimTemplate", "resourceclaimtemplates")
            .columns(vec![cell::name_column(), cell::age_column()])
            .hooks(Hooks {
                default: |template| default_requests(template.pointer_mut("/spec/spec/devices")),
                prepare_create: |template| drop_tolerations(template.pointer_mut("/spec/spec/devices")),
                prepare_update: |template, _| drop_tolerations(template.pointer_mut("/spec/spec/devices")),
                validate: validate_template,
                ..plain
            }),
        kind("ResourceSlice", "resourceslices").cluster_scoped().generation().columns(slice_columns()).hooks(
            Hooks {
                prepare_create: drop_disabled,
                prepare_update: |slice, _| drop_disabled(slice),
                validate: validate_slice,
                fields: |slice| {
                    let text = |field: &str| rules::text(&slice["spec"][field]).to_owned();
                    vec![("spec.nodeName", text("nodeName")), ("spec.driver", text("driver"))]
                },
                field_names: &["spec.nodeName", "spec.driver"],
                row: slice_row,
                ..Hooks::default()
            },
        ),
    ]
}

fn default_requests(devices: Option<&mut Value>) {
    let Some(devices) = devices else { return };
    for request in rules::each(devices, "requests") {
        if request["exactly"].is_object() {
            default_request(&mut request["exactly"]);
        }
        rules::each(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    rules::default_text(request, "allocationMode", "ExactCount");
    if request["allocationMode"] == "ExactCount" && request["count"].as_i64().unwrap_or(0) == 0 {
        request["count"] = json!(1);
    }
}

/// Parts of devices that belong to features which are off in this version.
const DISABLED: [&str; 9] = [
    "taints",
    "consumesCounters",
    "nodeName",
    "nodeSelector",
    "allNodes",
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "allowMultipleAllocations",
];

fn drop_disabled(slice: &mut Value) {
    let Some(spec) = slice.get_mut("spec") else { return };
    for device in rules::each(spec, "devices") {
        remove(device, &DISABLED);
        let capacities = device.get_mut("capacity").and_then(Value::as_object_mut);
        for capacity in capacities.into_iter().flat_map(Map::values_mut) {
            remove(capacity, &["requestPolicy"]);
        }
    }
    remove(spec, &["sharedCounters", "perDeviceNodeSelection"]);
}

fn drop_tolerations(devices: Option<&mut Value>) {
    let Some(devices) = devices else { return };
    for request in rules::each(devices, "requests") {
        if let Some(exactly) = request.get_mut("exactly") {
            remove(exactly, &["tolerations", "capacity"]);
        }
        rules::each(request, "firstAvailable")
            .for_each(|choice| remove(choice, &["tolerations", "capacity"]));
    }
}

fn remove(object: &mut Value, fields: &[&str]) {
    let Some(object) = object.as_object_mut() else { return };
    fields.iter().for_each(|field| drop(object.remove(*field)));
}

fn validate_claim(claim: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &claim["spec"];
    match old {
        Some(old) => {
            let shown = internal::compact("ResourceClaimSpec", spec);
            rules::immutable_as(spec, &old["spec"], &shown, &path).into_iter().collect()
        }
        None => requests(&spec["devices"], &path.child("devices")),
    }
}

fn validate_template(template: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &template["spec"];
    match old {
        Some(old) => {
            let shown = internal::compact("ResourceClaimTemplateSpec", spec);
            rules::immutable_as(spec, &old["spec"], &shown, &path).into_iter().collect()
        }
        None => {
            let inner = path.child("spec");
            requests(&spec["spec"]["devices"], &inner.child("devices"))
        }
    }
}

fn too_many(list: &[Value], max: i64, path: &Path<'_>) -> Option<FieldError> {
    let found = i64::try_from(list.len()).unwrap_or(i64::MAX);
    (found > max).then(|| FieldError::too_many(path, found, max))
}

fn requests(devices: &Value, path: &Path<'_>) -> Faults {
    let path = path.child("requests");
    let requests = rules::list(&devices["requests"]);
    let mut errors: Faults = too_many(requests, REQUESTS_MAX, &path).into_iter().collect();
    for (i, request) in requests.iter().enumerate() {
        let at = path.index(i);
        errors.extend(request_name(&request["name"], &at.child("name")));
        let choices = rules::list(&request["firstAvailable"]);
        match (rules::is_set(&request["exactly"]), !choices.is_empty()) {
            (false, false) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required";
                errors.push(FieldError::required(&at, detail));
            }
            (true, true) => {
                let detail =
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                errors.push(FieldError::invalid(&at, Value::Null, detail));
            }
            (true, false) => errors.extend(device_request(&request["exactly"], &at.child("exactly"))),
            (false, true) => {
                for (j, choice) in choices.iter().enumerate() {
                    let at = at.child("firstAvailable");
                    errors.extend(request_name(&choice["name"], &at.index(j).child("name")));
                    errors.extend(device_request(choice, &at.index(j)));
                }
            }
        }
        if requests[..i].iter().any(|other| other["name"] == request["name"]) {
            errors.push(FieldError::duplicate(&at, request["name"].clone()));
        }
    }
    errors
}

fn request_name(name: &Value, path: &Path<'_>) -> Faults {
    match rules::text(name) {
        "" => vec![FieldError::required(path, "")],
        name => rules::faults(names::is_label(name), name, path).collect(),
    }
}

fn device_request(request: &Value, path: &Path<'_>) -> Faults {
    let class = path.child("deviceClassName");
    let mut errors = match rules::text(&request["deviceClassName"]) {
        "" => vec![FieldError::required(&class, "")],
        name => rules::faults(names::is_subdomain(name), name, &class).collect(),
    };
    let count = request["count"].as_i64().unwrap_or(0);
    match rules::text(&request["allocationMode"]) {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&path.child("count"), count, detail));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(&path.child("count"), count, "must be greater than zero"));
        }
        _ => errors.extend(rules::one_of(
            &request["allocationMode"],
            &["All", "ExactCount"],
            &path.child("allocationMode"),
        )),
    }
    errors
}

fn validate_claim_status(claim: &Value, _: &Value) -> Faults {
    let path = Path::root("status");
    let status = &claim["status"];
    if status["allocation"].is_null() && !rules::list(&status["reservedFor"]).is_empty() {
        let detail = "may not be specified when `allocated` is not set";
        return vec![FieldError::forbidden(&path.child("reservedFor"), detail)];
    }
    Vec::new()
}

fn validate_slice(slice: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &slice["spec"];
    let driver = path.child("driver");
    let pool = path.child("pool");
    let mut errors = driver_name(rules::text(&spec["driver"]), &driver);
    errors.extend(pool_faults(&spec["pool"], &pool));
    if let Some(old) = old.map(|old| &old["spec"]) {
        errors.extend(rules::immutable(&spec["pool"]["name"], &old["pool"]["name"], &pool.child("name")));
        errors.extend(rules::immutable(&spec["driver"], &old["driver"], &driver));
        errors.extend(rules::immutable(&spec["nodeName"], &old["nodeName"], &path.child("nodeName")));
    }
    errors.extend(node_choice(spec, &path));
    let devices = rules::list(&spec["devices"]);
    let devices_path = path.child("devices");
    errors.extend(too_many(devices, DEVICES_MAX, &devices_path));
    for (i, device) in devices.iter().enumerate() {
        let at = devices_path.index(i);
        errors.extend(request_name(&device["name"], &at.child("name")));
        if devices[..i].iter().any(|other| other["name"] == device["name"]) {
            errors.push(FieldError::duplicate(&at, device["name"].clone()));
        }
    }
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

fn pool_faults(pool: &Value, path: &Path<'_>) -> Faults {
    let name = rules::text(&pool["name"]);
    let at = path.child("name");
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        if rules::length(name) > POOL_NAME_MAX {
            errors.push(FieldError::too_long(&at, POOL_NAME_MAX));
        }
        for part in name.split('/') {
            errors.extend(rules::faults(names::is_subdomain(part), part, &at));
        }
    }
    let number = |field: &str| pool[field].as_i64().unwrap_or(0);
    if number("resourceSliceCount") <= 0 {
        let at = path.child("resourceSliceCount");
        errors.push(FieldError::invalid(&at, number("resourceSliceCount"), "must be greater than zero"));
    }
    if number("generation") < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&path.child("generation"), number("generation"), detail));
    }
    errors
}

/// Which nodes the devices are on must be said in exactly one way.
fn node_choice(spec: &Value, path: &Path<'_>) -> Faults {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut errors = Vec::new();
    let mut chosen = Vec::new();
    match spec["nodeName"].as_str() {
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.push(FieldError::invalid(&path.child("nodeName"), "", detail));
        }
        Some(node) => {
            chosen.push("`nodeName`");
            errors.extend(rules::faults(names::is_subdomain(node), node, &path.child("nodeName")));
        }
        None => {}
    }
    if rules::is_set(&spec["nodeSelector"]) {
        chosen.push("`nodeSelector`");
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec[field].as_bool() {
            Some(true) => chosen.push(shown),
            Some(false) => {
                let detail = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path.child(field), false, detail));
            }
            None => {}
        }
    }
    match chosen.as_slice() {
        [] => errors.push(FieldError::required(path, ONE)),
        [_] => {}
        several => {
            let detail = format!("{ONE}, but multiple fields are set");
            errors.push(FieldError::invalid(path, format!("{{{}}}", several.join(", ")), detail));
        }
    }
    errors
}

fn claim_columns() -> Vec<Column> {
    let state = "A summary of the current state (allocated, pending, reserved, etc.).";
    vec![cell::name_column(), Column::new("State", "string", 0, state), cell::age_column()]
}

fn claim_row(claim: &Value, now: Timestamp) -> Vec<Value> {
    let is_deleted = meta::is_deleting(claim);
    let is_allocated = rules::is_set(&claim["status"]["allocation"]);
    let is_reserved = is_allocated && !rules::list(&claim["status"]["reservedFor"]).is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_allocated && !is_deleted, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states = states.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name);
    vec![cell::name(claim), Value::from(cell::join(states, ",")), cell::age(claim, now)]
}

fn slice_columns() -> Vec<Column> {
    let spec = "io.k8s.api.resource.v1.ResourceSliceSpec";
    vec![
        cell::name_column(),
        cell::documented("Node", "string", 0, spec, "nodeName"),
        cell::documented("Driver", "string", 0, spec, "driver"),
        cell::documented("Pool", "string", 0, "io.k8s.api.resource.v1.ResourcePool", "name"),
        cell::age_column(),
    ]
}

fn slice_row(slice: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &slice["spec"];
    vec![
        cell::name(slice),
        cell::text(&spec["nodeName"]),
        cell::text(&spec["driver"]),
        cell::text(&spec["pool"]["name"]),
        cell::age(slice, now),
    ]
}
