//! The test kit itself: control planes start side by side, keep strangers out, survive a crash of
//! their API server, and leave nothing behind.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use koord_testkit::{ControlPlane, Error, shared, wait_until};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Names the folder of the control plane that a second copy of this program owns, to be killed.
const OWNED_DIR: &str = "KOORD_TEST_OWNED_DIR";

#[test]
fn two_at_once_know_nothing_of_each_other() -> Result<()> {
    let Some(one) = shared() else { return Ok(()) };
    let two = ControlPlane::builder()?.with_controller_manager(false).start()?;
    assert_ne!(one.server(), two.server());
    two.kubectl_ok(["create", "namespace", "only-in-two"])?;
    assert!(!one.kubectl(["get", "namespace", "only-in-two"])?.status.success());

    // A client of one is a stranger to the other: another CA signed both sides.
    let server = format!("--server={}", two.server());
    let output = one.kubectl([server.as_str(), "get", "--raw=/version"])?;
    assert!(String::from_utf8_lossy(&output.stderr).contains("certificate"), "{output:?}");

    let version: Value = serde_json::from_str(&two.kubectl_ok(["get", "--raw=/version"])?)?;
    assert_eq!(version["gitVersion"], two.version().to_string());
    Ok(())
}

#[tokio::test]
async fn strangers_are_refused() -> Result<()> {
    let Some(cluster) = shared() else { return Ok(()) };
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let admin = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut nobody = Config::new(cluster.server().parse()?);
    nobody.root_cert = admin.root_cert.clone();
    let (admin, nobody) = (Client::try_from(admin)?, Client::try_from(nobody)?);
    for path in ["/version", "/readyz", "/api/v1/namespaces", "/metrics"] {
        let request = || http::Request::get(path).body(Vec::new());
        admin.request_text(request()?).await?;
        match nobody.request_text(request()?).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 401, "{path}: {status:?}"),
            other => panic!("{path} must be refused, got {other:?}"),
        }
    }
    Ok(())
}

#[test]
fn controllers_work() -> Result<()> {
    let Some(cluster) = shared() else { return Ok(()) };
    cluster.kubectl_ok(["create", "namespace", "controllers-work"])?;
    wait_until(LIMIT, "the default service account", || {
        let args = ["get", "serviceaccount", "default", "--namespace=controllers-work"];
        cluster.kubectl_ok(args).ok()
    })?;
    cluster.check()?;
    Ok(())
}

#[test]
fn a_crashed_or_frozen_api_server_comes_back_with_its_objects() -> Result<()> {
    if shared().is_none() {
        return Ok(());
    }
    let cluster = ControlPlane::builder()?.with_controller_manager(false).start()?;
    let server = cluster.server().to_string();
    cluster.kubectl_ok(["create", "namespace", "kept"])?;

    cluster.stop_apiserver()?;
    assert!(!cluster.kubectl(["get", "namespace", "kept"])?.status.success());
    assert!(matches!(cluster.check(), Err(Error::Stopped { component: "kube-apiserver" })));
    assert!(matches!(cluster.pause_apiserver(), Err(Error::Stopped { .. })));
    cluster.start_apiserver()?;
    assert_eq!(cluster.server(), server);
    cluster.kubectl_ok(["get", "namespace", "kept"])?;

    cluster.pause_apiserver()?;
    let ask = ["get", "namespace", "kept", "--request-timeout=1s"];
    assert!(!cluster.kubectl(ask)?.status.success(), "a frozen server answered");
    cluster.check()?;
    cluster.resume_apiserver()?;
    cluster.kubectl_ok(["get", "namespace", "kept"])?;

    // Dropped while frozen, it must still end.
    cluster.pause_apiserver()?;
    let dir = cluster.dir().to_path_buf();
    drop(cluster);
    assert!(!dir.exists());
    assert_eq!(processes_in(&dir), Vec::<String>::new());
    Ok(())
}

#[test]
fn the_scheduler_binds_and_crds_are_served() -> Result<()> {
    if shared().is_none() {
        return Ok(());
    }
    let crds = tempfile::tempdir()?;
    fs::write(crds.path().join("boat.yaml"), BOAT_CRD)?;
    let cluster = ControlPlane::builder()?.with_scheduler(true).crds(crds.path()).start()?;
    cluster.apply("{apiVersion: test.koord.sh/v1, kind: Boat, metadata: {name: ark, namespace: default}}")?;
    assert_eq!(cluster.kubectl_ok(["get", "boats", "--output=name"])?, "boat.test.koord.sh/ark\n");

    cluster.apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}")?;
    let status = r#"{"status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    }}"#;
    cluster.kubectl_ok(["patch", "node", "n1", "--subresource=status", "--patch", status])?;
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, \
         spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 1}}}]}}",
    )?;
    let ask = ["get", "pod", "web", "--output=jsonpath={.spec.nodeName}"];
    let node =
        wait_until(LIMIT, "a binding", || cluster.kubectl_ok(ask).ok().filter(|node| !node.is_empty()));
    assert_eq!(
        node.with_context(|| cluster.kubectl_ok(["describe", "pods,nodes"]).unwrap_or_default())?,
        "n1"
    );
    cluster.check()?;
    Ok(())
}

