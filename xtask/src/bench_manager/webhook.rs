//! Admission: reviews at a steady rate, with many profiles, over both protocols.
//!
//! Beside them, in turns and by the same client, bodies of the same length that are no reviews: what TLS, HTTP and the
//! machine take.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::Value;

use super::chart;
use super::load::{Caller, Latencies, Load, Protocol, each};
use super::process::{Manager, Page};
use super::reviews;
use crate::bench_process;
use crate::bench_report::{Report, millis};
use crate::bench_sandbox::client::{Target, make};
use crate::bench_sandbox::process::Sandbox;
use crate::step::say;

const PROFILES: usize = 100;
const PER_SECOND: f64 = 2_000.0;
const P99_MAX: Duration = Duration::from_millis(2);
/// Loads take turns, so that all of them meet the same noise.
const TURNS: u64 = 6;
const TURN: Duration = Duration::from_secs(2);

/// One sort of load, and what came of it.
struct Contest {
    name: &'static str,
    caller: Caller,
    load: Load,
    latencies: Latencies,
    server_cpu: Duration,
    client_cpu: Duration,
}

/// The client has one thread, and another that only waits for the next moment.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(contest(report))
}

async fn contest(report: &mut Report) -> Result<()> {
    let sandbox = Sandbox::start(&BARE)?;
    let target = Arc::new(Target::new(sandbox.kubeconfig()).await?);
    chart::install(&target, r#"{"enable": true}"#).await?;
    let texts = |list: Vec<Value>| list.iter().map(Value::to_string).collect();
    make(&target, "/api/v1/namespaces", texts((0..reviews::NAMESPACES).map(reviews::namespace).collect()))
        .await?;
    let path = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles";
    make(&target, path, texts(reviews::profiles(PROFILES))).await?;
    let mut manager = Manager::start(sandbox.kubeconfig(), &["--enable-leader-election=false"])?;
    manager.ready().await?;

    let mut contests = contests(&manager).await?;
    for turn in 0..TURNS {
        for contest in &mut contests {
            contest.turn(&manager, turn).await?;
        }
    }
    tell(report, &mut contests);
    tell_own(report, &manager.internal_metrics().await?);
    Ok(())
}

/// By the manager's own clock, from the whole request to the whole answer: what is left when the client, its connection
/// and the pauses of the machine between them are not counted.
fn tell_own(report: &mut Report, page: &Page) {
    let family = "controller_runtime_webhook_latency_seconds";
    for path in ["/mutate-pod", "/validate-pod"] {
        let webhook = format!("webhook=\"{path}\"");
        let all = page.sum(&format!("{family}_count"), &[&webhook]);
        let within =
            |bound: &str| page.sum(&format!("{family}_bucket"), &[&webhook, &format!("le=\"{bound}\"")]);
        let part = within("0.002") / all.max(1.0);
        let text = format!(
            "{path} in the manager: {:.2} % of {all:.0} within 2 ms, {:.2} % within 0.5 ms",
            part * 100.0,
            within("0.0005") / all.max(1.0) * 100.0
        );
        report.figure(&text, "99 % within 2 ms", part >= 0.99);
    }
}

/// An API server and nothing else.
pub(super) const BARE: [&str; 7] =
    ["--nodes", "0", "--no-controllers", "--scheduler", "none", "--manager", "none"];

async fn contests(manager: &Manager) -> Result<Vec<Contest>> {
    let reviews = reviews::reviews()?;
    let blank = |body: &Bytes| Bytes::from(vec![b'x'; body.len()]);
    let blanks: Vec<Bytes> = reviews.iter().map(blank).collect();
    let mut all = Vec::new();
    for (name, protocol, path, bodies) in [
        ("/mutate-pod, HTTP/2", Protocol::Http2, "/mutate-pod", &reviews),
        ("/mutate-pod, HTTP/1.1", Protocol::Http1, "/mutate-pod", &reviews),
        ("/validate-pod, HTTP/2", Protocol::Http2, "/validate-pod", &reviews),
        ("no reviews, HTTP/2", Protocol::Http2, "/mutate-pod", &blanks),
        ("no reviews, HTTP/1.1", Protocol::Http1, "/mutate-pod", &blanks),
    ] {
        let caller = Caller::new(&manager.authority(), manager.webhook_port(), protocol).await?;
        let load = Load { path, bodies: bodies.clone(), per_second: PER_SECOND };
        // Connections are made and everything is warm before the first turn.
        let answers = try_join_all(load.bodies.iter().map(|body| caller.post(path, body.clone()))).await?;
        let patched = count_patched(&answers)?;
        say(&format!("      {name}: {} different bodies, {patched} answered with a patch", answers.len()));
        all.push(Contest {
            name,
            caller,
            load,
            latencies: Latencies::default(),
            server_cpu: Duration::ZERO,
            client_cpu: Duration::ZERO,
        });
    }
    Ok(all)
}

/// How many answers change their object. Every review must be allowed.
fn count_patched(answers: &[Bytes]) -> Result<usize> {
    let mut patched = 0;
    for answer in answers {
        let answer: Value = serde_json::from_slice(answer).context("an answer that is no JSON")?;
        let response = &answer["response"];
        // What is no review has no uid to answer to.
        let is_fine = response["allowed"] == true || response["uid"] == "";
        ensure!(is_fine, "refused: {}", response["status"]);
        patched += usize::from(response["patch"].is_string());
    }
    Ok(patched)
}

impl Contest {
    /// Whether its bodies are no reviews.
    fn is_blank(&self) -> bool {
        !self.name.starts_with('/')
    }

    async fn turn(&mut self, manager: &Manager, turn: u64) -> Result<()> {
        let own = std::process::id();
        let (server, client) = (manager.cpu()?, bench_process::cpu(own)?);
        self.latencies.extend(self.load.run(&self.caller, TURN, turn).await?);
        self.server_cpu += manager.cpu()?.saturating_sub(server);
        self.client_cpu += bench_process::cpu(own)?.saturating_sub(client);
        Ok(())
    }
}

fn tell(report: &mut Report, contests: &mut [Contest]) {
    say(&format!(
        "{PROFILES} profiles, {PER_SECOND:.0} requests/s each in turns of {TURN:?}; latency from when a request was due"
    ));
    for contest in contests {
        let [p50, p99, p999] = contest.latencies.percentiles([500, 990, 999]);
        let count = contest.latencies.count();
        let text = format!(
            "{}: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
            contest.name,
            millis(p50),
            millis(p99),
            millis(p999)
        );
        if contest.is_blank() {
            say(&format!("      {text}"));
        } else {
            report.figure(&text, &format!("p99 {} ms", P99_MAX.as_millis()), p99 <= P99_MAX);
        }
        say(&format!(
            "      {}: {:.0} µs CPU of the manager each, {:.0} µs of the client",
            contest.name,
            each(contest.server_cpu, count),
            each(contest.client_cpu, count)
        ));
    }
}
