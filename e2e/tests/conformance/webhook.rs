//! An HTTPS admission webhook that both servers call. What it answers stands in the path.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http_body_util::BodyExt as _;
use koord_kit::http::{Answer, Health, Router, TlsFiles, json as answer_json, serve, text};
use koord_kit::metrics::Metrics;
use koord_sandbox::server::tls::Authority;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::talk::Variables;

/// Longer than the timeout of the webhooks that meet it.
const SLOW: Duration = Duration::from_secs(4);

/// Answers until dropped.
pub(crate) struct Hooks {
    /// `hook`: its address; `ca`: who signed its certificate, for `caBundle`.
    pub(crate) variables: Variables,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) async fn start() -> Result<Hooks> {
    let authority = Authority::generate()?;
    let credential = authority.server(&["127.0.0.1".to_owned()])?;
    let dir = tempfile::tempdir()?;
    let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    std::fs::write(&certificate, &credential.certificate)?;
    std::fs::write(&key, &credential.key)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router =
        Router::new(Arc::new(Health::default()), Arc::new(Metrics::new())).page("/", |request| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            answer(head.uri.path(), &serde_json::from_slice(&body).unwrap_or_default()).await
        });
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, Some(TlsFiles::load(certificate, key)?), stop.clone()));
    let variables = Variables::from([
        ("hook".to_owned(), format!("https://{address}")),
        ("ca".to_owned(), STANDARD.encode(authority.certificate())),
    ]);
    Ok(Hooks { variables, stop, _dir: dir })
}

/// `/deny/words`, `/label/value`, …: the answer to one review.
async fn answer(path: &str, review: &Value) -> Answer {
    let uid = &review["request"]["uid"];
    let say = |response: Value| {
        let mut response = response;
        response["uid"] = uid.clone();
        let version = &review["apiVersion"];
        answer_json(
            StatusCode::OK,
            &json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}),
        )
    };
    let patched = |patch: Value| {
        let patch = STANDARD.encode(patch.to_string());
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    let (what, argument) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
    match what {
        "allow" => say(json!({"allowed": true})),
        "deny" => say(json!({"allowed": false, "status": {"message": argument}})),
        "deny-silently" => say(json!({"allowed": false})),
        "deny-code" => {
            let status = json!({"code": 418, "reason": "Teapot", "message": argument});
            say(json!({"allowed": false, "status": status}))
        }
        // What the server sent, for comparing that, too.
        "echo" => {
            say(json!({"allowed": false, "status": {"message": format!("ECHO:{}", review["request"])}}))
        }
        "warn" => say(json!({"allowed": true, "warnings": [argument, "second"]})),
        "label" => {
            say(patched(json!([{"op": "add", "path": "/metadata/labels", "value": {"hook": argument}}])))
        }
        "data" => {
            let seen = review["request"]["object"]["data"]["seen"].as_str().unwrap_or_default();
            say(patched(json!([{"op": "add", "path": "/data/seen", "value": format!("{seen}{argument}")}])))
        }
        "bad-patch" => say(patched(json!([{"op": "remove", "path": "/nowhere"}]))),
        "bad-patch-type" => say(json!({"allowed": true, "patch": STANDARD.encode("[]")})),
        "unknown-field" => say(patched(json!([{"op": "add", "path": "/surprise", "value": 1}]))),
        "wrong-uid" => answer_json(
            StatusCode::OK,
            &json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": "other", "allowed": true}}),
        ),
        "no-response" => answer_json(
            StatusCode::OK,
            &json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
        ),
        "garbage" => text(StatusCode::OK, "garbage"),
        "error" => text(StatusCode::INTERNAL_SERVER_ERROR, "out of order"),
        "slow" => {
            tokio::time::sleep(SLOW).await;
            say(json!({"allowed": true}))
        }
        _ => text(StatusCode::NOT_FOUND, "no such page"),
    }
}
