//! Names and amounts of resources: in containers, quotas and limit ranges.

use koord_api::quantity::Quantity;
use serde_json::Value;

use super::check::Faults;
use super::{FieldError, Path, names};

const HUGE_PAGES: &str = "hugepages-";

/// Unqualified names a resource may have anywhere.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Counted in whole numbers.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// An amount as text; zero when it cannot be read, which decoding has ruled out.
pub(super) fn amount(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO)
}

pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

pub(super) fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Kubernetes' own: unqualified, or of its domain.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether requests may be below limits.
pub(super) fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

pub(super) fn is_whole(name: &str) -> bool {
    WHOLE.contains(&name) || is_extended(name)
}

/// The name of a resource; false when it has a fault.
pub(super) fn check_name(name: &str, path: &Path<'_>, out: &mut Faults) -> bool {
    let faults = names::is_qualified_name(name);
    let mut is_good = faults.is_empty();
    out.extend(faults.into_iter().map(|fault| FieldError::invalid(path, name, fault)));
    if is_good && !name.contains('/') && !STANDARD.contains(&name) && !is_quota_huge_pages(name) {
        out.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
        is_good = false;
    }
    is_good
}

pub(super) fn check_container_name(name: &str, path: &Path<'_>, out: &mut Faults) {
    check_name(name, path, out);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_pages(name) {
            out.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        out.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// Names a whole pod's resources may have.
pub(super) fn check_pod_name(name: &str, path: &Path<'_>, out: &mut Faults) {
    if check_name(name, path, out) && !["cpu", "memory"].contains(&name) && !is_huge_pages(name) {
        out.push(FieldError::not_supported(path, name, ["cpu", "hugepages-", "memory"]));
    }
}

pub(super) fn check_amount(name: &str, value: &Value, path: &Path<'_>, out: &mut Faults) {
    let quantity = amount(value);
    if quantity < Quantity::ZERO {
        out.push(FieldError::invalid(path, value.clone(), "must be greater than or equal to 0"));
    }
    if is_whole(name) && quantity.milli_value() % 1000 != 0 {
        out.push(FieldError::invalid(path, value.clone(), "must be an integer"));
    }
}

/// What is wrong with an amount of huge pages.
pub(super) fn huge_page_fault(name: &str, quantity: Quantity) -> Option<String> {
    let size: Option<Quantity> = name.strip_prefix(HUGE_PAGES)?.parse().ok();
    let is_divisible = size.is_some_and(|size| {
        size > Quantity::ZERO && size.milli_value() % 1000 == 0 && quantity.value() % size.value() == 0
    });
    (!is_divisible).then(|| format!("{quantity} is not positive integer multiple of {name}"))
}
