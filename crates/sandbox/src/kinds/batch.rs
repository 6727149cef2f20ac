//! The batch group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    Vec::new()
}
