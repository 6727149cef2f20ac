//! Co-location from end to end: services leave capacity unused, a profile turns a job's pods into batch pods, and
//! koord-scheduler places them on what the manager found.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use koord_scheduler::config;
use koord_scheduler::flags::{self, Request};
use koord_scheduler::run::{self, Ending, Running, Setup};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::place::{NODES, Place, eventually};
use crate::webhooks::pod;

const PODS: &str = "/api/v1/namespaces/jobs/pods";

pub(crate) async fn jobs_run_on_what_services_leave(place: &Place) -> Result<()> {
    let strategy =
        json!({"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 60});
    place.configure(&json!({"colocation-config": strategy.to_string()})).await?;
    place.make_node("colocated", &json!({"story": "yes"})).await?;
    // A service that asks for nearly all of the node and uses little of it.
    let services = "/api/v1/namespaces/shop/pods";
    let mut service = pod("service", "web");
    service["spec"]["priorityClassName"] = json!("koord-prod");
    service["spec"]["nodeName"] = json!("colocated");
    service["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "9", "memory": "4Gi"}});
    place.post(services, &service).await?;
    serves(place, "2").await?;
    // 10 CPUs, less 40 % margin, 1 for the system, 2 for the service.
    let node = place.lends("colocated", 3000).await?;
    ensure!(node["status"]["allocatable"]["kubernetes.io/batch-memory"] == "10Gi", "{}", node["status"]);
    let (running, stop) = scheduler(place).await?;
    for name in ["job-1", "job-2", "job-3"] {
        place.post(PODS, &job(name)).await?;
    }
    // Each asks for 1.5 CPUs: as it was written, one would not find room; as batch, two do.
    let placed = async |want: usize| {
        eventually(&format!("{want} jobs have a node"), async || {
            let mut count = 0;
            for name in ["job-1", "job-2", "job-3"] {
                count += usize::from(
                    place.get(&format!("{PODS}/{name}")).await?["spec"]["nodeName"] == "colocated",
                );
            }
            Ok((count == want).then_some(()))
        })
        .await
    };
    placed(2).await?;
    let waiting = eventually("the third is told why it waits", async || {
        let listed = place.get(PODS).await?;
        let pods = listed["items"].as_array().cloned().unwrap_or_default();
        let message = |pod: &Value| {
            let told = pod["status"]["conditions"][0]["message"].as_str()?;
            pod["spec"].get("nodeName").is_none().then(|| told.to_owned())
        };
        Ok(pods.iter().find_map(message))
    })
    .await?;
    ensure!(waiting.contains("Insufficient kubernetes.io/batch-cpu"), "{waiting}");
    // The service goes to sleep, and there is room for the third.
    serves(place, "500m").await?;
    place.lends("colocated", 4500).await?;
    placed(3).await?;
    // It wakes up: what is lent shrinks, below what is taken already.
    serves(place, "4").await?;
    place.lends("colocated", 1000).await?;
    stop.cancel();
    ensure!(running.ended().await == Ending::Stopped, "the scheduler was asked to stop");
    for name in ["job-1", "job-2", "job-3"] {
        place.delete(&format!("{PODS}/{name}")).await?;
    }
    place.delete(&format!("{services}/service")).await?;
    place.delete(&format!("{NODES}/colocated")).await
}

fn job(name: &str) -> Value {
    let mut job = pod(name, "job");
    job["spec"]["nodeSelector"] = json!({"story": "yes"});
    job
}

/// What the service uses.
async fn serves(place: &Place, cpu: &str) -> Result<()> {
    let pods = json!([{"namespace": "shop", "name": "service", "priority": "koord-prod",
        "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}]);
    place.measure("colocated", 1000, &pods).await
}

async fn scheduler(place: &Place) -> Result<(Running, CancellationToken)> {
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        leaderElection: {leaderElect: false}\nclientConnection: {qps: -1}\n\
        profiles: [{schedulerName: koord-scheduler}]\n";
    let words = ["--port=0".to_owned(), "--secure-port=0".to_owned()];
    let Request::Run(options) = flags::parse(words)? else { bail!("flags") };
    let config = config::parse(Path::new("test"), text, &options.overrides, &options.gates)?;
    let stop = CancellationToken::new();
    let setup = Setup { options: *options, config, cluster: place.config.clone(), log: None };
    Ok((run::start(setup, stop.clone()).await.context("koord-scheduler")?, stop))
}
