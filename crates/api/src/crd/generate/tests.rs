use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The schema of each kind and version.
fn schemas() -> Vec<(String, Value)> {
    let mut schemas = Vec::new();
    for manifest in manifests() {
        let spec = &manifest.content["spec"];
        let kind = spec["names"]["kind"].as_str().unwrap();
        for version in spec["versions"].as_array().unwrap() {
            let name = format!("{kind}.{}", version["name"].as_str().unwrap());
            schemas.push((name, version["schema"]["openAPIV3Schema"].clone()));
        }
    }
    schemas
}

/// Calls `visit` with the path and schema of each named property, outer ones first.
fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    if let Some(items) = schema.get("items") {
        walk(items, &format!("{path}[]"), visit);
    }
    if let Some(values) = schema.get("additionalProperties") {
        walk(values, &format!("{path}{{}}"), visit);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        visit(&path, property);
        walk(property, &path, visit);
    }
}

/// Every schema below and including this one.
fn each_schema(schema: &Value, visit: &mut impl FnMut(&Value)) {
    visit(schema);
    let nested = [schema.get("items"), schema.get("additionalProperties")].into_iter().flatten();
    let properties =
        schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
    for inner in nested.chain(properties) {
        each_schema(inner, visit);
    }
}

#[test]
fn counts_are_those_of_the_spec() {
    let found: BTreeMap<String, [usize; 4]> =
        schemas().into_iter().map(|(name, schema)| (name, count(&schema))).collect();
    let cases = [
        ("crds#14.K1", "Recommendation.v1alpha1", [29, 11, 0, 1]),
        ("crds#14.K2", "ClusterColocationProfile.v1alpha1", [28, 4, 0, 1]),
        ("crds#14.K3", "ElasticQuotaProfile.v1alpha1", [14, 4, 0, 0]),
        ("crds#14.K4", "ClusterNetworkTopology.v1alpha1", [19, 8, 0, 0]),
        ("crds#14.K5", "Device.v1alpha1", [37, 10, 1, 1]),
        ("crds#14.K6", "PodMigrationJob.v1alpha1", [87, 3, 0, 0]),
        ("crds#14.K7", "Reservation.v1alpha1", [62, 10, 5, 2]),
        ("crds#14.K8", "ScheduleExplanation.v1alpha1", [50, 0, 1, 0]),
        ("crds#14.K9", "ElasticQuota.v1alpha1", [8, 0, 0, 0]),
        ("crds#14.K10", "PodGroup.v1alpha1", [15, 0, 0, 0]),
        ("crds#14.K11", "NodeMetric.v1alpha1", [301, 101, 10, 11]),
        ("crds#14.K12", "NodeSLO.v1alpha1", [324, 0, 20, 0]),
        ("crds#14.K13", "NodeResourceTopology.v1alpha1", [19, 12, 0, 0]),
        ("crds#14.K14", "NodeResourceTopology.v1alpha2", [22, 13, 0, 0]),
    ];
    assert_eq!(found.len(), cases.len());
    for (key, name, want) in cases {
        assert_eq!(found[name], want, "{key}: {name}: properties, required, defaults, enums");
    }
}

fn count(schema: &Value) -> [usize; 4] {
    let mut counts = [0; 4];
    walk(schema, "", &mut |_, property| {
        counts[0] += 1;
        counts[2] += usize::from(property.get("default").is_some());
        counts[3] += usize::from(property.get("enum").is_some());
    });
    each_schema(schema, &mut |schema| {
        counts[1] += schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    });
    counts
}

const FIELDS: &str = include_str!("../../../tests/data/crd-fields.txt");

#[test]
fn fields_are_those_of_the_committed_list() {
    let wanted: BTreeSet<&str> = FIELDS.lines().filter(|line| !line.starts_with('#')).collect();
    let mut found = BTreeSet::new();
    for (name, schema) in schemas() {
        describe(&name, "", &schema, &mut found);
    }
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let extra: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "in the list only: {missing:#?}\nin the types only: {extra:#?}"
    );
}

