//! Limit ranges: their own rules, and what they do to pods and claims.

use koord_api::quantity::{Quantity, ResourceList};
use serde_json::{Value, json};

use super::super::check::{Faults, qualified_name};
use super::super::pod_template::{defaults, pod_limits, pod_requests};
use super::super::resources::{amount, check_container_name, check_name, is_overcommittable};
use super::super::tree::{entries, has, list, list_mut, map_mut, part, part_mut, set, text};
use super::super::{Approval, Cluster, FieldError, Hooks, Kind, Path, meta};
use crate::status::{ApiError, aggregate};

/// Where a pod is told what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Beyond this, amounts are compared as whole numbers.
const MILLI_MAX: i64 = i64::MAX / 1000;

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "LimitRange", "limitranges").short(&["limits"]).hooks(Hooks {
        default: |range| {
            if let Some(spec) = part_mut(range, "spec") {
                list_mut(spec, "limits").for_each(default_item);
            }
        },
        validate: |range, _| validate(range),
        ..Hooks::default()
    });
    kind.create_on_update = true;
    kind
}

fn default_item(item: &mut Value) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        defaults::round_up(item, field);
    }
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let known: Vec<(String, Value)> =
            entries(item, from).map(|(name, value)| (name.to_owned(), value.clone())).collect();
        if known.is_empty() {
            continue;
        }
        let Some(list) = map_mut(item, to) else { continue };
        for (name, value) in known {
            list.entry(name).or_insert(value);
        }
    }
}

fn validate(range: &Value) -> Vec<FieldError> {
    let mut out = Faults::new();
    let spec = Path::root("spec");
    let limits = spec.child("limits");
    let mut seen: Vec<&str> = Vec::new();
    for (i, item) in list(&range["spec"], "limits").iter().enumerate() {
        let path = limits.index(i);
        let kind = text(item, "type");
        let count = out.len();
        qualified_name(kind, &path.child("type"), &mut out);
        let is_known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) || kind.contains('/');
        if out.len() == count && !is_known {
            let detail = "must be a standard limit type or fully qualified";
            out.push(FieldError::invalid(&path.child("type"), kind, detail));
        }
        if seen.contains(&kind) {
            out.push(FieldError::duplicate(&path.child("type"), kind));
        }
        seen.push(kind);
        validate_item(item, &path, &mut out);
    }
    out
}

fn validate_item(item: &Value, path: &Path<'_>, out: &mut Faults) {
    let kind = text(item, "type");
    let names = |field: &str, out: &mut Faults| {
        let path = path.child(field);
        for (name, _) in entries(item, field) {
            match kind {
                "Pod" | "Container" => check_container_name(name, &path.key(name), out),
                _ => {
                    check_name(name, &path.key(name), out);
                }
            }
        }
    };
    names("max", out);
    names("min", out);
    for field in ["default", "defaultRequest"] {
        match kind {
            "Pod" if entries(item, field).next().is_some() => {
                let detail = "may not be specified when `type` is 'Pod'";
                out.push(FieldError::forbidden(&path.child(field), detail));
            }
            "Pod" => {}
            _ => names(field, out),
        }
    }
    let has_storage = ["min", "max"].iter().any(|field| has(&item[field], "storage"));
    if kind == "PersistentVolumeClaim" && !has_storage {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        out.push(FieldError::required(&path.child("limits"), detail));
    }
    names("maxLimitRequestRatio", out);
    let fields: &[&str] = match kind {
        "Pod" => &["max", "min", "maxLimitRequestRatio"],
        _ => &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"],
    };
    let mut keys: Vec<&str> = fields.iter().flat_map(|f| entries(item, f)).map(|(name, _)| name).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().for_each(|name| validate_amounts(item, kind, name, path, out));
}

