//! `koord sandbox` as its users meet it: the binary, its words, its files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use koord_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than any start or stop takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder for one sandbox; whatever runs there ends with the test.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.arg("sandbox").args(words.split_whitespace());
        command.env("KOORD_SANDBOX_DIR", self.path()).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    fn ok(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Standard error of a command that must fail.
    fn fails(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ok("status -o json")).unwrap()
    }

    fn state(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path().join("running.json")).unwrap()).unwrap()
    }

    /// A sandbox in the foreground, ready.
    fn foreground(&self, words: &str) -> Child {
        let child = self.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.wait("the sandbox is ready", || self.path().join("running.json").exists());
        child
    }

    fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        wait_until(LIMIT, what, || done().then_some(())).unwrap();
    }

    fn wait_for_nodes(&self, state: &str, count: u64) {
        self.wait(&format!("{count} nodes are {state}"), || self.status()["nodes"][state] == count);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.run("down");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_second_up_finds_the_first_and_down_leaves_nothing() {
    let home = Home::new();
    assert!(home.ok("down").contains("No sandbox runs"));
    assert!(home.fails("status").contains("start one with `koord sandbox up`"));
    let extra = home.path().join("mine.yaml");
    let said = home.ok(&format!("up --detach --nodes 2 --kubeconfig {}", extra.display()));
    for part in [
        "API server at https://127.0.0.1:",
        "kinds of Koord",
        "2 nodes",
        "admission webhooks at https://127.0.0.1:",
        "Ready after",
        "export KUBECONFIG=",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let first = home.state();
    let said = home.ok("up --nodes 7");
    assert!(said.contains("runs already") && said.contains("no effect"), "{said}");
    assert_eq!(home.state(), first);
    assert_eq!(home.status()["nodes"]["ready"], 2);
    assert!(home.ok("status").contains("2 ready"));
    assert!(home.ok("down").contains("has stopped"));
    let ours = ["kubeconfig", "running.json", "webhook-certificates"].map(|name| home.path().join(name));
    for gone in ours.into_iter().chain([extra]) {
        assert!(!gone.exists(), "{} is left", gone.display());
    }
    assert!(home.fails("status").contains("no sandbox runs"));
}

#[test]
fn interrupts_end_it_cleanly_and_a_killed_one_is_no_obstacle() {
    let home = Home::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = home.foreground("up --nodes 1");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert!(child.wait().unwrap().success(), "after {signal:?}");
        assert!(!home.path().join("running.json").exists() && !home.path().join("kubeconfig").exists());
    }
    let mut child = home.foreground("up --nodes 1");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(home.path().join("running.json").exists());
    assert!(home.fails("status").contains("no sandbox runs"));
    home.ok("up --detach --nodes 1");
    assert_eq!(home.status()["nodes"]["ready"], 1);
}

#[test]
fn nodes_come_go_fail_and_are_revived() {
    let home = Home::new();
    home.ok("up --detach --nodes 1 --node-shape name=a,cores=8,memory=16Gi");
    assert!(home.ok("node add --nodes 2 --node-shape name=b,cores=4").contains("Added 2 nodes, b-0 to b-1."));
    home.wait_for_nodes("ready", 3);
    assert_eq!(home.ok("node fail b-0 b-1"), "b-0 failed\nb-1 failed\n");
    home.wait_for_nodes("failed", 2);
    assert_eq!(home.ok("node revive b-0"), "b-0 revived\n");
    home.wait_for_nodes("ready", 2);
    assert_eq!(home.ok("node cordon a-0"), "a-0 cordoned\n");
    home.wait_for_nodes("cordoned", 1);
    assert_eq!(home.ok("node uncordon a-0"), "a-0 uncordoned\n");
    assert_eq!(home.ok("node remove b-1"), "b-1 removed\n");
    let list = home.ok("node list");
    assert!(list.contains("a-0") && list.contains("b-0") && !list.contains("b-1"), "{list}");
    assert!(home.fails("node fail nobody").contains("nobody"));
    assert!(home.fails("node add").contains("--nodes, --node-shape or --node-pools"));
    assert!(home.fails("node add --node-shape cores=none").contains("none"));
    home.ok("reset");
    assert_eq!(home.status()["nodes"]["ready"], 1);
}

#[test]
fn nodes_with_a_real_koordlet_come_and_go() {
    let home = Home::new();
    let folder = home.path().join("nodes");
    let files = |name: &str| folder.join(name).join("sys/fs/cgroup/cpu/kubepods/besteffort/cpu.shares");
    let said = home.ok("up --detach --nodes 1 --node-shape name=a,cores=4,koordlet=real");
    assert!(said.contains("koordlet of a-0 at http://127.0.0.1:"), "{said}");
    let koordlets = || home.state()["koordlets"].clone();
    assert!(files("a-0").exists() && koordlets()["a-0"].is_string());
    home.ok("node add --nodes 1 --node-shape name=b,cores=4,koordlet=real");
    assert!(files("b-0").exists());
    assert_eq!(koordlets().as_object().unwrap().len(), 2);
    assert!(home.ok("status").contains("koordlets   2: a-0 http://"));
    home.wait("it explains its node", || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_koord"));
        command.args(["explain", "node", "b-0"]).env("KOORD_SANDBOX_DIR", home.path());
        text(&command.output().unwrap().stdout).contains("Best-effort CPU now:")
    });
    // One that fails is cut off with its koordlet, and revived with it.
    home.ok("node fail b-0");
    assert!(koordlets()["b-0"].is_null());
    home.ok("node revive b-0");
    assert!(koordlets()["b-0"].is_string());
    home.ok("node remove b-0");
    assert!(koordlets()["b-0"].is_null() && !folder.join("b-0").exists());
    let first = koordlets()["a-0"].clone();
    home.ok("reset");
    assert!(files("a-0").exists() && koordlets()["a-0"].is_string() && koordlets()["a-0"] != first);
    home.ok("down");
    assert!(!folder.exists(), "nothing is left");
    // What a killed one leaves is cleared away by the next.
    let mut child = home.foreground("up --nodes 1 --node-shape name=a,cores=4,koordlet=real");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.exists());
    home.ok("up --detach --nodes 1 --koordlet none --node-shape name=c,cores=4,koordlet=real");
    assert!(!folder.join("a-0").exists() && files("c-0").exists());
    assert_eq!(koordlets(), serde_json::json!({}));
}

