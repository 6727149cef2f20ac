//! Messages of the runtime hook protocol. Spec: api 8.
