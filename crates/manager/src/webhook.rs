//! Admission: what pods, quotas, nodes and configuration are changed to, and what is refused. Spec: manager 14 to 22.

pub mod node;
