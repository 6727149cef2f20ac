//! QoS classes. Spec: api 2.
