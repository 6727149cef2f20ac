//! What pods ask for, and their Kubernetes QoS. Spec: api 2.
