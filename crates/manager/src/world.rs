//! What the manager knows of the cluster: one cache for each kind it reads.
