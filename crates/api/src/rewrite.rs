//! What admission changes in a new pod: profiles, resource names, the records for the node.

pub mod strategic;
