//! On real kube-apiserver and etcd: ours, kube-scheduler, and a client that only binds and watches, one after another.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use http::Method;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use koord_testkit::ControlPlane;
use serde_json::json;

use super::engine::float;
use super::process::{Kind, Scheduler};
use super::workload;
use crate::bench_report::Report;
use crate::bench_sandbox::client::{Target, make};
use crate::bench_sandbox::process;
use crate::step::say;

const NODES: usize = 5_000;
/// Pods that wait when a contestant starts.
const PODS: usize = 5_000;
/// Bindings at once of the client that only binds; more do not make the server quicker.
const BINDERS: usize = 64;
/// Longer than any contestant needs.
const LIMIT: Duration = Duration::from_secs(240);

/// What a contestant did.
struct Run {
    per_second: f64,
    cpu_per_pod: Duration,
    resident_mib: f64,
}

pub(super) fn run(report: &mut Report) -> Result<()> {
    process::build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(contest(report))
}

async fn contest(report: &mut Report) -> Result<()> {
    say("starting etcd and kube-apiserver");
    let plane = tokio::task::spawn_blocking(|| {
        // Nobody would take away the taint that each new node gets.
        let untainted = ["--disable-admission-plugins=TaintNodesByCondition"];
        ControlPlane::builder()?.with_controller_manager(false).apiserver_args(untainted).start()
    })
    .await??;
    let target = Arc::new(Target::new(plane.kubeconfig()).await?);
    let workload = workload::load(&["basic".to_owned()])?.remove(0).scaled(NODES, PODS);
    let nodes = workload.node_objects().iter().map(|node| node.to_string()).collect();
    make(&target, "/api/v1/nodes", nodes).await?;
    say(&format!("{NODES} nodes are there"));

    let bare = bind_only(&target, &workload).await?;
    say(&format!("      a client that only binds and watches: {bare:.0} pods/s"));
    let ours = schedule(&target, &workload, Kind::Ours, plane.kubeconfig()).await?;
    let peer = schedule(&target, &workload, Kind::Kubernetes, plane.kubeconfig()).await?;

    let part = ours.per_second / bare;
    let text = format!("bound {:.0} pods/s, {:.0} % of only binding", ours.per_second, 100.0 * part);
    report.figure(&text, "80 %", part >= 0.8);
    let times = ours.per_second / peer.per_second;
    let text =
        format!("bound {:.0} pods/s, kube-scheduler {:.0}: {times:.1}x", ours.per_second, peer.per_second);
    report.figure(&text, "4x", times >= 4.0);
    let (micros, peer_micros) = (1e6 * ours.cpu_per_pod.as_secs_f64(), 1e6 * peer.cpu_per_pod.as_secs_f64());
    let text =
        format!("CPU {micros:.0} µs per pod, kube-scheduler {peer_micros:.0}: 1/{:.1}", peer_micros / micros);
    report.figure(&text, "1/10", micros * 10.0 <= peer_micros);
    let text = format!(
        "{NODES} nodes + {} pods: {:.0} MiB, kube-scheduler {:.0}: 1/{:.1}",
        2 * PODS,
        ours.resident_mib,
        peer.resident_mib,
        peer.resident_mib / ours.resident_mib
    );
    report.figure(&text, "1/2", ours.resident_mib * 2.0 <= peer.resident_mib);
    Ok(())
}

async fn make_pods(target: &Arc<Target>, workload: &workload::Workload, first: usize) -> Result<()> {
    let mut bodies = Vec::new();
    for group in &workload.measured {
        bodies.extend(workload.pods(group, first)?.iter().map(|pod| pod.to_string()));
    }
    make(target, "/api/v1/namespaces/default/pods", bodies).await
}

