//! Starts everything that admission needs, in upstream's order. Spec: manager 1.3.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use koord_api::gate::Gates;
use koord_kit::events::Recorder;
use koord_kit::http::{TlsError, TlsFiles, serve};
use koord_kit::metrics::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::certificates::{TLS_CERT, TLS_KEY};
use super::facts::{Board, Facts};
use super::follow::{self, Sources};
use super::handler::Handler;
use super::keeper::Keeper;
use super::metrics::WebhookMetrics;
use super::paths::{MUTATE_POD, is_served};
use super::pod;
use super::readiness::Readiness;
use super::server::Desk;
use super::settings::Settings;

/// How long the first round of the keeper may take.
const FIRST_ROUND_MAX: Duration = Duration::from_secs(20);

/// What admission needs from the process.
pub struct Parts {
    pub client: kube::Client,
    pub settings: Settings,
    pub gates: Gates,
    pub sources: Sources,
    /// Of the other paths; those whose gate is off are left out here.
    pub handlers: Vec<(&'static str, Handler)>,
    /// Content of `/elasticQuota`.
    pub quotas: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    pub recorder: Recorder,
    /// Shown at `/internal-metrics`.
    pub metrics: Arc<Metrics>,
    /// Cancelled when this process is about to stop: clients are asked to go elsewhere.
    pub leaving: CancellationToken,
}

/// Why admission cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("webhook certificates and configurations were not in order within {} s", FIRST_ROUND_MAX.as_secs())]
    NotKept,
    #[error("cannot listen on port {port}")]
    Listen { port: u16, source: io::Error },
    #[error("the webhook server's certificate cannot be used")]
    Tls(#[source] TlsError),
}

/// Something that runs until it is stopped.
pub type Task = futures::future::BoxFuture<'static, ()>;

/// Starts the keeper, waits for its first round, and serves. `spawn` runs tasks until `stop` is cancelled.
pub async fn start(
    parts: Parts,
    stop: CancellationToken,
    spawn: impl Fn(Task),
) -> Result<Readiness, StartError> {
    let Parts { client, settings, gates, sources, handlers, quotas, recorder, metrics, leaving } = parts;
    let keeper = Keeper::new(client.clone(), settings.clone(), gates.clone(), Timestamp::now);
    let mut kept = keeper.ready();
    let readiness = Readiness::default();
    spawn(Box::pin(readiness.clone().run(
        settings.port,
        settings.cert_dir.clone(),
        kept.clone(),
        stop.clone(),
    )));
    let keeping = stop.clone();
    spawn(Box::pin(async move { keeper.run(keeping).await }));
    let board = Arc::new(Board::new(Facts::new(gates.clone(), &settings.namespace)));
    spawn(Box::pin(follow::follow(board.clone(), sources.clone(), recorder.clone(), stop.clone())));
    first_round(kept.wait_for(|is_ready| *is_ready), &stop).await?;
    tokio::select! {
        () = sources.first(&board) => {}
        () = stop.cancelled() => return Ok(readiness),
    }

    let served = |(path, _): &(&'static str, Handler)| is_served(path, &gates);
    let own = [(MUTATE_POD, Handler::now(pod::mutate))];
    let handlers: BTreeMap<_, _> = own.into_iter().chain(handlers).filter(served).collect();
    let desk = Desk {
        handlers,
        board,
        find_namespace: follow::find_namespace(client),
        complain: follow::complainer(sources.profiles, recorder),
        metrics: WebhookMetrics::new(&metrics),
        leaving,
    };
    let dir = &settings.cert_dir;
    let tls = TlsFiles::load(dir.join(TLS_CERT), dir.join(TLS_KEY)).map_err(StartError::Tls)?;
    let port = settings.port;
    let listener = listen(port).await.map_err(|source| StartError::Listen { port, source })?;
    tracing::info!(port, paths = ?desk.handlers.keys().collect::<Vec<_>>(), "webhook server listens");
    spawn(Box::pin(serve(listener, Arc::new(desk).router(quotas), Some(tls), stop)));
    Ok(readiness)
}

/// All addresses of both families, or of the one there is.
async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

/// A process that is asked to stop meanwhile has nothing to complain of: what follows ends at once.
async fn first_round<T>(kept: impl Future<Output = T>, stop: &CancellationToken) -> Result<(), StartError> {
    tokio::select! {
        result = tokio::time::timeout(FIRST_ROUND_MAX, kept) => result.map(drop).map_err(|_| StartError::NotKept),
        () = stop.cancelled() => Err(StartError::NotKept),
    }
}