/// One line for each property: kind, path, type and constraints.
fn describe(kind: &str, path: &str, schema: &Value, lines: &mut BTreeSet<String>) {
    let required: Vec<&str> = texts(&schema["required"]);
    let mut paths = Vec::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let mut words = vec![kind.to_owned(), path.clone(), type_name(property)];
        if required.contains(&name.as_str()) {
            words.push("required".to_owned());
        }
        words.extend(constraints(property));
        lines.insert(words.join(" "));
        paths.push((path, property));
    }
    for (path, property) in paths {
        describe(kind, &path, property, lines);
        describe(kind, &format!("{path}[]"), &property["items"], lines);
        describe(kind, &format!("{path}{{}}"), &property["additionalProperties"], lines);
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn type_name(schema: &Value) -> String {
    let preserved = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => format!("[]{}", type_name(&schema["items"])),
        (Some("object"), _) if preserved => "free".to_owned(),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("map<{}>", type_name(&schema["additionalProperties"]))
        }
        (Some(name), Some(format)) => format!("{name}({format})"),
        (Some(name), None) => name.to_owned(),
        (None, _) if schema["x-kubernetes-int-or-string"] == true => {
            if schema["pattern"].is_string() { "quantity" } else { "int-or-string" }.to_owned()
        }
        (None, _) if preserved => "any".to_owned(),
        (None, _) => "?".to_owned(),
    }
}

fn constraints(schema: &Value) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(default) = schema.get("default") {
        words.push(format!("default={default}"));
    }
    if schema["enum"].is_array() {
        words.push(format!("enum={}", texts(&schema["enum"]).join("|")));
    }
    for (key, word) in [("minimum", "min"), ("maximum", "max")] {
        words.extend(schema.get(key).map(|limit| format!("{word}={limit}")));
    }
    if schema["nullable"] == true {
        words.push("nullable".to_owned());
    }
    for key in ["minItems", "minLength", "maxLength"] {
        words.extend(schema.get(key).map(|limit| format!("{key}={limit}")));
    }
    words.extend(schema["items"].get("minProperties").map(|limit| format!("items.minProperties={limit}")));
    if schema["pattern"].is_string() && schema["type"] == "string" {
        words.push("pattern".to_owned());
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        words.push("atomic".to_owned());
    }
    if schema["items"]["x-kubernetes-map-type"] == "atomic" {
        words.push("items=atomic".to_owned());
    }
    words.extend(schema["x-kubernetes-list-type"].as_str().map(|kind| format!("list={kind}")));
    words
}

/// What the API server refuses in a schema, or what the spec rules out. Spec: crds 0.
#[test]
fn schemas_are_structural() {
    const KNOWN: [&str; 22] = [
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
    ];
    for (name, schema) in schemas() {
        each_schema(&schema, &mut |schema| {
            let keys: Vec<&str> = schema.as_object().unwrap().keys().map(String::as_str).collect();
            assert!(keys.iter().all(|key| KNOWN.contains(key)), "{name}: unexpected key in {keys:?}");
            assert!(
                schema["type"].is_string()
                    || schema["x-kubernetes-int-or-string"] == true
                    || schema["x-kubernetes-preserve-unknown-fields"] == true,
                "{name}: no type in {schema}"
            );
            assert!(
                schema["format"].is_null()
                    || ["int32", "int64", "date-time"].iter().any(|f| schema["format"] == *f),
                "{name}: {schema}"
            );
            let properties = schema["properties"].as_object();
            for field in texts(&schema["required"]) {
                assert!(
                    properties.is_some_and(|p| p.contains_key(field)),
                    "{name}: {field} is required but unknown"
                );
            }
        });
    }
}

