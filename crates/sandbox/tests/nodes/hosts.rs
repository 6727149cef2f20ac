//! Nodes that stand as files and leave the talking to an agent of their own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use koord_sandbox::nodes::{Agents, FleetError, HostNode, Hosts, Koordlet, Options, Pool, Started, Stopped};
use koord_sandbox::server::kubelet::KubeletKeys;
use koord_sandbox::server::tls::Authority;
use serde_json::json;

use crate::support::{Cluster, api, install_crds, pool};

/// Notes what is asked of it; a node called `bad-0` gets no agent.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Agents for Diary {
    fn start(&self, node: HostNode) -> Started<'_> {
        let has_files = node.dir.join("sys/fs/cgroup/cpu/kubepods/besteffort/cpu.shares").exists();
        self.note(format!("start {} {has_files}", node.name));
        let result = if node.name == "bad-0" { Err("it does not like it here".to_owned()) } else { Ok(()) };
        Box::pin(std::future::ready(result))
    }

    fn stop<'a>(&'a self, node: &'a str) -> Stopped<'a> {
        self.note(format!("stop {node}"));
        Box::pin(std::future::ready(()))
    }
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("koord-hosts-{name}-{}", std::process::id()))
}

fn real(name: &str) -> Pool {
    let mut pool = pool(name, 1);
    pool.shape.koordlet = Koordlet::Real;
    pool
}

async fn cluster(dir: &Path, agents: Arc<Diary>) -> Cluster {
    let api = api();
    install_crds(&api).await;
    let keys = KubeletKeys::new(&Authority::generate().unwrap(), &HashMap::new()).unwrap();
    let kubeconfig = "kubeconfig".to_owned();
    let hosts = Some(Hosts { dir: dir.to_owned(), keys, kubeconfig, agents: Some(agents) });
    let pools = vec![pool("n", 1), real("edge")];
    let cluster = Cluster::with(api, Options { pools, hosts, ..Options::default() }).await;
    cluster.fleet.ready_with_agents().await.unwrap();
    cluster
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_its_own_speaks_for_a_node() {
    let (dir, diary) = (folder("silent"), Arc::new(Diary::default()));
    let cluster = cluster(&dir, diary.clone()).await;
    assert_eq!(diary.take(), ["start edge-0 true"]);
    let status = cluster.node("edge-0")["status"].clone();
    assert_eq!(status["addresses"][0], json!({"type": "InternalIP", "address": "127.0.0.1"}));
    assert_ne!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    cluster.bind("web", "edge-0", json!({}), json!({})).await;
    cluster.until("it runs", |c| c.phase("web") == "Running").await;
    let topologies = ("topology.node.k8s.io", "noderesourcetopologies");
    let metrics = ("slo.koordinator.sh", "nodemetrics");
    cluster.until("the other one reports", |c| c.try_get(metrics, "", "n-0").is_some()).await;
    cluster.pass(600).await;
    assert!(cluster.try_get(topologies, "", "n-0").is_some());
    assert_eq!(cluster.try_get(topologies, "", "edge-0"), None);
    assert_eq!(cluster.try_get(metrics, "", "edge-0"), None);
    let Cluster { fleet, .. } = cluster;
    fleet.stop().await;
    assert!(!dir.exists(), "its files are gone");
    assert!(diary.take().contains(&"stop edge-0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn agents_come_and_go_with_their_nodes() {
    let (dir, diary) = (folder("coming"), Arc::new(Diary::default()));
    let cluster = cluster(&dir, diary.clone()).await;
    diary.take();
    let fleet = &cluster.fleet;
    fleet.fail("edge-0").await.unwrap();
    fleet.revive("edge-0").await.unwrap();
    assert_eq!(diary.take(), ["stop edge-0", "start edge-0 true"]);
    assert_eq!(fleet.add(real("edge")).await.unwrap(), ["edge-1"]);
    assert_eq!(diary.take(), ["start edge-1 true"]);
    fleet.remove("edge-1").await.unwrap();
    assert_eq!(diary.take(), ["stop edge-1"]);
    assert!(!dir.join("edge-1").exists() && dir.join("edge-0").exists());
    // A node whose agent does not start is not there.
    let error = fleet.add(real("bad")).await.unwrap_err();
    assert_eq!(error.to_string(), "node bad-0: its koordlet does not start: it does not like it here");
    assert_eq!(diary.take(), ["start bad-0 true", "stop bad-0"]);
    assert!(!dir.join("bad-0").exists() && cluster.try_get(("", "nodes"), "", "bad-0").is_none());
    let Cluster { fleet, .. } = cluster;
    fleet.stop().await;
    assert!(!dir.exists());
}

#[tokio::test(start_paused = true)]
async fn without_a_folder_there_is_no_such_node() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    let error = cluster.fleet.add(real("edge")).await.unwrap_err();
    assert!(matches!(error, FleetError::NoHosts { .. }), "{error}");
    assert!(error.to_string().starts_with("node edge-0: koordlet: \"real\" is not accepted"), "{error}");
    assert_eq!(cluster.fleet.list().await.unwrap().len(), 1);
}
