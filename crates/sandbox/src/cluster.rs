//! A whole sandbox: API server, controllers and nodes, wired together and under one command.
//!
//! `Cluster` starts and stops the parts in order; `orders` are what its user may ask of it while it
//! runs. Nothing here knows of files or terminals.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use koord_api::crd::generate;
use tokio::sync::{Mutex, watch};

use crate::controllers::{self, Controllers};
use crate::dump::Dump;
use crate::nodes::lifecycle::Habits;
use crate::nodes::{self, Agents, Fleet, FleetError, Hosts, Pool};
use crate::server::kubelet::KubeletKeys;
use crate::server::tls::{Authority, TlsError};
use crate::server::{Api, RestoreError, Restored, Server, ServerConfig, ServerError, User, WriteOptions};
use crate::status::ApiError;
use crate::store::Limits;

mod orders;
mod wanted;

pub use wanted::Wanted;

/// What kind of sandbox to start.
pub struct Options {
    /// Port 0 chooses a free one.
    pub listen: SocketAddr,
    pub limits: Limits,
    /// Whether the kinds of Koord are there from the start.
    pub with_koord_kinds: bool,
    pub with_controllers: bool,
    /// A cluster to begin with.
    pub from: Option<Dump>,
    pub pools: Vec<Pool>,
    /// How many seconds pass for pods while one passes outside.
    pub speed: f64,
    /// Who may come with which bearer token.
    pub tokens: HashMap<String, User>,
    /// A folder for the files of nodes with a real koordlet; without it there can be none.
    pub hosts_dir: Option<PathBuf>,
    /// Who runs koordlets on such nodes; without it somebody else does.
    pub agents: Option<Arc<dyn Agents>>,
}

impl Default for Options {
    /// An empty cluster on a free port of this machine.
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            limits: Limits::default(),
            with_koord_kinds: true,
            with_controllers: true,
            from: None,
            pools: Vec::new(),
            speed: 1.0,
            tokens: HashMap::new(),
            hosts_dir: None,
            agents: None,
        }
    }
}

/// A part that has come up.
#[derive(Clone, Debug)]
pub enum Step {
    /// The address.
    Server(String),
    /// How many kinds of Koord.
    Kinds(usize),
    Restored(Restored),
    Controllers,
    /// How many nodes.
    Nodes(usize),
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot bring in the cluster to begin with")]
    Restore(#[from] RestoreError),
    #[error("cannot install {name}: {}", .error.message)]
    Definition { name: String, error: ApiError },
    #[error("cannot make nodes")]
    Nodes(#[from] FleetError),
}

/// A running sandbox.
pub struct Cluster {
    inner: Arc<Inner>,
    server: Server,
}

/// What orders reach.
struct Inner {
    api: Arc<Api>,
    address: OnceLock<String>,
    /// Where nodes with a real koordlet stand.
    hosts: OnceLock<Hosts>,
    started: Timestamp,
    with_koord_kinds: bool,
    with_controllers: bool,
    pools: Vec<Pool>,
    speed: f64,
    parts: Mutex<Parts>,
    stop: watch::Sender<bool>,
}

/// What lives on the API; gone while the sandbox is being reset.
#[derive(Default)]
struct Parts {
    controllers: Option<Controllers>,
    fleet: Option<Fleet>,
}

impl Cluster {
    /// Starts everything; `progress` hears of each part.
    pub async fn start(
        options: Options,
        progress: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Cluster, ClusterError> {
        let api = Api::new(options.limits);
        let inner = Arc::new(Inner {
            api: api.clone(),
            address: OnceLock::new(),
            hosts: OnceLock::new(),
            started: api.now(),
            with_koord_kinds: options.with_koord_kinds,
            with_controllers: options.with_controllers,
            pools: options.pools,
            speed: options.speed,
            parts: Mutex::new(Parts::default()),
            stop: watch::Sender::new(false),
        });
        let authority = Authority::generate()?;
        let keys = KubeletKeys::new(&authority, &options.tokens)?;
        let config = ServerConfig {
            listen: options.listen,
            authority,
            tokens: options.tokens,
            control: Some(inner.clone()),
        };
        let server = Server::start(api, config).await?;
        let address = format!("https://{}", server.address());
        let _ = inner.address.set(address.clone());
        progress(Step::Server(address));
        if let Some(dir) = options.hosts_dir.filter(|_| options.with_koord_kinds) {
            let kubeconfig = server.kubeconfig().to_owned();
            let _ = inner.hosts.set(Hosts { dir, keys, kubeconfig, agents: options.agents });
        }
        let mut parts = inner.parts.lock().await;
        inner.install_kinds(progress).await?;
        if let Some(dump) = &options.from {
            progress(Step::Restored(inner.api.restore(dump).await?));
        }
        *parts = inner.start_parts(progress).await?;
        drop(parts);
        Ok(Cluster { inner, server })
    }

    /// For clients in the same process.
    pub fn api(&self) -> &Arc<Api> {
        &self.inner.api
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// For kubectl and every other client.
    pub fn kubeconfig(&self) -> &str {
        self.server.kubeconfig()
    }

    /// Returns when somebody orders the sandbox to stop.
    pub async fn stop_ordered(&self) {
        let mut stop = self.inner.stop.subscribe();
        // The sender lives as long as `inner`.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Ends everything, in the reverse order of the start.
    pub async fn stop(self) {
        self.inner.parts.lock().await.stop().await;
        self.server.stop().await;
    }
}

impl Inner {
    async fn install_kinds(&self, progress: &mut (dyn FnMut(Step) + Send)) -> Result<(), ClusterError> {
        if !self.with_koord_kinds {
            return Ok(());
        }
        let definitions = self.api.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let failed = |name: &str| {
            let name = name.to_owned();
            move |error| ClusterError::Definition { name, error }
        };
        let kind = definitions.map_err(failed("CustomResourceDefinition"))?;
        let manifests = generate::manifests();
        for manifest in &manifests {
            let created = self
                .api
                .create(&kind, "", manifest.content.clone(), &WriteOptions::by("koord-sandbox"))
                .await;
            created.map_err(failed(&manifest.file_name))?;
        }
        progress(Step::Kinds(manifests.len()));
        Ok(())
    }

    async fn start_parts(&self, progress: &mut (dyn FnMut(Step) + Send)) -> Result<Parts, ClusterError> {
        let mut parts = Parts::default();
        if self.with_controllers {
            parts.controllers = Some(Controllers::start(self.api.clone(), controllers::Options::default()));
            progress(Step::Controllers);
        }
        // Nodes that a dump brought come to life as well.
        let habits = Habits { speed: self.speed, ..Habits::default() };
        let pools = self.pools.clone();
        let hosts = self.hosts.get().cloned();
        let options = nodes::Options { pools, habits, adopt: true, hosts, ..nodes::Options::default() };
        let fleet = Fleet::start(self.api.clone(), options)?;
        fleet.ready_with_agents().await?;
        let nodes = fleet.list().await?.len();
        parts.fleet = Some(fleet);
        progress(Step::Nodes(nodes));
        Ok(parts)
    }
}

impl Parts {
    async fn stop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            fleet.stop().await;
        }
        if let Some(controllers) = self.controllers.take() {
            controllers.stop().await;
        }
    }
}
