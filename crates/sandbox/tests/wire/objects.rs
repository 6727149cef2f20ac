//! Objects over HTTPS: create, read, change, delete, with the answers Kubernetes gives.

use crate::support::{Cluster, TOKEN};
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "i"}]}})
}

#[tokio::test]
async fn a_life_from_create_to_delete() {
    let cluster = Cluster::start().await;
    let created = cluster.post(MAPS, map("a")).await.expect(201);
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(created["metadata"]["creationTimestamp"].is_string());
    let again = cluster.post(MAPS, map("a")).await;
    assert_eq!((again.code, again.message()), (409, "configmaps \"a\" already exists"));
    let path = format!("{MAPS}/a");
    let read = cluster.get(&path).await.expect(200);
    assert_eq!(read, created);
    let mut changed = read.clone();
    changed["data"]["k"] = json!("w");
    let updated = cluster.put(&path, changed.clone()).await.expect(200);
    assert_eq!(updated["data"]["k"], "w");
    let same = cluster.put(&path, updated.clone()).await.expect(200);
    assert_eq!(
        same["metadata"]["resourceVersion"], updated["metadata"]["resourceVersion"],
        "nothing changed"
    );
    let stale = cluster.put(&path, changed).await;
    assert_eq!(
        (stale.code, stale.message()),
        (
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
        )
    );
    let gone = cluster.delete(&path, Value::Null).await.expect(200);
    assert_eq!(gone["status"], "Success");
    assert_eq!(gone["details"]["kind"], "configmaps");
    let missing = cluster.get(&path).await;
    assert_eq!((missing.code, missing.message()), (404, "configmaps \"a\" not found"));
    assert_eq!(
        missing.json,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
            "message": "configmaps \"a\" not found", "reason": "NotFound",
            "details": {"name": "a", "kind": "configmaps"}})
    );
}