const BOAT_CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.test.koord.sh}
spec:
  group: test.koord.sh
  scope: Namespaced
  names: {kind: Boat, plural: boats, singular: boat}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

#[test]
fn what_does_not_start_says_why_and_leaves_nothing() -> Result<()> {
    if shared().is_none() {
        return Ok(());
    }
    let start = |dir: &Path, arg: String| -> Result<Error> {
        let builder = ControlPlane::builder()?.dir(dir).apiserver_args([arg]);
        builder.start().err().context("it must not start")
    };
    let parent = tempfile::tempdir()?;
    let dir = parent.path().join("cluster");

    let error = start(&dir, "--no-such-flag".to_string())?;
    assert!(matches!(error, Error::Exited { component: "kube-apiserver", .. }), "{error}");
    assert!(error.to_string().contains("unknown flag: --no-such-flag"), "{error}");
    assert!(!dir.exists());

    let taken = TcpListener::bind("127.0.0.1:0")?;
    let error = start(&dir, format!("--secure-port={}", taken.local_addr()?.port()))?;
    assert!(matches!(error, Error::NoPort { .. }), "{error}");
    assert!(!dir.exists());

    let error = start(Path::new("/proc"), String::new())?;
    assert!(matches!(error, Error::DirNotEmpty(_)), "{error}");
    assert_eq!(processes_in(&dir), Vec::<String>::new());
    Ok(())
}

#[test]
fn nothing_survives_a_killed_owner() -> Result<()> {
    if shared().is_none() {
        return Ok(());
    }
    let parent = tempfile::tempdir()?;
    for (when, is_time) in [
        (
            "while it starts",
            (|_, dir| dir.join("kube-apiserver.log").exists()) as fn(&mut Owner, &Path) -> bool,
        ),
        ("when it is ready", |owner, _| owner.says_ready()),
    ] {
        let dir = parent.path().join("cluster");
        let mut owner = Owner::start(dir.clone())?;
        wait_until(LIMIT, when, || is_time(&mut owner, &dir).then_some(()))?;
        assert!(!processes_in(&dir).is_empty(), "{when}: nothing to kill");
        owner.child.kill()?; // SIGKILL: no code of its own runs any more.
        owner.child.wait()?;
        let gone =
            wait_until(LIMIT, "the end", || (!dir.exists() && processes_in(&dir).is_empty()).then_some(()));
        gone.with_context(|| format!("{when}: left {dir:?} ({}) {:?}", dir.exists(), processes_in(&dir)))?;
    }
    Ok(())
}

/// A copy of this program that owns a control plane and waits to be killed.
struct Owner {
    child: Child,
}

impl Owner {
    fn start(dir: PathBuf) -> Result<Owner> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "owner", "--nocapture"]).env(OWNED_DIR, dir);
        Ok(Owner { child: command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()? })
    }

    fn says_ready(&mut self) -> bool {
        let lines = self.child.stdout.as_mut().map(|stdout| BufReader::new(stdout).lines());
        lines.is_some_and(|mut lines| lines.any(|line| line.is_ok_and(|line| line.contains("READY"))))
    }
}

/// Not a test by itself: what [`Owner`] runs.
#[test]
fn owner() -> Result<()> {
    let Some(dir) = std::env::var_os(OWNED_DIR) else { return Ok(()) };
    let _cluster = ControlPlane::builder()?.with_controller_manager(false).dir(dir).start()?;
    println!("READY");
    io::stdin().read_to_end(&mut Vec::new())?; // Ends with the parent, if that forgets to kill.
    Ok(())
}

#[test]
fn without_go_or_network_tests_are_skipped_and_ci_fails() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let no_go = [("PATH", empty.path().as_os_str())];
    let no_network = [("GOPROXY", OsStr::new("off")), ("GOMODCACHE", empty.path().as_os_str())];
    for (lack, env) in [("Go", &no_go[..]), ("network", &no_network[..])] {
        for (ci, says) in [("", "SKIPPED"), ("true", "a skip is a failure")] {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["--exact", "controllers_work", "--nocapture"]).env("CI", ci);
            let output = command.env("KOORD_CACHE", empty.path()).envs(env.iter().copied()).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(says), "no {lack}, CI={ci:?}: {said}");
            assert_eq!(output.status.success(), ci.is_empty(), "no {lack}, CI={ci:?}: {said}");
        }
    }
    Ok(())
}

/// The living processes that work in `dir`, or have it as an argument.
fn processes_in(dir: &Path) -> Vec<String> {
    let name = dir.to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<String> = all
        .filter_map(|entry| {
            let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            // Unreadable for a process that has ended and only waits to be reaped.
            let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            let works_there = cwd.to_string_lossy().starts_with(&name) || arguments.contains(&name);
            (is_process && works_there).then_some(arguments)
        })
        .collect();
    found.sort();
    found
}
