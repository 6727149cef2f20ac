//! What the engine knows, as people ask for it. Spec: scheduler-core 9.8, 8.2 and 11.8.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};
use koord_engine::cluster::{Cluster, Row};
use koord_engine::engine::{Engine, Queued};
use koord_engine::pod::{Pod, Volume};
use koord_engine::queue::QueueName;
use koord_engine::time::Time;
use serde_json::{Map, Value, json};

/// A node under Koordinator's keys.
pub(super) fn node(engine: &Engine, name: &str) -> Option<Value> {
    let cluster = engine.cluster();
    let row = cluster.row(name).filter(|row| cluster.node(*row).is_real)?;
    let node = cluster.node(row);
    let pods = &node.pods.all;
    let names = |of: &dyn Fn(&Pod) -> bool| -> Vec<String> {
        let mut names: Vec<String> =
            pods.iter().filter(|pod| of(pod)).map(|pod| pod.key.to_string()).collect();
        names.sort();
        names
    };
    let has_affinity = |pod: &Pod| {
        !pod.class.affinity.is_empty()
            || !pod.class.anti_affinity.is_empty()
            || !pod.class.preferred_pods.is_empty()
    };
    let images: Map<String, Value> = node
        .images
        .iter()
        .map(|(name, size)| {
            let nodes = cluster.image(*name).map_or(0, |image| image.nodes);
            (cluster.names.text(*name).to_owned(), json!({"Size": size, "NumNodes": nodes}))
        })
        .collect();
    let requested = cluster.requested(row);
    let remaining = difference(&node.allocatable, &requested);
    Some(json!({
        "node": {
            "name": node.name, "labels": node.labels, "annotations": node.annotations,
            "taints": node.taints, "unschedulable": node.is_unschedulable,
        },
        "pods": names(&|_| true),
        "podsWithAffinity": names(&has_affinity),
        "podsWithRequiredAntiAffinity": names(&|pod| !pod.class.anti_affinity.is_empty()),
        "usedPorts": used_ports(&node.pods.with_ports),
        "requested": resource(cluster, &requested, pods.len()),
        "nonZeroRequested": {
            "MilliCPU": cluster.columns.nonzero_cpu[row.index()],
            "Memory": cluster.columns.nonzero_memory[row.index()],
        },
        "remaining": resource(cluster, &remaining, allowed_pods(node.allocatable.get(ResourceId::PODS), pods.len())),
        "allocatable": resource(cluster, &node.allocatable, allowed_pods(node.allocatable.get(ResourceId::PODS), 0)),
        "imageStates": images,
        "pvcRefCounts": claims(pods),
        "generation": generation(cluster, row),
    }))
}

/// What load-aware scheduling has counted of a node; nothing for one that nobody has heard of. None where it is off.
/// Spec: scheduler-reservation-loadaware B6.
pub(super) fn load(engine: &Engine, name: &str) -> Option<Value> {
    let cluster = engine.cluster();
    let book = cluster.loads().books().first()?;
    let Some(account) = cluster.row(name).and_then(|row| book.account(row)) else { return Some(json!({})) };
    let pods = account.pods.iter().map(|(since, pod)| {
        let metadata = json!({"namespace": pod.namespace, "name": pod.name, "uid": pod.uid});
        json!({"timestamp": since.to_string(), "pod": {"metadata": metadata}})
    });
    let mut page = json!({"pods": pods.collect::<Vec<Value>>()});
    let Some(sums) = account.sums else { return Some(page) };
    let amounts = |amounts: &[i64]| -> BTreeMap<&str, String> {
        let named = book.settings().names.iter().zip(amounts);
        let text = |name: &str, units: i64| {
            let id = cluster.resources.id(name)?;
            Some(cluster.resources.quantity(id, units).to_string())
        };
        named.filter_map(|(name, units)| Some((&**name, text(name, *units)?))).collect()
    };
    for (key, sum) in [
        ("prodUsage", &sums.prod_usage),
        ("nodeDelta", &sums.node_delta),
        ("prodDelta", &sums.prod_delta),
        ("nodeEstimated", &sums.node_estimated),
    ] {
        page[key] = json!(amounts(sum));
    }
    for (key, pods) in [
        ("nodeDeltaPods", &sums.node_delta_pods),
        ("prodDeltaPods", &sums.prod_delta_pods),
        ("nodeEstimatedPods", &sums.node_estimated_pods),
    ] {
        if !pods.is_empty() {
            page[key] = json!(pods);
        }
    }
    Some(page)
}

fn allowed_pods(allowed: i64, used: usize) -> usize {
    usize::try_from(allowed).unwrap_or(0).saturating_sub(used)
}

fn difference(a: &ResourceVector, b: &ResourceVector) -> ResourceVector {
    let mut left = a.clone();
    for (id, units) in b.iter() {
        left.set(id, left.get(id).saturating_sub(units));
    }
    left
}

