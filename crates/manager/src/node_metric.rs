//! What a node's agent must collect: the NodeMetric of a node. Spec: manager 3.
//!
//! Pure: the strategies, the Node and its NodeMetric in, what to do with the NodeMetric out.

use koord_api::crd::node_metric::NodeMetricSpec;
use koord_api::slo::{NodeFacts, SloConfig};

/// What is to be done with an object that follows a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan<S> {
    Nothing,
    Create(S),
    Update(S),
    Delete,
}

/// What to do with a node's NodeMetric. `node` and `present` are none where the object does not exist; an object without
/// spec is `Some(None)`.
pub fn plan(
    config: &SloConfig,
    node: Option<NodeFacts<'_>>,
    present: Option<Option<&NodeMetricSpec>>,
) -> Plan<NodeMetricSpec> {
    // Unreadable from the start: nothing is touched, so that a mistake costs no measurements.
    if config.colocation.rules().is_none() {
        return Plan::Nothing;
    }
    let Some(node) = node else {
        return if present.is_some() { Plan::Delete } else { Plan::Nothing };
    };
    let policy = present.flatten().and_then(|spec| spec.metric_collect_policy.as_ref());
    let Some(wanted) = config.metric_policy(node, policy) else { return Plan::Nothing };
    match present {
        None => Plan::Create(NodeMetricSpec { metric_collect_policy: Some(wanted) }),
        Some(_) if policy == Some(&wanted) => Plan::Nothing,
        Some(_) => Plan::Update(NodeMetricSpec { metric_collect_policy: Some(wanted) }),
    }
}

#[cfg(test)]
mod tests;
