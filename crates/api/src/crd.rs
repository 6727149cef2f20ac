//! Custom resources, field by field. Spec: crds.
