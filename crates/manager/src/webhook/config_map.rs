//! Whether a change of slo-controller-config is let through. Spec: manager 20.
//!
//! The rules are those of [`koord_api::slo::admission`]; here is which ConfigMaps they are for.

use k8s_openapi::api::core::v1::ConfigMap;
use koord_api::slo::admission::{self, NodeLabels, Options};

use super::denial::Denial;

/// Judges the new state of a ConfigMap; `old` is none on create. ConfigMaps other than the one that `options` name are
/// nobody's business here. Deletions are never refused and need no call.
pub fn validate(
    old: Option<&ConfigMap>,
    new: &ConfigMap,
    request_namespace: &str,
    nodes: &[NodeLabels<'_>],
    options: &Options,
) -> Result<(), Denial> {
    if !is_ours(new, request_namespace, options) {
        return Ok(());
    }
    let none = admission::Data::new();
    let data = new.data.as_ref().unwrap_or(&none);
    admission::admit(old.and_then(|old| old.data.as_ref()), data, nodes, options)
        .map_err(|error| Denial { code: error.code, message: error.text })
}

/// Whether a ConfigMap is the one that holds our configuration.
pub fn is_ours(config_map: &ConfigMap, request_namespace: &str, options: &Options) -> bool {
    let namespace = config_map.metadata.namespace.as_deref().unwrap_or(request_namespace);
    namespace == options.namespace && config_map.metadata.name.as_deref() == Some(&options.name)
}

#[cfg(test)]
mod tests;
