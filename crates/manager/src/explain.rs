//! What people may ask of a running manager: why a node lends what it lends, and which profiles touched a pod.
//!
//! Read only, and answered by every replica: caches are full whoever leads. What is told is decided in
//! [`mod@crate::node_resource::explain`] and [`crate::webhook::explain`]; here questions come in and answers go out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, StatusCode, header};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use koord_kit::http::{Answer, is_local, json, text};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::{Value, json};

use crate::controllers::{Ground, Snapshot, chosen_plugins, node_key};
use crate::node_resource::explain::{Asked, NodeExplanation, explain};
use crate::webhook::explain::{PodStory, pod_story};
use crate::webhook::follow::Sources;

/// Everything below this path is answered here.
pub const ROOT: &str = "/apis/v1/";

/// Names that a refusal shows.
const NAMES_MAX: usize = 8;

const FOLLOWS: &str = "not written by this replica, which does not lead: what the leader remembers (its last write, \
                       earlier demand) is not known here";
const NO_CONTROLLER: &str = "not written: the controller noderesource is switched off";

/// Answers questions about the cluster as this process sees it. Cheap to clone.
#[derive(Clone)]
pub struct Explainer {
    ground: Ground,
    leads: Arc<AtomicBool>,
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
enum Question<'q> {
    Node(&'q str),
    Pod { namespace: &'q str, name: &'q str },
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: StatusCode,
    message: String,
}

/// An answer for people and for programs.
struct Told {
    text: String,
    data: Value,
}

/// Answers a request for a page below [`ROOT`].
///
/// Only to clients on the same machine, which `kubectl port-forward` is: whoever merely reaches the port has no right
/// to read pods.
pub(crate) async fn answer(explainer: Explainer, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is read with GET\n"));
    }
    let result = match Question::of(path) {
        _ if !is_local(&request) => {
            let message = "this page is for clients on the same machine; kubectl port-forward makes you one";
            Err(Refusal::new(StatusCode::FORBIDDEN, message))
        }
        Some(Question::Node(name)) => explainer.node(name).map(Told::from),
        Some(Question::Pod { namespace, name }) => explainer.pod(namespace, name).await.map(Told::from),
        None => Err(Refusal::new(StatusCode::NOT_FOUND, format!("no service {path}"))),
    };
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    // Text for those who ask for it first.
    render(result, accept.is_some_and(|accept| accept.starts_with("text/plain")))
}

fn render(result: Result<Told, Refusal>, as_text: bool) -> Answer {
    match result {
        Ok(told) if as_text => text(StatusCode::OK, told.text),
        Ok(told) => json(StatusCode::OK, &told.data),
        Err(refusal) => json(refusal.status, &json!({"message": refusal.message})),
    }
}

impl Explainer {
    pub fn new(ground: &Ground, leads: &Arc<AtomicBool>) -> Explainer {
        Explainer { ground: ground.clone(), leads: leads.clone() }
    }

    /// Why a node lends what it lends.
    fn node(&self, name: &str) -> Result<NodeExplanation, Refusal> {
        self.must_be_ready()?;
        let world = &self.ground.world;
        let Some(node) = world.nodes.get("", name) else {
            let known = world.nodes.snapshot();
            return Err(unknown_node(name, known.iter().map(|(key, _)| &*key.name).collect()));
        };
        let snapshot = Snapshot::take(&self.ground, &node).ok_or_else(|| {
            let options = &self.ground.options;
            let message = format!(
                "node {name} is left as it is: colocation-config of ConfigMap {}/{} was never readable",
                options.config_namespace, options.config_name
            );
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let memory = self.ground.memories.of(&node_key(name));
        let asked = if !self.ground.options.controllers.is_on("noderesource") {
            Asked::Onlooker(NO_CONTROLLER)
        } else if !self.leads.load(Ordering::Acquire) {
            Asked::Onlooker(FOLLOWS)
        } else {
            Asked::Writer(&memory)
        };
        Ok(explain(&chosen_plugins(&self.ground.options), &snapshot.input(), asked))
    }

    /// Which profiles touched a pod, wherever it is in its life. Caches keep too little of pods, so it is read.
    async fn pod(&self, namespace: &str, name: &str) -> Result<PodStory, Refusal> {
        self.must_be_ready()?;
        let kind = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(self.ground.client.clone(), namespace, &kind);
        let pod = pods.get(name).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => {
                Refusal::new(StatusCode::NOT_FOUND, format!("cannot find pod {namespace}/{name}"))
            }
            error => {
                let message = format!("cannot read pod {namespace}/{name}: {error}");
                Refusal::new(StatusCode::BAD_GATEWAY, message)
            }
        })?;
        let pod = json!(pod);
        Ok(pod_story(&pod, &Sources::of(&self.ground.world).about_profiles()))
    }

    fn must_be_ready(&self) -> Result<(), Refusal> {
        let starting = |waits: String| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("the manager is still starting: {waits}"))
        };
        self.ground.world.check().map_err(starting)
    }
}

impl<'q> Question<'q> {
    fn of(path: &'q str) -> Option<Question<'q>> {
        let words: Vec<&str> = path.strip_prefix(ROOT)?.split('/').collect();
        match words.as_slice() {
            ["explain", "node", name] if is_name(name) => Some(Question::Node(name)),
            ["explain", "pod", namespace, name] if is_name(namespace) && is_name(name) => {
                Some(Question::Pod { namespace, name })
            }
            _ => None,
        }
    }
}

/// What no object is called is not asked for.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

fn unknown_node(name: &str, mut known: Vec<&str>) -> Refusal {
    known.sort_unstable();
    let shown = known.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    let all = match known.len() {
        0 => "there are none".to_owned(),
        1 => format!("there is only {shown}"),
        count if count <= NAMES_MAX => format!("there are {shown}"),
        count => format!("there are {shown} and {} more", count - NAMES_MAX),
    };
    Refusal::new(StatusCode::NOT_FOUND, format!("cannot find node {name}; {all}"))
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into() }
    }
}

impl From<NodeExplanation> for Told {
    fn from(explanation: NodeExplanation) -> Told {
        Told { text: explanation.to_string(), data: data(&explanation) }
    }
}

impl From<PodStory> for Told {
    fn from(story: PodStory) -> Told {
        Told { text: story.text() + "\n", data: data(&story) }
    }
}

/// Plain structs with names for keys always have a form as JSON.
fn data(told: &impl Serialize) -> Value {
    serde_json::to_value(told).unwrap_or_default()
}

#[cfg(test)]
mod tests;
