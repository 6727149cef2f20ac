//! koord-manager as a process that can be stopped and killed.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::place::{HOME, Place, eventually};

/// Everything that can be switched on.
const GATES: &str = "--feature-gates=NodeMutatingWebhook=true,NodeValidatingWebhook=true,\
    ConfigMapValidatingWebhook=true,ReservationMutatingWebhook=true";

pub(crate) struct Replica {
    pub(crate) name: String,
    /// Where its certificates lie.
    pub(crate) certificates: PathBuf,
    child: Child,
    webhook: u16,
    health: u16,
    metrics: u16,
}

impl Replica {
    /// Starts it and waits until it answers the API server.
    pub(crate) async fn start(place: &Place, name: &str) -> Result<Replica> {
        Replica::start_with(place, name, &[]).await
    }

    /// The same with more in its environment.
    pub(crate) async fn start_with(place: &Place, name: &str, more: &[(&str, &str)]) -> Result<Replica> {
        let mut replica = Replica::launch_with(place, name, more)?;
        replica.ready(place).await?;
        Ok(replica)
    }

    /// Starts it, and that is all.
    pub(crate) fn launch(place: &Place, name: &str) -> Result<Replica> {
        Replica::launch_with(place, name, &[])
    }

    /// Where the certificates of a replica lie.
    pub(crate) fn certificates_of(place: &Place, name: &str) -> PathBuf {
        place.dir.join(format!("{name}-certificates"))
    }

    fn launch_with(place: &Place, name: &str, more: &[(&str, &str)]) -> Result<Replica> {
        let (webhook, health, metrics) =
            (koord_testkit::free_port()?, koord_testkit::free_port()?, koord_testkit::free_port()?);
        let certificates = Replica::certificates_of(place, name);
        let log = File::options().create(true).append(true).open(place.dir.join(format!("{name}.log")))?;
        let child = place
            .cluster
            .command(env!("CARGO_BIN_EXE_manager"))
            .arg(format!("--kubeconfig={}", place.manager.display()))
            .arg(format!("--health-probe-addr=127.0.0.1:{health}"))
            .arg(format!("--metrics-addr=127.0.0.1:{metrics}"))
            .args(["--rest-config-qps=500", "--rest-config-burst=1000", GATES])
            .env("POD_NAMESPACE", HOME)
            .env("WEBHOOK_PORT", webhook.to_string())
            .env("WEBHOOK_CERT_DIR", &certificates)
            .envs(more.iter().copied())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Replica { name: name.to_owned(), certificates, child, webhook, health, metrics })
    }

    /// Waits until `/readyz` is green; then connections come to it.
    pub(crate) async fn ready(&mut self, place: &Place) -> Result<()> {
        eventually("it is ready", async || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}", self.name);
            }
            let page = page(self.health, "/readyz").await;
            Ok(page.is_ok_and(|page| page.starts_with("HTTP/1.1 200")).then_some(()))
        })
        .await?;
        place.balancer.add(self.webhook);
        Ok(())
    }

    /// Whether its controllers work.
    pub(crate) async fn leads(&self) -> Result<bool> {
        let page = page(self.metrics, "/all-metrics").await?;
        Ok(page.lines().any(|line| line == "koordinator_manager_is_leader 1"))
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(mut self, place: &Place) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        place.balancer.remove(self.webhook);
        Ok(())
    }

    /// Asks it to stop, as the kubelet does, and waits until it has.
    pub(crate) async fn stop(mut self, place: &Place) -> Result<()> {
        place.balancer.remove(self.webhook);
        let pid = self.child.id().to_string();
        ensure!(
            Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status()?.success(),
            "kill {pid}"
        );
        let status =
            eventually(&format!("{} has stopped", self.name), async || Ok(self.child.try_wait()?)).await?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

/// Two replicas in the order of leader and follower.
pub(crate) async fn by_rank(replicas: [Replica; 2]) -> Result<[Replica; 2]> {
    let leads_first = eventually("one of two leads", async || {
        let (first, second) = (replicas[0].leads().await?, replicas[1].leads().await?);
        ensure!(!(first && second), "both lead");
        Ok((first || second).then_some(first))
    })
    .await?;
    let [first, second] = replicas;
    Ok(if leads_first { [first, second] } else { [second, first] })
}

async fn page(port: u16, path: &str) -> Result<String> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.context("an answer")?;
    Ok(text)
}
