//! Pod specs wherever they stand: in a Pod, and in the template of every workload.
//!
//! `defaults` fills them, the other files judge them in the order Kubernetes does, part by part.

mod affinity;
mod annotations;
mod container;
pub(super) mod defaults;
mod env;
mod image;
mod probe;
mod requirements;
mod scheduling;
mod security;
mod spec;
mod volume;
mod warnings;

use koord_api::quantity::ResourceList;
use serde_json::Value;

pub(super) use affinity::node_selector;
pub(super) use annotations::{APP_ARMOR, MIRROR, pod_annotations};
pub(super) use requirements::{pod_limits, pod_requests};
pub(super) use scheduling::{taint_effect, tolerations};
pub(super) use volume::{access_modes, claim_spec, csi_driver, host_path, path_without_backsteps};
pub(super) use warnings::{
    address as address_warning, claim as claim_warnings, node_term as node_term_warnings, warnings,
};

use super::check::{Faults, labels};
use super::tree::list;
use super::{FieldError, Path, meta};

/// Where a pod spec stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    Template,
    /// In a pod of this name.
    Pod(&'a str),
}

/// Fills what a pod spec leaves out.
pub(super) fn default_spec(spec: &mut Value) {
    defaults::spec(spec);
}

/// Requests of all containers together.
pub(super) fn requests_sum(spec: &Value) -> ResourceList {
    requirements::sum(spec, "requests")
}

/// Limits of all containers together.
pub(super) fn limits_sum(spec: &Value) -> ResourceList {
    requirements::sum(spec, "limits")
}

/// Faults of a workload's template; `path` is where it stands, such as `spec.template`.
pub(super) fn validate_template(template: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut out = Faults::new();
    let metadata = &template["metadata"];
    labels(metadata, "labels", path, &mut out);
    out.extend(meta::validate_annotations(template, &path.child("annotations")));
    let spec = &template["spec"];
    pod_annotations(metadata, spec, &path.child("annotations"), &mut out);
    let spec_path = path.child("spec");
    spec::check(spec, Place::Template, &spec_path, &mut out);
    annotations::agree(metadata, spec, &spec_path, &mut out);
    if !list(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        out.push(FieldError::forbidden(&spec_path.child("ephemeralContainers"), detail));
    }
    out
}

/// Faults of a pod's own spec, on create and on every update.
pub(super) fn validate_pod_spec(pod: &Value, out: &mut Faults) {
    let metadata = Path::root("metadata");
    let spec_path = Path::root("spec");
    let spec = &pod["spec"];
    pod_annotations(&pod["metadata"], spec, &metadata.child("annotations"), out);
    spec::check(spec, Place::Pod(meta::name(pod)), &spec_path, out);
    spec::check_only_pods(spec, &spec_path, out);
}

/// Faults only a new pod can have.
pub(super) fn validate_new_pod(pod: &Value, out: &mut Faults) {
    let spec_path = Path::root("spec");
    let spec = &pod["spec"];
    if !list(spec, "ephemeralContainers").is_empty() {
        out.push(FieldError::forbidden(&spec_path.child("ephemeralContainers"), "cannot be set on create"));
    }
    let is_placed = spec["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if is_placed && !list(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        out.push(FieldError::forbidden(&spec_path.child("nodeName"), detail));
    }
    annotations::agree(&pod["metadata"], spec, &spec_path, out);
}
