//! Flags and environment of koord-manager. Spec: manager 1.1, 1.2.
