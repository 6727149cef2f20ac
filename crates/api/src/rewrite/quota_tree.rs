//! Pods of a quota tree stay on the tree's nodes. Spec: manager 15.4.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::tree::{child, object};

/// The nodes a selector picks, as requirements of a node affinity term: labels by key, then expressions as given.
pub fn requirements(selector: &LabelSelector) -> Vec<Value> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let mut requirement = json!({"key": expression.key, "operator": expression.operator});
        if let Some(values) = expression.values.as_ref().filter(|values| !values.is_empty()) {
            requirement["values"] = json!(values);
        }
        requirement
    });
    labels.chain(expressions).collect()
}

/// Adds requirements to every required node affinity term of a pod, and makes a term when there is none.
/// Says whether anything changed.
///
/// Differs: nothing to require changes nothing, where upstream adds a term without content, which no node meets.
pub fn require_nodes(pod: &mut Value, requirements: &[Value]) -> bool {
    if requirements.is_empty() {
        return false;
    }
    let affinity = child(child(object(pod), "spec"), "affinity");
    let required = child(child(affinity, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.entry("nodeSelectorTerms").or_insert(Value::Null);
    match terms {
        Value::Array(terms) if !terms.is_empty() => {
            for term in terms {
                match object(term).entry("matchExpressions").or_insert(Value::Null) {
                    Value::Array(expressions) => expressions.extend_from_slice(requirements),
                    absent => *absent = Value::from(requirements.to_vec()),
                }
            }
        }
        none => *none = json!([{"matchExpressions": requirements}]),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(pod: &Value) -> &Value {
        let path =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        pod.pointer(path).unwrap_or(&Value::Null)
    }

    fn selector(value: Value) -> Vec<Value> {
        requirements(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn terms_of_a_pod() {
        let pool = json!({"key": "pool", "operator": "In", "values": ["a"]});
        let zone = json!({"key": "zone", "operator": "NotIn", "values": ["z"]});
        let own = json!({"key": "disk", "operator": "Exists"});
        let pick = || json!({"matchLabels": {"pool": "a"}});
        let both = || {
            json!({"matchLabels": {"pool": "a"},
                   "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z"]}]})
        };
        let with = |node_affinity: Value| json!({"spec": {"affinity": {"nodeAffinity": node_affinity}}});
        let terms = |terms: Value| {
            with(json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}))
        };
        let by_field = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
        for (key, selected, mut pod, want) in [
            ("manager#15.4.T1", pick(), json!({"spec": {}}), json!([{"matchExpressions": [pool]}])),
            (
                "manager#15.4.T2",
                pick(),
                terms(json!([{"matchExpressions": [own]}, {"matchExpressions": []}])),
                json!([{"matchExpressions": [own, pool]}, {"matchExpressions": [pool]}]),
            ),
            (
                "manager#15.4.T3",
                pick(),
                with(
                    json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}),
                ),
                json!([{"matchExpressions": [pool]}]),
            ),
            (
                "manager#15.4.T5",
                both(),
                terms(json!([{"matchExpressions": [own]}, {"matchFields": by_field}])),
                json!([{"matchExpressions": [own, pool, zone]},
                       {"matchFields": by_field, "matchExpressions": [pool, zone]}]),
            ),
        ] {
            assert!(require_nodes(&mut pod, &selector(selected)), "{key}");
            assert_eq!(required(&pod), &want, "{key}");
        }
        let mut pod = json!({"spec": {}});
        assert!(!require_nodes(&mut pod, &selector(json!({}))));
        assert_eq!(pod, json!({"spec": {}}), "nothing to require");
    }

    #[test]
    fn requirements_by_key() {
        let selected = selector(json!({"matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "0", "operator": "Exists"}]}));
        let keys: Vec<&str> = selected.iter().filter_map(|one| one["key"].as_str()).collect();
        assert_eq!(keys, ["a", "b", "0"]);
        assert_eq!(selected[2], json!({"key": "0", "operator": "Exists"}), "no empty list of values");
    }
}
