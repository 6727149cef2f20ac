use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use koord_kit::cache::CacheBuilder;
use kube::client::Body;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::super::sketch::{Sketch, amounts, quota};
use super::*;

/// An API server that lists one quota, never ends a watch, and answers patches as told.
fn server(code: u16, patches: &Arc<Mutex<Vec<Value>>>) -> kube::Client {
    let patches = patches.clone();
    let service = service_fn(move |request: Request<Body>| {
        let patches = patches.clone();
        async move {
            let object = || {
                let mut quota = quota("q").max("cpu=10");
                quota.metadata.uid = Some("u1".into());
                quota.metadata.resource_version = Some("7".into());
                serde_json::to_value(&quota).unwrap()
            };
            let body = match request.method().as_str() {
                "PATCH" if code == 200 => {
                    let bytes = request.into_body().collect().await.unwrap().to_bytes();
                    patches.lock().unwrap().push(serde_json::from_slice(&bytes).unwrap());
                    object()
                }
                "PATCH" => {
                    json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "x"})
                }
                _ if request.uri().query().is_some_and(|query| query.contains("watch=")) => {
                    std::future::pending().await
                }
                _ if request.uri().path().ends_with("/q") => object(),
                _ => json!({"kind": "ElasticQuotaList", "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                    "metadata": {"resourceVersion": "7"}, "items": [object()]}),
            };
            let failed = body.get("code").is_some();
            let status = if failed { StatusCode::from_u16(code).unwrap() } else { StatusCode::OK };
            Ok::<_, Infallible>(
                Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap(),
            )
        }
    });
    kube::Client::new(service, "default")
}

fn key() -> QuotaKey {
    QuotaKey { namespace: "qns".into(), name: "q".into() }
}

#[tokio::test]
async fn quotas_of_the_cluster() {
    let patches = Arc::default();
    let client = server(200, &patches);
    let (quotas, worker) = CacheBuilder::of(client.clone(), |_, quota: ElasticQuota| quota).build();
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker.run(stop.clone()));
    let topology = Arc::<RwLock<Topology>>::default();
    let (synced, is_synced) = tokio::sync::oneshot::channel();
    let following =
        tokio::spawn(follow(quotas.subscribe(8), topology.clone(), move || synced.send(()).unwrap()));
    is_synced.await.unwrap();
    assert_eq!(topology.read().unwrap().ledger().get("q").unwrap().max, amounts("cpu=10"));

    let store = ClusterQuotas { client, quotas };
    let state = store.cached(&key()).unwrap();
    assert_eq!((state.resource_version.as_str(), state.max.clone()), ("7", amounts("cpu=10")));
    assert_eq!(store.fresh(&key()).await.unwrap(), state);
    assert_eq!(store.write(&state, r#"{"cpu":"1"}"#).await.unwrap(), state);
    let want =
        json!({"metadata": {"resourceVersion": "7", "annotations": {ChildRequest::KEY: r#"{"cpu":"1"}"#}}});
    assert_eq!(*patches.lock().unwrap(), [want], "only the one annotation, at the version that was judged");
    stop.cancel();
    drop(store);
    working.await.unwrap();
    following.abort();
}

#[tokio::test]
async fn faults_of_writes() {
    for (code, is_conflict) in [(409, true), (403, false)] {
        let client = server(code, &Arc::default());
        let (quotas, _) = CacheBuilder::of(client.clone(), |_, quota: ElasticQuota| quota).build();
        let store = ClusterQuotas { client, quotas };
        assert_eq!(store.cached(&key()), None);
        let fault = store.write(&QuotaState { key: key(), ..QuotaState::default() }, "{}").await.unwrap_err();
        assert_eq!(fault, WriteFault { is_conflict, message: "no".into() }, "{code}");
    }
}
