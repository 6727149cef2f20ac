//! A client of the shared control plane, with our CRDs installed once.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use k8s_openapi::Resource;
use koord_testkit::{ControlPlane, shared};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// Where namespaced objects of these tests live.
pub(crate) const NAMESPACE: &str = "default";

/// The control plane with our CRDs; none where it cannot run.
pub(crate) fn with_crds() -> Result<Option<&'static ControlPlane>> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let Some(cluster) = shared() else { return Ok(None) };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let installed =
        INSTALLED.get_or_init(|| cluster.install_crds(&folder).map_err(|error| format!("{error:?}")));
    installed.clone().map_err(anyhow::Error::msg)?;
    Ok(Some(cluster))
}

pub(crate) async fn client(cluster: &ControlPlane) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Where objects of a kind live, and how their documents begin.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
}

impl Kind {
    pub(crate) fn cluster<K: Resource<Scope = k8s_openapi::ClusterResourceScope>>() -> Kind {
        Kind { api_version: K::API_VERSION, kind: K::KIND, plural: K::URL_PATH_SEGMENT, namespaced: false }
    }

    pub(crate) fn namespaced<K: Resource<Scope = k8s_openapi::NamespaceResourceScope>>() -> Kind {
        Kind { api_version: K::API_VERSION, kind: K::KIND, plural: K::URL_PATH_SEGMENT, namespaced: true }
    }

    pub(crate) fn path(&self) -> String {
        let namespace = if self.namespaced { format!("namespaces/{NAMESPACE}/") } else { String::new() };
        format!("/apis/{}/{namespace}{}", self.api_version, self.plural)
    }

    /// A whole object from its fields beside metadata.
    pub(crate) fn object(&self, name: &str, fields: &Value) -> Value {
        let mut object =
            json!({ "apiVersion": self.api_version, "kind": self.kind, "metadata": { "name": name } });
        for (key, value) in fields.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }
}

/// What the server stored, or all faults that it found: `<field>: <message>`, sorted.
pub(crate) type Answer = Result<Value, Vec<String>>;

pub(crate) async fn create(client: &Client, kind: Kind, object: &Value) -> Result<Answer> {
    send(client, http::Request::post(kind.path()), object).await
}

/// Writes an object over the one of the same name; `part` is empty or `/status`.
pub(crate) async fn replace(client: &Client, kind: Kind, part: &str, object: &Value) -> Result<Answer> {
    let name = object["metadata"]["name"].as_str().context("an object has a name")?;
    send(client, http::Request::put(format!("{}/{name}{part}", kind.path())), object).await
}

async fn send(client: &Client, request: http::request::Builder, object: &Value) -> Result<Answer> {
    let request = request.header("content-type", "application/json").body(serde_json::to_vec(object)?)?;
    match client.request::<Value>(request).await {
        Ok(stored) => Ok(Ok(stored)),
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
            let mut faults: Vec<String> =
                causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            faults.sort();
            check_sentence(&status.message, &faults);
            Ok(Err(faults))
        }
        Err(error) => Err(error).with_context(|| format!("sending {object}")),
    }
}

/// All faults are told together, several of them in brackets.
fn check_sentence(message: &str, faults: &[String]) {
    let (_, list) = message.split_once(" is invalid: ").expect("the server's frame");
    assert_eq!(list.starts_with('['), faults.len() > 1, "{message}");
    for fault in faults {
        assert!(list.contains(fault.as_str()), "{fault} is missing in {message}");
    }
}
