//! What the fleet writes to the cluster. Each write stands alone: it says how it went, and the engine
//! decides what follows.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{Kind, meta};
use crate::nodes::devices;
use crate::nodes::lifecycle::{Habits, Kubelet, Step, Verdict, hash, step};
use crate::nodes::metric;
use crate::nodes::objects::{self, Identity, LEASE_NAMESPACE};
use crate::nodes::shape::Shape;
use crate::nodes::topology::{self, Report};
use crate::server::{Answer, Api, DeleteOptions, Part, User, WriteOptions, Written};
use crate::status::ApiError;

/// What every write needs.
pub(super) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) pods: Arc<Kind>,
    pub(super) nodes: Arc<Kind>,
    pub(super) habits: Habits,
}

/// A node, as far as writing about it goes.
#[derive(Clone)]
pub(super) struct About {
    pub(super) slot: u32,
    pub(super) name: Arc<str>,
    pub(super) index: u32,
    pub(super) address: Ipv4Addr,
    pub(super) kubelet_port: u16,
    pub(super) uid: String,
    pub(super) shape: Arc<Shape>,
    pub(super) is_adopted: bool,
}

/// A pod to look at.
pub(super) struct PodJob {
    pub(super) slot: u32,
    pub(super) generation: u32,
    pub(super) key: Arc<str>,
    /// Hash of its UID.
    pub(super) identity: u64,
    pub(super) node: Arc<str>,
    pub(super) host: Ipv4Addr,
    pub(super) address: Ipv4Addr,
    pub(super) verdict: Verdict,
}

/// Something to write.
pub(super) enum Job {
    Pod(PodJob),
    Register(About),
    Lease(About),
    Status(About),
    Topology(About, Report),
    Device(About),
    /// The NodeMetric's status.
    Metric(About, Value),
    Warn(Warning),
}

/// An event about a pod.
pub(super) struct Warning {
    pub(super) node: Arc<str>,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// How a write went.
pub(super) enum Done {
    Pod { slot: u32, generation: u32, outcome: PodOutcome },
    Registered { slot: u32, result: Result<Registered, ApiError> },
    Topology { slot: u32, is_written: bool },
    Device { slot: u32, is_written: bool },
    Nothing,
}

pub(super) struct Registered {
    pub(super) uid: String,
}

/// What became of a pod.
pub(super) enum PodOutcome {
    /// To be looked at again at some time, or when it changes.
    Kept { wake: Option<Timestamp>, since: Option<Timestamp>, revision: u64 },
    /// Ended or gone: no longer the node's business.
    Over,
    /// The write did not go through.
    Failed(ApiError),
}

impl Shared {
    pub(super) async fn run(self: Arc<Shared>, job: Job) -> Done {
        match job {
            Job::Pod(job) => {
                let (slot, generation) = (job.slot, job.generation);
                let outcome = self.pod(job).await.unwrap_or_else(PodOutcome::Failed);
                Done::Pod { slot, generation, outcome }
            }
            Job::Register(about) => {
                Done::Registered { slot: about.slot, result: self.register(&about).await }
            }
            Job::Lease(about) => told("lease", &about, self.lease(&about).await),
            Job::Status(about) => told("node status", &about, self.status(&about).await),
            Job::Metric(about, status) => told("NodeMetric", &about, self.metric(&about, status).await),
            Job::Topology(about, report) => {
                let result = self.topology(&about, &report).await;
                let is_written = result.is_ok();
                told("NodeResourceTopology", &about, result);
                Done::Topology { slot: about.slot, is_written }
            }
            Job::Device(about) => {
                let result = self.device(&about).await;
                let is_written = result.is_ok();
                told("Device", &about, result);
                Done::Device { slot: about.slot, is_written }
            }
            Job::Warn(warning) => {
                self.warn(&warning).await;
                Done::Nothing
            }
        }
    }