/// Kind, plural and group, short name, scope (with `/status` where it has that subresource).
const KINDS: [(&str, &str, &str, &str); 13] = [
    ("Reservation", "reservations.scheduling.koordinator.sh", "", "Cluster/status"),
    ("PodMigrationJob", "podmigrationjobs.scheduling.koordinator.sh", "pmj", "Cluster/status"),
    ("Device", "devices.scheduling.koordinator.sh", "", "Cluster"),
    ("ClusterNetworkTopology", "clusternetworktopologies.scheduling.koordinator.sh", "", "Cluster/status"),
    (
        "ScheduleExplanation",
        "scheduleexplanations.scheduling.koordinator.sh",
        "sched-exp",
        "Namespaced/status",
    ),
    ("NodeMetric", "nodemetrics.slo.koordinator.sh", "", "Cluster/status"),
    ("NodeSLO", "nodeslos.slo.koordinator.sh", "", "Cluster/status"),
    ("ClusterColocationProfile", "clustercolocationprofiles.config.koordinator.sh", "", "Cluster/status"),
    ("ElasticQuotaProfile", "elasticquotaprofiles.quota.koordinator.sh", "eqp", "Namespaced"),
    ("Recommendation", "recommendations.analysis.koordinator.sh", "recom", "Namespaced/status"),
    ("ElasticQuota", "elasticquotas.scheduling.sigs.k8s.io", "", "Namespaced"),
    ("PodGroup", "podgroups.scheduling.sigs.k8s.io", "", "Namespaced"),
    ("NodeResourceTopology", "noderesourcetopologies.topology.node.k8s.io", "node-res-topo", "Cluster"),
];

/// Spec: crds 0.
#[test]
fn manifests_say_what_the_kinds_are() {
    let found: BTreeMap<String, Value> = manifests().into_iter().map(|m| (m.file_name, m.content)).collect();
    assert_eq!(found.len(), KINDS.len());
    for (kind, name, short, scope) in KINDS {
        let (plural, group) = name.split_once('.').unwrap();
        let crd = &found[&format!("{group}_{plural}.yaml")];
        let mut names = json!({ "kind": kind, "listKind": format!("{kind}List"), "plural": plural });
        names["singular"] = json!(kind.to_lowercase());
        if !short.is_empty() {
            names["shortNames"] = json!([short]);
        }
        assert_eq!(crd["metadata"]["name"], name);
        assert_eq!((&crd["spec"]["names"], &crd["spec"]["group"]), (&names, &json!(group)));
        let (scope, status) = scope.split_once('/').unwrap_or((scope, ""));
        assert_eq!(crd["spec"]["scope"], scope, "{kind}");
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let subresources = if status.is_empty() { json!(null) } else { json!({ status: {} }) };
            assert_eq!(version["subresources"], subresources, "{kind}");
        }
    }
}

#[test]
fn versions_and_reviews() {
    for manifest in manifests() {
        let versions = manifest.content["spec"]["versions"].as_array().unwrap().iter();
        let versions: Vec<String> =
            versions.map(|v| format!("{} {} {}", v["name"], v["served"], v["storage"])).collect();
        let review = manifest.content["metadata"]["annotations"]["api-approved.kubernetes.io"].as_str();
        let (want_versions, want_review) = match manifest.file_name.as_str() {
            "topology.node.k8s.io_noderesourcetopologies.yaml" => (
                [r#""v1alpha1" true false"#, r#""v1alpha2" true true"#].as_slice(),
                Some("https://github.com/kubernetes/enhancements/pull/1870"),
            ),
            "scheduling.sigs.k8s.io_elasticquotas.yaml" | "scheduling.sigs.k8s.io_podgroups.yaml" => (
                [r#""v1alpha1" true true"#].as_slice(),
                Some("https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"),
            ),
            _ => ([r#""v1alpha1" true true"#].as_slice(), None),
        };
        assert_eq!(versions, want_versions, "{}", manifest.file_name);
        assert_eq!(review, want_review, "{}", manifest.file_name);
    }
}
