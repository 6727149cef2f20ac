//! Points in time as Kubernetes writes them. Spec: api 1.3.
