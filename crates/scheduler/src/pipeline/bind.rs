//! Posting a binding, and finding out what became of one whose answer was lost.

use http::Method;
use koord_engine::engine::command::{Binding, Subject};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::api::{Failure, JSON, patiently, pod_path};
use super::reservation;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'b> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Meta<'b>,
    target: Target<'b>,
}

#[derive(Serialize)]
struct Meta<'b> {
    namespace: &'b str,
    name: &'b str,
    uid: &'b str,
}

#[derive(Serialize)]
struct Target<'b> {
    kind: &'static str,
    name: &'b str,
}

/// Binds the pod; the error is the whole text.
pub(super) async fn bind(shared: &Shared, binding: &Binding) -> Result<(), String> {
    if let Some(name) = &binding.pod.reserves {
        return reservation::bind(shared, binding, name).await;
    }
    shared.check_lead()?;
    let pod = &binding.pod;
    if let Some(extender) = binding.extender.and_then(|at| shared.extenders.get(at)) {
        match extender.bind(binding).await {
            Ok(()) => return Ok(()),
            // It may have bound the pod and only its answer was lost.
            Err(_) if is_there(shared, pod, &binding.node).await => return Ok(()),
            Err(error) if extender.terms().is_ignorable => {
                tracing::warn!(pod = %pod.key, "an extender that may be ignored did not bind: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    let body = Body {
        api_version: "v1",
        kind: "Binding",
        metadata: Meta { namespace: &pod.key.namespace, name: &pod.key.name, uid: &pod.uid },
        target: Target { kind: "Node", name: &binding.node },
    };
    let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
    let failure = match shared.api.send(Method::POST, &pod_path(&pod.key, "/binding"), JSON, body).await {
        Ok(()) => return Ok(()),
        Err(failure) => failure,
    };
    // A conflict may be our own binding, whose answer was lost on the way and which was then sent again.
    if (failure.is_unsure() || failure.is_conflict()) && is_there(shared, pod, &binding.node).await {
        return Ok(());
    }
    Err(failure.to_string())
}

#[derive(Deserialize)]
struct Stored {
    metadata: StoredMeta,
    #[serde(default)]
    spec: StoredSpec,
}

#[derive(Deserialize)]
struct StoredMeta {
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredSpec {
    #[serde(default)]
    node_name: String,
}

/// Whether the pod stands on the node.
async fn is_there(shared: &Shared, pod: &Subject, node: &str) -> bool {
    let path = pod_path(&pod.key, "");
    let read =
        patiently(Failure::is_passing, || shared.api.fetch::<Stored>(Method::GET, &path, JSON, Vec::new()))
            .await;
    matches!(read, Ok(stored) if stored.metadata.uid == *pod.uid && stored.spec.node_name == node)
}
