//! Our scheduler, in the test's own process.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use koord_scheduler::config;
use koord_scheduler::flags::{self, Listen, Request};
use koord_scheduler::run::{self, Ending, Running, Setup};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::cluster::{LIMIT, Place, eventually};

/// A running scheduler.
pub(crate) struct Ours {
    running: Running,
    stop: CancellationToken,
    runtime: Own,
}

/// Its own runtime, so that a crash ends all of it at once. Ended in the background, for tests are async.
struct Own(Option<tokio::runtime::Runtime>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Ours {
    /// Schedules pods that ask for `name`, while it holds `lease`: for so long that no busy machine loses it. Who is
    /// to take over from one that crashed needs [`Place::end_lease`].
    pub(crate) async fn start(place: &Place, name: &str, lease: &str) -> Result<Ours> {
        Ours::start_with(place, name, lease, "{}", &[]).await
    }

    /// The same with more plugins, as configuration files write them, and with more flags.
    pub(crate) async fn start_with(
        place: &Place,
        name: &str,
        lease: &str,
        plugins: &str,
        more: &[String],
    ) -> Result<Ours> {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             leaderElection: {{leaderElect: true, leaseDuration: 60s, renewDeadline: 45s, retryPeriod: 500ms, \
             resourceName: {lease}, resourceNamespace: kube-system}}\n\
             clientConnection: {{qps: -1}}\nprofiles: [{{schedulerName: {name}, plugins: {plugins}}}]\n"
        );
        let words =
            ["--port=0".to_owned(), "--secure-port=0".to_owned()].into_iter().chain(more.iter().cloned());
        let Request::Run(mut options) = flags::parse(words)? else { bail!("flags") };
        options.plain = Some(Listen { address: [127, 0, 0, 1].into(), port: 0 });
        let config = config::parse(Path::new("test"), &text, &options.overrides, &options.gates)?;
        let stop = CancellationToken::new();
        let setup = Setup { options: *options, config, cluster: place.config.clone(), log: None };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let started = runtime.spawn(run::start(setup, stop.clone())).await?;
        Ok(Ours { running: started?, stop, runtime: Own(Some(runtime)) })
    }

    pub(crate) async fn leads(&self) -> Result<()> {
        eventually("it leads", async || Ok(self.running.leads().then_some(()))).await
    }

    /// Ends it well.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.running.ended().await, Ending::Stopped);
        drop(self.runtime);
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<Ending> {
        let ending = tokio::time::timeout(LIMIT, self.running.ended()).await?;
        drop(self.runtime);
        Ok(ending)
    }

    /// Ends it as a crash would.
    pub(crate) fn crash(self) {
        drop(self.runtime);
    }

    /// A page of its plain port, as JSON.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let address = self.running.plain.context("an address")?;
        let stream = tokio::net::TcpStream::connect(address).await?;
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let task = tokio::spawn(connection);
        let request = http::Request::get(path)
            .header("host", address.to_string())
            .body(http_body_util::Empty::<hyper::body::Bytes>::new())?;
        let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        drop(sender);
        task.await??;
        Ok(serde_json::from_slice(&answer)?)
    }
}
