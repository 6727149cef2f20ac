//! Sets of logical CPUs and their Linux list text. Spec: api 1.3.
