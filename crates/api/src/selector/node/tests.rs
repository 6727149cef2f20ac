//! Node selector terms as api 1.3 describes them, and pods' node affinity.

use serde_json::json;

use super::*;

const LABELS: [(&str, &str); 3] = [("zone", "a"), ("cores", "16"), ("arch", "arm64")];

fn check(selector: serde_json::Value, want: Result<bool, &str>) {
    let selector: core::NodeSelector = serde_json::from_value(selector).unwrap();
    let found = NodeSelector::new(&selector, "").matches(&LABELS, "n1");
    assert_eq!(found.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{selector:?}");
}

fn expressions(list: serde_json::Value) -> serde_json::Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": list}]})
}

fn fields(list: serde_json::Value) -> serde_json::Value {
    json!({"nodeSelectorTerms": [{"matchFields": list}]})
}

#[test]
fn terms() {
    check(json!({"nodeSelectorTerms": []}), Ok(false));
    check(json!({"nodeSelectorTerms": [{}]}), Ok(false));
    check(expressions(json!([{"key": "zone", "operator": "In", "values": ["a", "b"]}])), Ok(true));
    check(expressions(json!([{"key": "zone", "operator": "NotIn", "values": ["a"]}])), Ok(false));
    check(expressions(json!([{"key": "gpu", "operator": "NotIn", "values": ["a"]}])), Ok(true));
    check(expressions(json!([{"key": "gpu", "operator": "DoesNotExist"}])), Ok(true));
    check(
        expressions(json!([{"key": "zone", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}])),
        Ok(false),
    );
    check(expressions(json!([{"key": "cores", "operator": "Gt", "values": ["15"]}])), Ok(true));
    check(expressions(json!([{"key": "cores", "operator": "Lt", "values": ["16"]}])), Ok(false));
    check(expressions(json!([{"key": "zone", "operator": "Gt", "values": ["15"]}])), Ok(false));
    check(fields(json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}])), Ok(true));
    check(fields(json!([{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}])), Ok(false));
    check(fields(json!([{"key": "metadata.uid", "operator": "In", "values": ["n1"]}])), Ok(false));
}

#[test]
fn wrong_terms() {
    check(
        expressions(json!([{"key": "cores", "operator": "Gt", "values": ["x"]}])),
        Err("nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
             operators, the value must be an integer"),
    );
    check(
        fields(json!([{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}])),
        Err(
            "nodeSelectorTerms[0].matchFields[0].values: Invalid value: [\"n1\",\"n2\"]: must have one element",
        ),
    );
    check(
        fields(json!([{"key": "metadata.name", "operator": "In"}])),
        Err("nodeSelectorTerms[0].matchFields[0].values: Invalid value: null: must have one element"),
    );
    check(
        json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "zone", "operator": "in", "values": ["a"]}]},
        ]}),
        Err(
            "[nodeSelectorTerms[0].matchFields[0].operator: Unsupported value: \"Exists\": supported values: \
             \"In\", \"NotIn\", nodeSelectorTerms[1].matchExpressions[0].operator: Unsupported value: \"in\": \
             supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"]",
        ),
    );
}

#[test]
fn a_wrong_term_hides_behind_one_that_matches() {
    let selector = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "Bogus"}]},
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
    ]});
    check(selector.clone(), Ok(true));
    let selector: core::NodeSelector = serde_json::from_value(selector).unwrap();
    let error = NodeSelector::new_checked(&selector, "spec").unwrap_err().to_string();
    assert!(
        error.starts_with("spec.nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported"),
        "{error}"
    );
}

#[test]
fn preferences() {
    let terms = |list: serde_json::Value| -> Vec<core::PreferredSchedulingTerm> {
        serde_json::from_value(list).unwrap()
    };
    let zone =
        |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
    let bogus = json!({"matchExpressions": [{"key": "zone", "operator": "Bogus"}]});
    let compiled = PreferredTerms::new(
        &terms(json!([
            {"weight": 5, "preference": zone("a")},
            {"weight": 7, "preference": zone("b")},
            {"weight": 11, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}},
            {"weight": 0, "preference": bogus},
            {"weight": 13, "preference": {}},
        ])),
        "",
    )
    .unwrap();
    assert_eq!(compiled.score(&LABELS, "n1"), 16);
    assert_eq!(compiled.score(&LABELS, "n2"), 5);
    let error = PreferredTerms::new(&terms(json!([{"weight": 1, "preference": bogus}])), "").unwrap_err();
    assert!(error.to_string().starts_with("[0].matchExpressions[0].operator: Unsupported value"), "{error}");
}

#[test]
fn pods() {
    let pod = |spec: serde_json::Value| -> RequiredNodeAffinity {
        RequiredNodeAffinity::of(&serde_json::from_value(spec).unwrap())
    };
    let arm = expressions(json!([{"key": "arch", "operator": "In", "values": ["arm64"]}]));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": arm}});
    assert!(pod(json!({"containers": []})).is_everything());
    for (spec, want) in [
        (json!({"containers": []}), true),
        (json!({"containers": [], "nodeSelector": {"zone": "a"}}), true),
        (json!({"containers": [], "nodeSelector": {"zone": "b"}, "affinity": affinity}), false),
        (json!({"containers": [], "nodeSelector": {"zone": "a"}, "affinity": affinity}), true),
        (json!({"containers": [], "nodeSelector": {"not a label": "x"}}), false),
    ] {
        assert_eq!(pod(spec).matches(&LABELS, "n1"), Ok(want));
    }
}

#[test]
fn one_condition_less() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["s390x", "ppc"]}],
         "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
    ]}}});
    let spec =
        json!({"containers": [], "nodeSelector": {"zone": "b", "rack": "r1"}, "affinity": affinity.clone()});
    let required = RequiredNodeAffinity::of(&serde_json::from_value(spec).unwrap());
    let gone: Vec<Relaxed> = required.relaxations().into_iter().map(|(gone, _)| gone).collect();
    let selector = |text: &str| Relaxed::NodeSelector(text.to_owned());
    let term = |text: &str| Relaxed::Affinity(text.to_owned());
    let want = [
        selector("rack=r1"),
        selector("zone=b"),
        term("arch in (ppc,s390x)"),
        term("metadata.name=n9"),
        term("disk"),
        selector("rack=r1,zone=b"),
        Relaxed::WholeAffinity,
    ];
    assert_eq!(gone, want);
    let spec = json!({"containers": [], "affinity": affinity});
    let required = RequiredNodeAffinity::of(&serde_json::from_value(spec).unwrap());
    // Only without the last condition of a term, or without all, does the node match.
    let matching: Vec<Relaxed> = required
        .relaxations()
        .into_iter()
        .filter(|(_, left)| left.matches(&LABELS, "n1") == Ok(true))
        .map(|(gone, _)| gone)
        .collect();
    assert_eq!(matching, [term("disk"), Relaxed::WholeAffinity]);
}
