//! Feature gates and their defaults. Spec: api 9.
