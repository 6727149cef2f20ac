//! Priority classes and their bands. Spec: api 3.1.
