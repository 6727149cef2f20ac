//! Making a pod go: through the API server, or by stopping its containers; told by event, metric and audit record.
//!
//! The thread that decides sends an `Order` and waits for what came of it; the worker here lives with the other
//! talkers. Spec: koordlet-enforce 7.1.

mod runtime;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use koord_kit::events::{EventType, Note, Recorder};
use tokio::sync::mpsc;

pub use runtime::{Runtimes, StopError};

use crate::act::{EvictOrder, Evictor, Outcome};
use crate::audit::{Auditor, Subject};
use crate::decide::evict::{REASON, Trigger};
use crate::decide::snapshot::Pod;
use crate::metrics::{KoordletMetrics, Metric};
use crate::records::pod_reference;

/// How long one eviction may take. Nothing else happens on the node meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// A pod that must go, and where to tell what became of it.
struct Order {
    pod: Arc<Victim>,
    outcome: SyncSender<Outcome>,
}

/// Why a pod was not evicted, and what that means for it and for others.
struct Trouble {
    outcome: Outcome,
    text: String,
}

/// All that making a pod go needs to know.
struct Victim {
    namespace: String,
    name: String,
    uid: Arc<str>,
    message: String,
    /// What was found on the node, and what is wanted.
    numbers: String,
    /// The event when it went, and when it did not.
    trigger: Trigger,
    /// Ids of containers that run.
    running: Vec<Arc<str>>,
    pod: Pod,
}

/// Sends orders from the thread that decides.
pub struct Sender {
    orders: mpsc::Sender<Order>,
    is_by_api: bool,
}

impl Evictor for Sender {
    fn evict(&mut self, order: EvictOrder<'_>) -> Outcome {
        let EvictOrder { pod, trigger, numbers } = order;
        let containers = pod.with_init_containers().filter(|container| container.is_running);
        let running: Vec<Arc<str>> = containers.filter_map(|container| container.id.clone()).collect();
        if running.is_empty() && !self.is_by_api {
            return Outcome::NothingRuns;
        }
        let victim = Victim {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.id.uid.clone(),
            message: trigger.message(pod),
            numbers: numbers.to_owned(),
            trigger,
            running,
            pod: pod.clone(),
        };
        let (outcome, answer) = sync_channel(1);
        if self.orders.blocking_send(Order { pod: Arc::new(victim), outcome }).is_err() {
            return Outcome::Unreachable;
        }
        // The worker gives up first; this is for one that hangs.
        answer.recv_timeout(PATIENCE + Duration::from_secs(1)).unwrap_or(Outcome::Unanswered)
    }

    fn is_remembering(&self) -> bool {
        self.is_by_api
    }
}

/// In which way pods go.
pub enum Way {
    /// Respects disruption budgets; the pod ends as its spec says.
    Api(kube::Client),
    /// Containers are stopped at once; kubelet may start them again.
    Stop(Runtimes),
}

/// Carries orders out.
pub struct Worker {
    orders: mpsc::Receiver<Order>,
    way: Way,
    recorder: Option<Recorder>,
    metrics: KoordletMetrics,
    auditor: Auditor,
}

/// Both ends.
pub fn evictor(
    way: Way,
    recorder: Option<Recorder>,
    metrics: KoordletMetrics,
    auditor: Auditor,
) -> (Sender, Worker) {
    let (sender, orders) = mpsc::channel(1);
    let is_by_api = matches!(way, Way::Api(_));
    (Sender { orders: sender, is_by_api }, Worker { orders, way, recorder, metrics, auditor })
}

impl Worker {
    /// Works until the sender is gone.
    pub async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            let result = self.carry_out(&order.pod).await;
            self.tell(&order.pod, result.as_ref().err().map(|trouble| trouble.text.as_str()));
            // A sender that waits no longer has counted it as unanswered.
            let _ = order.outcome.send(result.map_or_else(|trouble| trouble.outcome, |()| Outcome::Leaving));
        }
    }

    async fn carry_out(&self, victim: &Victim) -> Result<(), Trouble> {
        let subject = Subject::Pod {
            uid: &victim.uid,
            namespace: &victim.namespace,
            name: &victim.name,
            container: "",
        };
        self.auditor.record(0, subject, REASON, format!("{}; {}", victim.message, victim.numbers));
        let work = async {
            match &self.way {
                Way::Api(client) => evict(client, victim).await,
                Way::Stop(runtimes) => stop(runtimes, victim).await,
            }
        };
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(result) => result,
            Err(_) => Err(Trouble {
                outcome: Outcome::Unanswered,
                text: format!("no answer within {} s", PATIENCE.as_secs()),
            }),
        }
    }

    fn tell(&self, victim: &Victim, error: Option<&str>) {
        let (reason, text) = victim.trigger.event(&victim.pod, &victim.numbers, error);
        let pod = format!("{}/{}", victim.namespace, victim.name);
        match error {
            None => {
                tracing::info!(pod, feature = victim.trigger.gate(), numbers = victim.numbers, "pod evicted");
                self.metrics.count(Metric::PodEviction, &[REASON]);
                self.metrics.count(Metric::PodEvictionDetail, &[&victim.namespace, &victim.name, REASON]);
            }
            Some(error) => {
                tracing::warn!(pod, feature = victim.trigger.gate(), error, "a pod was not evicted")
            }
        }
        if let Some(recorder) = &self.recorder {
            recorder.event(Note {
                regarding: pod_reference(&victim.namespace, &victim.name, &victim.uid),
                related: None,
                kind: EventType::Warning,
                reason: reason.to_owned(),
                action: String::new(),
                text,
            });
        }
    }
}

/// Asks the API server, for this very pod and no other of its name.
async fn evict(client: &kube::Client, victim: &Victim) -> Result<(), Trouble> {
    let Victim { namespace, name, uid, .. } = victim;
    let body = serde_json::json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": name, "namespace": namespace },
        "deleteOptions": { "preconditions": { "uid": &**uid } },
    });
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| Trouble { outcome: Outcome::Refused, text: error.to_string() })?;
    let answer = client.request::<serde_json::Value>(request).await;
    answer.map(drop).map_err(|error| Trouble { outcome: meaning(&error), text: error.to_string() })
}

/// What an error of the API server means for the pod. One that is not there any more, or whose name another pod has now,
/// needs no eviction.
fn meaning(error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else { return Outcome::Unreachable };
    match status.code {
        404 => Outcome::Leaving,
        409 if status.message.contains("UID in") => Outcome::Leaving,
        408 | 504 => Outcome::Unanswered,
        502 | 503 => Outcome::Unreachable,
        _ => Outcome::Refused,
    }
}

/// Stops every running container, a running init container too.
///
/// Differs: all of them, and a failure is told, where upstream stops at the first that does not run and calls it a
/// success (item 8).
async fn stop(runtimes: &Runtimes, victim: &Victim) -> Result<(), Trouble> {
    let mut outcome = Outcome::Refused;
    let mut failures = Vec::new();
    for id in &victim.running {
        if let Err(error) = runtimes.stop(id).await {
            if error.is_unreachable() {
                outcome = Outcome::Unreachable;
            }
            failures.push(format!("{id}: {error}"));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Trouble { outcome, text: failures.join("; ") }) }
}
