//! Nodes of a large cluster: what a round over all of them costs, what the manager holds in memory, what it writes.
//!
//! The manager's own CPU counts, with everything that belongs to a round: taking in what changed, deciding, writing.
//! Minutes are short here: agents report every few seconds, and the refresh time of the strategy is shortened alike.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use super::chart;
use super::load::Chance;
use super::nodes::{self, NAMESPACES, NODES, PODS_PER_NODE};
use super::process::{LOOK, Manager, Page};
use super::reports::{Agents, Needed, Strategy};
use super::webhook::BARE;
use crate::bench_process;
use crate::bench_report::Report;
use crate::bench_sandbox::client::{Target, float, make};
use crate::bench_sandbox::process::Sandbox;
use crate::step::say;

const ROUND_CPU_MAX: Duration = Duration::from_secs(1);
const RESIDENT_MAX_MIB: f64 = 300.0;
/// More or fewer writes than the rules ask for: those that fell to the other side of a moment.
const WRITES_SLACK: f64 = 0.05;
const ROUNDS: usize = 3;
/// Reports at once.
const REPORTERS: usize = 32;
/// Longer than any step takes.
const LIMIT: Duration = Duration::from_secs(240);

/// How many times faster than real agents report. Much faster, and the API server is what is measured.
const SPEED: u64 = 6;
const PERIOD: Duration = Duration::from_secs(60 / SPEED);
const REFRESH: Duration = Duration::from_secs(300);
/// Every fifth report is a refresh. A refresh time of five whole periods would leave it to chance whether it is the fifth
/// or the sixth, and the model could not say which.
const REFRESH_SHORT: Duration = Duration::from_secs(270 / SPEED);
/// Until every node has been refreshed once, and for how long writes are then counted: one refresh of each node.
const PERIODS_WARM: u32 = 6;
const PERIODS_COUNTED: u32 = 5;
/// Reports in which load has really changed.
const JUMPS: f64 = 0.01;

const QUIET: Strategy = Strategy { cpu_reclaim_percent: 60, memory_reclaim_percent: 65, refresh: REFRESH };
const LIVELY: Strategy =
    Strategy { cpu_reclaim_percent: 70, memory_reclaim_percent: 75, refresh: REFRESH_SHORT };

/// The cluster, its agents and the manager.
struct Stage {
    target: Arc<Target>,
    agents: Arc<Mutex<Agents>>,
    manager: Manager,
}

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let sandbox = Sandbox::start(&BARE)?;
    let target = Arc::new(Target::new(sandbox.kubeconfig()).await?);
    fill(&target).await?;
    let stage = start(target, sandbox.kubeconfig()).await?;
    stage.first(report).await?;
    stage.rounds(report).await?;
    stage.rewrite(report).await?;
    stage.minutes(report).await?;
    let (now, most) = (
        bench_process::resident_mib(stage.manager.pid())?,
        bench_process::resident_mib_max(stage.manager.pid())?,
    );
    let text = format!("{NODES} nodes + {} pods: {now:.0} MiB, {most:.0} MiB at most", NODES * PODS_PER_NODE);
    report.figure(&text, &format!("{RESIDENT_MAX_MIB:.0} MiB at most"), most <= RESIDENT_MAX_MIB);
    Ok(())
}