#[tokio::test]
async fn names_are_generated_and_checked() {
    let cluster = Cluster::start().await;
    let mut generated = map("");
    generated["metadata"] = json!({"generateName": "web-"});
    let first = cluster.post(MAPS, generated.clone()).await.expect(201);
    let second = cluster.post(MAPS, generated).await.expect(201);
    let name = first["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    let bad = cluster.post(MAPS, map("Web")).await;
    assert_eq!(bad.code, 422);
    assert_eq!(
        bad.message(),
        "ConfigMap \"Web\" is invalid: metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
    let nameless = cluster.post(MAPS, json!({"metadata": {}})).await;
    assert_eq!(nameless.code, 422);
    assert_eq!(
        nameless.message(),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test]
async fn namespaces_must_exist_and_live() {
    let cluster = Cluster::start().await;
    let lost = cluster.post("/api/v1/namespaces/nowhere/configmaps", map("a")).await;
    assert_eq!((lost.code, lost.message()), (404, "namespaces \"nowhere\" not found"));
    let mut other = map("a");
    other["metadata"]["namespace"] = json!("other");
    let mismatch = cluster.post(MAPS, other).await;
    assert_eq!(
        (mismatch.code, mismatch.message()),
        (400, "the namespace of the provided object does not match the namespace sent on the request")
    );
    let space = json!({"metadata": {"name": "shop"}});
    let made = cluster.post("/api/v1/namespaces", space).await.expect(201);
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
    let ending = cluster.delete("/api/v1/namespaces/shop", Value::Null).await.expect(200);
    assert_eq!(ending["status"]["phase"], "Terminating");
    let late = cluster.post("/api/v1/namespaces/shop/configmaps", map("a")).await;
    assert_eq!(
        (late.code, late.message()),
        (
            403,
            "configmaps \"a\" is forbidden: unable to create new content in namespace shop because it is being terminated"
        )
    );
    assert_eq!(late.json["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut done = ending;
    done["spec"] = json!({});
    cluster.put("/api/v1/namespaces/shop/finalize", done).await.expect(200);
    assert_eq!(cluster.get("/api/v1/namespaces/shop").await.code, 404);
    let immortal = cluster.delete("/api/v1/namespaces/default", Value::Null).await;
    assert_eq!(
        (immortal.code, immortal.message()),
        (403, "namespaces \"default\" is forbidden: this namespace may not be deleted")
    );
}

#[tokio::test]
async fn patches_of_all_four_kinds() {
    let cluster = Cluster::start().await;
    cluster.post(PODS, pod("p")).await.expect(201);
    let path = format!("{PODS}/p");
    let json_patch = json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}]);
    let patched = cluster.patch(&path, "json-patch+json", json_patch).await.expect(200);
    assert_eq!(patched["metadata"]["labels"]["x"], "1");
    let merge = json!({"metadata": {"labels": {"x": null, "y": "2"}}});
    let patched = cluster.patch(&path, "merge-patch+json", merge).await.expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"app": "web", "y": "2"}));
    let strategic = json!({"spec": {"containers": [{"name": "main", "image": "j"}]}});
    let patched = cluster.patch(&path, "strategic-merge-patch+json", strategic).await.expect(200);
    assert_eq!(patched["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(patched["spec"]["containers"][0]["image"], "j");
    assert_eq!(patched["metadata"]["generation"], 2);
    let missing = cluster.patch(&format!("{PODS}/q"), "merge-patch+json", json!({})).await;
    assert_eq!((missing.code, missing.message()), (404, "pods \"q\" not found"));
    let test = json!([{"op": "test", "path": "/metadata/name", "value": "q"}]);
    let failed = cluster.patch(&path, "json-patch+json", test).await;
    assert_eq!(
        (failed.code, failed.message()),
        (422, "the server rejected our request due to an error in our request")
    );
    let odd = cluster.patch(&path, "json", json!({})).await;
    assert_eq!(odd.code, 415);
    assert_eq!(odd.json["reason"], "UnsupportedMediaType");
}

#[tokio::test]
async fn server_side_apply_creates_merges_and_refuses() {
    let cluster = Cluster::start().await;
    let path = format!("{MAPS}/a");
    let wanted = |v: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": v}});
    let anonymous = cluster.patch(&path, "apply-patch+yaml", wanted("1")).await;
    assert_eq!(
        (anonymous.code, anonymous.message()),
        (
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        )
    );
    let first = format!("{path}?fieldManager=first");
    let created = cluster.patch(&first, "apply-patch+yaml", wanted("1")).await.expect(201);
    assert_eq!(created["metadata"]["managedFields"][0]["operation"], "Apply");
    let version = created["metadata"]["resourceVersion"].clone();
    let same = cluster.patch(&first, "apply-patch+yaml", wanted("1")).await.expect(200);
    assert_eq!(same["metadata"]["resourceVersion"], version, "applying the same again changes nothing");
    let second = format!("{path}?fieldManager=second");
    let conflict = cluster.patch(&second, "apply-patch+yaml", wanted("2")).await;
    assert_eq!(
        (conflict.code, conflict.message()),
        (409, "Apply failed with 1 conflict: conflict with \"first\": .data.k")
    );
    assert_eq!(conflict.json["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let forced = cluster.patch(&format!("{second}&force=true"), "apply-patch+yaml", wanted("2")).await;
    assert_eq!(forced.expect(200)["data"]["k"], "2");
}

#[tokio::test]
async fn field_validation_ignores_warns_or_refuses() {
    let cluster = Cluster::start().await;
    let mut odd = map("a");
    odd["extra"] = json!(1);
    let warned = cluster.post(&format!("{MAPS}?dryRun=All"), odd.clone()).await;
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"extra\\\"\"");
    assert_eq!(warned.json.get("extra"), None);
    assert_eq!(warned.code, 201);
    let ignored = cluster.post(&format!("{MAPS}?dryRun=All&fieldValidation=Ignore"), odd.clone()).await;
    assert!(!ignored.headers.contains_key("warning"));
    let refused = cluster.post(&format!("{MAPS}?fieldValidation=Strict"), odd).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"extra\""
        )
    );
    assert_eq!(cluster.get(&format!("{MAPS}/a")).await.code, 404, "a dry run leaves nothing");
}

