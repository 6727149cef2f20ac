//! `koord demo` as its users meet it: on a sandbox, on one with the real kube-scheduler, interrupted, and in trouble.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use koord_sandbox::cluster::{Cluster, Options};
use koord_sandbox::nodes::{Pool, Shape};
use koord_testkit::{Binaries, Program, Version, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A sandbox in this process, which koord reaches by its kubeconfig.
struct Stage {
    runtime: Runtime,
    cluster: Option<Cluster>,
    dir: tempfile::TempDir,
}

impl Stage {
    fn new(nodes: u32) -> Stage {
        let runtime = Runtime::new().unwrap();
        let pools = vec![Pool { name: "node".to_owned(), count: nodes, shape: Shape::default() }];
        let options = Options { pools, ..Options::default() };
        let cluster = runtime.block_on(Cluster::start(options, &mut |_| {})).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kubeconfig"), cluster.kubeconfig()).unwrap();
        Stage { runtime, cluster: Some(cluster), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn demo(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.args(["demo", "run"]).args(words).stdin(Stdio::null());
        command.env("KUBECONFIG", self.path("kubeconfig")).env("KOORD_SANDBOX_DIR", self.path("none"));
        command
    }

    fn run(&self, words: &[&str]) -> (bool, String) {
        outcome(&self.demo(words).output().unwrap())
    }

    /// The names of all objects of a kind, without what the server has of its own.
    fn names(&self, group: &str, plural: &str) -> Vec<String> {
        let api = self.cluster.as_ref().unwrap().api();
        let kind = api.kind(group, plural).unwrap();
        let objects = api.list(&kind, &koord_sandbox::store::Selection::default());
        let names = objects.iter().map(|object| object.field("metadata.name").to_owned());
        names
            .filter(|name| name != "default" && !name.contains("kube-") && !name.contains("system-"))
            .collect()
    }

    fn is_cordoned(&self, node: &str) -> bool {
        let api = self.cluster.as_ref().unwrap().api();
        let kind = api.kind("", "nodes").unwrap();
        api.get(&kind, "", node).unwrap().field("spec.unschedulable") == "true"
    }

    fn scenario(&self, name: &str, body: &str) -> String {
        let text =
            format!("apiVersion: demo.koord.sh/v1alpha1\nkind: Scenario\nname: {name}\ntitle: T\n{body}");
        let path = self.path(&format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            self.runtime.block_on(cluster.stop());
        }
    }
}

fn outcome(output: &Output) -> (bool, String) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.success(), text.concat())
}

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_tour_of_all_actions_leaves_nothing_behind() {
    let stage = Stage::new(1);
    let (ok, said) = stage.run(&[&data("tour.yaml")]);
    assert!(ok, "{said}");
    for part in [
        "Adding 3 nodes.",
        "[1/4] Pods in three zones",
        "apply PriorityClass tour-high",
        "ok      pods app=trio over topology.kubernetes.io/zone: zone-1 1, zone-2 1, zone-3 1",
        "scale Deployment tour-b/web to 4",
        "ok      Deployment web: 4 of 4 pods ready",
        "cordon 1 node",
        "why     tour-a/lonely waits:\n            no scheduler has looked at it yet",
        "4 of 4 steps reached their expected state",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert_eq!(stage.names("", "namespaces"), Vec::<String>::new());
    assert_eq!(stage.names("scheduling.k8s.io", "priorityclasses"), Vec::<String>::new());
    assert_eq!(stage.names("", "nodes"), ["node-0"], "nodes that were added are removed");
}

#[test]
fn what_is_kept_is_taken_up_by_the_next_run() {
    let stage = Stage::new(1);
    let (ok, said) = stage.run(&[&data("tour.yaml"), "--keep"]);
    assert!(ok, "{said}");
    assert_eq!(stage.names("", "namespaces"), ["tour-a", "tour-b"]);
    assert!(stage.is_cordoned("tour-1") && !stage.is_cordoned("tour-2"));
    // As a killed run would have left it.
    let (ok, said) = stage.run(&[&data("tour.yaml")]);
    assert!(ok, "{said}");
    for part in [
        "Removing namespace tour-a, left by an earlier run.",
        "Uncordoning node tour-1, cordoned by an earlier run.",
        "4 of 4 steps",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert_eq!(stage.names("", "namespaces"), Vec::<String>::new());
    assert!(!stage.is_cordoned("tour-1"));
}

#[test]
fn a_missed_state_ends_its_part_and_fails_the_run() {
    let stage = Stage::new(1);
    let waits = "  timeout: 1s\n  do: [{apply: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}]}]\n";
    stage.scenario(
        "first",
        &format!("steps:\n- title: never\n{waits}  expect: [{{pods: {{pod: p, are: running}}}}]\n- title: unreached\n"),
    );
    stage.scenario("second", "steps:\n- title: independent\n  expect: [{gone: {pod: p}}]\n");
    let main = stage.scenario("main", "parts: [first.yaml, second.yaml]\n");
    let (ok, said) = stage.run(&[&main]);
    assert!(!ok, "{said}");
    for part in [
        "MISSED  pod p: 0 of 1 running",
        "waited for 1 s",
        "no scheduler has looked at it yet",
        "first   never        MISSED",
        "first   unreached    not run",
        "second  independent  ok",
        "1 of 3 steps reached",
        "error: 2 of 3 steps did not reach their state",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert_eq!(stage.names("", "namespaces"), Vec::<String>::new());
}

#[test]
fn an_interrupt_cleans_up() {
    let stage = Stage::new(1);
    let file = stage.scenario(
        "slow",
        "steps:\n- title: never\n  timeout: 10m\n  do: [{cordon: {name: node-0}}]\n  expect: [{pods: {pod: p, are: running}}]\n",
    );
    for signal in [Signal::INT, Signal::TERM] {
        let child = stage.demo(&[&file]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until(LIMIT, "the step has begun", || stage.is_cordoned("node-0").then_some(())).unwrap();
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        let (ok, said) = outcome(&child.wait_with_output().unwrap());
        assert!(
            !ok && said.contains("Cleaning up.") && said.contains("error: interrupted"),
            "{signal:?}: {said}"
        );
        assert!(!stage.is_cordoned("node-0"));
        assert_eq!(stage.names("", "namespaces"), Vec::<String>::new());
    }
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let stage = Stage::new(1);
    let api = stage.cluster.as_ref().unwrap().api();
    let make = |group: &str, plural: &str, object: Value| {
        let kind = api.kind(group, plural).unwrap();
        let options = koord_sandbox::server::WriteOptions::by("somebody");
        stage.runtime.block_on(api.create(&kind, "", object, &options)).unwrap();
    };
    make("", "namespaces", serde_json::json!({"metadata": {"name": "taken"}}));
    make(
        "scheduling.k8s.io",
        "priorityclasses",
        serde_json::json!({"metadata": {"name": "theirs"}, "value": 1}),
    );
    let taken = stage.scenario("taken", "steps: [{title: s}]\n");
    let (ok, said) = stage.run(&[&taken]);
    assert!(!ok && said.contains("namespace taken exists and is not of this scenario"), "{said}");
    for action in [
        "apply: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: theirs}, value: 9}]",
        "delete: {kind: PriorityClass, name: theirs}",
        "patch: {kind: PriorityClass, name: theirs, patch: {description: mine}}",
    ] {
        let file = stage.scenario("mine", &format!("steps:\n- title: s\n  do:\n  - {action}\n"));
        let (ok, said) = stage.run(&[&file]);
        assert!(
            !ok && said.contains("PriorityClass theirs exists and is not of this scenario"),
            "{action}: {said}"
        );
    }
    assert_eq!(stage.names("scheduling.k8s.io", "priorityclasses"), ["theirs"]);
    assert_eq!(stage.names("", "namespaces"), ["taken"]);
}

#[test]
fn mistakes_are_named() {
    let stage = Stage::new(1);
    let bad = stage.scenario("bad", "steps:\n- title: s\n  do: [{explode: {}}]\n");
    let needy = stage.scenario("needy", "needs: {nodes: 5000, zones: 9}\nsteps: [{title: s}]\n");
    let unknown = stage.scenario(
        "unknown",
        "steps:\n- title: s\n  do: [{apply: [{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}]}]\n",
    );
    fs::write(stage.path("nowhere"), "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n").unwrap();
    let nowhere = stage.path("nowhere").to_str().unwrap().to_owned();
    let fine = stage.scenario("fine", "steps: [{title: s}]\n");
    for (words, wants) in [
        (&[bad.as_str()][..], &["bad.yaml:7:", "explode", "cordon"][..]),
        (&["missing.yaml"], &["missing.yaml", "No such file"]),
        (&[&unknown], &["the cluster has no example.com/v1 Widget"]),
        (&[&fine, "--kubeconfig", &nowhere], &["nowhere does not answer", "Connection refused"]),
        (&[&fine, "--kubeconfig", "no-file"], &["no-file"]),
        (&[&fine, "--scheduler", "10251"], &["--scheduler 10251", "http://"]),
    ] {
        let (ok, said) = stage.run(words);
        assert!(!ok, "{words:?}: {said}");
        for want in wants {
            assert!(said.contains(want), "{words:?}: {want:?} in {said}");
        }
    }
    let (ok, said) = outcome(&stage.demo(&[&fine]).env_remove("KUBECONFIG").output().unwrap());
    assert!(!ok && said.contains("koord sandbox up"), "{said}");
    let (ok, said) = stage.run(&[&bad, "--check"]);
    assert!(!ok && said.contains("explode"), "{said}");
    let (ok, said) = stage.run(&[&needy, "--check"]);
    assert!(ok && said.contains("1 parts, 1 steps"), "{said}");
}

/// `koord sandbox up --demo FILE --exit-after-demo`: one command, one exit code.
#[test]
fn a_sandbox_can_be_started_for_one_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let koord = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.arg("sandbox").args(words).env("KOORD_SANDBOX_DIR", dir.path().join("sandbox"));
        outcome(&command.env_remove("KUBECONFIG").stdin(Stdio::null()).output().unwrap())
    };
    let (ok, said) = koord(&["up", "--demo", &data("tour.yaml"), "--exit-after-demo"]);
    assert!(ok && said.contains("3 nodes") && said.contains("4 of 4 steps"), "{said}");
    assert!(said.contains("nothing of it is left"), "{said}");
    let never = dir.path().join("never.yaml");
    let head = "apiVersion: demo.koord.sh/v1alpha1\nkind: Scenario\nname: never\ntitle: T\nnext: [kubectl get pods -n never]\n";
    fs::write(
        &never,
        format!(
            "{head}steps:\n- title: s\n  timeout: 500ms\n  expect: [{{pods: {{pod: p, are: running}}}}]\n"
        ),
    )
    .unwrap();
    let never = never.to_str().unwrap();
    let (ok, said) = koord(&["up", "--demo", never, "--exit-after-demo"]);
    assert!(!ok && said.contains("nothing of it is left") && said.contains("error: 1 of 1 steps"), "{said}");
    let (ok, said) = koord(&["up", "--exit-after-demo"]);
    assert!(!ok && said.contains("--demo"), "{said}");

    // In the background the demo is played from here, and the sandbox stays, whatever came of it.
    let (ok, said) = koord(&["up", "--detach", "--demo", never]);
    assert!(
        ok && said.contains("The demo: 1 of 1 steps") && said.contains("kubectl get pods -n never"),
        "{said}"
    );
    let (ok, said) = koord(&["up", "--demo", never, "--exit-after-demo"]);
    assert!(!ok && said.contains("runs already") && said.contains("Removing namespace never"), "{said}");
    let (ok, said) = koord(&["status"]);
    assert!(ok, "{said}");
    koord(&["down"]);
}

/// All of it, with the sandbox's own scheduler.
#[test]
fn the_built_in_scenario_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
    command.args(["sandbox", "up", "--demo", "--exit-after-demo"]);
    command.env("KOORD_SANDBOX_DIR", dir.path().join("sandbox")).env_remove("KUBECONFIG");
    let (ok, said) = outcome(&command.stdin(Stdio::null()).output().unwrap());
    assert!(ok, "{said}");
    for part in [
        " in flight estimated at ",
        "Reserved by koord-demo-hold for pods with app=expected until",
        "10 of 10 running and as wanted",
        "Insufficient kubernetes.io/batch-cpu",
        "why     edge-0:",
        "Best-effort CPU now: ",
        "30 of 30 steps reached their expected state",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

/// The parts of the built-in scenario that need nothing of ours, with the scheduler that everyone knows.
#[test]
fn the_built_in_scenario_holds_with_kube_scheduler() {
    let Some(program) = kube_scheduler() else { return };
    let stage = Stage::new(0);
    for part in ["rollout.yaml", "priority.yaml", "pending.yaml"] {
        let shown = Command::new(env!("CARGO_BIN_EXE_koord")).args(["demo", "show", part]).output().unwrap();
        fs::write(stage.path(part), shown.stdout).unwrap();
    }
    let nodes =
        "nodes: [\"name=node,count=100,cores=8,memory=32Gi,zones=3\"]\nneeds: {nodes: 100, zones: 3}\n";
    let parts = "parts: [rollout.yaml, priority.yaml, pending.yaml]\n";
    let main = stage.scenario("main", &format!("{nodes}{parts}"));
    let scheduler = Peer::start(&program, &stage.path("kubeconfig"));
    let (ok, said) = stage.run(&[&main]);
    drop(scheduler);
    assert!(ok, "{said}");
    for part in [
        "Adding 100 nodes.",
        "made room for pods app=urgent",
        "why     koord-demo-fit/giant waits:\n            0/100 nodes are available: 100 Insufficient cpu.",
        "8 of 8 steps reached their expected state",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

/// A real API server is played on like a sandbox, its trailing caches included.
#[test]
fn a_real_cluster_is_played_on_and_left_as_it_was() {
    let Some(real) = koord_testkit::shared() else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
    command.args(["demo", "run", &data("real.yaml"), "--kubeconfig"]).arg(real.kubeconfig());
    let (ok, said) = outcome(&command.stdin(Stdio::null()).output().unwrap());
    assert!(ok && said.contains("a cluster.") && said.contains("2 of 2 steps"), "{said}");
    let left = real.kubectl_ok(["get", "namespaces,priorityclasses,nodes", "-o", "name"]).unwrap();
    assert!(!left.contains("on-a-real-server"), "{left}");
}

/// The manual's blocks, one after the other, in one shell.
#[test]
fn the_manual_runs_as_written() {
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo.md")).unwrap();
    let blocks: Vec<&str> =
        manual.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 3, "{} blocks", blocks.len());
    let dir = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_BIN_EXE_koord")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap();
    let bash = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("PATH", &path).env("KOORD_SANDBOX_DIR", dir.path().join("sandbox"));
        command.env_remove("KUBECONFIG").current_dir(dir.path()).stdin(Stdio::null());
        command
    };
    let script = format!("set -euxo pipefail\n{}", blocks.concat());
    let (ok, said) = outcome(&bash(&script).output().unwrap());
    let _ = bash("koord sandbox down").output();
    assert!(ok, "{said}");
}

/// None, with the reason on standard error, where it cannot be built.
fn kube_scheduler() -> Option<PathBuf> {
    match Binaries::ensure(&Version::kubernetes().unwrap(), None, &[Program::Scheduler]) {
        Ok(binaries) => Some(binaries.path(Program::Scheduler)),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => None,
        Err(error) => panic!("{error}"),
    }
}

/// A running kube-scheduler, which ends with this process at the latest.
struct Peer(Child);

impl Peer {
    fn start(program: &Path, kubeconfig: &Path) -> Peer {
        // The shell ends it when nobody holds the other end of its input any more.
        let script = "\"$@\" </dev/null & child=$!; cat; kill $child; wait $child";
        let flags = ["--secure-port=0", "--leader-elect=false", "--kube-api-content-type=application/json"];
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program).args(flags);
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        Peer(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
