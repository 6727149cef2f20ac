//! A real Kubernetes control plane, started in seconds, for tests and benchmarks.
