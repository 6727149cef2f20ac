//! A steady stream of admissions, of which none may fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::place::{Place, eventually};
use crate::webhooks::pod;

/// Requests under way at once.
const WIDTH: usize = 3;
/// More are not worth reading.
const FAILURES_SHOWN: usize = 5;

pub(crate) struct Stream {
    seen: Arc<Seen>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    admitted: AtomicUsize,
    failures: Mutex<Vec<String>>,
    /// Held for reading by each request, for writing by whoever wants none to be under way.
    pause: RwLock<()>,
}

impl Stream {
    /// Pods that a profile selects, created in dry runs one after the other until the end.
    pub(crate) fn start(place: &Place) -> Stream {
        let (seen, stop) = (Arc::<Seen>::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        for _ in 0..WIDTH {
            tasks.spawn(flow(place.client.clone(), seen.clone(), stop.clone()));
        }
        Stream { seen, stop, tasks }
    }

    /// Waits until so many more have been admitted.
    pub(crate) async fn goes_on(&self, more: usize) -> Result<()> {
        let before = self.seen.admitted.load(Ordering::Relaxed);
        eventually(&format!("{more} more admissions"), async || {
            let now = self.seen.admitted.load(Ordering::Relaxed);
            self.check()?;
            Ok((now >= before + more).then_some(()))
        })
        .await
    }

    /// Makes the API server connect anew, without a request being lost by that.
    pub(crate) async fn reconnect(&self, place: &Place) -> Result<()> {
        let _none_under_way = self.seen.pause.write().await;
        place.balancer.cut().await
    }

    fn check(&self) -> Result<()> {
        let failures = self.seen.failures.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(failures.is_empty(), "{} admissions failed: {failures:#?}", failures.len());
        Ok(())
    }

    /// How many were admitted; none may have failed.
    pub(crate) async fn end(mut self) -> Result<usize> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        self.check()?;
        Ok(self.seen.admitted.load(Ordering::Relaxed))
    }
}

async fn flow(client: Client, seen: Arc<Seen>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let _under_way = seen.pause.read().await;
        let body = pod("streamed", "job").to_string().into_bytes();
        let request = http::Request::post("/api/v1/namespaces/jobs/pods?dryRun=All")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body);
        let Ok(request) = request else { return };
        let fault = match client.request::<Value>(request).await {
            Ok(made) if made["metadata"]["labels"]["touched"] == "yes" => None,
            Ok(made) => Some(format!("admitted as it was: {}", made["metadata"])),
            Err(error) => Some(error.to_string()),
        };
        match fault {
            None => _ = seen.admitted.fetch_add(1, Ordering::Relaxed),
            Some(fault) => {
                let mut failures = seen.failures.lock().unwrap_or_else(PoisonError::into_inner);
                if failures.len() < FAILURES_SHOWN {
                    failures.push(fault);
                }
            }
        }
    }
}
