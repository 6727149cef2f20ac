//! The plain HTTP servers: metrics and explanations, and health. Spec: manager 24.1.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use koord_kit::http::{Answer, Health, Listen, Router, serve, with_type};
use koord_kit::metrics::{Format, Metrics};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::explain::{self, Explainer};
use crate::flags::Options;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    address: Listen,
    source: std::io::Error,
}

/// What the servers show.
#[derive(Clone)]
pub(super) struct Pages {
    pub(super) health: Arc<Health>,
    /// Of the process: client, caches, queues, controllers.
    pub(super) process: Arc<Metrics>,
    /// The manager's own.
    pub(super) internal: Arc<Metrics>,
    pub(super) explainer: Explainer,
}

impl Pages {
    /// `/metrics` is the process's page, as upstream's is controller-runtime's.
    fn metrics_router(&self) -> Router {
        let (all, internal, explainer) = (self.clone(), self.internal.clone(), self.explainer.clone());
        Router::new(self.health.clone(), self.process.clone())
            .page("/all-metrics", move |_| {
                let page = all.internal.render(Format::Prometheus) + &all.process.render(Format::Prometheus);
                std::future::ready(with_type(StatusCode::OK, Format::Prometheus.content_type(), page))
            })
            .page("/internal-metrics", move |request| std::future::ready(metrics_page(&request, &internal)))
            .page(explain::ROOT, move |request| explain::answer(explainer.clone(), request))
            // Third parties would register here; nobody does.
            .page("/external-metrics", |request| std::future::ready(metrics_page(&request, &Metrics::bare())))
    }

    fn health_router(&self) -> Router {
        Router::new(self.health.clone(), self.process.clone())
    }
}

fn metrics_page(request: &Request<Incoming>, metrics: &Metrics) -> Answer {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::of_accept(accept);
    with_type(StatusCode::OK, format.content_type(), metrics.render(format))
}

/// Where they came to listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) metrics: Option<SocketAddr>,
    pub(super) health: Option<SocketAddr>,
}

pub(super) async fn start(
    options: &Options,
    pages: &Pages,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<Bound, ListenError> {
    let serve_at = async |address: Option<Listen>, router: Router| {
        let Some(address) = address else { return Ok(None) };
        let failed = |source| ListenError { address, source };
        let listener = address.bind().await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        tasks.spawn(serve(listener, router, None, stop.clone()));
        Ok(Some(bound))
    };
    let bound = Bound {
        metrics: serve_at(options.metrics, pages.metrics_router()).await?,
        health: serve_at(options.health, pages.health_router()).await?,
    };
    tracing::info!(metrics = ?bound.metrics, health = ?bound.health, "serving");
    Ok(bound)
}
