use koord_api::keys::quota::annotation::SHARED_WEIGHT;
use serde_json::json;

use super::super::sketch::{Cluster, Sketch, quota};
use super::*;

/// The answer to a create, and the quota afterwards.
fn filled(cluster: &Cluster, mut object: Value) -> (String, Value) {
    let answer = fill(&mut object, cluster.ledger()).err().map_or_else(String::new, |denial| {
        assert_eq!(denial.code, 400);
        denial.message
    });
    (answer, object)
}

fn object(metadata: Value, max: Value) -> Value {
    json!({"kind": "ElasticQuota", "metadata": metadata, "spec": {"max": max, "unknown": 1}, "more": [1]})
}

#[test]
fn shared_weight() {
    let cluster = Cluster::default();
    for (name, weight, max, want) in [
        (
            "manager#17.6.L23",
            Some(r#"{"cpu":"5","x":"1"}"#),
            json!({"cpu": 10, "memory": "20"}),
            r#"{"cpu":"5","memory":"20"}"#,
        ),
        ("manager#17.6.L42", None, json!({"cpu": "10", "memory": "20Gi"}), r#"{"cpu":"10","memory":"20Gi"}"#),
        ("empty", Some(""), json!({"cpu": "1000m"}), r#"{"cpu":"1"}"#),
        ("kept as written", Some(r#"{ "cpu": "2000m" }"#), json!({"cpu": "1"}), r#"{ "cpu": "2000m" }"#),
        ("nothing", Some("{}"), json!({"cpu": "1"}), r#"{"cpu":"1"}"#),
    ] {
        let mut metadata = json!({"name": "n"});
        if let Some(weight) = weight {
            metadata["annotations"] = json!({SHARED_WEIGHT: weight});
        }
        let (answer, after) = filled(&cluster, object(metadata, max));
        assert_eq!(answer, "", "{name}");
        assert_eq!(after["metadata"]["annotations"][SHARED_WEIGHT], want, "{name}");
        assert_eq!(after["metadata"]["labels"][label::PARENT], ROOT_QUOTA, "{name}");
        assert_eq!(
            (&after["spec"]["unknown"], &after["more"]),
            (&json!(1), &json!([1])),
            "{name}: nothing is lost"
        );
    }
    let broken = object(json!({"name": "n", "annotations": {SHARED_WEIGHT: "oops"}}), json!({"cpu": "1"}));
    let (answer, _) = filled(&cluster, broken);
    assert!(
        answer.starts_with("fillDefaultQuotaInfo unmarshal sharedWeight failed:"),
        "manager#17.6.L43 {answer}"
    );
}

#[test]
fn parent_and_tree() {
    let cluster = Cluster::with([quota("T").parent(true).tree("tt"), quota("plain").parent(true)]);
    for (name, labels, parent, tree) in [
        ("none", json!(null), ROOT_QUOTA, None),
        ("empty", json!({label::PARENT: ""}), ROOT_QUOTA, None),
        ("inherits the tree", json!({label::PARENT: "T"}), "T", Some("tt")),
        ("has its own", json!({label::PARENT: "T", label::TREE_ID: "uu"}), "T", Some("uu")),
        ("no tree above", json!({label::PARENT: "plain"}), "plain", None),
        (
            "unknown parent, own tree",
            json!({label::PARENT: "ghost", label::TREE_ID: "uu"}),
            "ghost",
            Some("uu"),
        ),
    ] {
        let (answer, after) = filled(&cluster, object(json!({"name": "n", "labels": labels}), json!({})));
        assert_eq!(answer, "", "{name}");
        let labels = &after["metadata"]["labels"];
        assert_eq!(labels[label::PARENT], parent, "{name}");
        assert_eq!(labels.get(label::TREE_ID).and_then(Value::as_str), tree, "{name}");
    }
    let orphan = object(json!({"name": "n", "labels": {label::PARENT: "ghost"}}), json!({}));
    assert_eq!(filled(&cluster, orphan).0, "fill quota n failed, parent not exist");
    let root = object(json!({"name": ROOT_QUOTA}), json!({}));
    assert_eq!(filled(&cluster, root.clone()), (String::new(), root));
}

#[test]
fn the_gauge_shows_weights_made_from_max() {
    let cluster = Cluster::default();
    let mut new = object(json!({"name": "n"}), json!({"cpu": "3"}));
    assert_eq!(fill(&mut new, cluster.ledger()).unwrap().unwrap()["cpu"].value(), 3);
    assert_eq!(fill(&mut new, cluster.ledger()), Ok(None), "a weight is there now");
    assert!(!filled(&cluster, json!({"metadata": {"name": 1}})).0.is_empty(), "not a quota");
}
