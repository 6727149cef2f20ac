//! Resource names and amounts. Spec: api 3.3.
