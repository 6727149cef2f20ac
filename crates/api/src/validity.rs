//! Which QoS, priority and resources go together. Spec: api 3.2.
