//! The apps group.

use super::{Kind, ScalePaths, Subresource};

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind::builtin("apps/v1", "Deployment", "deployments")
            .short(&["deploy"])
            .category("all")
            .generation()
            .subresource(Subresource::Scale(ScalePaths::workload()))
            .status(),
    ]
}
