//! What may change of a pod once it exists: little of its spec, and parts through subresources.

use serde_json::{Map, Value, json};

use super::super::super::check::{Faults, between, is_same};
use super::super::super::diff;
use super::super::super::internal::compact;
use super::super::super::pod_template::{APP_ARMOR, MIRROR, pod_annotations, tolerations, validate_pod_spec};
use super::super::super::tree::{entries, has, int, list, part, remove, set, text, text_entries};
use super::super::super::{FieldError, Path, quote};
use super::{is_mirror, qos};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Faults of an update of the pod as a whole, beside those of its new spec.
pub(super) fn validate(pod: &Value, old: &Value, out: &mut Faults) {
    annotation_updates(pod, old, out);
    let path = Path::root("spec");
    let (spec, before) = (&pod["spec"], &old["spec"]);
    for containers in ["containers", "initContainers"] {
        if !container_images(spec, before, containers, &path.child(containers), out) {
            return;
        }
    }
    if !deadline(spec, before, &path.child("activeDeadlineSeconds"), out) {
        return;
    }
    only_added_tolerations(spec, before, &path.child("tolerations"), out);
    only_removed_gates(spec, before, &path.child("schedulingGates"), out);
    if spec == before {
        return;
    }
    let mut masked = spec.clone();
    mask(&mut masked, before);
    if !list(before, "schedulingGates").is_empty() {
        gated(&mut masked, before, &path, out);
    }
    if !is_same_spec(&masked, before) {
        let detail = format!(
            "pod updates may not change fields other than {CHANGEABLE}\n{}",
            diff::objects("PodSpec", before, &masked)
        );
        out.push(FieldError::forbidden(&path, detail));
    }
}

/// Annotations a pod keeps as it was made with.
pub(super) fn annotation_updates(pod: &Value, old: &Value, out: &mut Faults) {
    let metadata = Path::root("metadata");
    let path = metadata.child("annotations");
    let value = |object: &Value, key: &str| -> Option<String> {
        text_entries(&object["metadata"], "annotations").find(|(k, _)| *k == key).map(|(_, v)| v.to_owned())
    };
    let noun = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, known) in text_entries(&old["metadata"], "annotations") {
        let Some(noun) = noun(key).filter(|_| value(pod, key).as_deref() != Some(known)) else { continue };
        out.push(FieldError::forbidden(&path.key(key), format!("may not remove or update {noun}")));
    }
    for (key, _) in text_entries(&pod["metadata"], "annotations") {
        let Some(noun) = noun(key).filter(|_| value(old, key).is_none()) else { continue };
        out.push(FieldError::forbidden(&path.key(key), format!("may not add {noun}")));
    }
    pod_annotations(&pod["metadata"], &pod["spec"], &path, out);
}

/// False when the rest is not worth a look.
fn container_images(spec: &Value, old: &Value, field: &str, path: &Path<'_>, out: &mut Faults) -> bool {
    let containers = list(spec, field);
    if containers.len() != list(old, field).len() {
        out.push(FieldError::forbidden(path, "pod updates may not add or remove containers"));
        return false;
    }
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        let image = text(container, "image");
        if image.is_empty() {
            out.push(FieldError::required(&path.child("image"), ""));
        }
        if image.trim() != image {
            let detail = "must not have leading or trailing whitespace";
            out.push(FieldError::invalid(&path.child("image"), image, detail));
        }
    }
    true
}

