//! What people and machines may ask of a running scheduler, over HTTP. Spec: scheduler-core 8.2 and 9.8.
//!
//! The same pages on the plain port and on the secure one; the latter asks `access` first. `services` is Koordinator's
//! API below `/apis/v1/`, `debug` changes what is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, StatusCode, header};
use hyper::body::Incoming;
use koord_kit::http::{Answer, Health, Router, json, text, with_type};
use koord_kit::log::LogHandle;
use koord_kit::metrics::{Format, Metrics};
use serde_json::Value;

use crate::brain::View;
use crate::driver::Desk;
use crate::dump::Switches;
use crate::load::Load;
use crate::metrics::SchedulerMetrics;

pub mod access;
mod debug;
mod services;
pub mod trust;

/// Where this process stands.
#[derive(Debug, Default)]
pub struct Standing {
    leads: AtomicBool,
    is_listed: AtomicBool,
    is_stopping: AtomicBool,
}

impl Standing {
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Release);
    }

    /// Whether the engine knows everything that was there at the start.
    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    pub fn set_listed(&self) {
        self.is_listed.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub fn set_stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }
}

/// What the pages are made of.
#[derive(Clone)]
pub struct Pages {
    pub desk: Desk,
    pub standing: Arc<Standing>,
    pub health: Arc<Health>,
    pub registry: Arc<Metrics>,
    pub metrics: SchedulerMetrics,
    pub load: Arc<Load>,
    pub switches: Arc<Switches>,
    /// None where the logs are not ours to change.
    pub log: Option<LogHandle>,
    pub configz: Arc<Value>,
    pub with_profiling: bool,
}

impl Pages {
    /// All pages, without a guard.
    pub fn router(&self) -> Router {
        let mut router = Router::new(self.health.clone(), self.registry.clone());
        let pages = self.clone();
        router = router.page("/metrics", move |request| pages.clone().metrics(request));
        let pages = self.clone();
        router = router.page("/metrics/resources", move |request| pages.clone().resources(request));
        let pages = self.clone();
        router = router.page("/metrics/slis", move |request| {
            let page = only_read(&request).unwrap_or_else(|| pages.slis());
            async move { page }
        });
        let pages = self.clone();
        router = router.page("/configz", move |request| {
            let page = only_read(&request).unwrap_or_else(|| json(StatusCode::OK, &pages.configz));
            async move { page }
        });
        let pages = self.clone();
        router = router.page("/apis/v1/", move |request| services::answer(pages.clone(), request));
        if self.with_profiling {
            for path in ["/debug/flags", "/debug/flags/"] {
                let pages = self.clone();
                router = router.page(path, move |request| debug::answer(pages.clone(), request));
            }
        }
        router
    }

    async fn metrics(self, request: Request<Incoming>) -> Answer {
        if let Some(refusal) = only_read(&request) {
            return refusal;
        }
        // A scheduler that stops shows what it last knew.
        if let Ok(measured) = self.desk.measure().await {
            self.metrics.set_gauges(measured.gauges, self.load.writes(), measured.late);
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let format = Format::of_accept(accept);
        with_type(StatusCode::OK, format.content_type(), self.registry.render(format))
    }

    /// Requests and limits of all pods; a follower shows nothing, so that nothing is counted twice.
    async fn resources(self, request: Request<Incoming>) -> Answer {
        if let Some(refusal) = only_read(&request) {
            return refusal;
        }
        let mut page = String::new();
        if self.standing.leads()
            && let Ok(Some(Value::String(rows))) = self.desk.ask(View::Resources).await
        {
            page = rows;
        }
        with_type(StatusCode::OK, Format::Prometheus.content_type(), page)
    }

    /// Every health check as a number.
    fn slis(&self) -> Answer {
        let mut page = String::from("# TYPE kubernetes_healthcheck gauge\n");
        for kind in ["healthz", "livez", "readyz"] {
            let (_, lines) = self.health.answer(&format!("/{kind}"), "verbose");
            for line in lines.lines() {
                let (value, rest) = match (line.strip_prefix("[+]"), line.strip_prefix("[-]")) {
                    (Some(rest), _) => (1, rest),
                    (_, Some(rest)) => (0, rest),
                    _ => continue,
                };
                let name = rest.split(' ').next().unwrap_or_default();
                page.push_str(&format!(
                    "kubernetes_healthcheck{{name=\"{name}\",type=\"{kind}\"}} {value}\n"
                ));
            }
        }
        with_type(StatusCode::OK, Format::Prometheus.content_type(), page)
    }
}

/// A refusal for anything that is not a read.
fn only_read(request: &Request<Incoming>) -> Option<Answer> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let refusal = || {
        let path = request.uri().path();
        text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is read with GET\n"))
    };
    (!is_read).then(refusal)
}

#[cfg(test)]
mod tests;
