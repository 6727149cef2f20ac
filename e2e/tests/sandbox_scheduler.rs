//! The real kube-scheduler on the sandbox: it places a large Deployment and has nothing to complain of.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use koord_sandbox::cluster::{Cluster, Options};
use koord_sandbox::nodes::{Pool, Shape};
use koord_testkit::{Binaries, Program, Version};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

const NODES: u32 = 100;
const REPLICAS: usize = 500;

/// Far more than it takes; only a machine that is badly overloaded gets there.
const LIMIT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn kube_scheduler_places_500_pods_on_100_nodes() -> Result<()> {
    let Some(program) = tokio::task::block_in_place(program)? else { return Ok(()) };
    let pool = Pool { name: "node".to_owned(), count: NODES, shape: Shape::default() };
    let options = Options { pools: vec![pool], ..Options::default() };
    let cluster = Cluster::start(options, &mut |_| {}).await?;
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig())?;
    let client = client(cluster.kubeconfig()).await?;
    let scheduler = Scheduler::start(&program, &kubeconfig, &dir.path().join("scheduler.log"))?;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &deployment()?).await?;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let wait = async {
        loop {
            let listed = pods.list(&ListParams::default().labels("app=web")).await?;
            let running = listed.iter().filter(|pod| phase(pod) == "Running").count();
            if running == REPLICAS {
                return anyhow::Ok(listed);
            }
            scheduler.check()?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let placed = tokio::time::timeout(LIMIT, wait).await;
    let placed = placed.with_context(|| format!("not all pods run; {}", scheduler.log()))??;

    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &placed {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        *by_node.entry(node.context("a running pod has a node")?).or_default() += 1;
    }
    ensure!(by_node.len() == NODES as usize, "pods stand on {} nodes", by_node.len());
    let (least, most) = (by_node.values().min(), by_node.values().max());
    ensure!(most <= least.map(|least| least + 2).as_ref(), "from {least:?} to {most:?} pods on a node");
    // What it says when it is told to stop is no complaint about the server.
    let log = scheduler.log();
    scheduler.stop()?;
    let complaints: Vec<&str> = log.lines().filter(|line| is_complaint(line)).collect();
    ensure!(complaints.is_empty(), "kube-scheduler complains:\n{}", complaints.join("\n"));
    cluster.stop().await;
    Ok(())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// An error of klog, or the last words of a program that gives up.
fn is_complaint(line: &str) -> bool {
    let is_severe = |c: char| c == 'E' || c == 'F';
    line.starts_with(is_severe) && line[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn deployment() -> Result<Deployment> {
    let text = serde_json::json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}},
    });
    Ok(serde_json::from_value(text)?)
}

/// None, with the reason on stderr, where it cannot be built.
fn program() -> Result<Option<PathBuf>> {
    match Binaries::ensure(&Version::kubernetes()?, None, &[Program::Scheduler]) {
        Ok(binaries) => Ok(Some(binaries.path(Program::Scheduler))),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// A running kube-scheduler, which ends with this process at the latest.
struct Scheduler {
    /// A shell that ends it when nobody holds the other end of its input any more.
    keeper: Child,
    log: PathBuf,
}

impl Scheduler {
    fn start(program: &Path, kubeconfig: &Path, log: &Path) -> Result<Scheduler> {
        let script = "\"$@\" </dev/null & child=$!; cat; kill $child; wait $child";
        let keeper = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--secure-port=0", "--leader-elect=false", "--kube-api-content-type=application/json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log)?)
            .spawn()?;
        Ok(Scheduler { keeper, log: log.to_owned() })
    }

    fn log(&self) -> String {
        let mut text = String::new();
        // What cannot be read is told as nothing: this is for people.
        let _ = std::fs::File::open(&self.log).and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    fn check(&self) -> Result<()> {
        let text = self.log();
        ensure!(!text.contains("\nF"), "kube-scheduler gave up:\n{text}");
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        drop(self.keeper.stdin.take());
        self.keeper.wait()?;
        Ok(())
    }
}
