//! Rounds of the report against an API server and a kubelet that answer by a script.

use koord_kit::cache::CacheBuilder;
use serde_json::{Value, json};

use super::*;
use crate::fake::FakeApi;
use crate::state::kubelet::KubeletOptions;
use crate::state::{Editions, NodeState, Snapshot, Synced};

const PATH: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";

/// A machine with two CPUs, in a folder.
fn machine() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::host(folder.path());
    let write = |path: &str, text: &str| {
        let path = root.sys.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("devices/system/cpu/online", "0-1\n");
    write("devices/system/node/node0/cpulist", "0-1\n");
    write("bus/node/devices/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n");
    (folder, root)
}

fn state() -> State {
    let node = NodeState { name: "n1".to_owned(), uid: "u1".to_owned(), ..NodeState::default() };
    State::new(Snapshot {
        node: Some(Arc::new(node)),
        synced: Synced { pods: true, ..Synced::default() },
        ..Snapshot::default()
    })
}

fn reporter(state: &State, root: &Root, remote: Option<Remote>) -> Reporter {
    let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    let kubelet = Kubelet::new(state.clone(), config, KubeletOptions::default(), Arc::new(|_| {}));
    let options = Options {
        interval: Duration::from_secs(3),
        reports_huge_pages: false,
        queries_kubelet: false,
        root: root.clone(),
    };
    Reporter::new(state.clone(), kubelet, remote, options)
}

/// A cache that holds these objects, from a server that then falls silent.
async fn cache(items: Value) -> (Cache<NodeResourceTopology>, CancellationToken) {
    let api = FakeApi::default();
    let list = json!({ "kind": "List", "metadata": { "resourceVersion": "5" }, "items": items });
    let client = api.client(move |_| (200, list.clone()));
    let (cache, worker) = CacheBuilder::of(client, |_, object: NodeResourceTopology| object).build();
    let stop = CancellationToken::new();
    tokio::spawn(worker.run(stop.clone()));
    tokio::time::timeout(Duration::from_secs(60), cache.synced()).await.unwrap();
    stop.cancel();
    (cache, stop)
}

#[tokio::test]
async fn without_the_gate_only_the_node_itself_hears() {
    let (_folder, root) = machine();
    let state = state();
    let mut reporter = reporter(&state, &root, None);
    let mut seen = Editions::default();
    reporter.round().await.unwrap();
    assert!(seen.catch_up(&state.load()).layout);
    assert_eq!(state.load().layout.as_ref().unwrap().topology.all().to_string(), "0-1");
    reporter.round().await.unwrap();
    assert!(!seen.catch_up(&state.load()).layout);
}

/// A kernel without NUMA, and one that tells CPUs of a node but not its memory: decisions need neither.
#[tokio::test]
async fn odd_machines_have_a_layout() {
    for (missing, is_reported) in [(&["bus/node", "devices/system/node"][..], true), (&["bus/node"], false)] {
        let (_folder, root) = machine();
        for dir in missing {
            fs::remove_dir_all(root.sys.join(dir)).unwrap();
        }
        if !is_reported {
            fs::rename(
                root.sys.join("devices/system/node/node0"),
                root.sys.join("devices/system/node/node3"),
            )
            .unwrap();
        }
        let state = state();
        assert_eq!(reporter(&state, &root, None).round().await.is_ok(), is_reported, "{missing:?}");
        assert_eq!(state.load().layout.as_ref().unwrap().topology.all().to_string(), "0-1");
        assert!(!state.load().missing().contains(&"the CPUs of the node"));
    }
}

/// What the Node or kubelet says cannot be read: nothing is reported and no CPU set moves, but nobody waits for it.
#[tokio::test]
async fn faults_of_others_hold_only_the_report_up() {
    let (_folder, root) = machine();
    let broken = [("node.koordinator.sh/system-qos-resource".to_owned(), "{".to_owned())];
    let state = state();
    state.update(|snapshot| {
        let node =
            NodeState { annotations: Some(broken.into()), ..(**snapshot.node.as_ref().unwrap()).clone() };
        snapshot.node = Some(Arc::new(node));
    });
    assert!(state.load().missing().contains(&"the CPUs of the node"));
    let mut reporter = reporter(&state, &root, None);
    assert!(reporter.round().await.is_err());
    assert!(state.load().layout.is_none());
    assert!(!state.load().missing().contains(&"the CPUs of the node"));
    state.update(|snapshot| {
        let node = NodeState { annotations: None, ..(**snapshot.node.as_ref().unwrap()).clone() };
        snapshot.node = Some(Arc::new(node));
    });
    reporter.round().await.unwrap();
    assert!(state.load().layout.is_some(), "it is mended");
}

