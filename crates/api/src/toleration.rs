//! Taints and the tolerations that match them.
