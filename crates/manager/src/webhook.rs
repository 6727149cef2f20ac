//! Admission: what pods, quotas, nodes and configuration are changed to, and what is refused. Spec: manager 14 to 22.

pub mod denial;

pub mod pod_validate;

pub mod enhanced;

pub mod quota;

pub mod config_map;

pub mod binding;
