//! What users add to a cluster: their own kinds, and webhooks that judge every write.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::support::Cluster;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_sandbox::server::tls::Authority;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRONS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";

fn definition() -> Value {
    json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {
        "group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "additionalPrinterColumns": [{"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
                {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
            "selectableFields": [{"jsonPath": ".spec.cronSpec"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["cronSpec"], "properties": {
                    "cronSpec": {"type": "string", "pattern": "^[*]"},
                    "replicas": {"type": "integer", "minimum": 1, "default": 1}}},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}}},
            {"name": "v2", "served": true, "storage": false,
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn cron(name: &str) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name},
        "spec": {"cronSpec": "* *", "extra": 1}, "status": {"replicas": 3}})
}

#[tokio::test]
async fn a_definition_is_served_at_once() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.get(CRONS).await.code, 404);
    cluster.post(CRDS, definition()).await.expect(201);
    let stored = cluster.get(&format!("{CRDS}/crontabs.stable.example.com")).await.expect(200);
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "CronTabList");
    let made = cluster.post(CRONS, cron("a")).await.expect(201);
    assert_eq!(made["spec"], json!({"cronSpec": "* *", "replicas": 1}), "pruned and defaulted");
    assert_eq!(made.get("status"), None, "status is not the creator's");
    assert_eq!(made["metadata"]["generation"], 1);
    let mut bad = cron("b");
    bad["spec"]["replicas"] = json!(0);
    let refused = cluster.post(CRONS, bad).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains(
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"
        ),
        "{}",
        refused.message()
    );
    let list = cluster.get(CRONS).await.expect(200);
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("CronTabList"), &json!("CronTab")));
    let second = CRONS.replace("v1", "v2");
    let other = cluster.get(&format!("{second}/a")).await.expect(200);
    assert_eq!(other["apiVersion"], "stable.example.com/v2");
    let found = cluster.get(&format!("{CRONS}?fieldSelector=spec.cronSpec%3D*+*")).await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn custom_objects_have_status_scale_and_columns() {
    let cluster = Cluster::start().await;
    cluster.post(CRDS, definition()).await.expect(201);
    cluster.post(CRONS, cron("a")).await.expect(201);
    let path = format!("{CRONS}/a");
    let status = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 9}, "status": {"replicas": 4, "selector": "a=b"}});
    let patched = cluster.patch(&format!("{path}/status"), "merge-patch+json", status).await.expect(200);
    assert_eq!(patched["status"]["replicas"], 4);
    assert_eq!(patched["spec"]["replicas"], 1);
    assert_eq!(patched["metadata"].get("labels"), None, "a status update leaves metadata alone");
    let scale = cluster.get(&format!("{path}/scale")).await.expect(200);
    assert_eq!(scale["status"], json!({"replicas": 4, "selector": "a=b"}));
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let rows = cluster.send(http::Method::GET, CRONS, &table, "").await.expect(200);
    assert_eq!(rows["rows"][0]["cells"], json!(["a", "* *", 1]));
    let strategic = cluster.patch(&path, "strategic-merge-patch+json", json!({})).await;
    assert_eq!(strategic.code, 415);
    cluster.delete(&format!("{CRDS}/crontabs.stable.example.com"), Value::Null).await.expect(200);
    assert_eq!(cluster.get(CRONS).await.code, 404);
}

#[tokio::test]
async fn a_bad_definition_is_refused() {
    let cluster = Cluster::start().await;
    let mut bad = definition();
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": "self.replicas < 5"}]);
    let refused = cluster.post(CRDS, bad).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    assert_eq!(cluster.get(CRONS).await.code, 404);
}

/// A webhook that answers as it is told and remembers what it was asked.
struct Webhook {
    address: SocketAddr,
    authority: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

type Judge = fn(&Value) -> Value;

impl Webhook {
    async fn start(judge: Judge) -> Webhook {
        let authority = Authority::generate().unwrap();
        let credential = authority.server(&["127.0.0.1".to_owned()]).unwrap();
        let tls = TlsAcceptor::from(Arc::new(authority.server_config(&credential).unwrap()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, heard) = (tls.clone(), heard.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                        let heard = heard.clone();
                        async move {
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let request = review["request"].clone();
                            let mut response = judge(&request);
                            response["uid"] = request["uid"].clone();
                            heard.lock().unwrap().push(request);
                            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
                            Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(
                                answer.to_string(),
                            ))))
                        }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Webhook { address, authority: authority.certificate().to_owned(), asked }
    }

