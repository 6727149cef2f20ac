//! The policy group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    let mut budget = Kind::builtin("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
        .short(&["pdb"])
        .generation()
        .status();
    budget.unconditional_update = false;
    vec![budget]
}
