//! An open load: requests leave when they are due, however long earlier ones take.
//!
//! A latency counts from the moment a request was due, so a slow answer that delays others is paid for by all of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bench_sandbox::client::float;

/// How the API server talks to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// To a URL: one connection for all requests.
    Http2,
    /// To a Service: it insists on HTTP/1.1 there, so that connections spread over replicas.
    Http1,
}

/// A client for one server.
#[derive(Clone)]
pub(super) struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    port: u16,
}

impl Caller {
    pub(super) async fn new(authority: &Path, port: u16, protocol: Protocol) -> Result<Caller> {
        let named = |kind: &str, value: serde_json::Value| json!([{"name": "webhook", kind: value}]);
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "clusters": named("cluster", json!({"server": format!("https://localhost:{port}"), "certificate-authority": authority})),
            "users": named("user", json!({})),
            "contexts": named("context", json!({"cluster": "webhook", "user": "webhook"})),
            "current-context": "webhook",
        }))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = match protocol {
            Protocol::Http2 => vec![b"h2".to_vec()],
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
        };
        let https = HttpsConnector::from((connector, tls));
        let client =
            Client::builder(TokioExecutor::new()).http2_only(protocol == Protocol::Http2).build(https);
        Ok(Caller { client, port })
    }

    /// Posts a body; the answer must be a good one.
    pub(super) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes> {
        let uri: Uri = format!("https://localhost:{}{path}", self.port).parse()?;
        let request = Request::post(uri).header("content-type", "application/json").body(Full::new(body))?;
        let response = self.client.request(request).await.context("no answer")?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

/// What to send, over and over.
pub(super) struct Load {
    pub(super) path: &'static str,
    pub(super) bodies: Vec<Bytes>,
    pub(super) per_second: f64,
}

/// Times of the answers.
#[derive(Default)]
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(super) fn extend(&mut self, more: Latencies) {
        self.0.extend(more.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// By thousandths: 990 is p99.
    pub(super) fn percentiles<const N: usize>(&mut self, wanted: [usize; N]) -> [Duration; N] {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        wanted.map(|part| self.0.get((self.0.len() * part / 1000).min(last)).copied().unwrap_or_default())
    }
}

impl Load {
    /// Sends for a while, as strangers do: each by himself, so that some come together.
    pub(super) async fn run(&self, caller: &Caller, time: Duration, seed: u64) -> Result<Latencies> {
        let (due, mut next) = mpsc::unbounded_channel();
        let times = arrivals(self.per_second, time, seed);
        let expected = times.len();
        let pacer = std::thread::spawn(move || pace(&times, &due));
        let (mut tasks, mut sent) = (JoinSet::new(), 0);
        while let Some(at) = next.recv().await {
            let at: Instant = at;
            let (caller, path) = (caller.clone(), self.path);
            let body = self.bodies[sent % self.bodies.len()].clone();
            sent += 1;
            tasks.spawn(async move { caller.post(path, body).await.map(|_| at.elapsed()) });
        }
        let mut all = Latencies(Vec::with_capacity(expected));
        while let Some(answered) = tasks.join_next().await {
            all.0.push(answered??);
        }
        ensure!(
            pacer.join().is_ok() && all.count() == expected,
            "{} of {expected} were answered",
            all.count()
        );
        Ok(all)
    }
}

/// Hands out each moment when it has come. A thread of its own, for timers of the runtime tick in milliseconds.
fn pace(times: &[Duration], due: &mpsc::UnboundedSender<Instant>) {
    let begun = Instant::now();
    for at in times {
        let at = begun + *at;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if due.send(at).is_err() {
            return;
        }
    }
}

/// Moments at which strangers come: the waits between them are exponential.
fn arrivals(per_second: f64, time: Duration, seed: u64) -> Vec<Duration> {
    let mut chance = Chance(seed);
    let (mut at, mut all) = (Duration::ZERO, Vec::new());
    loop {
        at += Duration::from_secs_f64(-(1.0 - chance.unit()).ln() / per_second);
        if at >= time {
            return all;
        }
        all.push(at);
    }
}

/// Numbers that look like chance and are the same in every run.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// From 0 up to, not including, 1.
    pub(super) fn unit(&mut self) -> f64 {
        // Splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let top = u32::try_from(bits >> 32).unwrap_or_default();
        f64::from(top) / (f64::from(u32::MAX) + 1.0)
    }

    /// From -1 to 1.
    pub(super) fn around_zero(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }
}

/// Time for each of so many.
pub(super) fn each(time: Duration, count: usize) -> f64 {
    1e6 * time.as_secs_f64() / float(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate() {
        let times = arrivals(2_000.0, Duration::from_secs(5), 7);
        assert!((9_500..10_500).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && times.last().is_some_and(|last| *last < Duration::from_secs(5)));
    }

    #[test]
    fn percentiles_are_those_of_sorted_times() {
        let mut all = Latencies((1..=1000).rev().map(Duration::from_millis).collect());
        let [p50, p99, most] = all.percentiles([500, 990, 1000]);
        assert_eq!([p50, p99, most].map(|time| time.as_millis()), [501, 991, 1000]);
        assert_eq!(Latencies::default().percentiles([990]), [Duration::ZERO]);
    }
}
