//! Subresources with a life of their own: scale, binding, eviction, ephemeral containers.

use std::sync::Arc;

use koord_api::selector::{Labels, Selector};
use serde_json::{Value, json};

use super::api::{Answer, Api, FieldValidation, Part, WriteOptions, Written};
use super::decode::read_patched;
use super::delete::DeleteOptions;
use super::write::Patch;
use crate::kinds::{FieldError, Kind, Path, ScalePaths, Subresource, meta, quote};
use crate::status::{ApiError, Cause};
use crate::store::{Selection, Stored};

/// Evicted pods a budget remembers until they are gone.
const DISRUPTED_PODS_MAX: usize = 2000;
/// Labels a pod takes over from its node.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
const BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, field| value.get(field)).filter(|v| !v.is_null())
}

fn set_at(object: &mut Value, path: &str, new: Value) {
    let mut place = object;
    for field in path.split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[field];
    }
    *place = new;
}

/// The scale of an object, as autoscaling/v1 has it.
pub(super) fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": number(&paths.status_replicas)},
    });
    if number(&paths.spec_replicas) != 0 {
        scale["spec"]["replicas"] = json!(number(&paths.spec_replicas));
    }
    let selector = paths.selector.as_deref().and_then(|path| at(object, path));
    let text = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(tree) => print_selector(tree),
        None => String::new(),
    };
    if !text.is_empty() {
        scale["status"]["selector"] = json!(text);
    }
    scale
}

fn print_selector(tree: &Value) -> String {
    let is_object = tree.get("matchLabels").is_some() || tree.get("matchExpressions").is_some();
    if !is_object {
        let labels = tree.as_object().into_iter().flatten();
        let pairs: Vec<String> =
            labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
        return pairs.join(",");
    }
    let selector = serde_json::from_value(tree.clone()).ok();
    selector.and_then(|s| Selector::new(Some(&s)).ok()).map(|s| s.to_string()).unwrap_or_default()
}