    fn configuration(&self, kind: &str, name: &str, extra: Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://{}/judge", self.address), "caBundle": STANDARD.encode(&self.authority)},
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        });
        for (key, value) in extra.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [webhook]})
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn label_it(request: &Value) -> Value {
    let patch = match request["object"]["metadata"]["labels"].is_object() {
        true => json!([{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]),
        false => json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]),
    };
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()), "warnings": ["labelled"]})
}

fn refuse_it(request: &Value) -> Value {
    match request["name"] == "bad" {
        true => {
            json!({"allowed": false, "status": {"message": "no bad maps", "code": 403, "reason": "Forbidden"}})
        }
        false => json!({"allowed": true}),
    }
}

#[tokio::test]
async fn webhooks_change_and_refuse() {
    let cluster = Cluster::start().await;
    let mutating = Webhook::start(label_it).await;
    let validating = Webhook::start(refuse_it).await;
    cluster
        .post(MUTATING, mutating.configuration("MutatingWebhookConfiguration", "m", json!({})))
        .await
        .expect(201);
    cluster
        .post(VALIDATING, validating.configuration("ValidatingWebhookConfiguration", "v", json!({})))
        .await
        .expect(201);
    let made = cluster.post(MAPS, map("good")).await;
    assert_eq!(made.headers["warning"], "299 - \"labelled\"");
    assert_eq!(made.json["metadata"]["labels"]["seen"], "yes");
    let refused = cluster.post(MAPS, map("bad")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (403, "admission webhook \"v.example.com\" denied the request: no bad maps")
    );
    let asked = validating.asked.lock().unwrap()[0].clone();
    assert_eq!(asked["object"]["metadata"]["labels"]["seen"], "yes", "validation sees the changed object");
    assert_eq!((&asked["operation"], &asked["namespace"]), (&json!("CREATE"), &json!("default")));
    assert_eq!(asked["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(asked["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    let before = validating.count();
    cluster.post("/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await.expect(201);
    assert_eq!(validating.count(), before, "namespaces match no rule");
    cluster.delete(&format!("{MUTATING}/m"), Value::Null).await.expect(200);
    let plain = cluster.post(MAPS, map("plain")).await.expect(201);
    assert_eq!(plain["metadata"].get("labels"), None);
}

#[tokio::test]
async fn webhooks_are_asked_again_for_what_others_changed() {
    let cluster = Cluster::start().await;
    let first = Webhook::start(|_| json!({"allowed": true})).await;
    let second = Webhook::start(label_it).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    cluster.post(MUTATING, first.configuration("MutatingWebhookConfiguration", "a", again)).await.expect(201);
    cluster
        .post(MUTATING, second.configuration("MutatingWebhookConfiguration", "b", json!({})))
        .await
        .expect(201);
    cluster.post(MAPS, map("m")).await.expect(201);
    assert_eq!((first.count(), second.count()), (2, 1));
    assert_eq!(first.asked.lock().unwrap()[1]["object"]["metadata"]["labels"]["seen"], "yes");
}

#[tokio::test]
async fn webhooks_that_fail_fail_as_told() {
    let cluster = Cluster::start().await;
    let dead = |name: &str, extra: Value| {
        let mut webhook = json!({"name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps"]}]});
        for (key, value) in extra.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        json!({"metadata": {"name": name}, "webhooks": [webhook]})
    };
    cluster.post(VALIDATING, dead("open", json!({"failurePolicy": "Ignore"}))).await.expect(201);
    cluster.post(MAPS, map("a")).await.expect(201);
    cluster.post(VALIDATING, dead("closed", json!({}))).await.expect(201);
    let failed = cluster.post(MAPS, map("b")).await;
    assert_eq!(failed.code, 500);
    assert!(
        failed.message().starts_with("Internal error occurred: failed calling webhook \"closed.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=1s\""),
        "{}",
        failed.message()
    );
    let selective = dead("picky", json!({"objectSelector": {"matchLabels": {"judge": "me"}}}));
    cluster.delete(&format!("{VALIDATING}/closed"), Value::Null).await.expect(200);
    cluster.post(VALIDATING, selective).await.expect(201);
    cluster.post(MAPS, map("c")).await.expect(201);
    let mut judged = map("d");
    judged["metadata"]["labels"] = json!({"judge": "me"});
    assert_eq!(cluster.post(MAPS, judged).await.code, 500);
    let noisy = cluster.post(VALIDATING, dead("noisy", json!({"sideEffects": "Some"}))).await;
    assert_eq!(noisy.code, 422);
    assert!(noisy.message().contains("supported values: \"None\", \"NoneOnDryRun\""), "{}", noisy.message());
    let cel = dead("cel", json!({"matchConditions": [{"name": "a", "expression": "true"}]}));
    let refused = cluster.post(VALIDATING, cel).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("webhooks[0].matchConditions: Forbidden"), "{}", refused.message());
}
