//! Which strategies a node's agent follows: the NodeSLO of a node. Spec: manager 4.
//!
//! Pure: the strategies, the Node and its NodeSLO in, what to do with the NodeSLO out. How strategies are merged and
//! picked is in `koord_api::slo`.

use koord_api::crd::node_slo::NodeSloSpec;
use koord_api::slo::render::same_node_slo;
use koord_api::slo::{Ignored, NodeFacts, SloConfig};
use serde_json::Map;

use crate::node_metric::Plan;

/// What to do with a node's NodeSLO, and what on the Node could not be used. `node` and `present` are none where the
/// object does not exist; an object without spec is `Some(None)`.
pub fn plan(
    config: &SloConfig,
    node: Option<NodeFacts<'_>>,
    present: Option<Option<&NodeSloSpec>>,
) -> (Plan<NodeSloSpec>, Vec<Ignored>) {
    if !config.is_loaded() {
        return (Plan::Nothing, Vec::new());
    }
    let Some(node) = node else {
        let plan = if present.is_some() { Plan::Delete } else { Plan::Nothing };
        return (plan, Vec::new());
    };
    let mut rendered = config.node_slo_spec(node, present.flatten());
    // No third party is registered here; upstream wraps the nothing that they say.
    rendered.value.extensions = Some(Map::new());
    let plan = match present {
        None => Plan::Create(rendered.value),
        Some(Some(stored)) if same_node_slo(&rendered.value, stored) => Plan::Nothing,
        Some(_) => Plan::Update(rendered.value),
    };
    (plan, rendered.ignored)
}

#[cfg(test)]
mod tests;
