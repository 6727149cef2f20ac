//! Kubernetes quantities: exact values, canonical text. Spec: api 1.3.