/// Removes all pods and events, so that contestants find the same.
async fn clear(target: &Arc<Target>) -> Result<()> {
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).to_string();
    target.send(Method::DELETE, "/api/v1/namespaces/default/pods", now).await?;
    target.send(Method::DELETE, "/api/v1/namespaces/default/events", String::new()).await?;
    let begun = Instant::now();
    loop {
        let list = target.send(Method::GET, "/api/v1/namespaces/default/pods?limit=1", String::new()).await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        ensure!(begun.elapsed() < LIMIT, "pods do not go away");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

type Observer = tokio::task::JoinHandle<Result<(Instant, Instant)>>;

/// Watches from now on until all pods of a round have been bound; tells when the first and the last were. The watch is
/// open when this returns: a server that is busy by then would forget where it was to begin.
async fn observe_from_now(target: &Arc<Target>) -> Result<Observer> {
    let from = target.revision().await?;
    let body = target.open_watch(&pods_since(&from)).await?;
    Ok(tokio::spawn(observe(target.clone(), from, body, PODS)))
}

fn pods_since(revision: &str) -> String {
    format!("/api/v1/namespaces/default/pods?watch=1&resourceVersion={revision}")
}

async fn observe(
    target: Arc<Target>,
    mut revision: String,
    mut body: hyper::body::Incoming,
    count: usize,
) -> Result<(Instant, Instant)> {
    let (mut rest, mut bound, mut first) = (Vec::new(), HashSet::new(), None);
    let begun = Instant::now();
    while bound.len() < count {
        let left = LIMIT.saturating_sub(begun.elapsed());
        let Ok(frame) = tokio::time::timeout(left, body.frame()).await else {
            bail!("only {} of {count} pods are bound after {LIMIT:?}", bound.len());
        };
        let Some(frame) = frame else {
            // The server lets go of watchers that were slow for a moment.
            rest.clear();
            body = target.open_watch(&pods_since(&revision)).await?;
            continue;
        };
        rest.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in rest[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = serde_json::from_slice(line)?;
            ensure!(event.kind != "ERROR", "watch: {}", String::from_utf8_lossy(line));
            revision = event.object.metadata.resource_version.unwrap_or_default();
            if event.object.spec.is_some_and(|spec| spec.node_name.is_some()) {
                bound.extend(event.object.metadata.name);
                first.get_or_insert_with(Instant::now);
            }
        }
        rest.drain(..whole);
    }
    Ok((first.unwrap_or_else(Instant::now), Instant::now()))
}

/// A line of a watch.
#[derive(serde::Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Pod,
}

fn rate((first, last): (Instant, Instant)) -> f64 {
    float(PODS) / (last - first).as_secs_f64()
}

/// Pods per second of a client that does nothing else.
async fn bind_only(target: &Arc<Target>, workload: &workload::Workload) -> Result<f64> {
    make_pods(target, workload, 0).await?;
    let observer = observe_from_now(target).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let workers = (0..BINDERS).map(|_| {
        let (target, next) = (target.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= PODS {
                    return anyhow::Ok(());
                }
                let name = format!("pod-{number}");
                let node = format!("node-{}", number % NODES);
                let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
                let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
                target.post(&path, body.to_string()).await?;
            }
        })
    });
    try_join_all(workers).await?.into_iter().collect::<Result<()>>()?;
    let span = observer.await??;
    clear(target).await?;
    Ok(rate(span))
}

/// What a scheduler does with the same pods, and with as many again for its memory.
async fn schedule(
    target: &Arc<Target>,
    workload: &workload::Workload,
    kind: Kind,
    kubeconfig: &std::path::Path,
) -> Result<Run> {
    make_pods(target, workload, 0).await?;
    let observer = observe_from_now(target).await?;
    let scheduler = Scheduler::start(kind, kubeconfig)?;
    let span = observer.await??;
    // Events trail behind; they are part of the cost.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let cpu = scheduler.cpu()?;
    let observer = observe_from_now(target).await?;
    make_pods(target, workload, PODS).await?;
    observer.await??;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let resident_mib = scheduler.resident_mib()?;
    drop(scheduler);
    clear(target).await?;
    let run = Run { per_second: rate(span), cpu_per_pod: cpu / u32::try_from(PODS)?, resident_mib };
    say(&format!(
        "      {kind:?}: {:.0} pods/s, {:.2} ms CPU per pod, {:.0} MiB",
        run.per_second,
        1e3 * run.cpu_per_pod.as_secs_f64(),
        run.resident_mib
    ));
    Ok(run)
}
