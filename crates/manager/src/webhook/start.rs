//! Starts everything that admission needs, in upstream's order. Spec: manager 1.3.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use koord_api::gate::Gates;
use koord_kit::events::Recorder;
use koord_kit::http::{TlsError, TlsFiles, serve};
use koord_kit::log::chain;
use koord_kit::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::certificates::{TLS_CERT, TLS_KEY};
use super::facts::{Board, Facts};
use super::follow::{self, Sources};
use super::given::Given;
use super::handler::Handler;
use super::keeper::Keeper;
use super::metrics::WebhookMetrics;
use super::paths::{MUTATE_POD, is_served};
use super::pod;
use super::readiness::{Readiness, Trust};
use super::server::Desk;
use super::settings::{Settings, Writer};

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

/// Admission as it came up.
#[derive(Clone)]
pub struct Served {
    /// Where the API server reaches it.
    pub port: u16,
    /// Whether it would get an answer there.
    pub readiness: Readiness,
}

/// Starts the keeper, waits for its first round, and serves. `spawn` runs tasks until `stop` is cancelled.
pub async fn start(
    parts: Parts,
    stop: CancellationToken,
    spawn: impl Fn(Task),
) -> Result<Served, StartError> {
    let Parts { client, mut settings, gates, sources, handlers, quotas, recorder, metrics, leaving } = parts;
    // The API server can be told of a port only once it is known. Whoever calls before the end of this function waits.
    let early = match settings.port {
        0 => Some(listen(&settings).await?),
        _ => None,
    };
    if let Some((_, port)) = early {
        settings.port = port;
    }
    let keeper = Keeper::new(client.clone(), settings.clone(), gates.clone(), Timestamp::now);
    let (mut kept, given) = (keeper.ready(), keeper.given());
    let served = Served { port: settings.port, readiness: Readiness::default() };
    spawn(Box::pin(served.readiness.clone().run(
        settings.port,
        match settings.writer {
            Writer::Given => Trust::Anybody,
            Writer::Secret | Writer::Files => Trust::Authority(settings.cert_dir.clone()),
        },
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
        () = stop.cancelled() => return Ok(served),
    }

    let is_on = |(path, _): &(&'static str, Handler)| is_served(path, &gates);
    let own = [(MUTATE_POD, Handler::now(pod::mutate))];
    let handlers: BTreeMap<_, _> = own.into_iter().chain(handlers).filter(is_on).collect();
    let desk = Desk {
        handlers,
        board,
        find_namespace: follow::find_namespace(client),
        complain: follow::complainer(sources.profiles, recorder),
        metrics: WebhookMetrics::new(&metrics),
        leaving,
    };
    let tls = match settings.writer {
        Writer::Given => {
            let (tls, following) = follow_given(given, stop.clone()).map_err(StartError::Tls)?;
            spawn(following);
            tls
        }
        Writer::Secret | Writer::Files => {
            let dir = &settings.cert_dir;
            TlsFiles::load(dir.join(TLS_CERT), dir.join(TLS_KEY)).map_err(StartError::Tls)?
        }
    };
    let (listener, port) = match early {
        Some(listening) => listening,
        None => listen(&settings).await?,
    };
    tracing::info!(port, paths = ?desk.handlers.keys().collect::<Vec<_>>(), "webhook server listens");
    spawn(Box::pin(serve(listener, Arc::new(desk).router(quotas), Some(tls), stop)));
    Ok(served)
}

/// What the keeper has taken over, and the task that serves what it takes over later. Not from the files themselves:
/// the API server has to hear of another authority first.
fn follow_given(
    mut given: watch::Receiver<Given>,
    stop: CancellationToken,
) -> Result<(TlsFiles, Task), TlsError> {
    let first = given.borrow_and_update().clone();
    let tls = TlsFiles::in_memory(&first.cert, &first.key)?;
    let served = tls.clone();
    let following = async move {
        loop {
            tokio::select! {
                changed = given.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            let next = given.borrow_and_update().clone();
            if let Err(error) = served.replace(&next.cert, &next.key) {
                tracing::error!(error = chain(&error), "certificates that were judged good cannot be served");
            }
        }
    };
    Ok((tls, Box::pin(following)))
}

/// Listens, and says on which port.
async fn listen(settings: &Settings) -> Result<(TcpListener, u16), StartError> {
    let failed = |source| StartError::Listen { port: settings.port, source };
    let listener = settings.listen().bind().await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

/// A process that is asked to stop meanwhile has nothing to complain of: what follows ends at once.
async fn first_round<T>(kept: impl Future<Output = T>, stop: &CancellationToken) -> Result<(), StartError> {
    tokio::select! {
        result = tokio::time::timeout(FIRST_ROUND_MAX, kept) => result.map(drop).map_err(|_| StartError::NotKept),
        () = stop.cancelled() => Err(StartError::NotKept),
    }
}
