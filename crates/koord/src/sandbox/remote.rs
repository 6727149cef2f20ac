//! Talking to a sandbox that runs in another process.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use http::{Method, Request};
use koord_kit::client::service::RetryPolicy;
use koord_kit::client::{ClientConnection, ClientOptions, connect};
use koord_sandbox::server::control::PREFIX;
use kube::client::Body;
use serde_json::Value;

use super::place::Place;

/// Bringing in a large dump takes its time.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A client for a cluster, with neither limits nor retries: the user is waiting.
pub(super) async fn client(kubeconfig: &str) -> Result<kube::Client> {
    let connection =
        ClientConnection { kubeconfig: kubeconfig.to_owned(), qps: -1.0, ..ClientConnection::default() };
    let options = ClientOptions {
        retry: RetryPolicy::NEVER,
        timeout: TIMEOUT,
        ..ClientOptions::new("koord", connection)
    };
    Ok(connect(&options).await?)
}

/// Gives an order to the sandbox of this place.
pub(super) async fn order(place: &Place, method: Method, path: &str, body: Vec<u8>) -> Result<Value> {
    let running = place.must_run()?;
    let kubeconfig = place.kubeconfig();
    let client = client(&kubeconfig.to_string_lossy()).await?;
    let request = Request::builder().method(method).uri(format!("{PREFIX}{path}")).body(Body::from(body))?;
    let response = client.send(request).await.with_context(|| {
        format!("the sandbox at {} (process {}) does not answer", running.server, running.pid)
    })?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.context("the answer broke off")?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status.is_success() {
        return Ok(answer);
    }
    Err(match answer["message"].as_str() {
        Some(message) => anyhow!("{message}"),
        None => anyhow!("the sandbox answered {status}: {}", String::from_utf8_lossy(&bytes).trim()),
    })
}