fn deadline(spec: &Value, old: &Value, path: &Path<'_>, out: &mut Faults) -> bool {
    let field = "activeDeadlineSeconds";
    match (int(spec, field), int(old, field)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            out.push(FieldError::invalid(path, seconds, between(0, i64::from(i32::MAX))));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            let detail = "must be less than or equal to previous value";
            out.push(FieldError::invalid(path, seconds, detail));
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            out.push(FieldError::invalid(path, Value::Null, detail));
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(spec: &Value, old: &Value, path: &Path<'_>, out: &mut Faults) {
    let without_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    let kept: Vec<Value> = list(spec, "tolerations").iter().map(without_time).collect();
    if !list(old, "tolerations").iter().all(|t| kept.contains(&without_time(t))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return out.push(FieldError::forbidden(path, detail));
    }
    tolerations(spec, path, out);
}

fn only_removed_gates(spec: &Value, old: &Value, path: &Path<'_>, out: &mut Faults) {
    let known: Vec<&str> = list(old, "schedulingGates").iter().map(|g| text(g, "name")).collect();
    for (i, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(&name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            out.push(FieldError::forbidden(&path.index(i).child("name"), detail));
        }
    }
}

/// Takes what may change from the old spec.
fn mask(spec: &mut Value, old: &Value) {
    for field in ["containers", "initContainers"] {
        let images: Vec<Value> = list(old, field).iter().map(|c| c["image"].clone()).collect();
        for (container, image) in super::list_mut(spec, field).zip(images) {
            set(container, "image", image);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(spec, old, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if int(old, grace).is_some_and(|s| s < 0) && int(spec, grace) == Some(1) {
        restore(spec, old, grace);
    }
}

fn restore(spec: &mut Value, old: &Value, field: &str) {
    match part(old, field) {
        Some(value) => set(spec, field, value.clone()),
        None => {
            remove(spec, field);
        }
    }
}

fn is_same_spec(new: &Value, old: &Value) -> bool {
    let empty = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&empty), old.as_object().unwrap_or(&empty));
    new.keys().chain(old.keys()).all(|field| is_same(new.get(field), old.get(field)))
}

/// A pod that waits at a gate may be narrowed to fewer nodes.
fn gated(spec: &mut Value, old: &Value, path: &Path<'_>, out: &mut Faults) {
    if !is_same(spec.get("nodeSelector"), old.get("nodeSelector")) {
        let kept = |(key, value): (&str, &Value)| part(&spec["nodeSelector"], key) == Some(value);
        if !entries(old, "nodeSelector").all(kept) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            let value = spec.get("nodeSelector").cloned().unwrap_or(Value::Null);
            out.push(FieldError::invalid(&path.child("nodeSelector"), value, detail));
        }
        restore(spec, old, "nodeSelector");
    }
    let affinity = |v: &Value| part(&v["affinity"], "nodeAffinity").cloned();
    let (new_affinity, old_affinity) = (affinity(spec), affinity(old));
    if new_affinity == old_affinity {
        return;
    }
    let at = path.child("affinity");
    narrowed(new_affinity.as_ref(), old_affinity.as_ref(), &at.child("nodeAffinity"), out);
    let has_others = ["podAffinity", "podAntiAffinity"].iter().any(|f| has(&spec["affinity"], f));
    match old_affinity {
        None if !has(old, "affinity") && !has_others => {
            remove(spec, "affinity");
        }
        None => {
            remove(&mut spec["affinity"], "nodeAffinity");
        }
        Some(known) => {
            if !spec["affinity"].is_object() {
                set(spec, "affinity", json!({}));
            }
            spec["affinity"]["nodeAffinity"] = known;
        }
    }
}

fn narrowed(new: Option<&Value>, old: Option<&Value>, path: &Path<'_>, out: &mut Faults) {
    let terms = |affinity: Option<&Value>| -> Vec<Value> {
        let required = affinity.and_then(|a| part(a, REQUIRED));
        required.map(|r| list(r, "nodeSelectorTerms").to_vec()).unwrap_or_default()
    };
    let (new, old) = (terms(new), terms(old));
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown: Vec<String> = new.iter().map(|term| compact("NodeSelectorTerm", term)).collect();
        let error = FieldError::invalid(&path, new, detail);
        let shown = if shown.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) };
        return out.push(error.showing(shown));
    }
    for (i, (new, old)) in new.iter().zip(&old).enumerate() {
        let starts_with = |field: &str| list(new, field).starts_with(list(old, field));
        let is_empty =
            |term: &Value| list(term, "matchExpressions").is_empty() && list(term, "matchFields").is_empty();
        let is_widened = is_empty(old) && !is_empty(new);
        if is_widened || !starts_with("matchExpressions") || !starts_with("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            let error = FieldError::invalid(&path.index(i), new.clone(), detail);
            out.push(error.showing(compact("NodeSelectorTerm", new)));
        }
    }
}

/// Faults of a write to pods/ephemeralcontainers or pods/resize.
pub(super) fn validate_part(subresource: &str, pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    validate_pod_spec(pod, &mut out);
    match subresource {
        "ephemeralcontainers" => ephemeral(pod, old, &mut out),
        _ => resize(pod, old, &mut out),
    }
    out
}