/// Makes the cluster.
async fn fill(target: &Arc<Target>) -> Result<()> {
    let begun = Instant::now();
    chart::install(target, &QUIET.config()).await?;
    let texts = |list: Vec<Value>| -> Vec<String> { list.iter().map(Value::to_string).collect() };
    let namespaces = (0..NAMESPACES).map(|number| json!({"metadata": {"name": format!("team-{number}")}}));
    make(target, "/api/v1/namespaces", texts(namespaces.collect())).await?;
    make(target, "/api/v1/nodes", texts((0..NODES).map(nodes::node).collect())).await?;
    let path = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";
    make(target, path, texts((0..NODES).map(nodes::topology).collect())).await?;
    for namespace in 0..NAMESPACES {
        let all = (0..NODES).flat_map(|node| (0..PODS_PER_NODE).map(move |pod| (node, pod)));
        let here = all.filter(|(node, pod)| (node + pod) % NAMESPACES == namespace);
        let path = format!("/api/v1/namespaces/team-{namespace}/pods");
        make(target, &path, here.map(|(node, pod)| nodes::pod(node, pod).to_string()).collect()).await?;
    }
    let pods = NODES * PODS_PER_NODE;
    say(&format!("{NODES} nodes and {pods} pods made in {:.0} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Starts the manager and waits until every node has its NodeMetric and its NodeSLO.
async fn start(target: Arc<Target>, kubeconfig: &Path) -> Result<Stage> {
    let begun = Instant::now();
    let mut manager = Manager::start(kubeconfig, &[])?;
    manager.ready().await?;
    loop {
        let page = manager.metrics().await?;
        let known = |kind: &str| page.sum("koord_watch_cache_objects", &[&format!("kind=\"{kind}\"")]);
        if known("NodeMetric") + known("NodeSLO") >= 2.0 * float(NODES) {
            break;
        }
        ensure!(begun.elapsed() < LIMIT, "NodeMetrics and NodeSLOs are not made");
        tokio::time::sleep(LOOK).await;
    }
    let agents = Arc::new(Mutex::new(Agents::new(NODES, QUIET)));
    let stage = Stage { target, agents, manager };
    stage.still(0.0).await?;
    say(&format!(
        "      started, listed everything, made {} objects: {:.2} s CPU, {:.0} MiB, {:.0} s",
        2 * NODES,
        stage.manager.cpu()?.as_secs_f64(),
        bench_process::resident_mib(stage.manager.pid())?,
        begun.elapsed().as_secs_f64()
    ));
    Ok(stage)
}

impl Stage {
    /// All nodes report for the first time, and all are written.
    async fn first(&self, report: &mut Report) -> Result<()> {
        let cpu = self.round().await?;
        let written = self.counts().await?;
        let text = format!("first reports, all nodes written: {:.2} s CPU", cpu.as_secs_f64());
        let is_all = written.nodes >= NODES && written.topologies >= NODES;
        report.figure(&text, &format!("{NODES} of each written"), is_all);
        Ok(())
    }

    /// All nodes report what they did before, nearly.
    async fn rounds(&self, report: &mut Report) -> Result<()> {
        let before = self.counts().await?;
        let mut cpus = Vec::new();
        for _ in 0..ROUNDS {
            cpus.push(self.round().await?);
        }
        cpus.sort_unstable();
        let cpu = cpus.get(ROUNDS / 2).copied().unwrap_or_default();
        let text = format!("a round of {NODES} reports: {:.2} s CPU (of {cpus:.2?})", cpu.as_secs_f64());
        report.figure(&text, "1 s", cpu <= ROUND_CPU_MAX);
        let extra = self.counts().await?.nodes - before.nodes;
        report.figure(&format!("nodes written in these rounds: {extra}"), "0", extra == 0);
        Ok(())
    }

    /// The strategy changes, so that every node is looked at and written.
    async fn rewrite(&self, report: &mut Report) -> Result<()> {
        let (cpu, turns, before) = (self.manager.cpu()?, self.turns().await?, self.counts().await?);
        let path = format!("/api/v1/namespaces/{}/configmaps/{}", chart::NAMESPACE, chart::CONFIG);
        let patch = json!({"data": {"colocation-config": LIVELY.config()}}).to_string();
        self.target.send(Method::PATCH, &path, patch).await?;
        self.still(turns + float(NODES)).await?;
        let cpu = self.manager.cpu()? - cpu;
        let written = self.counts().await?;
        let text = format!(
            "a new strategy: {} nodes and {} topologies written, {:.2} s CPU",
            written.nodes - before.nodes,
            written.topologies - before.topologies,
            cpu.as_secs_f64()
        );
        let is_all = written.nodes - before.nodes == NODES;
        report.figure(&text, &format!("{NODES} written"), is_all);
        self.agents().rewritten(LIVELY, Instant::now());
        Ok(())
    }

    /// Agents report at their own pace, load changes here and there.
    async fn minutes(&self, report: &mut Report) -> Result<()> {
        self.agents().jumps = JUMPS;
        let schedule = Arc::new(schedule());
        let begun = Instant::now();
        let reporters = self.report_all(schedule, begun);
        let counted = async {
            tokio::time::sleep(PERIOD * PERIODS_WARM).await;
            let first = self.moment().await?;
            let end = begun + PERIOD * (PERIODS_WARM + PERIODS_COUNTED);
            tokio::time::sleep_until(end.into()).await;
            anyhow::Ok((first, self.moment().await?))
        };
        let (_, (first, last)) = tokio::try_join!(reporters, counted)?;
        first.tell(&last, report);
        Ok(())
    }

    /// Everything that is counted, now.
    async fn moment(&self) -> Result<Moment> {
        // The CPU before the pages, the first time; what pages cost is then part of the minutes, and is little.
        let cpu = self.manager.cpu()?;
        let needed = self.agents().needed;
        Ok(Moment { cpu, needed, counts: self.counts().await? })
    }

    /// CPU of the manager for one report of every node.
    async fn round(&self) -> Result<Duration> {
        let (cpu, turns) = (self.manager.cpu()?, self.turns().await?);
        let schedule = (0..NODES).map(|node| (Duration::ZERO, node)).collect();
        self.report_all(Arc::new(schedule), Instant::now()).await?;
        self.still(turns + float(NODES)).await?;
        Ok(self.manager.cpu()? - cpu)
    }

    /// Sends reports, each at its time.
    async fn report_all(&self, schedule: Arc<Vec<(Duration, usize)>>, begun: Instant) -> Result<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let reporters = (0..REPORTERS).map(|_| {
            let (target, agents) = (self.target.clone(), self.agents.clone());
            let (schedule, next) = (schedule.clone(), next.clone());
            tokio::spawn(async move {
                while let Some((at, node)) = schedule.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tokio::time::sleep_until((begun + *at).into()).await;
                    let body = lock(&agents).report(*node, Instant::now());
                    let path = format!(
                        "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{}/status",
                        nodes::name(*node)
                    );
                    target.send(Method::PATCH, &path, body).await?;
                }
                anyhow::Ok(())
            })
        });
        try_join_all(reporters).await?.into_iter().collect()
    }

    /// Waits until noderesource has had so many turns, and nobody has anything to do.
    async fn still(&self, turns: f64) -> Result<()> {
        let (begun, mut last) = (Instant::now(), -1.0);
        loop {
            let page = self.manager.metrics().await?;
            let (had, waiting) = (turns_of(&page, ""), page.sum("workqueue_depth", &[]));
            if turns_of(&page, "noderesource") >= turns && waiting == 0.0 && had == last {
                return Ok(());
            }
            last = had;
            ensure!(
                begun.elapsed() < LIMIT,
                "the manager does not come to rest: {had} turns, {waiting} wait"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn turns(&self) -> Result<f64> {
        Ok(turns_of(&self.manager.metrics().await?, "noderesource"))
    }

    async fn counts(&self) -> Result<Counts> {
        let (process, internal) = (self.manager.metrics().await?, self.manager.internal_metrics().await?);
        Ok(Counts::of(&process, &internal))
    }

    fn agents(&self) -> MutexGuard<'_, Agents> {
        lock(&self.agents)
    }
}

fn lock(agents: &Mutex<Agents>) -> MutexGuard<'_, Agents> {
    agents.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns of a controller, or of all.
fn turns_of(page: &Page, controller: &str) -> f64 {
    page.sum("controller_runtime_reconcile_total", &[&format!("controller=\"{controller}")])
}

/// When which node reports: each at its own pace, a little early or late.
fn schedule() -> Vec<(Duration, usize)> {
    let mut chance = Chance(42);
    let mut all = Vec::new();
    for node in 0..NODES {
        let phase = PERIOD.mul_f64(chance.unit());
        for turn in 0..PERIODS_WARM + PERIODS_COUNTED {
            let late = PERIOD.mul_f64(0.05 * chance.unit());
            all.push((phase + PERIOD * turn + late, node));
        }
    }
    all.sort_unstable();
    all
}

/// Requests so far.
#[derive(Clone, Copy)]
struct Counts {
    nodes: usize,
    topologies: usize,
    /// Of NodeMetrics and NodeSLOs.
    others: usize,
    /// By the client's own count; leases and events are among them.
    writes: usize,
    reads: usize,
}

impl Counts {
    fn of(process: &Page, internal: &Page) -> Counts {
        let whole = |sum: f64| format!("{sum:.0}").parse().unwrap_or_default();
        let count = |controller: &str, reason: &str| {
            let family = format!("slo_controller_{controller}_reconcile_count");
            whole(internal.sum(&family, &[&format!("reason=\"{reason}")]))
        };
        let sent = |method: &str| {
            whole(process.sum("rest_client_requests_total", &[&format!("method=\"{method}\"")]))
        };
        let kinds = ["create", "update", "delete"];
        Counts {
            nodes: count("node_resource", "updateNodeStatus") + count("node_resource", "patchNodeMeta"),
            topologies: count("node_resource", "updateNodeResourceTopology"),
            others: kinds.iter().map(|kind| count("nodemetric", kind) + count("nodeslo", kind)).sum(),
            writes: ["POST", "PUT", "PATCH", "DELETE"].iter().map(|method| sent(method)).sum(),
            reads: sent("GET"),
        }
    }
}

/// What was counted up to a moment.
struct Moment {
    cpu: Duration,
    needed: Needed,
    counts: Counts,
}

impl Moment {
    fn tell(&self, last: &Moment, report: &mut Report) {
        let minutes = f64::from(PERIODS_COUNTED);
        let rate = |from: usize, to: usize| float(to.saturating_sub(from)) / minutes;
        let (a, b) = (&self.counts, &last.counts);
        let needed_nodes = f64::from(last.needed.nodes - self.needed.nodes) / minutes;
        let needed_topologies = f64::from(last.needed.topologies - self.needed.topologies) / minutes;
        let (on_nodes, on_topologies) = (rate(a.nodes, b.nodes), rate(a.topologies, b.topologies));
        for (what, done, needed) in
            [("Nodes", on_nodes, needed_nodes), ("NodeResourceTopologies", on_topologies, needed_topologies)]
        {
            let text = format!("{what} written: {done:.0} a minute, the rules ask for {needed:.0}");
            let is_right = (done - needed).abs() <= needed * WRITES_SLACK;
            report.figure(&text, "those, give or take 5 %", is_right);
        }
        let others = rate(a.others, b.others);
        report.figure(&format!("NodeMetrics and NodeSLOs written: {others:.0} a minute"), "0", others == 0.0);
        let writes = rate(a.writes, b.writes);
        say(&format!(
            "      all writes {writes:.0} a minute, {:.1} of them leases and events; reads {:.0}",
            writes - on_nodes - on_topologies - others,
            rate(a.reads, b.reads)
        ));
        let cpu = (last.cpu - self.cpu) / PERIODS_COUNTED;
        let text = format!(
            "{NODES} nodes report every minute: {:.2} s CPU a minute, these writes included",
            cpu.as_secs_f64()
        );
        report.figure(&text, "1 s", cpu <= ROUND_CPU_MAX);
    }
}
