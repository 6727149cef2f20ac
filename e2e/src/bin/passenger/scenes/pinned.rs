//! CPUs that the scheduler pins: an LSE pod has its own for itself, an LSR pod shares them with best-effort pods, and
//! services share the rest. Without their gates everything is as before.

use anyhow::{Context as _, Result, ensure};
use koord_api::annotation::Annotation as _;
use koord_api::annotation::cpu::ResourceStatus;
use koord_api::annotation::node_topology::CpuSharedPools;
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{BATCH, Picture, SERVICE, same};
use crate::node::{NODE, PodPlan};
use crate::stage::{Actor, Stage};
use crate::tree::allowed_cpus;

const EXCLUSIVE: PodPlan<'static> = PodPlan {
    name: "exclusive",
    qos: "LSE",
    kube_qos: "Guaranteed",
    requests: &[("cpu", "1"), ("memory", "64Mi")],
    limits: &[("cpu", "1"), ("memory", "64Mi")],
};
const RESERVED: PodPlan<'static> = PodPlan { name: "reserved", qos: "LSR", ..EXCLUSIVE };
/// Of a container with this limit, as kubelet and the runtime set it.
const QUOTA_US: i64 = 100_000;
/// What writes CPUs and quotas here.
const GATES_OFF: &str = "-feature-gates=CPUSetAllocator=false,BECPUSuppress=false,BatchResource=false";

/// One CPU of each core and NUMA node, of four.
pub(super) async fn play() -> Result<()> {
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    let batch = stage.pod(BATCH).await?;
    let reserved = pin(&mut stage, RESERVED, "1").await?;
    let exclusive = pin(&mut stage, EXCLUSIVE, "3").await?;
    let before = stage.tree.picture();
    // Suppression is off, so that best-effort pods have all that they may.
    stage.world.order(json!({ "resourceUsedThresholdWithBE": { "enable": false } })).await?;
    stage.start_and_wait(&[]).await?;
    let shares = [(&reserved, "1"), (&exclusive, "3"), (&service, "0,2"), (&batch, "0-2")];
    stage.until("every pod has the CPUs that are for it", async |stage| have(stage, &shares)).await?;
    stage
        .until("pinned pods have no quota", async |stage| quotas_are(stage, [&reserved, &exclusive], None))
        .await?;
    stage
        .until("the cluster is told what services share", async |stage| {
            Ok(pool(stage).await? == "0,2".parse()?)
        })
        .await?;

    stage.end(&exclusive)?;
    let shares = [(&reserved, "1"), (&service, "0,2-3"), (&batch, "0-3")];
    stage.until("CPUs of a pod that ended are shared again", async |stage| have(stage, &shares)).await?;
    stage.judge_and_kill().await?;

    stage.start_and_wait(&[GATES_OFF]).await?;
    let before: Picture = before.into_iter().filter(|(path, _)| path.exists()).collect();
    same(&before, &stage, "with gates off")?;
    ensure!(quotas_are(&stage, [&reserved], Some(QUOTA_US))?, "the quota of a pinned pod is not back");
    ensure!(allowed_cpus(reserved.process)?.len() == 4, "a process is pinned still");
    Ok(())
}

/// A pod with limits that kubelet set, to which the scheduler gave CPUs.
async fn pin(stage: &mut Stage, plan: PodPlan<'_>, cpus: &str) -> Result<Actor> {
    let actor = stage.pod(plan).await?;
    for group in [&actor.group, &actor.container] {
        stage.tree.limit_cpu(group, QUOTA_US)?;
    }
    let status = json!({ "cpuset": cpus }).to_string();
    stage.world.annotate_pod(&actor.pod.uid, ResourceStatus::KEY, Some(&status));
    Ok(actor)
}

/// Whether containers have such CPUs, and their processes as well.
fn have(stage: &Stage, shares: &[(&Actor, &str)]) -> Result<bool> {
    for (actor, cpus) in shares {
        let cpus: CpuSet = cpus.parse()?;
        if stage.tree.cpus(&actor.container)? != cpus || allowed_cpus(actor.process)? != cpus {
            return Ok(false);
        }
    }
    Ok(true)
}

fn quotas_are<const N: usize>(stage: &Stage, actors: [&Actor; N], quota: Option<i64>) -> Result<bool> {
    let groups = actors.iter().flat_map(|actor| [&actor.group, &actor.container]);
    let quotas: Vec<Option<i64>> = groups.map(|group| stage.tree.quota_us(group)).collect::<Result<_>>()?;
    Ok(quotas.iter().all(|own| *own == quota))
}

/// The CPUs that services share, as the scheduler reads them; none while there is no report.
async fn pool(stage: &Stage) -> Result<CpuSet> {
    let reports: Api<NodeResourceTopology> = Api::all(stage.world.client.clone());
    let Some(report) = reports.get_opt(NODE).await? else { return Ok(CpuSet::new()) };
    let text = report.annotations().get(CpuSharedPools::KEY).context("a report without pools")?;
    let CpuSharedPools(pools) = serde_json::from_str(text)?;
    let lists: Vec<String> = pools.into_iter().map(|pool| pool.cpuset).collect();
    Ok(lists.join(",").parse()?)
}