fn validate_amounts(item: &Value, kind: &str, name: &str, path: &Path<'_>, out: &mut Faults) {
    let get = |field: &str| {
        let is_hidden = kind == "Pod" && field.starts_with("default");
        part(&item[field], name).filter(|_| !is_hidden).map(amount)
    };
    let (min, max) = (get("min"), get("max"));
    let (default, request, ratio) = (get("default"), get("defaultRequest"), get("maxLimitRequestRatio"));
    let mut order = |field: &str,
                     low: Option<Quantity>,
                     high: Option<Quantity>,
                     shown: Option<Quantity>,
                     words: [&str; 2]| {
        let (Some(low), Some(high), Some(shown)) = (low, high, shown) else { return };
        if low > high {
            let detail = format!("{} value {low} is greater than {} value {high}", words[0], words[1]);
            out.push(FieldError::invalid(&path.child(field).key(name), shown.to_string(), detail));
        }
    };
    order("min", min, max, min, ["min", "max"]);
    order("defaultRequest", min, request, request, ["min", "default request"]);
    order("defaultRequest", request, max, request, ["default request", "max"]);
    order("defaultRequest", request, default, request, ["default request", "default limit"]);
    order("default", min, default, min, ["min", "default"]);
    order("default", default, max, max, ["default", "max"]);
    if let Some(ratio) = ratio {
        validate_ratio(ratio, min, max, &path.child("maxLimitRequestRatio").key(name), out);
    }
    if let (Some(default), Some(request)) = (default, request)
        && !is_overcommittable(name)
        && default != request
    {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {name}");
        out.push(FieldError::invalid(&path.child("defaultRequest").key(name), request.to_string(), detail));
    }
}

fn validate_ratio(
    ratio: Quantity,
    min: Option<Quantity>,
    max: Option<Quantity>,
    path: &Path<'_>,
    out: &mut Faults,
) {
    if ratio.milli_value() < 1000 {
        out.push(FieldError::invalid(path, ratio.to_string(), format!("ratio {ratio} is less than 1")));
    }
    let (Some(min), Some(max)) = (min, max) else { return };
    let most = as_float(max) / as_float(min);
    if as_float(ratio) > most {
        let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
        out.push(FieldError::invalid(path, ratio.to_string(), detail));
    }
}

#[expect(clippy::cast_precision_loss, reason = "ratios are compared as floats in Kubernetes, too")]
fn as_float(quantity: Quantity) -> f64 {
    quantity.milli_value() as f64 / 1000.0
}

/// Gives containers what the namespace's ranges say they have by default.
pub(super) fn fill(cluster: &dyn Cluster, namespace: &str, pod: &mut Value) {
    for range in cluster.list("", "limitranges", namespace) {
        let mut told: Vec<String> = Vec::new();
        for item in list(&range["spec"], "limits").iter().filter(|i| text(i, "type") == "Container") {
            let Some(spec) = part_mut(pod, "spec") else { return };
            for (containers, noun) in [("containers", "container"), ("initContainers", "init container")] {
                list_mut(spec, containers)
                    .for_each(|container| fill_container(container, item, noun, &mut told));
            }
        }
        if told.is_empty() {
            continue;
        }
        let text = format!("LimitRanger plugin set: {}", told.join("; "));
        if let Some(annotations) = part_mut(pod, "metadata").and_then(|m| map_mut(m, "annotations")) {
            annotations.insert(ANNOTATION.to_owned(), text.into());
        }
    }
}

fn fill_container(container: &mut Value, item: &Value, noun: &str, told: &mut Vec<String>) {
    let name = text(container, "name").to_owned();
    if !container["resources"].is_object() {
        set(container, "resources", json!({}));
    }
    let mut lines = Vec::new();
    for (from, to, word) in [("default", "limits", "limit"), ("defaultRequest", "requests", "request")] {
        let mut added: Vec<&str> = Vec::new();
        for (resource, value) in entries(item, from) {
            let Some(list) = part_mut(container, "resources").and_then(|r| map_mut(r, to)) else { continue };
            if !list.contains_key(resource) {
                list.insert(resource.to_owned(), value.clone());
                added.push(resource);
            }
        }
        if !added.is_empty() {
            lines.push(format!("{} {word} for {noun} {name}", added.join(", ")));
        }
    }
    // Requests are told first.
    told.extend(lines.into_iter().rev());
}

/// Refuses a pod outside the namespace's ranges.
pub(super) fn approve_pod(approval: &Approval<'_>) -> Result<(), ApiError> {
    if approval.old.is_some_and(meta::is_deleting) {
        return Ok(());
    }
    let spec = &approval.object["spec"];
    judge(approval, |item, faults| match text(item, "type") {
        "Container" => {
            for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
                let resources = &container["resources"];
                constrain(item, &amounts(resources, "requests"), &amounts(resources, "limits"), faults);
            }
        }
        "Pod" => constrain(item, &pod_requests(spec), &pod_limits(spec), faults),
        _ => {}
    })
}

