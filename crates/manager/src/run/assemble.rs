//! All parts wired together, started in order, and ended in order.
//!
//! On every replica: servers, caches, strategies, webhooks. On the leader: controllers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use koord_kit::client::{ClientError, ClientOptions};
use koord_kit::http::{Check, Health};
use koord_kit::leader::{self, Ended, LeaseLock, LostReason, Timing};
use koord_kit::metrics::{ClientMetrics, KitMetrics, Metrics};
use koord_kit::queue::QueueMetrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{client_options, servers, webhooks};
use crate::controllers::{self, Ground, Lead, Memories};
use crate::explain::Explainer;
use crate::flags::Options;
use crate::metrics::ManagerMetrics;
use crate::strategies;
use crate::webhook::Served;
use crate::world::{Scope, Workers, World};

/// The lease that all replicas compete for.
const LEASE: &str = "koordinator-manager";

/// What is on its way when the lease is lost gets so long to end by itself.
const LOST_GRACE: Duration = Duration::from_secs(2);

/// What a manager is started with.
pub struct Setup {
    pub options: Options,
    pub cluster: kube::Config,
}

/// Why a manager did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Listen(#[from] servers::ListenError),
    #[error(transparent)]
    Webhook(#[from] crate::webhook::StartError),
}

/// How a manager ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to.
    Stopped,
    LostLease(LostReason),
}

/// A running manager.
pub struct Running {
    pub metrics: Option<SocketAddr>,
    pub health: Option<SocketAddr>,
    /// None where the webhooks are off.
    pub admission: Option<Served>,
    leads: Arc<AtomicBool>,
    leaving: CancellationToken,
    task: JoinHandle<Ending>,
}

impl Running {
    /// Cancelled to tell everyone that the end is near: `/readyz` says no, and webhook clients are asked to go elsewhere.
    pub fn leaving(&self) -> CancellationToken {
        self.leaving.clone()
    }

    /// Whether the controllers of this process work.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Waits for the end.
    pub async fn ended(self) -> Ending {
        // A task that was aborted or panicked has not been asked to stop, but there is no better word for it.
        self.task.await.unwrap_or(Ending::Stopped)
    }
}

/// Starts a manager; it ends when `stop` is cancelled or its lease is lost.
pub async fn start(setup: Setup, stop: CancellationToken) -> Result<Running, StartError> {
    let Setup { options, cluster } = setup;
    let options = Arc::new(options);
    let (process, internal) = (Arc::new(Metrics::new()), Arc::new(Metrics::bare()));
    let kit_metrics = KitMetrics::new(&process);
    let mut client_options = client_options(&options);
    client_options.metrics = Some(ClientMetrics::new(&process));
    let lease = lease_lock(&options, &cluster, &client_options, &kit_metrics)?;
    let client = koord_kit::client::client(cluster, &client_options)?;
    let scope = Scope {
        config_namespace: options.config_namespace.clone(),
        config_name: options.config_name.clone(),
        namespace: options.namespace.clone(),
    };
    let (world, workers) = World::new(&client, &scope, &kit_metrics);
    let (strategies, source) = strategies::strategies();
    let ground = Ground {
        client,
        world,
        strategies,
        metrics: ManagerMetrics::new(&process, &internal),
        queue_metrics: QueueMetrics::new(&process),
        kit_metrics,
        internal: internal.clone(),
        memories: Memories::default(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        options,
    };
    let health = Arc::new(Health::default());
    let leaving = stop.child_token();
    add_checks(&health, &ground, &leaving);
    let leads = Arc::new(AtomicBool::new(false));
    let explainer = Explainer::new(&ground, &leads);
    let pages = servers::Pages { health: health.clone(), process, internal, explainer };
    let bound = servers::start(&ground.options, &pages, &ground.stop, &ground.tasks).await?;
    start_caches(&ground, workers, source);
    let admission = webhooks::start(&ground, &health, &leaving).await?;
    let life = Life { ground, stop, leads: leads.clone() };
    let task = tokio::spawn(life.live(lease));
    Ok(Running { metrics: bound.metrics, health: bound.health, admission, leads, leaving, task })
}

fn start_caches(ground: &Ground, workers: Workers, source: strategies::Source) {
    workers.start(&ground.tasks, &ground.stop);
    ground.tasks.spawn(source.follow(ground.world.config.clone(), ground.stop.clone()));
}

/// The lease, asked for through a client of its own that gives up in time.
fn lease_lock(
    options: &Options,
    cluster: &kube::Config,
    client: &ClientOptions,
    metrics: &KitMetrics,
) -> Result<Option<LeaseLock>, StartError> {
    let Some(election) = &options.election else { return Ok(None) };
    let timing = Timing::DEFAULT;
    let client = client.for_leader_election(timing.renew_deadline());
    Ok(Some(LeaseLock {
        client: koord_kit::client::client(cluster.clone(), &client)?,
        namespace: election.namespace.clone().unwrap_or_else(|| cluster.default_namespace.clone()),
        name: LEASE.to_owned(),
        identity: leader::identity(),
        timing,
        metrics: metrics.clone(),
    }))
}

fn add_checks(health: &Health, ground: &Ground, leaving: &CancellationToken) {
    let world = ground.world.clone();
    health.add(Check::ready("caches", move || world.check()));
    let leaving = leaving.clone();
    health.add(Check::ready("shutdown", move || match leaving.is_cancelled() {
        true => Err("process is shutting down".to_owned()),
        false => Ok(()),
    }));
}

/// The course of a manager's life.
struct Life {
    ground: Ground,
    stop: CancellationToken,
    leads: Arc<AtomicBool>,
}

impl Life {
    async fn live(self, lease: Option<LeaseLock>) -> Ending {
        let ending = match lease {
            None => {
                self.work(Lead::Alone, &self.stop).await;
                Ending::Stopped
            }
            Some(lock) => {
                let work = async |leadership: leader::Leadership| {
                    let token = leadership.token();
                    self.work(Lead::Elected(leadership), &token).await;
                };
                match leader::run(&lock, &self.stop, work).await {
                    Ended::NeverLed | Ended::Finished(()) => Ending::Stopped,
                    Ended::Lost(reason) => Ending::LostLease(reason),
                }
            }
        };
        self.ground.stop.cancel();
        self.ground.tasks.close();
        match &ending {
            Ending::Stopped => self.ground.tasks.wait().await,
            // Whoever lost the lease leaves soon, so that the process that comes after it can take part.
            Ending::LostLease(_) => {
                let _ = tokio::time::timeout(LOST_GRACE, self.ground.tasks.wait()).await;
            }
        }
        ending
    }

    /// Runs the controllers until `stop` is cancelled, and lets each finish its turn.
    async fn work(&self, lead: Lead, stop: &CancellationToken) {
        tokio::select! {
            () = self.ground.world.synced() => {}
            () = stop.cancelled() => return,
        }
        self.ground.metrics.is_leader.set(1);
        self.leads.store(true, Ordering::Release);
        let crew = TaskTracker::new();
        controllers::start(&self.ground, &lead, &crew, stop);
        stop.cancelled().await;
        crew.close();
        crew.wait().await;
        self.leads.store(false, Ordering::Release);
        self.ground.metrics.is_leader.set(0);
    }
}
