//! What controllers write, whoever dies, whoever writes beside them, and whatever the configuration says.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::place::{METRICS, NODES, Place, SLOS, TOPOLOGIES, eventually, lent};
use crate::replica::{Replica, by_rank};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordinator-manager";

/// Everything that is written is exact, so that results can be compared.
fn strategies(burst: &str, interval_seconds: i64) -> Value {
    let colocation = json!({"enable": true, "cpuReclaimThresholdPercent": 60,
        "memoryReclaimThresholdPercent": 60, "resourceDiffThreshold": 0.000_001,
        "metricReportIntervalSeconds": interval_seconds});
    let burst = json!({"clusterStrategy": {"policy": burst}});
    json!({"colocation-config": colocation.to_string(), "cpu-burst-config": burst.to_string()})
}

/// What a node of 10 CPUs lends when the system uses so much and nobody else anything.
fn lends(system_milli: i64) -> i64 {
    6000 - system_milli
}

async fn make_nodes(place: &Place, group: &str, count: usize) -> Result<Vec<String>> {
    let names: Vec<String> = (0..count).map(|number| format!("{group}-{number}")).collect();
    for name in &names {
        place.make_node(name, &json!({"group": group})).await?;
    }
    Ok(names)
}

async fn remove_nodes(place: &Place, names: &[String]) -> Result<()> {
    for name in names {
        place.delete(&format!("{NODES}/{name}")).await?;
    }
    Ok(())
}

async fn until_slo(place: &Place, node: &str, policy: &str) -> Result<()> {
    eventually(&format!("NodeSLO {node} says {policy}"), async || {
        let slo = place.find(&format!("{SLOS}/{node}")).await?.unwrap_or_default();
        Ok((slo["spec"]["cpuBurstStrategy"]["policy"] == policy).then_some(()))
    })
    .await
}

/// The zones of a node get their shares, by the account that the manager has; what others keep there stays.
pub(crate) async fn zones_follow_their_node(place: &Place) -> Result<()> {
    place.configure(&strategies("auto", 60)).await?;
    let nodes = make_nodes(place, "zoned", 1).await?;
    let amount =
        |name: &str, all: &str| json!({"name": name, "capacity": all, "allocatable": all, "available": all});
    let zone = |name: &str| {
        json!({"name": name, "type": "Node", "resources": [amount("cpu", "5"), amount("memory", "10Gi")],
            "attributes": [{"name": "theirs", "value": "kept"}]})
    };
    let topology = json!({"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
        "metadata": {"name": "zoned-0"}, "topologyPolicies": ["None"], "zones": [zone("node-0"), zone("node-1")]});
    place.post(TOPOLOGIES, &topology).await?;
    // The first write adds the resources, the second changes them where they are: half of the node's to each.
    for system_milli in [1000, 2000] {
        place.measure("zoned-0", system_milli, &json!([])).await?;
        place.lends("zoned-0", lends(system_milli)).await?;
        let want = lends(system_milli) / 2;
        eventually(&format!("both zones lend {want}m"), async || {
            let found = place.get(&format!("{TOPOLOGIES}/zoned-0")).await?;
            let all = found["zones"].as_array().context("zones")?;
            ensure!(all.iter().all(|zone| zone["attributes"][0]["value"] == "kept"), "{found}");
            let lends = |zone: &Value| {
                let resources = zone["resources"].as_array().into_iter().flatten();
                let mut batch = resources.filter(|entry| entry["name"] == "kubernetes.io/batch-cpu");
                batch.any(|entry| {
                    [&entry["available"], &entry["allocatable"]]
                        .into_iter()
                        .all(|a| amount_of(a) == Some(want))
                })
            };
            Ok((all.len() == 2 && all.iter().all(lends)).then_some(()))
        })
        .await?;
    }
    place.delete(&format!("{TOPOLOGIES}/zoned-0")).await?;
    remove_nodes(place, &nodes).await
}

fn amount_of(amount: &Value) -> Option<i64> {
    amount.as_str()?.parse::<koord_api::quantity::Quantity>().ok().map(|amount| amount.value())
}

/// Nonsense is told and changes nothing; sense counts at once again.
pub(crate) async fn nonsense_changes_nothing(place: &Place) -> Result<()> {
    place.configure(&strategies("auto", 60)).await?;
    let nodes = make_nodes(place, "sane", 1).await?;
    place.measure("sane-0", 1000, &json!([])).await?;
    place.lends("sane-0", lends(1000)).await?;
    until_slo(place, "sane-0", "auto").await?;
    place.configure(&json!({"colocation-config": "{\"enable\": fals", "cpu-burst-config": "[1,2"})).await?;
    let name = "slo-controller-config";
    let home = crate::place::HOME;
    place.told(home, name, "ColocationCfgUnmarshalFailed", "failed to unmarshal").await?;
    place.told(home, name, "SLOCfgUnmarshalFailed", "failed to unmarshal CPUBurstCfg").await?;
    // Work goes on by what was last good.
    place.measure("sane-0", 1500, &json!([])).await?;
    place.lends("sane-0", lends(1500)).await?;
    let extra = make_nodes(place, "sane-later", 1).await?;
    until_slo(place, "sane-later-0", "auto").await?;
    place.measure("sane-later-0", 500, &json!([])).await?;
    place.lends("sane-later-0", lends(500)).await?;
    until_slo(place, "sane-0", "auto").await?;
    // And back.
    place.configure(&strategies("cpuBurstOnly", 60)).await?;
    until_slo(place, "sane-0", "cpuBurstOnly").await?;
    until_slo(place, "sane-later-0", "cpuBurstOnly").await?;
    remove_nodes(place, &nodes).await?;
    remove_nodes(place, &extra).await?;
    eventually("what belongs to nodes goes with them", async || {
        let slo = place.find(&format!("{SLOS}/sane-0")).await?;
        let metric = place.find(&format!("{METRICS}/sane-0")).await?;
        Ok((slo.is_none() && metric.is_none()).then_some(()))
    })
    .await
}

