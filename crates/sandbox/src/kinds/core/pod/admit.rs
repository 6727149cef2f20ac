//! What Kubernetes' admission plugins do to pods: limits, priority, tolerations, runtime classes.

use serde_json::{Value, json};

use super::super::super::pod_template::APP_ARMOR;
use super::super::super::tree::{flag, has, int, list, list_mut, map_mut, part, part_mut, set, text};
use super::super::super::{Admission, Approval, Cluster, Operation, quote};
use super::super::limit_range;
use super::super::{refuse, shown_name};
use crate::status::ApiError;

/// Seconds a pod stays on a node that is not ready or not reachable.
const TOLERATION_SECONDS: i64 = 300;
/// Classes that every cluster has, though nobody made them.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const PREEMPT: &str = "PreemptLowerPriority";
/// Labels a pod takes over from its node.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    match (admission.operation, admission.subresource) {
        (Operation::Create, "") => {
            limit_range::fill(admission.cluster, admission.namespace, admission.object);
            take_topology(admission);
            resolve_priority(admission)?;
            tolerate_lost_nodes(admission.object);
            runtime_class(admission)
        }
        (Operation::Update, "") => {
            keep_priority(admission);
            tolerate_lost_nodes(admission.object);
            Ok(())
        }
        (Operation::Update, "resize") => {
            limit_range::fill(admission.cluster, admission.namespace, admission.object);
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn approve(approval: &Approval<'_>) -> Result<(), ApiError> {
    match (approval.operation, approval.subresource) {
        (Operation::Create, "") => {
            limit_range::approve_pod(approval)?;
            let spec = &approval.object["spec"];
            if has(spec, "overhead") && !has(spec, "runtimeClassName") {
                let why =
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                return Err(approval.kind.forbidden(shown_name(approval.object), why));
            }
            Ok(())
        }
        (Operation::Update, "resize") => limit_range::approve_pod(approval),
        _ => Ok(()),
    }
}

/// A pod that names its node carries the node's place in the topology.
fn take_topology(admission: &mut Admission<'_>) {
    let node = text(&admission.object["spec"], "nodeName");
    if node.is_empty() {
        return;
    }
    let Some(node) = admission.cluster.get("", "nodes", "", node) else { return };
    for key in TOPOLOGY_LABELS {
        let Some(value) = part(&node["metadata"]["labels"], key) else { continue };
        if let Some(labels) = part_mut(admission.object, "metadata").and_then(|m| map_mut(m, "labels")) {
            labels.insert(key.to_owned(), value.clone());
        }
    }
}

/// A pod without tolerations of its own for these waits a while before it is evicted.
fn tolerate_lost_nodes(pod: &mut Value) {
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            ["", taint].contains(&text(t, "key")) && ["", "NoExecute"].contains(&text(t, "effect"))
        };
        if list(&pod["spec"], "tolerations").iter().any(covers) {
            continue;
        }
        let toleration = json!({"key": taint, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": TOLERATION_SECONDS});
        let Some(spec) = part_mut(pod, "spec") else { return };
        match spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            Some(list) => list.push(toleration),
            None => set(spec, "tolerations", json!([toleration])),
        }
    }
}

/// A priority class: its name, value and preemption policy.
struct Class {
    name: String,
    value: i64,
    preemption: Option<String>,
}

impl Class {
    fn of(object: &Value) -> Class {
        Class {
            name: text(&object["metadata"], "name").to_owned(),
            value: int(object, "value").unwrap_or(0),
            preemption: object.get("preemptionPolicy").and_then(Value::as_str).map(str::to_owned),
        }
    }

    fn named(cluster: &dyn Cluster, name: &str) -> Option<Class> {
        let found = cluster.get("scheduling.k8s.io", "priorityclasses", "", name);
        let system = || {
            let (name, value) = SYSTEM_CLASSES.into_iter().find(|(system, _)| *system == name)?;
            Some(Class { name: name.to_owned(), value, preemption: Some(PREEMPT.to_owned()) })
        };
        found.as_ref().map(Class::of).or_else(system)
    }

