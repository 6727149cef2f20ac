//! The manager as a process of its own, and what it tells of itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::bench_process;
use crate::bench_sandbox::process::program;

/// Longer than any start takes.
const LIMIT: Duration = Duration::from_secs(180);
/// Between two looks at the manager's metrics.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// A running manager. Killed when dropped.
pub(super) struct Manager {
    child: Child,
    /// Its certificates and its log.
    dir: tempfile::TempDir,
    metrics: u16,
    webhook: u16,
    health: u16,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Manager {
    pub(super) fn start(kubeconfig: &Path, flags: &[&str]) -> Result<Manager> {
        let dir = tempfile::tempdir()?;
        let (metrics, webhook, health) = (free_port()?, free_port()?, free_port()?);
        let log = std::fs::File::create(dir.path().join("log"))?;
        let child = Command::new(program())
            .args(["manager", "--rest-config-qps=-1"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--metrics-addr=127.0.0.1:{metrics}"))
            .arg(format!("--health-probe-addr=127.0.0.1:{health}"))
            .args(flags)
            .env("WEBHOOK_HOST", "localhost")
            .env("WEBHOOK_PORT", webhook.to_string())
            .env("WEBHOOK_CERT_DIR", dir.path().join("certificates"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start koord manager")?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Manager { child, dir, metrics, webhook, health, client })
    }

    /// Returns once it says that it is ready.
    pub(super) async fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("koord manager ended with {status}: {}", self.log());
            }
            let port = self.health;
            match self.get(port, "/readyz").await {
                Ok((StatusCode::OK, _)) => return Ok(()),
                last if begun.elapsed() > LIMIT => {
                    bail!("koord manager is not ready: {last:?}: {}", self.log())
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let from = log.char_indices().rev().nth(2_000).map_or(0, |(at, _)| at);
        log[from..].to_owned()
    }

    /// Where reviews go.
    pub(super) fn webhook_port(&self) -> u16 {
        self.webhook
    }

    /// The authority of its certificate.
    pub(super) fn authority(&self) -> std::path::PathBuf {
        self.dir.path().join("certificates/ca-cert.pem")
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn cpu(&self) -> Result<Duration> {
        bench_process::cpu(self.pid())
    }

    /// Client, queues and controllers.
    pub(super) async fn metrics(&self) -> Result<Page> {
        self.page("/metrics").await
    }

    /// What was worked out and written. A long page: the manager works for it.
    pub(super) async fn internal_metrics(&self) -> Result<Page> {
        self.page("/internal-metrics").await
    }

    async fn page(&self, path: &str) -> Result<Page> {
        let (status, text) = self.get(self.metrics, path).await?;
        ensure!(status == StatusCode::OK, "{path}: {status}");
        Ok(Page(text))
    }

    async fn get(&self, port: u16, path: &str) -> Result<(StatusCode, String)> {
        let uri: Uri = format!("http://127.0.0.1:{port}{path}").parse()?;
        let response = self.client.request(Request::get(uri).body(Full::default())?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page of metrics.
pub(super) struct Page(String);

impl Page {
    /// The sum of a family's series that have all of these labels.
    pub(super) fn sum(&self, family: &str, labels: &[&str]) -> f64 {
        let series = self.0.lines().filter_map(|line| line.strip_prefix(family));
        let series = series.filter(|rest| rest.starts_with(['{', ' ']));
        let series = series.filter(|rest| labels.iter().all(|label| rest.contains(label)));
        series.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

/// A port that nobody listens on, most likely for a while.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_labels() {
        let page = Page(
            "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 4\nab{x=\"1\"} 100\nb 5\n".to_owned(),
        );
        assert_eq!(
            (page.sum("a", &["x=\"1\""]), page.sum("a", &["y=\"3\""]), page.sum("b", &[])),
            (7.0, 4.0, 5.0)
        );
        assert_eq!(page.sum("c", &[]), 0.0);
    }
}
