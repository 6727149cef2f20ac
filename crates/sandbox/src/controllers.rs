//! The few workload controllers that scenarios need.
