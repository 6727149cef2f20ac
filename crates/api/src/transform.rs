//! Changes made to objects as they are read. Spec: api 3.3.
