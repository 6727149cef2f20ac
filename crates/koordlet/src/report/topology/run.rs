//! The loop of the topology report: every few seconds, and nothing is sent when nothing changed.
//!
//! Spec: koordlet-observe 8.1.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_kit::cache::Cache;
use koord_kit::write::{Part, Place, update_with};
use koord_linux::root::Root;
use kube::api::{Api, PostParams};
use tokio_util::sync::CancellationToken;

use super::kubelet::KubeletConfig;
use super::{ComputeError, Computed, Sources, compute};
use crate::decide::snapshot::Layout;
use crate::state::kubelet::{Kubelet, KubeletError};
use crate::state::{Hardware, NodeState, PodState, State};

/// Rounds from one look at kubelet's configuration to the next; it changes only when kubelet starts anew.
const ROUNDS_PER_QUERY: u32 = 10;
/// Rounds without any answer after which the report goes on without kubelet's configuration.
const ROUNDS_PATIENT: u32 = 10;

/// What the loop is told at start.
#[derive(Clone, Debug)]
pub struct Options {
    pub interval: Duration,
    /// Gate HugePageReport.
    pub reports_huge_pages: bool,
    /// Whether the kubelet is asked for its configuration.
    pub queries_kubelet: bool,
    pub root: Root,
}

/// Where the object is. None with the gate NodeTopologyReport off.
pub struct Remote {
    pub client: kube::Client,
    /// Of this node alone.
    pub objects: Cache<NodeResourceTopology>,
}

