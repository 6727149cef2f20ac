//! Warnings for those who make pods. Updates are the business of controllers, and go without.

use serde_json::Value;

use super::super::super::pod_template::{APP_ARMOR, warnings};
use super::super::super::tree::{part, text_entries};
use super::super::super::{meta, names};
use super::admit::app_armor_profile;

pub(super) fn warn(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut out = app_armor(pod);
    let faults = names::is_label(meta::name(pod));
    if !faults.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            faults.join(" ")
        ));
    }
    out.extend(warnings(pod, None));
    out
}

/// The old annotation, where no field of the pod says the same.
fn app_armor(pod: &Value) -> Vec<String> {
    let pod_profile = part(&pod["spec"]["securityContext"], "appArmorProfile");
    text_entries(&pod["metadata"], "annotations")
        .filter(|(key, value)| {
            key.starts_with(APP_ARMOR) && app_armor_profile(value).as_ref() != pod_profile
        })
        .map(|(key, _)| {
            format!(
                "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            )
        })
        .collect()
}