#[test]
fn a_saved_cluster_comes_back_whole() {
    let home = Home::new();
    home.ok("up --detach --nodes 2");
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {a: '1'}\n";
    fs::write(home.path().join("manifest.yaml"), manifest).unwrap();
    let said = home.ok("load manifest.yaml");
    assert!(
        said.contains("0 objects restored, 1 manifests applied") && said.contains("made for them: shop"),
        "{said}"
    );
    home.ok("save saved.json");
    let before = home.status();
    home.ok("down");
    let said = home.ok("up --detach --from saved.json");
    assert!(said.contains("objects restored"), "{said}");
    home.wait_for_nodes("ready", 2);
    let after = home.status();
    for kind in ["nodes", "namespaces", "configmaps", "customresourcedefinitions.apiextensions.k8s.io"] {
        assert_eq!(before["objects"][kind], after["objects"][kind], "{kind}");
    }
    home.ok("save again.json");
    let find = |file: &str| {
        let list: Value = serde_json::from_slice(&fs::read(home.path().join(file)).unwrap()).unwrap();
        let mut map = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|o| o["metadata"]["name"] == "settings")
            .unwrap()
            .clone();
        map["metadata"]["resourceVersion"] = Value::Null;
        map
    };
    assert_eq!(find("saved.json"), find("again.json"), "uid, times and managers are kept");
}

/// Whatever becomes of the objects, the API server calls the manager that runs.
#[test]
fn admission_outlives_a_reset_and_comes_with_a_saved_cluster() {
    let home = Home::new();
    let check = |when: &str| {
        let admission = home.status()["admission"].as_str().unwrap().to_owned();
        home.ok("save now.json");
        let list: Value = serde_json::from_slice(&fs::read(home.path().join("now.json")).unwrap()).unwrap();
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let mut items = list["items"].as_array().unwrap().iter();
            let found =
                items.find(|item| item["kind"] == kind).unwrap_or_else(|| panic!("{when}: no {kind}"));
            let webhooks = found["webhooks"].as_array().unwrap();
            let urls = webhooks.iter().map(|webhook| webhook["clientConfig"]["url"].as_str().unwrap());
            assert!(!webhooks.is_empty(), "{when}: {kind} is empty");
            urls.for_each(|url| assert!(url.starts_with(&admission), "{when}: {url} at {admission}"));
        }
    };
    home.ok("up --detach --nodes 0");
    check("after the start");
    home.ok("reset");
    check("after a reset");
    home.ok("down");
    home.ok("up --detach --from now.json");
    check("from a file");
    home.ok("down");
    assert!(home.ok("up --detach --nodes 0 --manager none").contains("Ready after"));
    assert!(home.status()["admission"].is_null());
}

