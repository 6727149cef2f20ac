//! The coordination.k8s.io group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind::builtin("coordination.k8s.io/v1", "Lease", "leases")]
}
