//! What is sent to the API server for a plan, and what is not.

use koord_api::keys::resource::BATCH_CPU;
use koord_kit::metrics::{Format, Metrics};
use serde_json::{Value, json};

use super::*;
use crate::fake::{FakeApi, Seen, refused};
use crate::metrics::ManagerMetrics;
use crate::node_resource::fixture::World;

struct Bench {
    api: FakeApi,
    internal: Metrics,
    writer: Writer,
    world: World,
    memory: NodeMemory,
}

impl Bench {
    fn new(world: World, script: impl Fn(&Seen) -> (u16, Value) + Clone + Send + Sync + 'static) -> Bench {
        let api = FakeApi::default();
        let internal = Metrics::bare();
        let writer = Writer {
            client: api.client(script),
            plugins: PLUGINS.to_vec(),
            outcomes: ManagerMetrics::new(&Metrics::bare(), &internal).node_resource_reconcile,
        };
        Bench { api, internal, writer, world, memory: NodeMemory::default() }
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        let mut object = self.world.node.clone();
        object["metadata"]["resourceVersion"] = json!("7");
        let node: Node = serde_json::from_value(object).unwrap();
        let plan = self.world.plan_with(&mut self.memory);
        self.writer.write(&node, &NodeView::of(&node), &plan, &mut self.memory).await
    }

    fn counted(&self, line: &str) -> bool {
        let page = self.internal.render(Format::Prometheus);
        page.lines().any(|found| found == format!("slo_controller_node_resource_reconcile_count{line}"))
    }
}

fn echo(seen: &Seen) -> (u16, Value) {
    (200, if seen.body.is_null() { json!({"metadata": {"name": "n1"}}) } else { seen.body.clone() })
}