/// The same of kubelet's own file.
#[tokio::test]
async fn faults_of_kubelets_file_hold_only_the_report_up() {
    let (_folder, root) = machine();
    fs::create_dir_all(root.kubelet.join("cpu_manager_state")).unwrap();
    let state = state();
    let mut reporter = reporter(&state, &root, None);
    reporter.config.known =
        Some(KubeletConfig { cpu_manager_policy: "static".to_owned(), ..Default::default() });
    assert!(reporter.round().await.is_err(), "a folder is no file");
    assert!(!state.load().missing().contains(&"the CPUs of the node"));
}

#[tokio::test]
async fn nothing_is_told_before_pods_are_known() {
    let (_folder, root) = machine();
    let state = state();
    state.update(|snapshot| snapshot.synced.pods = false);
    reporter(&state, &root, None).round().await.unwrap();
    assert!(state.load().layout.is_none() && state.load().hardware.is_some());
}

#[tokio::test]
async fn the_object_is_made_whole() {
    let (_folder, root) = machine();
    let state = state();
    let api = FakeApi::default();
    let client = api.client(|seen| (201, seen.body.clone()));
    let (objects, _stop) = cache(json!([])).await;
    let mut reporter = reporter(&state, &root, Some(Remote { client, objects }));
    reporter.round().await.unwrap();
    let seen = api.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].line.starts_with(&format!("POST {PATH}")), "{}", seen[0].line);
    let body = &seen[0].body;
    assert_eq!(body["metadata"]["labels"], json!({ "app.kubernetes.io/managed-by": "Koordinator" }));
    assert_eq!(body["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(body["topologyPolicies"], json!(["None"]));
    assert_eq!(body["zones"][0]["name"], "node-0");
}

#[tokio::test]
async fn only_a_difference_is_written() {
    let (_folder, root) = machine();
    let state = state();
    let mut first = reporter(&state, &root, None);
    first.round().await.unwrap();
    let snapshot = state.load();
    let node = snapshot.node.as_ref().unwrap();
    let computed = compute(Sources {
        node,
        hardware: snapshot.hardware.as_ref().unwrap(),
        pods: &[],
        kubelet: None,
        cpu_manager: None,
        reports_huge_pages: false,
    })
    .unwrap();
    let mut right = serde_json::to_value(computed.new_object(node)).unwrap();
    right["metadata"]["resourceVersion"] = json!("5");
    right["metadata"]["uid"] = json!("x");
    right["unknown"] = json!({ "kept": true });
    let mut wrong = right.clone();
    wrong["topologyPolicies"] = json!(["RestrictedPodLevel"]);
    for (object, writes) in [(right, 0), (wrong, 1)] {
        let api = FakeApi::default();
        let answer = object.clone();
        let client = api.client(move |_| (200, answer.clone()));
        let (objects, _stop) = cache(json!([object])).await;
        let mut reporter = reporter(&state, &root, Some(Remote { client, objects }));
        let mut seen = Editions::default();
        seen.catch_up(&state.load());
        reporter.round().await.unwrap();
        if writes == 0 {
            // koordlet-observe#13.6.F43
            reporter.round().await.unwrap();
            assert!(!seen.catch_up(&state.load()).layout);
        }
        let puts: Vec<_> = api.seen().into_iter().filter(|seen| seen.line.starts_with("PUT")).collect();
        assert_eq!(puts.len(), writes);
        for put in puts {
            assert_eq!(put.body["topologyPolicies"], json!(["None"]));
            assert_eq!(put.body["unknown"], json!({ "kept": true }), "what we do not know survives");
        }
    }
}
