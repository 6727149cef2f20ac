//! Requests and limits: of containers, of claims, of whole pods.

use koord_api::quantity::{Quantity, ResourceList};
use serde_json::Value;

use super::super::check::{Faults, dns_label};
use super::super::resources::{
    amount, check_amount, check_container_name, check_pod_name, huge_page_fault, is_huge_pages,
    is_overcommittable,
};
use super::super::tree::{entries, has, list, part, text};
use super::super::{Fault, FieldError, Path};
use super::container::is_sidecar;

/// Whose resources these are: it decides which names are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Container,
    Pod,
}

impl Of {
    fn check_name(self, name: &str, path: &Path<'_>, out: &mut Faults) {
        match self {
            Of::Container => check_container_name(name, path, out),
            Of::Pod => check_pod_name(name, path, out),
        }
    }
}

pub(super) fn check(resources: &Value, of: Of, claims: &[&str], path: &Path<'_>, out: &mut Faults) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, value) in entries(resources, "limits") {
        let path = limits.key(name);
        of.check_name(name, &path, out);
        check_amount(name, value, &path, out);
        check_huge_pages(name, value, &path, out);
    }
    for (name, value) in entries(resources, "requests") {
        let path = requests.key(name);
        of.check_name(name, &path, out);
        check_amount(name, value, &path, out);
        match part(&resources["limits"], name) {
            Some(limit) => {
                let (quantity, most) = (amount(value), amount(limit));
                let rule = match is_overcommittable(name) {
                    false if quantity != most => "equal to",
                    true if quantity > most => "less than or equal to",
                    _ => "",
                };
                if !rule.is_empty() {
                    let detail = format!("must be {rule} {name} limit of {most}");
                    out.push(FieldError::invalid(&requests, value.clone(), detail));
                }
            }
            None if !is_overcommittable(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                out.push(FieldError::required(&limits, detail));
            }
            None => {}
        }
        check_huge_pages(name, value, &path, out);
    }
    let names = || entries(resources, "limits").chain(entries(resources, "requests")).map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| ["cpu", "memory"].contains(&name)) {
        out.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    check_claims(resources, claims, &path.child("claims"), out);
}

fn check_huge_pages(name: &str, value: &Value, path: &Path<'_>, out: &mut Faults) {
    if let Some(fault) = huge_page_fault(name, amount(value)) {
        out.push(FieldError::invalid(path, value.clone(), fault));
    }
}

fn check_claims(resources: &Value, known: &[&str], path: &Path<'_>, out: &mut Faults) {
    let mut seen: Vec<String> = Vec::new();
    for (i, claim) in list(resources, "claims").iter().enumerate() {
        let path = path.index(i);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            out.push(FieldError::required(&path, ""));
            continue;
        }
        if seen.iter().any(|s| s == name) {
            out.push(FieldError::duplicate(&path, name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                dns_label(request, &path.child("request"), out);
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                out.push(FieldError::duplicate(&path, key.as_str()));
            } else if request.is_empty() {
                let part_of = format!("{name}/");
                let overlaps = seen.iter().filter(|s| s.starts_with(&part_of));
                out.extend(overlaps.map(|_| FieldError::duplicate(&path, name)));
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut names = known.to_vec();
            names.sort_unstable();
            let detail = match names.is_empty() {
                true => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
                false => format!("must be one of the names in pod.spec.resourceClaims: {}", names.join(", ")),
            };
            out.push(FieldError::new(Fault::NotFound, &path, Some(name.into()), detail));
        }
    }
}

pub(super) fn check_overhead(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    if let Some(overhead) = part(spec, "overhead") {
        check(&serde_json::json!({"limits": overhead}), Of::Container, &[], path, out);
    }
}

/// Resources of the pod as a whole, and how they fit its containers'.
pub(super) fn check_pod(spec: &Value, path: &Path<'_>, out: &mut Faults) {
    let Some(resources) = part(spec, "resources") else { return };
    let path = path.child("resources");
    if text(&spec["os"], "name") == "windows" {
        return out.push(FieldError::forbidden(&path, "may not be set for a windows pod"));
    }
    if has(resources, "claims") {
        let detail = "claims may not be set for Resources at pod-level";
        out.push(FieldError::forbidden(&path.child("claims"), detail));
    }
    let claims: Vec<&str> = list(spec, "resourceClaims").iter().map(|c| text(c, "name")).collect();
    check(resources, Of::Pod, &claims, &path, out);
    let fits = |list: &str, word: &str, sums: ResourceList, out: &mut Faults| {
        for (name, sum) in sums {
            let Some(own) = part(&resources[list], &name) else { continue };
            if sum > amount(own) && (list == "requests" || is_huge_pages(&name)) {
                let detail = format!("must be greater than or equal to aggregate container {word} of {sum}");
                out.push(FieldError::invalid(&path.child(list).key(&name), own.clone(), detail));
            }
        }
    };
    fits("requests", "requests", sum(spec, "requests"), out);
    fits("limits", "limits", sum(spec, "limits"), out);
    let containers = path.child("containers");
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (name, limit) in entries(&container["resources"], "limits") {
            let Some(most) = part(&resources["limits"], name).map(amount) else { continue };
            if amount(limit) > most {
                let path = containers.index(i);
                let detail = format!("must be less than or equal to pod limits of {most}");
                out.push(FieldError::invalid(&path.key(name).child("limits"), limit.clone(), detail));
            }
        }
    }
}

/// What the containers of a pod need together: side by side, or one init container alone.
pub(crate) fn sum(spec: &Value, list_name: &str) -> ResourceList {
    let mut total = ResourceList::new();
    let mut sidecars = ResourceList::new();
    let mut peak = ResourceList::new();
    let add = |to: &mut ResourceList, container: &Value| {
        for (name, value) in entries(&container["resources"], list_name) {
            *to.entry(name.to_owned()).or_default() += amount(value);
        }
    };
    list(spec, "containers").iter().for_each(|container| add(&mut total, container));
    for container in list(spec, "initContainers") {
        let mut together = sidecars.clone();
        add(&mut together, container);
        if is_sidecar(container) {
            add(&mut total, container);
            sidecars = together.clone();
        }
        raise(&mut peak, &together);
    }
    raise(&mut total, &peak);
    total
}

fn raise(to: &mut ResourceList, least: &ResourceList) {
    for (name, amount) in least {
        let found = to.entry(name.clone()).or_insert(Quantity::ZERO);
        if *amount > *found {
            *found = *amount;
        }
    }
}

/// Requests of a pod: its own where it states them, else its containers'.
pub(crate) fn pod_requests(spec: &Value) -> ResourceList {
    with_pod_level(spec, "requests")
}

/// Limits of a pod, likewise.
pub(crate) fn pod_limits(spec: &Value) -> ResourceList {
    with_pod_level(spec, "limits")
}

fn with_pod_level(spec: &Value, list_name: &str) -> ResourceList {
    let mut total = sum(spec, list_name);
    for (name, value) in entries(&spec["resources"], list_name) {
        if ["cpu", "memory"].contains(&name) {
            total.insert(name.to_owned(), amount(value));
        }
    }
    total
}
