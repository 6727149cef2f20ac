//! JSON as Go's decoder reads it and Go's encoder writes it. Spec: api 1.2.
