use std::collections::BTreeMap;

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