/// Refuses a claim outside the namespace's ranges.
pub(super) fn approve_claim(approval: &Approval<'_>) -> Result<(), ApiError> {
    if approval.old.is_some_and(meta::is_deleting) {
        return Ok(());
    }
    let requests = amounts(&approval.object["spec"]["resources"], "requests");
    judge(approval, |item, faults| {
        if text(item, "type") != "PersistentVolumeClaim" {
            return;
        }
        for (name, least) in entries(item, "min") {
            at_least("PersistentVolumeClaim", name, amount(least), &requests, &ResourceList::new(), faults);
        }
        for (name, most) in entries(item, "max") {
            let most = amount(most);
            let start = format!("maximum {name} usage per PersistentVolumeClaim is {most}");
            match requests.get(name) {
                None => faults.push(format!("{start}.  No request is specified")),
                Some(request) if *request > most => faults.push(format!("{start}, but request is {request}")),
                Some(_) => {}
            }
        }
    })
}

fn judge(approval: &Approval<'_>, look: impl Fn(&Value, &mut Vec<String>)) -> Result<(), ApiError> {
    let namespace = meta::namespace(approval.object);
    for range in approval.cluster.list("", "limitranges", namespace) {
        let mut faults = Vec::new();
        list(&range["spec"], "limits").iter().for_each(|item| look(item, &mut faults));
        if !faults.is_empty() {
            let why = aggregate(faults.into_iter());
            return Err(approval.kind.forbidden(super::shown_name(approval.object), &why));
        }
    }
    Ok(())
}

fn amounts(resources: &Value, field: &str) -> ResourceList {
    entries(resources, field).map(|(name, value)| (name.to_owned(), amount(value))).collect()
}

fn constrain(item: &Value, requests: &ResourceList, limits: &ResourceList, faults: &mut Vec<String>) {
    let kind = text(item, "type");
    for (name, least) in entries(item, "min") {
        at_least(kind, name, amount(least), requests, limits, faults);
    }
    for (name, most) in entries(item, "max") {
        let most = amount(most);
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(name), requests.get(name)) {
            (None, _) => faults.push(format!("{start}.  No limit is specified")),
            (Some(limit), _) if *limit > most => faults.push(format!("{start}, but limit is {limit}")),
            (_, Some(request)) if *request > most => {
                faults.push(format!("{start}, but request is {request}"))
            }
            _ => {}
        }
    }
    for (name, most) in entries(item, "maxLimitRequestRatio") {
        ratio(kind, name, amount(most), requests.get(name), limits.get(name), faults);
    }
}

fn at_least(
    kind: &str,
    name: &str,
    least: Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
    faults: &mut Vec<String>,
) {
    let start = format!("minimum {name} usage per {kind} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => faults.push(format!("{start}.  No request is specified")),
        (Some(request), _) if *request < least => faults.push(format!("{start}, but request is {request}")),
        (_, Some(limit)) if *limit < least => faults.push(format!("{start}, but limit is {limit}")),
        _ => {}
    }
}

fn ratio(
    kind: &str,
    name: &str,
    most: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
    faults: &mut Vec<String>,
) {
    let start = format!("{name} max limit to request ratio per {kind} is {most}");
    let Some(request) = request.filter(|r| !r.is_zero()) else {
        return faults.push(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|l| !l.is_zero()) else {
        return faults.push(format!("{start}, but no limit is specified or limit is 0"));
    };
    let is_small = |q: &Quantity| q.value() <= MILLI_MAX;
    let found = match is_small(request) && is_small(limit) {
        true => as_float(*limit) / as_float(*request),
        false => whole(*limit) / whole(*request),
    };
    if found > as_float(most) {
        faults.push(format!("{start}, but provided ratio is {found:.6}"));
    }
}

#[expect(clippy::cast_precision_loss, reason = "ratios are compared as floats in Kubernetes, too")]
fn whole(quantity: Quantity) -> f64 {
    quantity.value() as f64
}
