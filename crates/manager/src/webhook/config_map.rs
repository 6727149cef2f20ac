//! Whether a change of slo-controller-config is let through. Spec: manager 20.
//!
//! The rules are those of [`koord_api::slo::admission`]; here is which ConfigMaps they are for.

use k8s_openapi::api::core::v1::ConfigMap;
use koord_api::slo::admission::{self, NodeLabels, Options};

use serde::Deserialize;
use serde_json::Value;

use super::denial::Denial;
use super::review::{Answer, Operation, Request};

/// Name of the step in metrics.
const PLUGIN: &str = "SLOConfig";

/// Answers `/validate-configmap`. `nodes` are all nodes of the cluster.
pub fn answer(
    request: &Request,
    nodes: &[NodeLabels<'_>],
    options: &Options,
    step: &mut dyn FnMut(&'static str, bool),
) -> Answer {
    if request.resource.resource != "configmaps" || !request.sub_resource.is_empty() {
        return Answer::allow();
    }
    let judged = judged(request, nodes, options);
    step(PLUGIN, judged.is_ok());
    judged.into()
}

fn judged(request: &Request, nodes: &[NodeLabels<'_>], options: &Options) -> Result<(), Denial> {
    let namespace = &request.namespace;
    let old = match request.operation {
        Operation::Create => None,
        Operation::Update => Some(decode(&request.old_object)?),
        Operation::Delete => {
            if !request.old_object.is_null() && is_ours(&decode(&request.old_object)?, namespace, options) {
                tracing::warn!(
                    user = request.user.username,
                    "slo-controller-config is deleted; defaults apply"
                );
            }
            return Ok(());
        }
        Operation::Connect => return Ok(()),
    };
    validate(old.as_ref(), &decode(&request.object)?, namespace, nodes, options)
}

fn decode(object: &Value) -> Result<ConfigMap, Denial> {
    ConfigMap::deserialize(object)
        .map_err(|error| Denial::bad_request(format!("the object is no ConfigMap: {error}")))
}

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
