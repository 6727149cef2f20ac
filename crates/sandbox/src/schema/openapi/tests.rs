use super::*;

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn pods() -> Value {
    let eviction = Subresource {
        name: "eviction",
        group: "policy",
        version: "v1",
        kind: "Eviction",
        verbs: &["create"],
    };
    let status = Subresource {
        name: "status",
        group: "",
        version: "v1",
        kind: "Pod",
        verbs: &["get", "patch", "update"],
    };
    let pods = Resource {
        kind: "Pod",
        plural: "pods",
        namespaced: true,
        verbs: ALL,
        subresources: &[status, eviction],
        custom: None,
    };
    document("", "v1", &[pods])
}

#[test]
fn a_built_in_kind() {
    let document = pods();
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    assert!(document["paths"].get("/api/v1/pods").is_some());
    let eviction = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
    assert_eq!(eviction["x-kubernetes-group-version-kind"]["kind"], "Eviction");

    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "kind": "Pod", "version": "v1"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(
        containers["items"],
        json!({"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]})
    );
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"];
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    assert_eq!(port["properties"]["protocol"]["enum"], json!(["SCTP", "TCP", "UDP"]));
    assert_eq!(port["properties"]["containerPort"]["default"], 0);
    assert_eq!(port["required"], json!(["containerPort"]));
}

/// A reference to nowhere breaks clients that resolve it.
#[test]
fn every_reference_has_its_target() {
    let document = pods();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    let mut count = 0;
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.get(name).is_some_and(|schema| !schema.is_null()), "{name}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}

#[test]
fn a_custom_kind() {
    let raw = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "q": {"x-kubernetes-int-or-string": true}}}}});
    let resource = Resource {
        kind: "Reservation",
        plural: "reservations",
        namespaced: false,
        verbs: ALL,
        subresources: &[],
        custom: Some(&raw),
    };
    let document = document("scheduling.koordinator.sh", "v1alpha1", &[resource]);
    let schemas = &document["components"]["schemas"];
    let schema = &schemas["sh.koordinator.scheduling.v1alpha1.Reservation"];
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{"group": "scheduling.koordinator.sh", "kind": "Reservation", "version": "v1alpha1"}])
    );
    assert_eq!(
        schema["properties"]["spec"]["properties"]["q"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert!(schema["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap().ends_with("ObjectMeta"));
    assert_eq!(
        schemas["sh.koordinator.scheduling.v1alpha1.ReservationList"]["properties"]["items"]["items"],
        json!({"$ref": "#/components/schemas/sh.koordinator.scheduling.v1alpha1.Reservation"})
    );
    let item = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/{name}";
    let patch = &document["paths"][item]["patch"]["requestBody"]["content"];
    assert!(patch.get("application/strategic-merge-patch+json").is_none());
    assert!(patch.get("application/apply-patch+yaml").is_some());
}

#[test]
fn the_index_names_every_document_by_its_hash() {
    let one = hash(b"a");
    assert_ne!(one, hash(b"b"));
    assert_eq!(
        index([("api/v1", one.as_str())]),
        json!({"paths": {"api/v1": {"serverRelativeURL": format!("/openapi/v3/api/v1?hash={one}")}}})
    );
}
