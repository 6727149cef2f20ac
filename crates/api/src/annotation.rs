//! Typed readers and writers of every annotation. Spec: api 5.