    /// The class of pods that name none: the lowest of those meant for all, else zero.
    fn default(cluster: &dyn Cluster) -> Class {
        let classes = cluster.list("scheduling.k8s.io", "priorityclasses", "");
        let general = classes.iter().filter(|class| flag(class, "globalDefault")).map(Class::of);
        let none = || Class { name: String::new(), value: 0, preemption: Some(PREEMPT.to_owned()) };
        general.min_by_key(|class| class.value).unwrap_or_else(none)
    }
}

fn resolve_priority(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let spec = &admission.object["spec"];
    let name = text(spec, "priorityClassName");
    let class = match name {
        "" => Class::default(admission.cluster),
        _ => Class::named(admission.cluster, name).ok_or_else(|| {
            refuse(admission, "pods", &format!("no PriorityClass with name {name} was found"))
        })?,
    };
    if let Some(own) = int(spec, "priority").filter(|own| *own != class.value) {
        let why = format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            class.value
        );
        return Err(refuse(admission, "pods", &why));
    }
    if let (Some(policy), Some(own)) =
        (&class.preemption, spec.get("preemptionPolicy").and_then(Value::as_str).filter(|p| !p.is_empty()))
        && own != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
        );
        return Err(refuse(admission, "pods", &why));
    }
    let Some(spec) = part_mut(admission.object, "spec") else { return Ok(()) };
    if !class.name.is_empty() {
        set(spec, "priorityClassName", class.name);
    }
    set(spec, "priority", class.value);
    if let Some(policy) = class.preemption {
        set(spec, "preemptionPolicy", policy);
    }
    Ok(())
}

/// An update that leaves out what was computed means to keep it.
fn keep_priority(admission: &mut Admission<'_>) {
    let Some(old) = admission.old else { return };
    for field in ["priority", "preemptionPolicy"] {
        let (Some(known), Some(spec)) = (part(&old["spec"], field), part_mut(admission.object, "spec"))
        else {
            continue;
        };
        if !has(spec, field) {
            set(spec, field, known.clone());
        }
    }
}

fn runtime_class(admission: &Admission<'_>) -> Result<(), ApiError> {
    let Some(name) = admission.object["spec"].get("runtimeClassName").and_then(Value::as_str) else {
        return Ok(());
    };
    match admission.cluster.get("node.k8s.io", "runtimeclasses", "", name) {
        Some(_) => Ok(()),
        None => {
            let why = format!("pod rejected: RuntimeClass {} not found", quote(name));
            Err(refuse(admission, "pods", &why))
        }
    }
}

/// The old AppArmor annotation of a container becomes the field that took its place.
pub(super) fn app_armor_fields(pod: &mut Value) {
    let annotations = pod["metadata"].get("annotations").cloned().unwrap_or(Value::Null);
    let is_used = |(key, _): (&String, &Value)| key.starts_with(APP_ARMOR);
    if !annotations.as_object().is_some_and(|a| a.iter().any(is_used)) {
        return;
    }
    if text(&pod["spec"]["os"], "name") == "windows" {
        return;
    }
    let pod_profile = pod["spec"]["securityContext"].get("appArmorProfile").cloned();
    let Some(spec) = part_mut(pod, "spec") else { return };
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list_mut(spec, containers) {
            let key = format!("{APP_ARMOR}{}", text(container, "name"));
            let profile = part(&annotations, &key).and_then(Value::as_str).and_then(app_armor_profile);
            if has(&container["securityContext"], "appArmorProfile") || profile == pod_profile {
                continue;
            }
            if let Some(profile) = profile {
                super::fill(container, "securityContext", json!({}));
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

pub(super) fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let file = annotation.strip_prefix("localhost/").filter(|f| !f.is_empty() && f.trim() == *f)?;
            Some(json!({"type": "Localhost", "localhostProfile": file}))
        }
    }
}