/// A list of amounts as Go shows its struct.
fn resource(cluster: &Cluster, amounts: &ResourceVector, pods: usize) -> Value {
    let named = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::EPHEMERAL_STORAGE, ResourceId::PODS];
    let scalars: BTreeMap<&str, i64> = amounts
        .iter()
        .filter(|(id, _)| !named.contains(id))
        .map(|(id, units)| (cluster.resources.name(id), units))
        .collect();
    json!({
        "MilliCPU": amounts.get(ResourceId::CPU),
        "Memory": amounts.get(ResourceId::MEMORY),
        "EphemeralStorage": amounts.get(ResourceId::EPHEMERAL_STORAGE),
        "AllowedPodNumber": pods,
        "ScalarResources": scalars,
    })
}

fn used_ports(pods: &[Arc<Pod>]) -> BTreeMap<String, Vec<Value>> {
    let mut ports: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for port in pods.iter().flat_map(|pod| &pod.class.ports) {
        let address = if port.address.is_empty() { "0.0.0.0" } else { &*port.address };
        ports
            .entry(address.to_owned())
            .or_default()
            .push(json!({"Protocol": port.protocol, "Port": port.port}));
    }
    ports
}

/// How many pods use each claim, by `namespace/name`.
fn claims(pods: &[Arc<Pod>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        for volume in &pod.class.volumes {
            let claim = match volume {
                Volume::Claim { claim, .. } => claim.to_string(),
                Volume::Ephemeral { volume } => format!("{}-{volume}", pod.key.name),
                _ => continue,
            };
            *counts.entry(format!("{}/{claim}", pod.key.namespace)).or_default() += 1;
        }
    }
    counts
}

/// Grows with every change of any node; what matters is that it changes with this one.
fn generation(cluster: &Cluster, row: Row) -> u64 {
    let log = cluster.changes();
    let kept = log.since(0).map(|rows| rows.collect::<Vec<Row>>()).unwrap_or_default();
    let first = log.end().saturating_sub(u64::try_from(kept.len()).unwrap_or(0));
    kept.iter()
        .rposition(|changed| *changed == row)
        .map_or(first, |at| first.saturating_add(u64::try_from(at).unwrap_or(0)).saturating_add(1))
}

const PARTS: [QueueName; 4] =
    [QueueName::Active, QueueName::Backoff, QueueName::Unschedulable, QueueName::Gated];

/// Every pod that waits, by the part of the queue that has it, and those that are being bound.
pub(super) fn queue(engine: &Engine) -> Value {
    let mut lists = Map::new();
    for part in PARTS {
        lists.insert(part.to_string(), engine.queued(part).iter().map(waiting).collect());
    }
    let mut binding: Vec<(String, &str)> =
        engine.binding().map(|(pod, node)| (pod.key.to_string(), node)).collect();
    binding.sort();
    lists.insert(
        "waiting".to_owned(),
        binding.into_iter().map(|(pod, node)| json!({"pod": pod, "node": node})).collect(),
    );
    Value::Object(lists)
}

fn waiting(pod: &Queued) -> Value {
    json!({
        "namespace": &*pod.pod.key.namespace,
        "name": pod.pod.key.name,
        "uid": pod.pod.uid,
        "schedulerName": pod.scheduler,
        "priority": pod.priority,
        "attempts": pod.attempts,
        "since": pod.since.to_string(),
        "firstAttempt": pod.first.map(|time| time.to_string()),
        "unschedulablePlugins": pod.rejectors,
        "gate": pod.gate.as_ref().map(|(plugin, reason)| json!({"plugin": plugin, "reason": reason})),
        "nominatedNode": pod.nominated,
        "message": pod.message,
    })
}

/// Requests and limits of every pod, as a metrics page.
pub(super) fn resources(engine: &Engine) -> String {
    let cluster = engine.cluster();
    // Nothing runs where a reservation only holds room.
    let placed = cluster.all_held().map(|held| (&held.pod, &*cluster.node(held.row).name));
    let all = placed.chain(engine.unplaced().map(|pod| (pod, "")));
    let mut pods: Vec<(&Arc<Pod>, &str)> = all.filter(|(pod, _)| pod.reserves.is_none()).collect();
    pods.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    let mut page = String::new();
    let about = "by workloads on the cluster, broken down by pod";
    for (name, help) in [("request", "Resources requested"), ("limit", "Resources limited")] {
        let _ = writeln!(page, "# HELP kube_pod_resource_{name} {help} {about}.");
        let _ = writeln!(page, "# TYPE kube_pod_resource_{name} gauge");
        for (pod, node) in &pods {
            let requests = &pod.class.requests;
            let amounts = if name == "request" { &requests.amounts } else { &requests.limits };
            amounts_of(&mut page, cluster, name, pod, node, amounts);
        }
    }
    page
}

