//! Hooks for koord-runtime-proxy: it asks over gRPC before kubelet's requests reach the runtime. Spec: koordlet-enforce 14.1, 14.3.
//!
//! A request is echoed, with what hooks say laid over it; a pod's own group is written by the node's thread. A hook never
//! keeps a pod from starting: what is not said in time, or fails, is left to the reconciler, unless
//! `--runtime-hooks-plugin-failure-policy` is Fail. [`register`] tells the proxy where we are.
//!
//! Differs: no server reflection yet; the proxy knows the service, and does not ask.

mod register;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use koord_api::hook::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, Hook, HookSubject, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};
use koord_api::qos::KubeQos;
use prost::Message;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::decide::hooks::stage::{Asked, AskedContainer, Stage, Values};
use crate::decide::snapshot::Pod;
use crate::flags::HookServerOptions;
use crate::grpc::server::{Service, listen, serve};
use crate::grpc::{Refusal, decode};
pub use register::{register, withdraw};

/// Longer than a second of the node's thread ever takes, and nothing to somebody who starts a pod.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Asks the node's thread what hooks say about a pod, or a container of it, whose group has this folder. None when it has
/// ended.
pub type Ask = Arc<dyn Fn(Stage, Asked, String) -> Said + Send + Sync>;

/// What hooks said; an error is for whoever wants none to fail.
pub type Said = Pin<Box<dyn Future<Output = Option<Result<Values, String>>> + Send>>;

/// Answers the proxy.
pub struct HookServer {
    ask: Ask,
    /// Whether a hook that fails fails the request.
    is_strict: bool,
}

/// Listens at the socket and tells the proxy about it. Where that is not possible there are no hooks by proxy, and the
/// reconciler does its work as ever.
pub fn start(
    options: &HookServerOptions,
    stages: &[&'static str],
    ask: Ask,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let listener = match listen(&options.socket) {
        Ok(listener) => listener,
        Err(error) => {
            let socket = options.socket.display();
            return tracing::info!(%socket, %error, "cannot listen: no hooks by proxy, only by reconciling");
        }
    };
    let server = Arc::new(HookServer { ask, is_strict: options.is_strict });
    tasks.spawn(serve(listener, server, stop.clone()));
    match register(options, stages) {
        Ok(path) => tracing::info!(path = %path.display(), ?stages, "registered with the runtime proxy"),
        Err(error) => tracing::info!(%error, "cannot register with the runtime proxy"),
    }
}

impl Service for HookServer {
    async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let hook = Hook::ALL.into_iter().find(|hook| hook.path() == path);
        let hook = hook.ok_or_else(|| Refusal::unknown_method(path))?;
        match hook.subject() {
            HookSubject::PodSandbox => {
                self.answer_pod(hook, decode(message)?).await.map(|answer| answer.encode_to_vec())
            }
            HookSubject::Container => {
                self.answer_container(hook, decode(message)?).await.map(|answer| answer.encode_to_vec())
            }
        }
    }
}

impl HookServer {
    async fn answer_pod(
        &self,
        hook: Hook,
        request: PodSandboxHookRequest,
    ) -> Result<PodSandboxHookResponse, Refusal> {
        let PodSandboxHookRequest { pod_meta, labels, annotations, cgroup_parent, mut resources, .. } =
            request;
        let pod = pod(pod_meta.unwrap_or_default(), &labels, &annotations, &cgroup_parent);
        let values = self.values(hook, Asked { pod, container: None }, &cgroup_parent).await?;
        lay_over(&mut resources, &values);
        Ok(PodSandboxHookResponse { labels, annotations, cgroup_parent, resources })
    }

    async fn answer_container(
        &self,
        hook: Hook,
        request: ContainerResourceHookRequest,
    ) -> Result<ContainerResourceHookResponse, Refusal> {
        let mut resources = request.container_resources;
        let parent = request.pod_cgroup_parent;
        let meta = request.pod_meta.unwrap_or_default();
        let asked = Asked {
            pod: pod(meta, &request.pod_labels, &request.pod_annotations, &parent),
            container: Some(AskedContainer {
                name: request.container_meta.unwrap_or_default().name,
                quota: resources.as_ref().map_or(0, |resources| resources.cpu_quota),
            }),
        };
        let values = self.values(hook, asked, &parent).await?;
        lay_over(&mut resources, &values);
        let mut container_envs = request.container_envs;
        container_envs.extend(values.env.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(ContainerResourceHookResponse {
            container_annotations: request.container_annotations,
            container_resources: resources,
            pod_cgroup_parent: parent,
            container_envs,
        })
    }

    /// What hooks say, by the node's thread.
    async fn values(&self, hook: Hook, asked: Asked, parent: &str) -> Result<Values, Refusal> {
        let Some(stage) = stage(hook) else { return Ok(Values::default()) };
        let said = (self.ask)(stage, asked, parent.to_owned());
        match tokio::time::timeout(ANSWER_WITHIN, said).await {
            Ok(Some(Ok(values))) => Ok(values),
            Ok(Some(Err(fault))) => Err(Refusal::unknown(fault)),
            Ok(None) | Err(_) if self.is_strict => Err(Refusal::unknown("koordlet is busy".to_owned())),
            Ok(None) | Err(_) => {
                tracing::warn!(stage = stage.name(), "no answer in time; the reconciler does it later");
                Ok(Values::default())
            }
        }
    }
}

/// The stage of a call; none of those at which no hook has anything to say.
fn stage(hook: Hook) -> Option<Stage> {
    match hook {
        Hook::PreRunPodSandbox => Some(Stage::PreRunPodSandbox),
        Hook::PreCreateContainer => Some(Stage::PreCreateContainer),
        Hook::PreUpdateContainerResources => Some(Stage::PreUpdateContainerResources),
        Hook::PostStopPodSandbox
        | Hook::PreStartContainer
        | Hook::PostStartContainer
        | Hook::PostStopContainer => None,
    }
}

/// The pod as far as the request tells; its Kubernetes QoS by its place among the groups.
fn pod(
    meta: PodSandboxMetadata,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    cgroup_parent: &str,
) -> Pod {
    let object = v1::Pod {
        metadata: ObjectMeta {
            name: Some(meta.name),
            namespace: Some(meta.namespace),
            uid: Some(meta.uid),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        },
        ..v1::Pod::default()
    };
    let mut pod = Pod::read(&object);
    pod.id.kube_qos = match cgroup_parent {
        parent if parent.contains("besteffort") => KubeQos::BestEffort,
        parent if parent.contains("burstable") => KubeQos::Burstable,
        _ => KubeQos::Guaranteed,
    };
    pod
}

/// What hooks say, over what kubelet asks for.
fn lay_over(resources: &mut Option<LinuxContainerResources>, values: &Values) {
    let Values { shares, quota, memory, cpus, .. } = values;
    if (shares, quota, memory, cpus) == (&None, &None, &None, &None) {
        return;
    }
    let resources = resources.get_or_insert_default();
    for (field, wanted) in [
        (&mut resources.cpu_shares, shares),
        (&mut resources.cpu_quota, quota),
        (&mut resources.memory_limit_in_bytes, memory),
    ] {
        if let Some(wanted) = wanted {
            *field = wanted.value;
        }
    }
    if let Some(cpus) = cpus {
        resources.cpuset_cpus.clone_from(&cpus.cpus);
    }
}

#[cfg(test)]
mod tests;
