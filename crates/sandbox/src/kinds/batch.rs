//! The batch group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind::builtin("batch/v1", "Job", "jobs").category("all").generation().status()]
}