    /// Moves a pod on, and removes it once it is over and was deleted.
    async fn pod(&self, job: PodJob) -> Result<PodOutcome, ApiError> {
        let (namespace, name) = job.key.split_once('/').unwrap_or(("", &job.key));
        let options = kubelet(&job.node);
        let (host, address) = (job.host.to_string(), job.address.to_string());
        let decided: Mutex<Option<(Step, String)>> = Mutex::new(None);
        let change = |pod: &mut Value| {
            let kubelet = Kubelet {
                habits: &self.habits,
                host_ip: &host,
                pod_ip: &address,
                verdict: &job.verdict,
                now: self.api.now(),
            };
            let mut decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
            if hash(&[meta::uid(pod)]) != job.identity {
                *decided = None;
                return Ok(false);
            }
            let mut step = step(pod, &kubelet);
            let status = step.status.take();
            *decided = Some((step, meta::uid(pod).to_owned()));
            let has_news = status.is_some();
            if let Some(status) = status {
                pod["status"] = status;
            }
            Ok(has_news)
        };
        let written = self.api.edit(&self.pods, (namespace, name), Part::Status, &options, &change).await;
        let written = match written {
            Ok(written) => written,
            Err(error) if error.code == 404 => return Ok(PodOutcome::Over),
            Err(error) => return Err(error),
        };
        let decided = decided.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some((step, uid)) = decided else { return Ok(PodOutcome::Over) };
        for container in &step.backed_off {
            let pod = format!("{name}_{namespace}({uid})");
            self.warn(&Warning {
                node: job.node.clone(),
                namespace: namespace.to_owned(),
                pod: name.to_owned(),
                uid: uid.clone(),
                reason: "BackOff".to_owned(),
                message: format!("Back-off restarting failed container {container} in pod {pod}"),
            })
            .await;
        }
        if step.remove {
            self.remove((namespace, name), uid, options).await?;
        }
        if step.remove || step.is_over {
            return Ok(PodOutcome::Over);
        }
        Ok(PodOutcome::Kept { wake: step.wake, since: step.running_since, revision: revision(&written) })
    }

