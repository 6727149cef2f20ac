//! Label, field and node selectors. Spec: api 1.3.
