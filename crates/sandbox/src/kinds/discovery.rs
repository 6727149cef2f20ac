//! The discovery.k8s.io group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    Vec::new()
}