impl Api {
    pub(super) fn scale_paths<'a>(&self, kind: &'a Kind) -> Option<&'a ScalePaths> {
        match kind.find_subresource("scale") {
            Some(Subresource::Scale(paths)) => Some(paths),
            _ => None,
        }
    }

    /// Replaces (or patches) the scale: writes spec.replicas of the object behind it.
    pub(super) async fn write_scale(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        wanted: ScaleChange<'_>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let paths = self.scale_paths(kind).ok_or_else(ApiError::no_such_path)?;
        let change = |object: &mut Value| {
            let current = scale_of(object, paths);
            let scale = wanted.apply(current.clone())?;
            check_scale(kind, name, &scale, &current)?;
            set_at(object, &paths.spec_replicas, json!(scale["spec"]["replicas"].as_i64().unwrap_or(0)));
            Ok(true)
        };
        let written = self.edit(kind, (namespace, name), Part::Scale, options, &change).await?;
        let mut object = written.value();
        kind.from_storage(&mut object);
        Ok(Written { answer: Answer::Tree(scale_of(&object, paths)), ..written })
    }

    /// Assigns a pod to a node.
    pub async fn bind(
        &self,
        (namespace, name): (&str, &str),
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        if meta::name(binding) != name {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
        }
        let node = check_binding(binding)?;
        let kind = self.kind("", "pods")?;
        let now = meta::format_time(self.now());
        let is_node = binding["target"]["kind"] == "Node";
        let found = self.store.table("", "nodes").get(node).filter(|_| is_node);
        let topology: Vec<(&str, String)> = TOPOLOGY_LABELS
            .into_iter()
            .filter_map(|key| Some((key, found.as_ref()?.label(key)?.to_owned())))
            .collect();
        let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
        let change = |pod: &mut Value| {
            check_binding_version(binding, pod, name)?;
            if meta::is_deleting(pod) {
                return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
                let assigned = quote(assigned);
                return Err(conflict(format!("pod {name} is already assigned to node {assigned}")));
            }
            if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
                return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
            }
            pod["spec"]["nodeName"] = json!(node);
            // A hint to where the pod could go has served its purpose.
            super::write::remove(&mut pod["status"], "nominatedNodeName");
            for map in ["annotations", "labels"] {
                let Some(added) = binding["metadata"][map].as_object() else { continue };
                for (key, value) in added {
                    pod["metadata"][map][key] = value.clone();
                }
            }
            for (key, value) in &topology {
                pod["metadata"]["labels"][key] = json!(value);
            }
            set_condition(pod, json!({"type": "PodScheduled", "status": "True"}), &now);
            Ok(true)
        };
        self.rewrite(&kind, (namespace, name), options, &change).await?;
        Ok(success(201))
    }

    /// Deletes a pod if its disruption budget allows.
    pub async fn evict(
        &self,
        (namespace, name): (&str, &str),
        eviction: &Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        if meta::name(eviction) != name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let kind = self.kind("", "pods")?;
        let mut delete = super::options::delete_options(&eviction["deleteOptions"], options)?;
        let stored = self.get(&kind, namespace, name)?;
        let pod = stored.value();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let is_over = ["Succeeded", "Failed"].contains(&phase) || meta::is_deleting(&pod);
        if is_over || phase == "Pending" {
            if !is_over && delete.revision.is_none() {
                delete.revision = Some(stored.revision().to_string());
            }
        } else if self.spend_budget(&stored, &pod, &delete).await? && delete.revision.is_none() {
            delete.revision = Some(stored.revision().to_string());
        }
        self.mark_evicted(&kind, (namespace, name), &mut delete).await?;
        self.delete(&kind, (namespace, name), &delete).await?;
        Ok(success(201))
    }

    /// Counts the eviction against the pod's budget. True when the pod, being unready, is free.
    async fn spend_budget(
        &self,
        stored: &Stored,
        pod: &Value,
        delete: &DeleteOptions,
    ) -> Result<bool, ApiError> {
        let Ok(kind) = self.kind("policy", "poddisruptionbudgets") else { return Ok(false) };
        let namespace = stored.namespace();
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let budgets = self.list(&kind, &selection);
        let budgets: Vec<Value> =
            budgets.iter().map(|b| b.value()).filter(|b| selects(&b["spec"]["selector"], stored)).collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(false),
            [one] => one,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                            support.";
                return Err(ApiError::new(500, "", text));
            }
        };
        let status = &budget["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        if !is_ready(pod) {
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            let healthy =
                number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
            if always || healthy {
                return Ok(true);
            }
        }
        let now = meta::format_time(self.now());
        let change = |budget: &mut Value| {
            decrement(budget, stored.name(), &now)?;
            Ok(true)
        };
        let name = meta::name(budget).to_owned();
        let own = WriteOptions { manager: "kube-apiserver".to_owned(), ..delete.write.clone() };
        self.edit(&kind, (namespace, &name), Part::Status, &own, &change).await?;
        Ok(false)
    }

    async fn mark_evicted(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        delete: &mut DeleteOptions,
    ) -> Result<(), ApiError> {
        if delete.write.dry_run {
            return Ok(());
        }
        let now = meta::format_time(self.now());
        let wanted = (delete.uid.clone(), delete.revision.clone());
        let change = |pod: &mut Value| {
            check_eviction_version(&wanted, pod, name)?;
            let condition = json!({"type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
            set_condition(pod, condition, &now);
            Ok(true)
        };
        let stored = self.rewrite(kind, (namespace, name), &delete.write, &change).await?;
        if delete.revision.is_some() {
            delete.revision = Some(stored.revision().to_string());
        }
        Ok(())
    }

    /// Changes any part of an object on the server's own account: no admission, no validation.
    async fn rewrite(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        options: &WriteOptions,
        change: &(dyn Fn(&mut Value) -> Result<bool, ApiError> + Send + Sync),
    ) -> Result<Arc<Stored>, ApiError> {
        let table = self.table(kind);
        let key = crate::store::key(namespace, name);
        loop {
            let stored = table.get(&key).ok_or_else(|| kind.not_found(name))?;
            let mut object = stored.value();
            change(&mut object)?;
            if options.dry_run {
                return Ok(stored);
            }
            if let Ok(new) = table.replace(super::api::draft(kind, object), stored.revision()) {
                return Ok(new);
            }
        }
    }
}

/// A wanted scale, or a patch of the current one.
pub(super) enum ScaleChange<'a> {
    Replace(&'a Value),
    Patch(&'a Patch),
}

impl ScaleChange<'_> {
    fn apply(&self, current: Value) -> Result<Value, ApiError> {
        let result = match self {
            ScaleChange::Replace(scale) => return Ok((*scale).clone()),
            ScaleChange::Patch(Patch::Json(patch)) => crate::patch::json::apply(current, patch),
            ScaleChange::Patch(Patch::Merge(patch) | Patch::Strategic(patch)) => {
                crate::patch::merge::apply(current, patch)
            }
            ScaleChange::Patch(Patch::Apply(wanted)) => {
                let fields = wanted.as_object().cloned().unwrap_or_default();
                return Ok(crate::patch::merge::apply_fields(current, fields));
            }
        };
        let patched = result.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let scale = Kind::builtin("autoscaling/v1", "Scale", "scales");
        Ok(read_patched(&scale, patched, None, &[], FieldValidation::Ignore)?.object)
    }
}

fn check_scale(kind: &Kind, name: &str, scale: &Value, current: &Value) -> Result<(), ApiError> {
    if meta::name(scale) != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            meta::name(scale)
        )));
    }
    let version = meta::text(scale, "resourceVersion");
    if !version.is_empty() && version != meta::text(current, "resourceVersion") {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return Err(kind.conflict(name, why));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let spec = Path::root("spec");
        let error =
            FieldError::invalid(&spec.child("replicas"), replicas, "must be greater than or equal to 0");
        return Err(ApiError::invalid("autoscaling", "Scale", name, &[error]));
    }
    Ok(())
}