fn ephemeral(pod: &Value, old: &Value, out: &mut Faults) {
    annotation_updates(pod, old, out);
    if is_mirror(old) {
        *out = vec![FieldError::forbidden("[]", "static pods do not support ephemeral containers")];
        return;
    }
    let spec = Path::root("spec");
    let path = spec.child("ephemeralContainers");
    let new = list(&pod["spec"], "ephemeralContainers");
    for known in list(&old["spec"], "ephemeralContainers") {
        let name = quote(text(known, "name"));
        match new.iter().rfind(|c| c["name"] == known["name"]) {
            None => {
                let detail = format!("existing ephemeral containers {name} may not be removed\n");
                out.push(FieldError::forbidden(&path, detail));
            }
            Some(found) if found != known => {
                let shown = diff::objects("EphemeralContainer", known, found);
                let detail = format!("existing ephemeral containers {name} may not be changed\n{shown}");
                out.push(FieldError::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
}

fn resize(pod: &Value, old: &Value, out: &mut Faults) {
    let refused = if is_mirror(old) {
        "static pods cannot be resized"
    } else if text(&old["spec"]["os"], "name") == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !refused.is_empty() {
        *out = vec![FieldError::forbidden("[]", refused)];
        return;
    }
    let path = Path::root("spec");
    let (spec, before) = (&pod["spec"], &old["spec"]);
    let class = match text(&old["status"], "qosClass") {
        "" => qos::class(before),
        class => class,
    };
    if class != qos::class(spec) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        out.push(FieldError::invalid(&path, text(&pod["status"], "qosClass"), detail));
    }
    let running = list(&old["status"], "containerStatuses").iter().find(|c| has(&c["state"], "running"));
    if running.is_some_and(|c| !has(c, "resources")) {
        out.push(FieldError::forbidden(&path, "Pod running on node without support for resize"));
    }
    let is_set =
        |spec: &Value| ["requests", "limits"].iter().any(|f| entries(&spec["resources"], f).next().is_some());
    if is_set(spec) || is_set(before) {
        let detail = "resize of pods with pod-level resources is forbidden when \
                      InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
        return out.push(FieldError::forbidden("[]", detail));
    }
    if !same_containers(spec, before, &path, out) {
        return;
    }
    for field in ["initContainers", "containers"] {
        resized(spec, before, field, &path, out);
    }
}

/// Containers are neither added, removed, renamed nor reordered.
fn same_containers(spec: &Value, old: &Value, path: &Path<'_>, out: &mut Faults) -> bool {
    let count = out.len();
    for field in ["containers", "initContainers"] {
        let (new, known) = (list(spec, field), list(old, field));
        let path = path.child(field);
        if new.len() != known.len() {
            out.push(FieldError::forbidden(&path, format!("{field} may not be added or removed on resize")));
            continue;
        }
        for i in (0..new.len()).filter(|i| new[*i]["name"] != known[*i]["name"]) {
            let detail = format!("{field} may not be renamed or reordered on resize");
            out.push(FieldError::forbidden(&path.index(i).child("name"), detail));
        }
    }
    out.len() == count
}

fn resized(spec: &Value, old: &Value, field: &str, path: &Path<'_>, out: &mut Faults) {
    let at = path.child(field);
    for (i, (new, known)) in list(spec, field).iter().zip(list(old, field)).enumerate() {
        let is_sidecar = text(known, "restartPolicy") == "Always";
        if field == "initContainers" && !is_sidecar {
            if new != known {
                let detail = "resources for non-sidecar init containers are immutable";
                out.push(FieldError::forbidden(path, detail));
            }
            continue;
        }
        let at = at.index(i);
        let at = at.child("resources");
        for list in ["requests", "limits"] {
            if entries(&known["resources"], list).any(|(name, _)| !has(&new["resources"][list], name)) {
                out.push(FieldError::forbidden(
                    &at.child(list),
                    format!("resource {list} cannot be removed"),
                ));
            }
        }
        if without_compute(new) != without_compute(known) {
            let whose = if field == "initContainers" { " for sidecar containers" } else { "" };
            out.push(FieldError::forbidden(
                path,
                format!("only cpu and memory resources{whose} are mutable"),
            ));
        }
    }
}

/// A container without its CPU and memory.
fn without_compute(container: &Value) -> Value {
    let mut container = container.clone();
    let mut resources = json!({});
    for list in ["requests", "limits"] {
        let kept: Map<String, Value> = entries(&container["resources"], list)
            .filter(|(name, _)| !["cpu", "memory"].contains(name))
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect();
        if !kept.is_empty() {
            resources[list] = Value::Object(kept);
        }
    }
    set(&mut container, "resources", resources);
    container
}