#[tokio::test]
async fn one_request_writes_status_and_notes() {
    let mut bench = Bench::new(World::n1(), echo);
    bench.turn().await.unwrap();
    let seen = bench.api.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].line.starts_with("PATCH /api/v1/nodes/n1/status"), "{}", seen[0].line);
    let body = &seen[0].body;
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(body["status"]["allocatable"][BATCH_CPU], "12400");
    assert_eq!(body["status"]["capacity"][BATCH_CPU], "12400");
    assert_eq!(body["status"]["allocatable"]["cpu"], json!(null), "what did not change is not sent");
    assert_eq!(body["metadata"]["annotations"].as_object().unwrap().len(), 2, "{body}");
    assert!(bench.memory.node_synced.is_some());
    assert!(bench.counted(r#"{status="succeeded",reason="updateNodeStatus"} 1"#));
    // The node as written: nothing is left to do.
    let plan = bench.world.plan();
    bench.world.node["status"]["capacity"] = serde_json::to_value(plan.prepared.capacity).unwrap();
    bench.world.node["status"]["allocatable"] = serde_json::to_value(plan.prepared.allocatable).unwrap();
    bench.world.node["metadata"]["annotations"] = serde_json::to_value(plan.prepared.annotations).unwrap();
    bench.memory.node_synced = None;
    bench.turn().await.unwrap();
    assert_eq!(bench.api.lines(), Vec::<String>::new(), "manager#26.DB-31 equal is not sent, even when due");
    assert!(bench.memory.node_synced.is_some());
}

#[tokio::test]
async fn whoever_came_in_between_keeps_what_he_wrote() {
    let fresh = json!({
        "metadata": {"name": "n1", "resourceVersion": "9", "annotations": {"theirs": "kept"}},
        "spec": {"unknownField": 1},
        "status": {"capacity": {"cpu": "64"}, "allocatable": {"cpu": "62", "theirs.io/x": "3"}, "odd": true},
    });
    let mut bench = Bench::new(World::n1(), move |seen| match seen.line.split(' ').next() {
        Some("PATCH") if !seen.body["metadata"]["resourceVersion"].is_null() => refused(409, "changed"),
        Some("GET") => (200, fresh.clone()),
        _ => echo(seen),
    });
    bench.turn().await.unwrap();
    let seen = bench.api.seen();
    let verbs: Vec<_> = seen.iter().map(|seen| seen.line.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["PATCH", "GET", "PATCH"]);
    let last = &seen[2];
    assert!(last.line.starts_with("PATCH /api/v1/nodes/n1/status"), "{}", last.line);
    assert!(
        last.body["metadata"].get("resourceVersion").is_none(),
        "whoever comes in between again is welcome"
    );
    assert!(last.body["metadata"]["annotations"].get("theirs").is_none(), "{}", last.body);
    assert_eq!(last.body["status"]["allocatable"][BATCH_CPU], "12400");
    assert!(last.body["status"]["allocatable"].get("theirs.io/x").is_none(), "{}", last.body);
    assert!(last.body.get("spec").is_none() && last.body["status"].get("odd").is_none(), "{}", last.body);
}

#[tokio::test]
async fn notes_alone_are_patched_without_status() {
    let mut bench = Bench::new(World::n1(), echo);
    bench.turn().await.unwrap();
    bench.api.seen();
    let plan = bench.world.plan();
    bench.world.node["status"]["capacity"] = serde_json::to_value(plan.prepared.capacity).unwrap();
    bench.world.node["status"]["allocatable"] = serde_json::to_value(plan.prepared.allocatable).unwrap();
    bench.memory.node_synced = Some(bench.world.now);
    bench.turn().await.unwrap();
    let seen = bench.api.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].line.starts_with("PATCH /api/v1/nodes/n1?"), "{}", seen[0].line);
    assert_eq!(seen[0].body.as_object().unwrap().keys().collect::<Vec<_>>(), ["metadata"]);
    assert!(bench.counted(r#"{status="succeeded",reason="patchNodeMeta"} 1"#));
}

#[tokio::test]
async fn zones_are_read_and_replaced() {
    let world = World::n1_zones();
    let mut topology = world.topology.clone().unwrap();
    topology["metadata"]["resourceVersion"] = json!("3");
    topology["zones"][0]["unknown"] = json!("kept");
    let mut bench = Bench::new(world, move |seen| {
        let is_topology = seen.line.contains("noderesourcetopologies");
        if is_topology && seen.line.starts_with("GET") { (200, topology.clone()) } else { echo(seen) }
    });
    bench.turn().await.unwrap();
    let seen = bench.api.seen();
    let put = seen.iter().find(|seen| seen.line.starts_with("PUT")).unwrap();
    let path = "PUT /apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1";
    assert!(put.line.starts_with(path), "{}", put.line);
    assert_eq!(put.body["zones"][0]["unknown"], "kept");
    assert_eq!(put.body["zones"][0]["resources"][1]["name"], BATCH_CPU);
    assert_eq!(put.body["zones"][0]["resources"][1]["available"], "2200");
    assert!(bench.memory.zones_synced.is_some());
    assert!(bench.counted(r#"{status="succeeded",reason="updateNodeResourceTopology"} 1"#));
}

#[tokio::test]
async fn failures_are_told_and_the_rest_is_done() {
    let mut bench = Bench::new(World::n1_zones(), |seen| {
        if seen.line.contains("noderesourcetopologies") { refused(500, "broken") } else { echo(seen) }
    });
    assert!(bench.turn().await.is_err());
    assert!(bench.api.lines().iter().any(|line| line.contains("nodes/n1/status")), "the node is written");
    assert!(bench.memory.node_synced.is_some() && bench.memory.zones_synced.is_none());
    let mut gone = Bench::new(World::n1_zones(), |_| refused(404, "gone"));
    gone.turn().await.unwrap();
    assert!(gone.counted(r#"{status="failed",reason="updateNodeNotFound"} 1"#));
}

#[test]
fn which_topologies_wake_a_node() {
    let parts = World::n1_zones().parts();
    let old = parts.topology.unwrap();
    let mut same = old.clone();
    same.zones[0].resources[0].available = koord_api::quantity::Quantity::ZERO;
    assert!(!topology_differs(&old, &same), "what is available does not matter");
    let mut batch = old.clone();
    let mut entry = batch.zones[0].resources[0].clone();
    entry.name = BATCH_CPU.to_owned();
    batch.zones[0].resources.push(entry);
    assert!(!topology_differs(&old, &batch), "our own writes neither");
    let mut smaller = old.clone();
    smaller.zones[0].resources[0].allocatable = koord_api::quantity::Quantity::ZERO;
    assert!(topology_differs(&old, &smaller));
    let info = TopologyView { cpu_basic_info: Some("{}".to_owned()), ..old.clone() };
    assert!(topology_differs(&old, &info));
}
