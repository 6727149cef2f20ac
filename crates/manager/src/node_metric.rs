//! What a node's agent must collect: the NodeMetric of a node. Spec: manager 3.
