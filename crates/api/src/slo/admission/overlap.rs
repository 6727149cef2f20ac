//! Made-up nodes that a selector would match, to find items that pick the same ones.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Made-up nodes for one selector. They are samples, not a proof, so the first ones do; without a
/// limit a few long lists of values would multiply beyond memory.
const VIRTUAL_NODES_MAX: usize = 1024;

/// Label sets built from a selector: its `matchLabels`, and one variant for each combination of
/// values, of which variant `i` takes the value `i` modulo their number. Spec: api 7.9 step 5.
pub(super) fn virtual_nodes(selector: &LabelSelector) -> Vec<BTreeMap<String, String>> {
    let fixed = selector.match_labels.clone().unwrap_or_default();
    let choices: Vec<_> = selector
        .match_expressions
        .iter()
        .flatten()
        .filter_map(|expression| Some((&expression.key, expression.values.as_deref()?)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let count = choices.iter().map(|(_, values)| values.len()).fold(1, usize::saturating_mul);
    (0..count.min(VIRTUAL_NODES_MAX))
        .map(|variant| {
            let mut labels = fixed.clone();
            for (key, values) in &choices {
                labels.insert((*key).clone(), values[variant % values.len()].clone());
            }
            labels
        })
        .collect()
}