fn amounts_of(
    page: &mut String,
    cluster: &Cluster,
    what: &str,
    pod: &Pod,
    node: &str,
    amounts: &ResourceVector,
) {
    for (id, units) in amounts.iter().filter(|(_, units)| *units != 0) {
        let resource = cluster.resources.name(id);
        let (amount, unit) = amount(id, resource, units);
        let _ = writeln!(
            page,
            "kube_pod_resource_{what}{{namespace=\"{}\",pod=\"{}\",node=\"{node}\",scheduler=\"{}\",\
             priority=\"{}\",resource=\"{resource}\",unit=\"{unit}\"}} {amount}",
            pod.key.namespace, pod.key.name, pod.class.scheduler, pod.class.priority
        );
    }
}

/// An amount in its base unit, and that unit as kube-scheduler names it.
fn amount(id: ResourceId, name: &str, units: i64) -> (String, &'static str) {
    if id == ResourceId::CPU {
        let (whole, milli) = (units / 1000, units % 1000);
        let text = format!("{whole}.{milli:03}");
        return (text.trim_end_matches('0').trim_end_matches('.').to_owned(), "cores");
    }
    let is_bytes = id == ResourceId::MEMORY
        || id == ResourceId::EPHEMERAL_STORAGE
        || name.starts_with("hugepages-")
        || name == "storage";
    let unit = match name.starts_with("attachable-volumes-") {
        _ if is_bytes => "bytes",
        true => "integer",
        false => "",
    };
    (units.to_string(), unit)
}

/// Everything, for the log.
pub(super) fn dump(engine: &Engine, now: Time) -> Value {
    let cluster = engine.cluster();
    let nodes: Vec<Value> =
        cluster.visited().iter().filter_map(|row| node(engine, &cluster.node(*row).name)).collect();
    json!({"time": now.to_string(), "nodes": nodes, "queue": queue(engine)})
}

/// Nodes by name and pods by UID, with the names people know; and whether the sums are those of the pods.
pub(super) fn census(engine: &Engine) -> Value {
    let cluster = engine.cluster();
    let nodes: Map<String, Value> = cluster
        .would_visit()
        .iter()
        .map(|row| cluster.node(*row).name.to_string())
        .map(|name| (name.clone(), name.into()))
        .collect();
    let pods = cluster.all_held().map(|held| &held.pod).chain(engine.unplaced());
    let pods: Map<String, Value> =
        pods.map(|pod| (pod.uid.to_string(), pod.key.to_string().into())).collect();
    json!({"nodes": nodes, "pods": pods, "sumsAreRight": cluster.ledger() == cluster.recount()})
}

#[cfg(test)]
mod listings;

#[cfg(test)]
mod tests {
    use koord_engine::engine::Options;
    use koord_engine::profile::Profile;
    use koord_engine::profile::expand::Enabled;
    use koord_engine::profile::point::Point;

    use super::*;

    fn engine(profile: Profile) -> Engine {
        let mut engine = Engine::new(&Options::new(vec![profile])).unwrap();
        let requests = json!({"requests": {"cpu": "4"}});
        let scheduled =
            json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-01-01T12:00:00Z"}]);
        for input in [
            json!({"type": "node", "object": {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}}),
            json!({"type": "nodeMetric", "object": {"metadata": {"name": "n"}, "status": {
                "updateTime": "2024-01-01T12:00:00Z", "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1"}}}}}}),
            json!({"type": "pod", "object": {"metadata": {"name": "p", "namespace": "d", "uid": "u"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": requests}]},
                "status": {"conditions": scheduled}}}),
        ] {
            engine.take(Time::from_seconds(1_704_110_400), serde_json::from_value(input).unwrap());
        }
        engine
    }

    #[test]
    fn what_load_awareness_has_counted() {
        assert_eq!(load(&engine(Profile::standard("s")), "n"), None, "it is off");
        let mut profile = Profile::standard("s");
        profile.points[Point::Filter].push(Enabled { plugin: "LoadAwareScheduling", weight: 1 });
        let engine = engine(profile);
        assert_eq!(load(&engine, "nobody"), Some(json!({})));
        let expected = json!({"cpu": "3400m", "memory": "200Mi"});
        assert_eq!(
            load(&engine, "n"),
            Some(json!({
                "pods": [{"timestamp": "2024-01-01T12:00:00Z",
                    "pod": {"metadata": {"namespace": "d", "name": "p", "uid": "u"}}}],
                "prodUsage": {"cpu": "0", "memory": "0"},
                "nodeDelta": expected, "prodDelta": expected, "nodeEstimated": expected,
                "nodeDeltaPods": ["d/p"], "prodDeltaPods": ["d/p"], "nodeEstimatedPods": ["d/p"],
            }))
        );
    }
}
