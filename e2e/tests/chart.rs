//! The chart, by Helm itself on a real API server: installed, upgraded, taken off. Spec: manager 25.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use koord_linux::root::Root;
use koord_testkit::ControlPlane;
use koordlet::flags::{self, Options, Request};
use serde_json::{Value, json};

const NAMESPACE: &str = "koordinator-system";

/// A release of the chart on a cluster.
struct Release {
    helm: PathBuf,
    cluster: &'static ControlPlane,
}

impl Release {
    fn helm(&self, words: &[&str]) -> Result<String, String> {
        // Nothing of the user's own Helm is read or written.
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(&self.helm);
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, home.path());
        }
        let output = command.args(words).arg("--kubeconfig").arg(self.cluster.kubeconfig()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(text + &String::from_utf8_lossy(&output.stderr)),
        }
    }

    fn deploy(&self, more: &[&str]) -> Result<String, String> {
        let chart = chart();
        let words = ["upgrade", "--install", "koord", chart.to_str().unwrap()];
        self.helm(&[&words, more].concat())
    }

    fn get(&self, what: &str) -> Value {
        let words = ["get", what, "--namespace", NAMESPACE, "--output", "json"];
        let text = self.cluster.kubectl_ok(words).unwrap_or_else(|error| panic!("{what}: {error}"));
        serde_json::from_str(&text).unwrap()
    }

    fn patch(&self, what: &str, patch: &Value) {
        let patch = patch.to_string();
        let words = ["patch", what, "--namespace", NAMESPACE, "--type", "merge", "--patch", &patch];
        self.cluster.kubectl_ok(words).unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    /// Names of the entries of a webhook configuration.
    fn entries(&self, side: &str) -> Vec<String> {
        let found = self.get(&format!("{side}webhookconfiguration/koordinator-{side}-webhook-configuration"));
        let entries = found["webhooks"].as_array().unwrap();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart")
}

#[test]
fn it_is_installed_upgraded_and_taken_off_without_a_loss() {
    let (Some(cluster), Some(helm)) = (koord_testkit::shared(), koord_testkit::helm()) else { return };
    let release = Release { helm, cluster };
    release.helm(&["lint", "--strict", chart().to_str().unwrap()]).unwrap_or_else(|text| panic!("{text}"));
    release.deploy(&[]).unwrap_or_else(|text| panic!("{text}"));
    installed(&release);

    // The manager has written its authority and its certificates; somebody has configured something.
    let address = release.get("service/koordinator-webhook-service")["spec"]["clusterIP"].clone();
    release.patch("secret/koordinator-webhook-certs", &json!({"data": {"tls.crt": "YQ=="}}));
    let mutating = "mutatingwebhookconfiguration/koordinator-mutating-webhook-configuration";
    let (authority, mut authorised) = (authority(cluster), release.get(mutating));
    assert!(!authority.is_empty());
    for entry in authorised["webhooks"].as_array_mut().unwrap() {
        entry["clientConfig"]["caBundle"] = json!(authority);
    }
    release.patch(mutating, &json!({"webhooks": authorised["webhooks"]}));
    cluster
        .apply("{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeSLO, metadata: {name: kept}, spec: {}}")
        .unwrap();

    let authorities = "/etc/kubernetes/pki/ca.crt";
    let more = [
        "--set",
        "manager.replicas=3",
        "--set",
        "featureGates=NodeMutatingWebhook=true",
        "--set",
        &format!("koordlet.kubeletCaFile={authorities}"),
        "--set",
        "koordlet.extraArgs={--enable-pagecache-collector}",
    ];
    release.deploy(&more).unwrap_or_else(|text| panic!("{text}"));
    let options = agent_options(&release.get("daemonset/koordlet"));
    assert_eq!(options.kubelet.ca_file.as_deref(), Some(Path::new(authorities)));
    assert!(options.collect.has_page_cache);
    assert_eq!(release.get("deployment/koord-manager")["spec"]["replicas"], json!(3));
    assert!(release.entries("mutating").contains(&"mnode-status.koordinator.sh".to_owned()));
    let upgraded = release.get(mutating);
    let pods = upgraded["webhooks"].as_array().unwrap().iter();
    let pods = pods.filter(|entry| entry["name"].as_str().is_some_and(|name| name.starts_with("mpod")));
    for entry in pods {
        assert_eq!(entry["clientConfig"]["caBundle"], json!(authority), "the manager's authority stays");
    }
    assert_eq!(release.get("service/koordinator-webhook-service")["spec"]["clusterIP"], address);
    let secret = release.get("secret/koordinator-webhook-certs");
    assert_eq!(secret["data"]["tls.crt"], json!("YQ=="), "certificates stay");

    release.helm(&["uninstall", "koord"]).unwrap_or_else(|text| panic!("{text}"));
    assert!(cluster.kubectl_ok(["get", mutating]).is_err(), "no webhook is left to be waited for");
    assert_eq!(release.get("nodeslo/kept")["metadata"]["name"], "kept", "manager#26.DB-17");
}

fn installed(release: &Release) {
    let deployment = release.get("deployment/koord-manager");
    assert_eq!(deployment["spec"]["replicas"], json!(2));
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "koord-sh/koord-manager:v0.1.0"
    );
    let pods = ["mpod-create.koordinator.sh", "mpod-update.koordinator.sh"];
    for name in pods {
        assert!(release.entries("mutating").iter().any(|found| found == name), "{name}");
    }
    assert!(!release.entries("mutating").contains(&"mnode-status.koordinator.sh".to_owned()));
    assert!(release.entries("validating").contains(&"vpod.koordinator.sh".to_owned()));
    let kinds = release.cluster.kubectl_ok(["get", "crds", "--output", "name"]).unwrap();
    assert_eq!(kinds.lines().filter(|line| line.contains("koordinator.sh")).count(), 10, "{kinds}");
    let class = release.get("priorityclass/koord-batch");
    assert_eq!(class["value"], json!(5000));
    // What the manager may do, it may do.
    let account = format!("system:serviceaccount:{NAMESPACE}:koord-manager");
    let words = ["auth", "can-i", "patch", "nodes/status", "--as", &account];
    assert_eq!(release.cluster.kubectl_ok(words).unwrap().trim(), "yes");
    agents(release);
}

