//! What is sent to the API server for a plan, and what is not.

use koord_api::annotation::Annotation;
use koord_api::annotation::node::OriginExtendedAllocatable;
use koord_api::annotation::ratio::CpuNormalizationRatio;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY};
use koord_kit::metrics::{Format, Metrics};
use serde_json::{Value, json};

use super::*;
use crate::fake::{FakeApi, Seen, refused};
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
            metrics: ManagerMetrics::new(&Metrics::bare(), &internal),
            memories: Memories::default(),
        };
        Bench { api, internal, writer, world, memory: NodeMemory::default() }
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        let mut object = self.world.node.clone();
        object["metadata"]["resourceVersion"] = json!("7");
        let node: Node = serde_json::from_value(object).unwrap();
        let plan = self.world.plan_with(&mut self.memory);
        let topology = self.world.parts().topology;
        self.writer.write(&node, &NodeView::of(&node), topology.as_ref(), &plan, &mut self.memory).await
    }

    fn counted(&self, line: &str) -> bool {
        self.shows(&format!("slo_controller_node_resource_reconcile_count{line}"))
    }

    fn shows(&self, line: &str) -> bool {
        self.internal.render(Format::Prometheus).lines().any(|found| found == line)
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
async fn the_first_turn_after_a_start_sends_only_what_differs() {
    // A node and its zones as an earlier process has left them, and nothing has moved since.
    let mut world = World::n1_zones();
    let plan = world.plan();
    world.node["status"]["capacity"] = serde_json::to_value(plan.prepared.capacity).unwrap();
    world.node["status"]["allocatable"] = serde_json::to_value(plan.prepared.allocatable).unwrap();
    world.node["metadata"]["annotations"] = serde_json::to_value(plan.prepared.annotations).unwrap();
    let mut zones = world.parts().topology.unwrap().zones;
    zones::apply(&mut zones, &plan.resource, zones::Closeness::Exact);
    world.topology.as_mut().unwrap()["zones"] = serde_json::to_value(&zones).unwrap();
    let is_due = |bench: &Bench| bench.world.plan_with(&mut bench.memory.clone()).needs_status;
    let mut bench = Bench::new(world.clone(), echo);
    assert!(is_due(&bench), "manager#5.4.D13");
    bench.turn().await.unwrap();
    assert_eq!(
        bench.api.lines(),
        Vec::<String>::new(),
        "manager#5.4.D13: upstream sends 2, both equal; ours 0"
    );
    bench.memory.node_synced = Some(bench.world.now);
    assert!(!is_due(&bench), "manager#5.4.D13: the second time");
    bench.turn().await.unwrap();
    assert_eq!(bench.api.lines(), Vec::<String>::new(), "manager#5.4.D13: the second time");
    // Ten more are no reason to write later on, but after a start they are set right: one write for each object.
    world.usage("web", "koord-prod", "6010m", "40Gi");
    let mut bench = Bench::new(world, echo);
    bench.turn().await.unwrap();
    assert_eq!(bench.api.lines().len(), 2, "manager#5.4.D13: the node and its topology");
    assert!(bench.memory.node_synced.is_some() && bench.memory.zones_synced.is_some());
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

/// A node with zones that have been written before, and amounts that have moved since.
fn written_zones() -> World {
    let mut world = World::n1_zones();
    let topology = world.topology.as_mut().unwrap();
    topology["metadata"]["resourceVersion"] = json!("3");
    for zone in topology["zones"].as_array_mut().unwrap() {
        let old = |name: &str| json!({"name": name, "capacity": "7", "allocatable": "7", "available": "7"});
        let resources = zone["resources"].as_array_mut().unwrap();
        resources.extend([old(BATCH_CPU), old(BATCH_MEMORY)]);
        resources.sort_by_key(|resource| resource["name"].as_str().unwrap().to_owned());
    }
    world
}

#[tokio::test]
async fn zones_are_written_by_the_amounts_that_moved() {
    let mut bench = Bench::new(written_zones(), echo);
    bench.turn().await.unwrap();
    let seen = bench.api.seen();
    let [patch, node] = &seen[..] else { panic!("{seen:?}") };
    let path = "PATCH /apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1";
    assert_eq!(patch.line, path);
    assert!(node.line.starts_with("PATCH /api/v1/nodes/n1/status"), "{}", node.line);
    let steps = patch.body.as_array().unwrap();
    assert_eq!(steps[0], json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "3"}));
    let amounts = steps[1..].iter().map(|step| (step["op"].as_str(), step["path"].as_str().unwrap()));
    let is_amount = |(op, path): (Option<&str>, &str)| {
        op == Some("replace") && path.starts_with("/zones/") && path.contains("/resources/")
    };
    assert!(steps.len() > 1 && amounts.clone().all(is_amount), "{:?}", amounts.collect::<Vec<_>>());
    let cpu = json!({"op": "replace", "path": "/zones/0/resources/1/available", "value": "2200"});
    assert!(steps.contains(&cpu), "{steps:?}");
    assert!(bench.memory.zones_synced.is_some());
    assert!(bench.counted(r#"{status="succeeded",reason="updateNodeResourceTopology"} 1"#));
}

#[tokio::test]
async fn zones_that_somebody_else_changed_are_read_and_replaced() {
    for code in [409, 422] {
        let world = written_zones();
        let mut topology = world.topology.clone().unwrap();
        topology["zones"][0]["unknown"] = json!("kept");
        let mut bench = Bench::new(world, move |seen| {
            let is_topology = seen.line.contains("noderesourcetopologies");
            match seen.line.split(' ').next() {
                Some("GET") if is_topology => (200, topology.clone()),
                Some("PATCH") if is_topology => refused(code, "changed"),
                _ => echo(seen),
            }
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
}

#[tokio::test]
async fn failures_are_told_and_the_rest_is_done() {
    let mut bench = Bench::new(World::n1_zones(), |seen| {
        if seen.line.contains("noderesourcetopologies") { refused(500, "broken") } else { echo(seen) }
    });
    assert!(bench.turn().await.is_err());
    assert!(bench.api.lines().iter().any(|line| line.contains("nodes/n1/status")), "the node is written");
    assert!(bench.memory.node_synced.is_some() && bench.memory.zones_synced.is_none());
    let step = |status: &str| {
        format!(
            "slo_controller_node_resource_run_plugin_status{{plugin=\"BatchResource\",status=\"{status}\",\
             reason=\"NodePreUpdate\"}} 1"
        )
    };
    assert!(bench.shows(&step("failed")), "manager 5.3");
    let mut plain = Bench::new(World::n1(), echo);
    plain.turn().await.unwrap();
    assert!(plain.shows(&step("succeeded")), "also where nothing had to be written");
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

/// A node at a version, with what others may change of it.
fn node_at(version: u32, batch: Option<&str>, note: &str) -> Node {
    let mut amounts = json!({"cpu": "64"});
    if let Some(batch) = batch {
        amounts[BATCH_CPU] = json!(batch);
    }
    let origin = if batch.is_some() { "{}" } else { "" };
    serde_json::from_value(json!({
        "metadata": {
            "name": "n1", "resourceVersion": version.to_string(),
            "annotations": {"note": note, OriginExtendedAllocatable::KEY: origin},
        },
        "status": {"capacity": amounts, "allocatable": amounts}}))
    .unwrap()
}

/// What a turn does that writes: the note is there before the request is.
fn sends(memories: &Memories, before: &Node, after: &Node) {
    let [before_view, after_view] = [before, after].map(NodeView::of);
    memories.expect(&node_key("n1"), OwnWrite::of(before, &before_view, &after_view));
}

#[test]
fn our_own_write_is_no_news_once() {
    let key = node_key("n1");
    let [v1, v2] = [node_at(1, None, ""), node_at(2, Some("12400"), "")];
    let is_news = |memories: &Memories, old: &Node, new: &Node| memories.is_news(&key, old, new);
    // What was written looks the same again later, after changes that were worth no write.
    let memories = Memories::default();
    let memory = memories.begin(&key);
    sends(&memories, &v1, &v2);
    memories.end(&key, memory);
    assert!(!is_news(&memories, &v1, &v2), "the event of our write");
    let [v3, v4] = [node_at(3, Some("12400"), "changed"), node_at(4, Some("12400"), "")];
    assert!(is_news(&memories, &v2, &v3), "somebody changes an annotation");
    let memory = memories.begin(&key);
    memories.end(&key, memory);
    assert!(is_news(&memories, &v3, &v4), "and takes it back: manager 5.1");
    assert!(is_news(&memories, &v1, &v2), "used up");
    // The same if the event of our write never came by itself, as when a watch begins anew.
    sends(&memories, &v1, &v2);
    assert!(is_news(&memories, &v3, &v4), "another version came before");
    let memory = memories.begin(&key);
    memories.end(&key, memory);
    assert!(is_news(&memories, &v1, &v2), "a turn has begun since");
}

#[test]
fn the_event_of_a_write_comes_whenever_it_likes() {
    let key = node_key("n1");
    let [v1, v2] = [node_at(1, None, ""), node_at(2, Some("12400"), "")];
    let memories = Memories::default();
    let memory = memories.begin(&key);
    sends(&memories, &v1, &v2);
    assert!(!memories.is_news(&key, &v1, &v2), "before the turn has ended");
    memories.end(&key, memory);
    assert!(memories.is_news(&key, &v1, &v2), "the end of the turn does not bring it back");
    // Two writes before the first event: only the second is known, and the first wakes the node once too often.
    let v3 = node_at(3, Some("9000"), "");
    sends(&memories, &v1, &v2);
    sends(&memories, &v2, &v3);
    assert!(memories.is_news(&key, &v1, &v2));
    assert!(!memories.is_news(&key, &v2, &v3));
    // Both in one, as after a gap in the watch.
    sends(&memories, &v2, &v3);
    assert!(memories.is_news(&key, &v1, &v3));
}

#[test]
fn what_else_is_news() {
    let key = node_key("n1");
    let [v1, v2] = [node_at(1, None, ""), node_at(2, Some("12400"), "")];
    assert!(!Memories::default().is_news(&key, &v1, &node_at(2, None, "")), "a heartbeat is not");
    assert!(Memories::default().is_news(&key, &v1, &v2), "nobody expects it");
    let other = node_at(2, Some("12400"), "theirs");
    let memories = Memories::default();
    sends(&memories, &v1, &v2);
    assert!(memories.is_news(&key, &v1, &other), "somebody else changed it as well");
    let mut faster = v2.clone();
    let annotations = faster.metadata.annotations.as_mut().unwrap();
    annotations.insert(CpuNormalizationRatio::KEY.to_owned(), "1.20".to_owned());
    let [before, after] = [&v1, &faster].map(NodeView::of);
    assert_eq!(OwnWrite::of(&v1, &before, &after), None, "amplification follows from this ratio");
}

#[tokio::test]
async fn only_what_is_sent_is_expected() {
    // Whether the event of the write that was planned is news afterwards.
    async fn is_news_after(mut bench: Bench) -> bool {
        let plan = bench.world.plan();
        bench.turn().await.unwrap();
        let mut object = bench.world.node.clone();
        object["metadata"]["resourceVersion"] = json!("7");
        let old: Node = serde_json::from_value(object.clone()).unwrap();
        let patch = plan.prepared.patch(&NodeView::of(&old)).to_string();
        let new = koord_api::patch::merge::apply(object, patch.as_bytes()).unwrap();
        bench.writer.memories.is_news(&node_key("n1"), &old, &serde_json::from_value(new).unwrap())
    }
    let mut settled = World::n1();
    // The ratio is written with the first turn; only batch resources are left to change.
    settled.annotate(CpuNormalizationRatio::KEY, "1.00");
    assert!(!is_news_after(Bench::new(settled.clone(), echo)).await);
    assert!(is_news_after(Bench::new(World::n1(), echo)).await, "more may follow");
    let conflict = |seen: &Seen| match seen.line.split(' ').next() {
        Some("PATCH") if !seen.body["metadata"]["resourceVersion"].is_null() => refused(409, "changed"),
        _ => echo(seen),
    };
    assert!(is_news_after(Bench::new(settled, conflict)).await, "not what was sent in the end");
}

#[test]
fn a_report_that_goes_during_a_turn_is_not_forgotten() {
    let (memories, key) = (Memories::default(), node_key("n1"));
    memories.forget_sync(&key);
    let mut memory = memories.begin(&key);
    memory.node_synced = Some(Timestamp::UNIX_EPOCH);
    memory.zones_synced = memory.node_synced;
    memories.forget_sync(&key);
    memories.end(&key, memory);
    assert_eq!(memories.of(&key).node_synced, None, "manager 5.1");
    assert_eq!(memories.of(&key).zones_synced, Some(Timestamp::UNIX_EPOCH));
    let mut memory = memories.begin(&key);
    memory.node_synced = Some(Timestamp::UNIX_EPOCH);
    memories.end(&key, memory);
    assert_eq!(memories.of(&key).node_synced, Some(Timestamp::UNIX_EPOCH), "the next turn counts");
    memories.forget_sync(&key);
    assert_eq!(memories.of(&key).node_synced, None);
    memories.forget(&key);
    assert_eq!(memories.of(&key).zones_synced, None);
}