/// The leader is killed; the other one goes on, when its term is over and not before.
pub(crate) async fn another_leads(place: &Place, replicas: [Replica; 2]) -> Result<[Replica; 2]> {
    place.configure(&strategies("auto", 60)).await?;
    let nodes = make_nodes(place, "led", 2).await?;
    for node in &nodes {
        place.measure(node, 1000, &json!([])).await?;
        place.lends(node, lends(1000)).await?;
    }
    let [leader, follower] = by_rank(replicas).await?;
    let holder = place.get(LEASE).await?["spec"]["holderIdentity"].clone();
    leader.kill(place)?;
    for node in &nodes {
        place.measure(node, 2000, &json!([])).await?;
    }
    for node in &nodes {
        place.lends(node, lends(2000)).await?;
    }
    ensure!(follower.leads().await?, "whoever writes leads");
    ensure!(place.get(LEASE).await?["spec"]["holderIdentity"] != holder, "the lease has another holder");
    remove_nodes(place, &nodes).await?;
    let fresh = Replica::start(place, "after-the-leader").await?;
    Ok([follower, fresh])
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Changes all the time until it is stopped. Gives what each node's system uses in the end.
async fn change_all_the_time(
    place: &Place,
    nodes: &[String],
    stop: &CancellationToken,
) -> Result<BTreeMap<String, i64>> {
    let mut dice = Dice(1);
    let mut uses = BTreeMap::new();
    while !stop.is_cancelled() || uses.len() < nodes.len() {
        for node in nodes {
            let milli = 500 + 100 * i64::try_from(dice.below(40))?;
            place.measure(node, milli, &json!([])).await?;
            uses.insert(node.clone(), milli);
        }
        let (burst, interval) = (["auto", "none", "cpuBurstOnly"], 60 + i64::try_from(dice.below(30))?);
        place.configure(&strategies(burst[usize::try_from(dice.below(3))?], interval)).await?;
        let label = json!({"metadata": {"labels": {"turn": dice.below(1000).to_string()}}});
        place.patch(&format!("{NODES}/{}", nodes[0]), &label).await?;
    }
    Ok(uses)
}

/// Replicas are killed at random points of a stream of changes; in the end everything is as if nothing had happened.
pub(crate) async fn kills_leave_no_trace(place: &Place, replicas: [Replica; 2]) -> Result<[Replica; 2]> {
    place.configure(&strategies("auto", 60)).await?;
    let nodes = make_nodes(place, "shaken", 6).await?;
    let stop = CancellationToken::new();
    let killing = async {
        let mut pair = replicas;
        let mut dice = Dice(2);
        for round in 0..5 {
            let [leader, follower] = by_rank(pair).await?;
            tokio::time::sleep(Duration::from_millis(dice.below(1500))).await;
            leader.kill(place)?;
            // Nobody waits for the rest of a term here; how that goes is another test.
            place.patch(LEASE, &json!({"spec": {"leaseDurationSeconds": 1}})).await?;
            pair = [follower, Replica::start(place, &format!("shaken-{round}")).await?];
        }
        stop.cancel();
        anyhow::Ok(pair)
    };
    let (pair, uses) = tokio::join!(killing, change_all_the_time(place, &nodes, &stop));
    let (pair, uses) = (pair?, uses?);
    place.configure(&strategies("cpuBurstOnly", 77)).await?;
    let settled = settled(place, &uses, "cpuBurstOnly", 77).await?;
    // The same from nothing, by a replica that remembers nothing.
    let [first, second] = pair;
    tokio::try_join!(first.stop(place), second.stop(place))?;
    wipe(place, &nodes).await?;
    let replicas = [Replica::start(place, "fresh-1").await?, Replica::start(place, "fresh-2").await?];
    let fresh = self::settled(place, &uses, "cpuBurstOnly", 77).await?;
    ensure!(settled == fresh, "{settled:#?}\nfresh:\n{fresh:#?}");
    remove_nodes(place, &nodes).await?;
    Ok(replicas)
}

/// Takes away what controllers wrote.
async fn wipe(place: &Place, nodes: &[String]) -> Result<()> {
    for node in nodes {
        place.delete(&format!("{SLOS}/{node}")).await?;
        place.patch(&format!("{METRICS}/{node}"), &json!({"spec": null})).await?;
        let names = ["batch-cpu", "batch-memory", "mid-cpu", "mid-memory"];
        let nothing: Value = names
            .iter()
            .map(|name| (format!("kubernetes.io/{name}"), Value::Null))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let status = json!({"status": {"allocatable": nothing, "capacity": nothing}});
        place.patch(&format!("{NODES}/{node}/status"), &status).await?;
    }
    Ok(())
}

/// What was written about each node, once it is what it should be.
async fn settled(
    place: &Place,
    uses: &BTreeMap<String, i64>,
    burst: &str,
    interval: i64,
) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (name, uses) in uses {
        let node = place.lends(name, lends(*uses)).await?;
        until_slo(place, name, burst).await?;
        let metric = eventually(&format!("NodeMetric {name} every {interval} s"), async || {
            let metric = place.get(&format!("{METRICS}/{name}")).await?;
            let found = &metric["spec"]["metricCollectPolicy"]["reportIntervalSeconds"];
            Ok((*found == interval).then_some(metric))
        })
        .await?;
        let slo = place.get(&format!("{SLOS}/{name}")).await?;
        let written = json!({"allocatable": node["status"]["allocatable"], "capacity": node["status"]["capacity"],
            "annotations": node["metadata"]["annotations"], "metric": metric["spec"], "slo": slo["spec"]});
        all.insert(name.clone(), written);
    }
    Ok(all)
}