/// koordlet finds in its container what it looks for there, and can write where it does.
fn agents(release: &Release) {
    let koordlet = release.get("daemonset/koordlet");
    let pod = &koordlet["spec"]["template"]["spec"];
    assert_eq!((&pod["hostPID"], &pod["hostNetwork"]), (&json!(true), &json!(true)));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "koord-sh/koordlet:v0.1.0");
    assert_eq!(container["securityContext"]["privileged"], true);
    assert_eq!(container["resources"]["limits"], json!({"cpu": "200m", "memory": "256Mi"}));
    let options = agent_options(&koordlet);
    assert_eq!(options.kubelet.ca_file, None, "as Koordinator, which verifies no kubelet");
    assert!(options.gates.is_on("CgroupReconcile") && options.gates.is_on("BEMemoryEvict"));

    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = |dir: &Path| {
        let is_it = |mount: &&Value| Path::new(mount["mountPath"].as_str().unwrap()) == dir;
        mounts.iter().find(is_it).unwrap_or_else(|| panic!("{} is mounted", dir.display()))
    };
    let Root { cgroup, proc, sys, sys_fs, var_run, run, kubelet, state } = options.root;
    assert_eq!(proc, Path::new("/proc"), "the host's, by hostPID");
    for dir in [var_run, run, kubelet] {
        assert_eq!(mount(&dir)["readOnly"], true, "{}", dir.display());
    }
    let socket = options.hooks.server.socket.parent().unwrap();
    let registry = &options.hooks.server.directory;
    for dir in [&cgroup, &sys, &sys_fs, &state, socket, registry, Path::new("/metric-data/")] {
        assert_eq!(mount(dir)["readOnly"], Value::Null, "{}", dir.display());
    }
    let daemon = release.get("daemonset/koord-device-daemon");
    assert_eq!(daemon["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
}

/// What koordlet makes of the arguments in its DaemonSet.
fn agent_options(koordlet: &Value) -> Options {
    let container = &koordlet["spec"]["template"]["spec"]["containers"][0];
    let words: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let variable = |name: &str| (name == "NODE_NAME").then(|| "n1".to_owned());
    let Ok(Request::Run(options)) = flags::parse(words, variable) else { panic!("{container}") };
    assert_eq!(options.warnings, Vec::<String>::new());
    *options
}

/// The API server looks only at the form of it, so its own serves.
fn authority(cluster: &ControlPlane) -> String {
    let path = "jsonpath={.clusters[0].cluster.certificate-authority-data}";
    cluster.kubectl_ok(["config", "view", "--raw", "--flatten", "--output", path]).unwrap()
}
