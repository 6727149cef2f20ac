//! Which quota a pod belongs to, and whether it may. Spec: manager 17.6.

use k8s_openapi::api::core::v1::Pod;
use koord_api::crd::elastic_quota::DEFAULT_QUOTA;
use koord_api::keys::pod::label::{QUOTA_NAME, QUOTA_PREEMPTIBLE};
use koord_api::pod::label;

use super::QuotaGates;
use super::info::QuotaKey;
use super::ledger::Ledger;
use crate::webhook::denial::Denial;

/// Name of the quota that a pod belongs to, whether there is such a quota or not. Empty for none.
pub fn quota_name<'a>(pod: &'a Pod, namespace: &'a str, ledger: &'a Ledger, gates: QuotaGates) -> &'a str {
    let named = label(pod, QUOTA_NAME).unwrap_or_default();
    if !named.is_empty() || gates.disable_default {
        return named;
    }
    let own = QuotaKey { namespace: namespace.to_owned(), name: namespace.to_owned() };
    if ledger.at(&own).is_some() {
        return namespace;
    }
    ledger.bound_to(namespace).unwrap_or(DEFAULT_QUOTA)
}

/// Rule 3: pods do not belong to a quota that has children.
pub fn check_create(pod: &Pod, namespace: &str, ledger: &Ledger, gates: QuotaGates) -> Result<(), Denial> {
    if gates.parent_submits {
        return Ok(());
    }
    let quota = quota_name(pod, namespace, ledger, gates);
    let is_parent = quota != DEFAULT_QUOTA && ledger.get(quota).is_some_and(|info| info.is_parent);
    if !is_parent {
        return Ok(());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let text = format!("pod can not be linked to a parentQuotaGroup,quota:{quota}, pod:{name}");
    Err(Denial::bad_request(text))
}

/// The same, and preemptible stays what it was.
pub fn check_update(
    old: &Pod,
    new: &Pod,
    namespace: &str,
    ledger: &Ledger,
    gates: QuotaGates,
) -> Result<(), Denial> {
    let of = |pod| label(pod, QUOTA_PREEMPTIBLE).unwrap_or_default();
    if of(old) != of(new) {
        return Err(Denial::bad_request("Preemptible label is forbidden modify now."));
    }
    check_create(new, namespace, ledger, gates)
}

#[cfg(test)]
mod tests;
