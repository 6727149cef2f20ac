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
        Kind::builtin("apps/v1", "ReplicaSet", "replicasets")
            .short(&["rs"])
            .category("all")
            .generation()
            .subresource(Subresource::Scale(ScalePaths::workload()))
            .status(),
        Kind::builtin("apps/v1", "StatefulSet", "statefulsets")
            .short(&["sts"])
            .category("all")
            .generation()
            .subresource(Subresource::Scale(ScalePaths::workload()))
            .status(),
        Kind::builtin("apps/v1", "DaemonSet", "daemonsets")
            .short(&["ds"])
            .category("all")
            .generation()
            .status(),
        Kind::builtin("apps/v1", "ControllerRevision", "controllerrevisions"),
    ]
}