#[tokio::test]
async fn deletes_wait_for_grace_and_finalizers() {
    let cluster = Cluster::start().await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    cluster.post(MAPS, held).await.expect(201);
    let path = format!("{MAPS}/held");
    let marked = cluster.delete(&path, Value::Null).await.expect(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let free = json!({"metadata": {"finalizers": null}});
    cluster.patch(&path, "merge-patch+json", free).await.expect(200);
    assert_eq!(cluster.get(&path).await.code, 404);

    cluster.post(PODS, pod("p")).await.expect(201);
    bind(&cluster, "p").await;
    let path = format!("{PODS}/p");
    let going = cluster.delete(&path, Value::Null).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let sooner = cluster.delete(&path, json!({"gracePeriodSeconds": 5})).await.expect(200);
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let now = cluster.delete(&format!("{path}?gracePeriodSeconds=0"), Value::Null).await.expect(200);
    assert_eq!(now["kind"], "Pod");
    assert_eq!(cluster.get(&path).await.code, 404);
}

#[tokio::test]
async fn deletes_check_preconditions_and_mark_dependents() {
    let cluster = Cluster::start().await;
    let made = cluster.post(MAPS, map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let wrong = cluster.delete(&path, json!({"preconditions": {"uid": "other"}})).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(wrong.code, 409);
    assert_eq!(
        wrong.message(),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let bad = cluster.delete(&path, json!({"propagationPolicy": "Sideways"})).await;
    assert_eq!(
        (bad.code, bad.message()),
        (
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        )
    );
    let dry = cluster.delete(&format!("{path}?dryRun=All"), Value::Null).await.expect(200);
    assert_eq!(dry["status"], "Success");
    let marked = cluster.delete(&path, json!({"propagationPolicy": "Foreground"})).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let orphan = cluster.delete(&path, json!({"propagationPolicy": "Orphan"})).await.expect(200);
    assert_eq!(orphan["metadata"]["finalizers"], json!(["orphan"]));
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let cluster = Cluster::start().await;
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        cluster.post(MAPS, object).await.expect(201);
    }
    let gone = cluster.delete(&format!("{MAPS}?labelSelector=tier%3Dx"), Value::Null).await.expect(200);
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = cluster.get(MAPS).await.expect(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

async fn bind(cluster: &Cluster, name: &str) -> crate::support::Reply {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n1"}});
    cluster.post(&format!("{PODS}/{name}/binding"), binding).await
}

#[tokio::test]
async fn pods_are_bound_once() {
    let cluster = Cluster::start().await;
    cluster.post(PODS, pod("p")).await.expect(201);
    assert_eq!(bind(&cluster, "p").await.expect(201)["status"], "Success");
    let read = cluster.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(read["spec"]["nodeName"], "n1");
    assert_eq!(read["status"]["conditions"][0]["type"], "PodScheduled");
    let again = bind(&cluster, "p").await;
    assert_eq!(
        (again.code, again.message()),
        (
            409,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
        )
    );
    assert_eq!(bind(&cluster, "q").await.code, 404);
}

#[tokio::test]
async fn evictions_obey_budgets() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        cluster.post(PODS, pod(name)).await.expect(201);
        bind(&cluster, name).await.expect(201);
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        cluster.patch(&format!("{PODS}/{name}/status"), "merge-patch+json", status).await.expect(200);
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    cluster.post(budgets, budget).await.expect(201);
    let evict = |name: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        (format!("{PODS}/{name}/eviction"), body)
    };
    let (path, body) = evict("a");
    let early = cluster.post(&path, body.clone()).await;
    assert_eq!((early.code, early.headers["retry-after"].to_str().unwrap()), (429, "10"));
    let counts = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}});
    cluster.patch(&format!("{budgets}/pdb/status"), "merge-patch+json", counts).await.expect(200);
    cluster.post(&path, body).await.expect(201);
    assert!(cluster.get(&format!("{PODS}/a")).await.expect(200)["metadata"]["deletionTimestamp"].is_string());
    let (path, body) = evict("b");
    let refused = cluster.post(&path, body).await;
    assert_eq!(
        (refused.code, refused.message()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert_eq!(refused.json["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert!(
        cluster.get(&format!("{PODS}/b")).await.expect(200)["metadata"].get("deletionTimestamp").is_none()
    );
}

#[tokio::test]
async fn status_and_scale_are_written_apart() {
    let cluster = Cluster::start().await;
    let base = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}},
        "status": {"replicas": 9}});
    let made = cluster.post(base, deployment).await.expect(201);
    assert_eq!(made["status"].get("replicas"), None, "status is not the creator's");
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{base}/web");
    let status = json!({"spec": {"replicas": 5}, "status": {"replicas": 2}});
    let patched = cluster.patch(&format!("{path}/status"), "merge-patch+json", status).await.expect(200);
    assert_eq!((&patched["spec"]["replicas"], &patched["status"]["replicas"]), (&json!(2), &json!(2)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let scale = cluster.get(&format!("{path}/scale")).await.expect(200);
    assert_eq!(scale["spec"]["replicas"], 2);
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=web"}));
    let more = json!({"spec": {"replicas": 7}});
    let scaled = cluster.patch(&format!("{path}/scale"), "merge-patch+json", more).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 7);
    let read = cluster.get(&path).await.expect(200);
    assert_eq!((&read["spec"]["replicas"], &read["metadata"]["generation"]), (&json!(7), &json!(2)));
}

