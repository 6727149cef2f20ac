//! Which strategies a node's agent follows: the NodeSLO of a node. Spec: manager 4.
