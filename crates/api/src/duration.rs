//! Durations in Go's text form. Spec: api 1.3.