#[test]
fn mistakes_are_named() {
    let home = Home::new();
    fs::write(home.path().join("pools.yaml"), "- {name: a, cores: -1}\n- {name: b, colour: red}\n").unwrap();
    fs::write(home.path().join("bad.json"), "{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": [{}]}")
        .unwrap();
    fs::write(home.path().join("foreign"), "apiVersion: v1\nclusters: [{name: production}]\n").unwrap();
    for (words, wants) in [
        ("up --node-pools pools.yaml", &["pools.yaml", "colour"][..]),
        ("up --nodes -3", &["-3"]),
        ("up --node-shape koordlet=yes", &["koordlet", "\"yes\" is not accepted", "simulated or real"]),
        (
            "up --nodes 3 --node-shape count=17,koordlet=real",
            &["count", "17 is not accepted", "at most 16 nodes"],
        ),
        (
            "up --no-crds --node-shape koordlet=real",
            &["node node-0", "koordlet", "\"real\" is not accepted", "simulated"],
        ),
        ("up --nodes 3 --node-pools pools.yaml", &["--node-pools"]),
        ("up --from missing.json", &["missing.json"]),
        ("up --from bad.json", &["bad.json", "item 1 of document 1 has no kind"]),
        ("up --kubeconfig foreign", &["foreign", "not of a sandbox"]),
        ("up --port 70000", &["70000"]),
        ("up --speed 0", &["0", "accepted are factors"]),
        ("load bad.json", &["no sandbox runs"]),
        ("frobnicate", &["frobnicate"]),
    ] {
        let said = home.fails(words);
        for want in wants {
            assert!(said.contains(want), "{words}: {want:?} in {said}");
        }
    }
    assert_eq!(
        fs::read_to_string(home.path().join("foreign")).unwrap(),
        "apiVersion: v1\nclusters: [{name: production}]\n"
    );
    home.ok("up --detach --nodes 0");
    let said = home.fails("load bad.json");
    assert!(said.contains("item 1 of document 1 has no kind"), "{said}");
}

/// What users will do: bring their own cluster. The real one is dumped by our own command and by kubectl.
#[test]
fn a_real_cluster_can_be_brought_in() {
    let Some(real) = koord_testkit::shared() else { return };
    let namespace = "to-be-brought-in";
    real.apply(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: real-node}}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: {namespace}}}\ndata: {{a: '1'}}\n"
    ))
    .unwrap();
    let home = Home::new();
    home.ok(&format!("save real.json --kubeconfig {}", real.kubeconfig().display()));
    let yaml = real.kubectl_ok(["get", "namespaces,nodes,configmaps,secrets", "-A", "-o", "yaml"]).unwrap();
    fs::write(home.path().join("kubectl.yaml"), yaml).unwrap();
    let uid = real
        .kubectl_ok(["get", "configmap", "settings", "-n", namespace, "-o", "jsonpath={.metadata.uid}"])
        .unwrap();
    for file in ["real.json", "kubectl.yaml"] {
        home.ok(&format!("up --detach --from {file}"));
        home.wait("the node is simulated", || home.ok("node list").contains("real-node"));
        home.ok("save back.json");
        let back = fs::read_to_string(home.path().join("back.json")).unwrap();
        assert!(back.contains(uid.trim()), "{file}");
        home.ok("down");
    }
    real.kubectl_ok(["delete", "node", "real-node", "--wait=false"]).unwrap();
    real.kubectl_ok(["delete", "namespace", namespace, "--wait=false"]).unwrap();
}

#[test]
fn the_manual_runs_as_written() {
    run_manual("sandbox.md", 8);
}

#[test]
fn the_manual_of_load_awareness_runs_as_written() {
    run_manual("load-aware.md", 4);
}

#[test]
fn the_manual_of_reservations_runs_as_written() {
    run_manual("reservation.md", 4);
}

#[test]
fn the_manual_of_colocation_runs_as_written() {
    run_manual("colocation.md", 3);
}

/// The rest of that manual is about real nodes.
#[test]
fn the_manual_of_koordlet_runs_as_written_on_the_sandbox() {
    run_part_of_manual("koordlet.md", "## See it work on the sandbox\n", 3);
}

/// A manual's blocks, one after the other, in one shell.
fn run_manual(name: &str, least: usize) {
    run_part_of_manual(name, "", least);
}

/// The blocks of one section, where one is named.
fn run_part_of_manual(name: &str, section: &str, least: usize) {
    let Some(real) = koord_testkit::shared() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let manual = fs::read_to_string(path).unwrap();
    let manual = match section {
        "" => manual.as_str(),
        section => manual.split_once(section).unwrap().1.split("\n## ").next().unwrap(),
    };
    let blocks: Vec<&str> =
        manual.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= least, "{} blocks", blocks.len());
    let home = Home::new();
    let script = format!("set -euxo pipefail\n{}", blocks.concat());
    let kubectl = real.kubectl_command().get_program().to_owned();
    let folders = [Path::new(env!("CARGO_BIN_EXE_koord")), Path::new(&kubectl)]
        .map(|path| path.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .env("KOORD_SANDBOX_DIR", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