/// Why a round came to nothing.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("the topology of the node cannot be told")]
    Compute(#[from] ComputeError),
    #[error("cannot read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("the CPUs of the node cannot be read")]
    Hardware(#[from] koord_linux::error::Error),
    #[error("kubelet's configuration is not known")]
    Kubelet(#[from] KubeletError),
    #[error("cannot create NodeResourceTopology {name}")]
    Create { name: String, source: kube::Error },
    #[error(transparent)]
    Write(#[from] koord_kit::write::WriteError),
}

/// The report and what it remembers.
pub struct Reporter {
    state: State,
    kubelet: Kubelet,
    remote: Option<Remote>,
    options: Options,
    config: Config,
    last: Option<Last>,
    /// Faults that repeat are told once.
    fault: Option<String>,
    warnings: Vec<String>,
}

/// The last round: what it was made from, and what came of it.
struct Last {
    node: Arc<NodeState>,
    hardware: Arc<Hardware>,
    pods: Arc<[Arc<PodState>]>,
    cpu_manager: Option<String>,
    computed: Computed,
    /// The object that said all of it already.
    object: Option<Arc<NodeResourceTopology>>,
}

/// kubelet's configuration as last heard.
#[derive(Default)]
struct Config {
    known: Option<KubeletConfig>,
    /// Since the last question.
    rounds: u32,
    failures: u32,
}

impl Reporter {
    pub fn new(state: State, kubelet: Kubelet, remote: Option<Remote>, options: Options) -> Reporter {
        Reporter {
            state,
            kubelet,
            remote,
            options,
            config: Config::default(),
            last: None,
            fault: None,
            warnings: Vec::new(),
        }
    }

    /// Reports until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = self.round() => result,
            };
            self.tell(result.err());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.options.interval) => {}
            }
        }
    }

    fn tell(&mut self, error: Option<RoundError>) {
        let fault = error.map(|error| koord_kit::log::chain(&error));
        if self.fault != fault {
            match &fault {
                Some(error) => tracing::warn!(error, "topology was not reported"),
                None => tracing::info!("topology is reported again"),
            }
            self.fault = fault;
        }
    }

    async fn round(&mut self) -> Result<(), RoundError> {
        self.look_at_hardware()?;
        let snapshot = self.state.load();
        let (Some(node), Some(hardware)) = (&snapshot.node, &snapshot.hardware) else { return Ok(()) };
        if !snapshot.synced.pods {
            return Ok(());
        }
        self.query_kubelet().await?;
        let cpu_manager = self.cpu_manager().inspect_err(|_| self.tried())?;
        let last = self.last.take().filter(|last| last.is_of(node, hardware, &snapshot.pods, &cpu_manager));
        let mut last = match last {
            Some(last) => last,
            None => self.compute(node, hardware, &snapshot.pods, cpu_manager)?,
        };
        let result = self.write(&mut last).await;
        self.last = Some(last);
        result
    }

    /// Works everything out, and tells the node itself.
    fn compute(
        &mut self,
        node: &Arc<NodeState>,
        hardware: &Arc<Hardware>,
        pods: &Arc<[Arc<PodState>]>,
        cpu_manager: Option<String>,
    ) -> Result<Last, RoundError> {
        let computed = compute(Sources {
            node,
            hardware,
            pods,
            kubelet: self.config.known.as_ref(),
            cpu_manager: cpu_manager.as_deref(),
            reports_huge_pages: self.options.reports_huge_pages,
        })
        .inspect_err(|error| {
            if let ComputeError::NumaNodes { layout, .. } = error {
                self.publish(layout);
            }
            self.tried();
        })?;
        if self.warnings != computed.warnings {
            self.warnings.clone_from(&computed.warnings);
            computed.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        self.publish(&computed.layout);
        let (node, hardware, pods) = (node.clone(), hardware.clone(), pods.clone());
        Ok(Last { node, hardware, pods, cpu_manager, computed, object: None })
    }

    /// The first look. Whoever collects looks again and publishes what it finds.
    fn look_at_hardware(&self) -> Result<(), RoundError> {
        if self.state.load().hardware.is_none() {
            let hardware = Arc::new(Hardware::read(&self.options.root)?);
            self.state.update(|snapshot| snapshot.hardware = Some(hardware));
        }
        Ok(())
    }

    /// Asks now and then; keeps what was heard last.
    async fn query_kubelet(&mut self) -> Result<(), RoundError> {
        if !self.options.queries_kubelet {
            return Ok(());
        }
        self.config.rounds += 1;
        if self.config.known.is_some() && self.config.rounds < ROUNDS_PER_QUERY {
            return Ok(());
        }
        self.config.rounds = 0;
        match self.kubelet.config().await {
            Ok(config) => {
                if self.config.known.as_ref() != Some(&config) {
                    self.last = None;
                    self.config.known = Some(config);
                }
                self.config.failures = 0;
                Ok(())
            }
            Err(error) => {
                self.config.failures = self.config.failures.saturating_add(1);
                // Differs: upstream reports nothing while kubelet does not answer.
                if self.config.known.is_some() || self.config.failures > ROUNDS_PATIENT {
                    tracing::debug!(
                        error = koord_kit::log::chain(&error),
                        "kubelet did not tell its configuration"
                    );
                    return Ok(());
                }
                Err(error.into())
            }
        }
    }

    /// The text of kubelet's file, when kubelet pins pods.
    fn cpu_manager(&self) -> Result<Option<String>, RoundError> {
        if self.config.known.as_ref().is_none_or(|config| config.cpu_manager_policy != "static") {
            return Ok(None);
        }
        let path = self.options.root.kubelet.join("cpu_manager_state");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RoundError::File { path, source }),
        }
    }

    /// Nobody needs to wait for the layout any longer, though there may be none: a faulty annotation of the Node stops the
    /// report, not the agent.
    fn tried(&self) {
        if !self.state.load().synced.layout {
            self.state.update(|snapshot| snapshot.synced.layout = true);
        }
    }

    /// What decisions read; told only when it changed.
    fn publish(&self, layout: &Layout) {
        if self.state.load().layout.as_deref() == Some(layout) {
            return;
        }
        let layout = Arc::new(layout.clone());
        self.state.update(|snapshot| {
            snapshot.layout = Some(layout);
            snapshot.editions.layout += 1;
        });
    }

    async fn write(&self, last: &mut Last) -> Result<(), RoundError> {
        let computed = &last.computed;
        let Some(remote) = self.remote.as_ref().filter(|remote| remote.objects.is_synced()) else {
            return Ok(());
        };
        let node = &last.node;
        let Some(object) = remote.objects.get("", &node.name) else {
            return create(remote, computed.new_object(node)).await;
        };
        if last.object.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &object)) {
            return Ok(());
        }
        let Some(reason) = computed.difference(&object) else {
            last.object = Some(object);
            return Ok(());
        };
        let place = Place { namespace: None, name: &node.name };
        update_with::<NodeResourceTopology>(&remote.client, place, Part::Object, |object| {
            computed.apply(object)
        })
        .await?;
        tracing::info!(node = node.name, reason, "topology reported");
        Ok(())
    }
}

impl Last {
    fn is_of(
        &self,
        node: &Arc<NodeState>,
        hardware: &Arc<Hardware>,
        pods: &[Arc<PodState>],
        cpu_manager: &Option<String>,
    ) -> bool {
        Arc::ptr_eq(&self.node, node)
            && Arc::ptr_eq(&self.hardware, hardware)
            && PodState::are_same(&self.pods, pods)
            && self.cpu_manager == *cpu_manager
    }
}

async fn create(remote: &Remote, object: NodeResourceTopology) -> Result<(), RoundError> {
    let api: Api<NodeResourceTopology> = Api::all(remote.client.clone());
    let name = object.metadata.name.clone().unwrap_or_default();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => tracing::info!(node = name, "topology reported for the first time"),
        // The cache lags behind; the next round sees it.
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => {}
        Err(source) => return Err(RoundError::Create { name, source }),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