#[tokio::test]
async fn events_are_one_table_in_two_groups() {
    let cluster = Cluster::start().await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Started", "message": "it runs", "type": "Normal"});
    cluster.post("/api/v1/namespaces/default/events", event).await.expect(201);
    let read = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.expect(200);
    assert_eq!((&read["note"], &read["regarding"]["name"]), (&json!("it runs"), &json!("p")));
    assert_eq!(read["apiVersion"], "events.k8s.io/v1");
    let list = cluster.get("/apis/events.k8s.io/v1/events").await.expect(200);
    assert_eq!(list["items"][0]["note"], "it runs");
}

#[tokio::test]
async fn nobody_gets_in_unnamed() {
    let cluster = Cluster::start().await;
    let mut config = crate::support::client_config(&cluster.server).await;
    config.auth_info = kube::config::AuthInfo::default();
    let anonymous =
        Cluster { client: kube::Client::try_from(config.clone()).unwrap(), ..Cluster::start().await };
    // The client of one cluster, sent to its own address, without a certificate.
    let reply = anonymous.send(Method::GET, "/version", &[], "").await;
    assert_eq!((reply.code, &reply.json["reason"]), (401, &json!("Unauthorized")));
    let bearer = format!("Bearer {TOKEN}");
    let named = anonymous.send(Method::GET, "/version", &[("authorization", &bearer)], "").await;
    assert_eq!(named.expect(200)["minor"], "35");
    let wrong = anonymous.send(Method::GET, "/version", &[("authorization", "Bearer no")], "").await;
    assert_eq!(wrong.code, 401);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = cluster.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review).await.expect(201);
    assert_eq!(who["status"]["userInfo"]["username"], "kubernetes-admin");
    let review = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods"}}});
    let may =
        cluster.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).await.expect(201);
    assert_eq!(may["status"]["allowed"], true);
}

#[tokio::test]
async fn bad_input_is_answered_as_kubernetes_answers() {
    let cluster = Cluster::start().await;
    let json = [("content-type", "application/json")];
    let broken = cluster.send(Method::POST, MAPS, &json, "{").await;
    assert_eq!(broken.code, 400);
    assert!(broken.message().starts_with("the object provided is unrecognized (must be of type ConfigMap)"));
    let mistyped = cluster.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": 1}})).await;
    assert_eq!(mistyped.code, 400);
    let huge = format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "x".repeat(3 << 20));
    let huge = cluster.send(Method::POST, MAPS, &json, &huge).await;
    assert_eq!((huge.code, huge.message()), (413, "Request entity too large: limit is 3145728"));
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    assert_eq!(cluster.send(Method::POST, MAPS, &protobuf, "k8s\0").await.code, 415);
    let html = cluster.send(Method::GET, MAPS, &[("accept", "text/html")], "").await;
    assert_eq!((html.code, &html.json["reason"]), (406, &json!("NotAcceptable")));
    for (path, code) in [
        ("/api/v1/unicorns", 404),
        ("/apis/nowhere.io/v1/things", 404),
        ("/api/v1/pods/p", 404),
        ("/api/v1/namespaces/default/nodes", 404),
        ("/nowhere", 404),
        ("/api/v1/pods?labelSelector=a%20in", 400),
        ("/api/v1/pods?fieldSelector=spec.color%3Dred", 400),
        ("/api/v1/pods?fieldSelector=a", 400),
        ("/api/v1/pods?limit=many", 400),
        ("/api/v1/pods?continue=%21", 400),
        ("/api/v1/pods?resourceVersion=999999999", 504),
        ("/api/v1/pods?resourceVersionMatch=Exact", 422),
    ] {
        assert_eq!(cluster.get(path).await.code, code, "{path}");
    }
    // Groups of Kubernetes answer in its form, all other paths in text.
    let routed = cluster.get("/apis/apps/v1/unicorns").await;
    assert_eq!(routed.message(), "the server could not find the requested resource");
    assert_eq!(cluster.get("/nowhere").await.text, "404 page not found\n");
    let parent = cluster.get("/api/v1/namespaces/default/configmaps/%2E%2E").await;
    assert_eq!((parent.code, parent.message()), (400, "Name parameter invalid: \"..\": may not be '..'"));
    assert_eq!(cluster.send(Method::HEAD, "/api/v1/namespaces/default", &[], "").await.code, 405);
    assert_eq!(cluster.post("/api/v1/pods", pod("p")).await.code, 405);
    assert_eq!(cluster.post(&format!("{PODS}/p"), pod("p")).await.code, 405);
    let unknown = cluster.get("/api/v1/pods?fieldSelector=spec.color%3Dred").await;
    assert_eq!(unknown.message(), "field label not supported: spec.color");
}
