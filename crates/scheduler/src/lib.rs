//! koord-scheduler: the engine on Kubernetes. Watches in, bindings and patches out.