fn check_binding(binding: &Value) -> Result<&str, ApiError> {
    let target = Path::root("target");
    let kind = binding["target"]["kind"].as_str().unwrap_or("");
    let node = binding["target"]["name"].as_str().unwrap_or("");
    let mut errors = Vec::new();
    if !["", "Node"].contains(&kind) {
        errors.push(FieldError::not_supported(&target.child("kind"), kind, ["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required(&target.child("name"), ""));
    }
    match errors.is_empty() {
        true => Ok(node),
        // Kubernetes answers a bad binding as a failure of its own.
        false => Err(ApiError::new(500, "", crate::schema::fault::join(&errors))),
    }
}

fn check_binding_version(binding: &Value, pod: &Value, name: &str) -> Result<(), ApiError> {
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, is) = (meta::text(binding, field), meta::text(pod, field));
        if !wanted.is_empty() && wanted != is {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {is}",
                crate::store::key(meta::namespace(pod), name)
            );
            return Err(ApiError::conflict("", "pods", name, &why));
        }
    }
    Ok(())
}

fn check_eviction_version(
    (uid, revision): &(Option<String>, Option<String>),
    pod: &Value,
    name: &str,
) -> Result<(), ApiError> {
    let is = meta::uid(pod);
    if let Some(uid) = uid.as_deref().filter(|uid| *uid != is) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({is}). The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict("", "Pod", name, &why));
    }
    let is = meta::text(pod, "resourceVersion");
    if let Some(revision) = revision.as_deref().filter(|revision| *revision != is) {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({is}). \
             The object might have been modified"
        );
        return Err(ApiError::conflict("", "Pod", name, &why));
    }
    Ok(())
}

/// Sets a pod condition; the time moves only when the status does.
pub(crate) fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(list) = object["status"]["conditions"].as_array_mut() else { return };
    let at = list.iter().position(|c| c["type"] == condition["type"]);
    let same = at.filter(|at| list[*at]["status"] == condition["status"]);
    condition["lastTransitionTime"] = match same {
        Some(at) => list[at]["lastTransitionTime"].clone(),
        None => json!(now),
    };
    condition["lastProbeTime"] = Value::Null;
    match at {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn selects(selector: &Value, pod: &(impl Labels + ?Sized)) -> bool {
    let selector = match selector {
        Value::Null => return false,
        tree => serde_json::from_value(tree.clone()).ok(),
    };
    selector.and_then(|s| Selector::new(Some(&s)).ok()).is_some_and(|s| s.matches(pod))
}

/// One eviction less, or why not.
fn decrement(budget: &mut Value, pod: &str, now: &str) -> Result<(), ApiError> {
    let name = meta::name(budget).to_owned();
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let cause = |message: String| {
        vec![Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }]
    };
    if number("observedGeneration") < meta::generation(budget) {
        let text = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::too_many_requests(BUDGET, 10).with_causes(cause(text)));
    }
    let forbidden = |why: &str| ApiError::forbidden("policy", "poddisruptionbudget", &name, why);
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if disrupted > DISRUPTED_PODS_MAX {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        let text = refusal(budget, &name);
        return Err(ApiError::too_many_requests(BUDGET, 0).with_causes(cause(text)));
    }
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    budget["status"]["disruptedPods"][pod] = json!(now);
    note_allowance(budget, now);
    Ok(())
}

/// The condition that says whether the budget allows another eviction.
fn note_allowance(budget: &mut Value, now: &str) {
    let is_allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) > 0;
    let (status, reason) =
        if is_allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({"type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
        "observedGeneration": budget["status"]["observedGeneration"]});
    set_condition(budget, condition, now);
    for condition in budget["status"]["conditions"].as_array_mut().into_iter().flatten() {
        // Only conditions of pods tell when they were looked at.
        super::write::remove(condition, "lastProbeTime");
    }
}

/// Why a budget allows nothing now.
fn refusal(budget: &Value, name: &str) -> String {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let condition =
        conditions.into_iter().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False");
    let text = |field: &str| condition.and_then(|c| c[field].as_str()).unwrap_or("");
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    if text("reason") == "SyncFailed" && !text("message").is_empty() {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text("message")
        );
    }
    if healthy <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
    }
    match text("message") {
        "" => format!("The disruption budget {name} does not allow evicting pods currently"),
        message => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {message}",
            text("reason")
        ),
    }
}
