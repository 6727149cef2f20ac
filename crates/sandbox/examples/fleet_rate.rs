//! How fast simulated nodes register and their pods come to run, in process:
//! `cargo run --release --example fleet_rate -- NODES PODS`.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::{Duration, Instant};

use koord_sandbox::nodes::{Fleet, Options, Pool, Shape};
use koord_sandbox::server::{Api, WriteOptions};
use koord_sandbox::store::{Limits, Selection};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let nodes = arguments.next().transpose()?.unwrap_or(5_000).max(1);
    let pods = arguments.next().transpose()?.unwrap_or(100_000);
    let api = Api::new(Limits::default());
    let kind = api.kind("apiextensions.k8s.io", "customresourcedefinitions")?;
    for manifest in koord_api::crd::generate::manifests() {
        api.create(&kind, "", manifest.content, &WriteOptions::by("bench")).await?;
    }
    let empty = resident_mib();
    let mut options = Options::default();
    options.habits.start_delay = Duration::ZERO;
    options.pools = vec![Pool { name: "node".to_owned(), count: nodes, shape: Shape::default() }];
    let start = Instant::now();
    let fleet = Fleet::start(api.clone(), options)?;
    fleet.ready().await?;
    println!(
        "{nodes} nodes registered in {:.2} s, {} MiB",
        start.elapsed().as_secs_f64(),
        resident_mib() - empty
    );
    let topologies = api.kind("topology.node.k8s.io", "noderesourcetopologies")?;
    while api.table(&topologies).len() < usize::try_from(nodes)? {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("their topologies written after {:.2} s", start.elapsed().as_secs_f64());
    let kind = api.kind("", "pods")?;
    let start = Instant::now();
    for i in 0..pods {
        let pod = json!({"metadata": {"name": format!("web-{i}")}, "spec": {
            "nodeName": format!("node-{}", i % nodes),
            "containers": [{"name": "main", "image": "example.com/web:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}});
        api.create(&kind, "default", pod, &WriteOptions::by("bench")).await?;
        tokio::task::yield_now().await;
    }
    let created = start.elapsed();
    let running = Selection { fields: "status.phase=Running".parse()?, ..Selection::default() };
    while api.list(&kind, &running).len() < usize::try_from(pods)? {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "{pods} pods created in {:.2} s, all running after {:.2} s, {} MiB",
        created.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        resident_mib() - empty
    );
    fleet.stop().await;
    Ok(())
}

/// Memory of this process, in MiB; 0 where the system does not tell.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