/// Others write the same nodes and quotas all the time; the manager gets its way, and so does everyone else.
pub(crate) async fn storms_lose_nothing(place: &Place) -> Result<()> {
    place.configure(&strategies("auto", 60)).await?;
    let nodes = make_nodes(place, "stormy", 3).await?;
    let quotas = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/shop/elasticquotas";
    let profiles = "/apis/quota.koordinator.sh/v1alpha1/namespaces/shop/elasticquotaprofiles";
    let profile = json!({"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile",
        "metadata": {"name": "stormy"}, "spec": {"quotaName": "stormy-root",
            "nodeSelector": {"matchLabels": {"group": "stormy"}}}});
    place.post(profiles, &profile).await?;
    let root = format!("{quotas}/stormy-root");
    eventually("the root quota", async || place.find(&root).await).await?;
    let stop = CancellationToken::new();
    let mut writers = JoinSet::new();
    for node in &nodes {
        writers.spawn(write_all_the_time(place.client.clone(), format!("{NODES}/{node}"), stop.clone()));
    }
    writers.spawn(write_all_the_time(place.client.clone(), root.clone(), stop.clone()));
    for round in 1..=8 {
        for node in &nodes {
            place.measure(node, 500 * round, &json!([])).await?;
        }
        for node in &nodes {
            place.lends(node, lends(500 * round)).await?;
        }
    }
    // 30 CPUs together, and half of them.
    place.patch(&format!("{profiles}/stormy"), &json!({"spec": {"resourceRatio": "0.5"}})).await?;
    let is_half = |quota: &Value| quota["spec"]["min"]["cpu"] == "15";
    eventually("half of it", async || Ok(place.find(&root).await?.filter(is_half))).await?;
    stop.cancel();
    while let Some(ended) = writers.join_next().await {
        let count = ended??;
        ensure!(count > 10, "{count} writes are no storm");
    }
    for node in &nodes {
        ensure!(lent(&place.get(&format!("{NODES}/{node}")).await?) == Some(lends(4000)), "{node}");
    }
    place.delete(&format!("{profiles}/stormy")).await?;
    place.delete(&root).await?;
    remove_nodes(place, &nodes).await
}

/// Counts on an object's label, annotation and, for nodes, status; each number must still be there at the next turn.
async fn write_all_the_time(client: kube::Client, path: String, stop: CancellationToken) -> Result<u64> {
    let send = async |method: Method, path: &str, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(body.to_string().into_bytes())?;
        client.request::<Value>(request).await.with_context(|| path.to_owned())
    };
    let is_node = path.starts_with(NODES);
    let mut turn = 0_u64;
    loop {
        let found = send(Method::GET, &path, Value::Null).await?;
        if turn > 0 {
            let text = turn.to_string();
            ensure!(found["metadata"]["labels"]["stranger"] == text, "a label was lost: {found}");
            ensure!(found["metadata"]["annotations"]["stranger"] == text, "an annotation was lost: {found}");
            let amount = &found["status"]["allocatable"]["example.com/stranger"];
            ensure!(!is_node || *amount == text, "an amount was lost: {found}");
        }
        if stop.is_cancelled() {
            return Ok(turn);
        }
        turn += 1;
        let text = turn.to_string();
        let meta = json!({"metadata": {"labels": {"stranger": text}, "annotations": {"stranger": text}}});
        send(Method::PATCH, &path, meta).await?;
        if is_node {
            let amounts = json!({"example.com/stranger": text});
            let status = json!({"status": {"allocatable": amounts, "capacity": amounts}});
            send(Method::PATCH, &format!("{path}/status"), status).await?;
        }
    }
}
