//! What admission changes in a pod's resources. Spec: api 3.4.
