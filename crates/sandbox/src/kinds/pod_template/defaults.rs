//! What a pod spec leaves out, filled as Kubernetes fills it.

use koord_api::quantity::Quantity;
use serde_json::{Value, json};

use super::super::tree::{fill, fill_number, has, list_mut, part_mut, remove, set, text};
use super::image;

/// Mode of files in volumes: 0644.
const FILE_MODE: i64 = 420;
/// Seconds a projected token is good for.
const TOKEN_SECONDS: i64 = 3600;

pub(super) fn spec(spec: &mut Value) {
    // In Go a spec is always there, if empty.
    if spec.is_null() {
        *spec = json!({});
    }
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    // Two names for one thing: the old one always says the same as the new one.
    let old = text(spec, "serviceAccount").to_owned();
    if !old.is_empty() {
        fill(spec, "serviceAccountName", old);
    }
    let account = text(spec, "serviceAccountName").to_owned();
    if !account.is_empty() {
        set(spec, "serviceAccount", account);
    }
    list_mut(spec, "volumes").for_each(volume);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        list_mut(spec, containers).for_each(container);
    }
    round_up(spec, "overhead");
    if let Some(resources) = part_mut(spec, "resources") {
        round_up(resources, "limits");
        round_up(resources, "requests");
    }
}

/// Amounts below a thousandth count as one.
pub(crate) fn round_up(parent: &mut Value, field: &str) {
    let Some(list) = parent.get_mut(field).and_then(Value::as_object_mut) else { return };
    for amount in list.values_mut() {
        // Canonical texts of finer amounts end in n or u, or carry a negative exponent.
        let Some(text) = amount.as_str().filter(|t| t.ends_with(['n', 'u']) || t.contains("e-")) else {
            continue;
        };
        if let Ok(quantity) = text.parse::<Quantity>() {
            *amount = Quantity::from_milli(quantity.milli_value(), quantity.family()).to_string().into();
        }
    }
}

fn volume(volume: &mut Value) {
    let Some(fields) = volume.as_object() else { return };
    if !fields.iter().any(|(key, value)| key != "name" && !value.is_null()) {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = part_mut(volume, source) {
            fill(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = part_mut(volume, "hostPath")
        && !has(path, "type")
    {
        set(path, "type", "");
    }
    if let Some(source) = part_mut(volume, "image") {
        let policy = pull_policy(text(source, "reference"));
        fill(source, "pullPolicy", policy);
    }
    if let Some(source) = part_mut(volume, "downwardAPI") {
        list_mut(source, "items").for_each(field_ref);
    }
    if let Some(source) = part_mut(volume, "projected") {
        for source in list_mut(source, "sources") {
            if let Some(source) = part_mut(source, "downwardAPI") {
                list_mut(source, "items").for_each(field_ref);
            }
            if let Some(token) = part_mut(source, "serviceAccountToken") {
                fill(token, "expirationSeconds", TOKEN_SECONDS);
            }
        }
    }
    if let Some(claim) = part_mut(volume, "ephemeral").and_then(|e| part_mut(e, "volumeClaimTemplate"))
        && let Some(spec) = part_mut(claim, "spec")
    {
        claim_spec(spec);
    }
    legacy_disk(volume);
}

/// The defaults of a claim, alone or inside a pod.
pub(crate) fn claim_spec(spec: &mut Value) {
    fill(spec, "volumeMode", "Filesystem");
    if let Some(resources) = part_mut(spec, "resources") {
        round_up(resources, "limits");
        round_up(resources, "requests");
    }
}

/// The defaults of disks that pods and persistent volumes share.
pub(crate) fn legacy_disk(source: &mut Value) {
    if let Some(disk) = part_mut(source, "iscsi") {
        fill(disk, "iscsiInterface", "default");
    }
    if let Some(disk) = part_mut(source, "rbd") {
        fill(disk, "pool", "rbd");
        fill(disk, "user", "admin");
        fill(disk, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = part_mut(source, "azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
        fill(disk, "kind", "Shared");
    }
    if let Some(disk) = part_mut(source, "scaleIO") {
        fill(disk, "storageMode", "ThinProvisioned");
        fill(disk, "fsType", "xfs");
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    list_mut(container, "ports").for_each(|port| fill(port, "protocol", "TCP"));
    for variable in list_mut(container, "env") {
        let Some(source) = part_mut(variable, "valueFrom") else { continue };
        field_ref(source);
        if let Some(file) = part_mut(source, "fileKeyRef") {
            fill(file, "optional", false);
        }
    }
    if let Some(resources) = part_mut(container, "resources") {
        round_up(resources, "limits");
        round_up(resources, "requests");
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = part_mut(container, name) {
            probe(found);
        }
    }
    if let Some(lifecycle) = part_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = part_mut(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    if image::tag(image) == "latest" { "Always" } else { "IfNotPresent" }
}

fn probe(probe: &mut Value) {
    for (field, default) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        fill_number(probe, field, default);
    }
    http_get(probe);
    if let Some(grpc) = part_mut(probe, "grpc")
        && !has(grpc, "service")
    {
        set(grpc, "service", "");
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = part_mut(handler, "httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
}

fn field_ref(source: &mut Value) {
    if let Some(field) = part_mut(source, "fieldRef") {
        fill(field, "apiVersion", "v1");
    }
}

/// With the host's network every container port is a host port. Only of pods, not of templates.
pub(crate) fn host_ports(spec: &mut Value) {
    for containers in ["containers", "initContainers"] {
        for container in list_mut(spec, containers) {
            for port in list_mut(container, "ports") {
                let number = port.get("containerPort").cloned().unwrap_or(Value::Null);
                if port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) == 0 && !number.is_null() {
                    set(port, "hostPort", number);
                }
            }
        }
    }
}

/// Requests that are not given are those of the limits. Only of pods, not of templates.
pub(crate) fn requests_from_limits(spec: &mut Value) {
    for containers in ["containers", "initContainers"] {
        for container in list_mut(spec, containers) {
            let Some(resources) = part_mut(container, "resources") else { continue };
            let Some(limits) = remove(resources, "limits") else { continue };
            if let (Some(limits), Some(requests)) =
                (limits.as_object(), super::super::tree::map_mut(resources, "requests"))
            {
                for (name, amount) in limits {
                    requests.entry(name.clone()).or_insert_with(|| amount.clone());
                }
            }
            set(resources, "limits", limits);
        }
    }
}
