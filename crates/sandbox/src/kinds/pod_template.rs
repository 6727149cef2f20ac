//! Pod specs wherever they stand: in a Pod, and in the template of every workload.

use serde_json::Value;

use super::{FieldError, Path};

/// Fills what a pod spec leaves out.
pub(super) fn default_spec(_spec: &mut Value) {}

/// Faults of a workload's template; `path` is where it stands, such as `spec.template`.
pub(super) fn validate_template(_template: &Value, _path: &Path<'_>) -> Vec<FieldError> {
    Vec::new()
}
