//! Simulated nodes and the hollow kubelet on each.
