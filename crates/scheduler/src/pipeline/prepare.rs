//! What is written before a bind: nomination, volumes, claims, and one patch of the pod for all plugins.

use std::collections::BTreeMap;

use http::Method;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use koord_api::preserve::carry_unknown;
use koord_engine::engine::command::{BindPlan, Subject};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Shared;
use super::api::{Failure, JSON, STRATEGIC, patiently, pod_path};
use super::{reservation, status};

/// Writes everything, in order; the error is the whole text.
pub(super) async fn prepare(shared: &Shared, plan: &BindPlan) -> Result<(), String> {
    let Some(pod) = &plan.pod else { return Ok(()) };
    shared.check_lead()?;
    if plan.nominates {
        let nominated = json!({"nominatedNodeName": plan.node});
        if let Err(failure) = status::write(shared, pod, nominated).await {
            // Only a hint for others; the binding itself does not need it.
            tracing::warn!(pod = %pod.key, error = %failure, "nominated node could not be written");
        }
    }
    let framed =
        |failure: Failure| format!("running PreBind plugin \"VolumeBinding\": binding volumes: {failure}");
    for volume in &plan.volumes {
        replace::<PersistentVolume>(shared, volume).await.map_err(framed)?;
    }
    for claim in &plan.claims {
        replace::<PersistentVolumeClaim>(shared, claim).await.map_err(framed)?;
    }
    let framed = |text: String| format!("running PreBindExtension plugin \"DefaultPreBind\": {text}");
    // Those that a reservation takes in first: it may be seen as soon as it is placed.
    for other in &plan.others {
        patch_pod(shared, &other.pod, &other.annotations, &BTreeMap::new()).await.map_err(framed)?;
    }
    if plan.annotations.is_empty() && plan.labels.is_empty() {
        return Ok(());
    }
    match &pod.reserves {
        Some(name) => reservation::annotate(shared, name, &pod.uid, &plan.annotations)
            .await
            .map_err(|failure| framed(failure.to_string())),
        None => patch_pod(shared, pod, &plan.annotations, &plan.labels).await.map_err(framed),
    }
}

/// Writes an object at the version it was read at. Fields that our types do not know are read first and kept.
async fn replace<K>(shared: &Shared, object: &K) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let path = format!("{}/{name}", K::url_path(&(), meta.namespace.as_deref()));
    let raw: Value =
        patiently(Failure::is_passing, || shared.api.fetch(Method::GET, &path, JSON, Vec::new())).await?;
    let version = meta.resource_version.as_deref().unwrap_or_default();
    if raw["metadata"]["resourceVersion"] != version || raw["metadata"]["uid"] != json!(meta.uid) {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes \
             to the latest version and try again",
            K::plural(&())
        );
        return Err(Failure::Refused { code: 409, message });
    }
    let unreadable = |error: serde_json::Error| Failure::Refused { code: 422, message: error.to_string() };
    let mut typed: K = serde_json::from_value(raw.clone()).map_err(unreadable)?;
    // The engine's copy has none; the server keeps its own.
    typed.meta_mut().managed_fields = None;
    let before = serde_json::to_value(&typed).map_err(unreadable)?;
    let after = serde_json::to_value(object).map_err(unreadable)?;
    let body = carry_unknown(&raw, &before, &after).to_string().into_bytes();
    shared.api.send(Method::PUT, &path, JSON, body).await
}

/// A value of none removes the key.
type Pairs = BTreeMap<String, Option<String>>;

/// One patch for all plugins. Only this pod's, never that of one made again under the same name.
async fn patch_pod(
    shared: &Shared,
    pod: &Subject,
    annotations: &Pairs,
    labels: &Pairs,
) -> Result<(), String> {
    let mut metadata = json!({"uid": pod.uid});
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    let body = json!({"metadata": metadata}).to_string().into_bytes();
    let path = pod_path(&pod.key, "");
    let patched: Value = patiently(Failure::is_passing_for_patch, || {
        shared.api.fetch(Method::PATCH, &path, STRATEGIC, body.clone())
    })
    .await
    .map_err(|failure| failure.to_string())?;
    if patched["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    Err("pod is being deleted".to_owned())
}