    async fn remove(&self, pod: (&str, &str), uid: String, write: WriteOptions) -> Result<(), ApiError> {
        let options =
            DeleteOptions { write, grace_seconds: Some(0), uid: Some(uid), ..DeleteOptions::default() };
        match self.api.delete(&self.pods, pod, &options).await {
            Ok(_) => Ok(()),
            // Gone, or another pod by now.
            Err(error) if error.code == 404 || error.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The Node with its status, and its Lease.
    async fn register(&self, about: &About) -> Result<Registered, ApiError> {
        let options = kubelet(&about.name);
        let now = self.api.now();
        let created = match about.is_adopted {
            true => None,
            false => {
                let node = objects::node(&about.shape, &about.identity(), now);
                match self.api.create(&self.nodes, "", node, &options).await {
                    Ok(written) => Some(written),
                    Err(error) if error.code == 409 => None,
                    Err(error) => return Err(error),
                }
            }
        };
        let node = match created {
            // A server that does not take a status from its creator gets it after.
            Some(written) if written.value()["status"]["conditions"].is_array() => written,
            _ => self.status(about).await?,
        };
        let uid = meta::uid(&node.value()).to_owned();
        self.lease(&About { uid: uid.clone(), ..about.clone() }).await?;
        Ok(Registered { uid })
    }

    /// A heartbeat in the Node's status.
    async fn status(&self, about: &About) -> Result<Written, ApiError> {
        let now = self.api.now();
        let change = |node: &mut Value| {
            match about.is_adopted {
                true => objects::beat(node, now),
                false => objects::renew(node, &about.shape, &about.identity(), now),
            }
            Ok(true)
        };
        self.api.edit(&self.nodes, ("", &about.name), Part::Status, &kubelet(&about.name), &change).await
    }

    async fn lease(&self, about: &About) -> Result<(), ApiError> {
        let Ok(kind) = self.api.kind("coordination.k8s.io", "leases") else { return Ok(()) };
        let options = kubelet(&about.name);
        let now = self.api.now();
        let change = |lease: &mut Value| {
            lease["spec"]["renewTime"] = Value::from(objects::micro_time(now));
            lease["spec"]["holderIdentity"] = Value::from(&*about.name);
            Ok(true)
        };
        let renewed =
            self.api.edit(&kind, (LEASE_NAMESPACE, &about.name), Part::Main, &options, &change).await;
        match renewed {
            Err(error) if error.code == 404 => {
                let lease = objects::lease(&about.name, &about.uid, now);
                self.api.create(&kind, LEASE_NAMESPACE, lease, &options).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    async fn topology(&self, about: &About, report: &Report) -> Result<(), ApiError> {
        let registry = self.api.registry();
        let (group, plural) = ("topology.node.k8s.io", "noderesourcetopologies");
        let kind = registry.find(group, "v1alpha1", plural).ok_or_else(ApiError::no_such_path)?;
        let change = |object: &mut Value| {
            topology::apply(object, report);
            Ok(!about.is_adopted)
        };
        let create = || topology::create(&about.name, &about.uid, report);
        self.put(kind, about, Part::Main, &change, create).await
    }

    async fn device(&self, about: &About) -> Result<(), ApiError> {
        let kind = self.api.kind("scheduling.koordinator.sh", "devices")?;
        let wanted = devices::object(&about.shape, &about.name, &about.uid);
        let change = |object: &mut Value| {
            object["spec"]["devices"] = wanted["spec"]["devices"].clone();
            let labels = wanted["metadata"]["labels"].as_object().into_iter().flatten();
            for (key, value) in labels {
                object["metadata"]["labels"][key] = value.clone();
            }
            Ok(!about.is_adopted)
        };
        self.put(&kind, about, Part::Main, &change, || wanted.clone()).await
    }

    async fn metric(&self, about: &About, status: Value) -> Result<(), ApiError> {
        let kind = self.api.kind("slo.koordinator.sh", "nodemetrics")?;
        let change = |object: &mut Value| {
            object["status"] = status.clone();
            Ok(true)
        };
        // Made by koord-manager where there is one; its spec is what that would write.
        let create = || {
            json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric",
                "metadata": {"name": &*about.name, "ownerReferences": objects::owner(&about.name, &about.uid)},
                "spec": metric::default_spec()})
        };
        let options = WriteOptions { manager: "koordlet".to_owned(), ..kubelet(&about.name) };
        let part = if kind.has_status() { Part::Status } else { Part::Main };
        match self.api.edit(&kind, ("", &about.name), part, &options, &change).await {
            Err(error) if error.code == 404 => {}
            other => return other.map(|_| ()),
        }
        self.api.create(&kind, "", create(), &options).await?;
        self.api.edit(&kind, ("", &about.name), part, &options, &change).await.map(|_| ())
    }

    /// Changes an object of the node's name, or makes it.
    async fn put(
        &self,
        kind: &Arc<Kind>,
        about: &About,
        part: Part,
        change: &(dyn Fn(&mut Value) -> Result<bool, ApiError> + Send + Sync),
        create: impl FnOnce() -> Value,
    ) -> Result<(), ApiError> {
        let options = WriteOptions { manager: "koordlet".to_owned(), ..kubelet(&about.name) };
        if self.api.get(kind, "", &about.name).is_ok() {
            return self.api.edit(kind, ("", &about.name), part, &options, change).await.map(|_| ());
        }
        self.api.create(kind, "", create(), &options).await.map(|_| ())
    }

    /// Tells the user; a message that does not get through is not worth a retry.
    async fn warn(&self, warning: &Warning) {
        let Ok(kind) = self.api.kind("", "events") else { return };
        let now = self.api.now();
        let nanos = now.as_nanosecond().to_string();
        let suffix = hash(&[&warning.uid, &warning.reason, &warning.message, &nanos]);
        let time = meta::format_time(now);
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{suffix:016x}", warning.pod), "namespace": warning.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": warning.namespace,
                "name": warning.pod, "uid": warning.uid},
            "type": "Warning", "reason": warning.reason, "message": warning.message,
            "source": {"component": "kubelet", "host": &*warning.node},
            "reportingComponent": "kubelet", "reportingInstance": &*warning.node,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        });
        let options = kubelet(&warning.node);
        if let Err(error) = self.api.create(&kind, &warning.namespace, event, &options).await {
            tracing::debug!(pod = %warning.pod, %error, "cannot write an event");
        }
    }
}

impl About {
    fn identity(&self) -> Identity<'_> {
        let About { name, index, address, kubelet_port, .. } = self;
        Identity { name, index: *index, address: *address, kubelet_port: *kubelet_port }
    }
}

/// Kubelet's own name.
fn kubelet(node: &str) -> WriteOptions {
    let groups = vec!["system:nodes".to_owned(), "system:authenticated".to_owned()];
    let user = Arc::new(User { name: format!("system:node:{node}"), groups });
    WriteOptions { user, manager: "kubelet".to_owned(), ..WriteOptions::default() }
}

fn revision(written: &Written) -> u64 {
    match &written.answer {
        Answer::Stored(stored) => stored.revision(),
        Answer::Tree(_) => 0,
    }
}

/// A beat that failed is followed by the next one.
fn told<T>(what: &str, about: &About, result: Result<T, ApiError>) -> Done {
    if let Err(error) = result {
        tracing::warn!(node = %about.name, what, %error, "a simulated node cannot write");
    }
    Done::Nothing
}
