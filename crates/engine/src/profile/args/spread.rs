//! PodTopologySpread: what pods without constraints of their own get. Spec: scheduler-core 6.10 and 7.3.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTopologySpreadArgs {
    pub default_constraints: DefaultConstraints,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum DefaultConstraints {
    /// Hostname with skew 3 and zone with skew 5, both as a wish.
    #[default]
    System,
    /// These. Positive skew, a key, a known action, no selector, no key and action twice.
    List(Vec<TopologySpreadConstraint>),
}
