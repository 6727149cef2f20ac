//! Metrics of koord-manager. Spec: manager 24.
