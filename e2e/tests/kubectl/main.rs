//! The real kubectl against the sandbox and against a real control plane: the same words, the same outcome.
//!
//! Scripts are files in `e2e/kubectl`; what may differ stands in `e2e/conformance/differences.yaml` as cases
//! `kubectl/<script>`. Both sides have the same two nodes and the same hollow kubelet. `KOORD_CASE=part-of-a-name` runs
//! some of the scripts only.

#[path = "../conformance/compare.rs"]
mod compare;
mod hollow;
mod script;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use koord_sandbox::cluster::{Cluster, Options};
use koord_testkit::{Binaries, ControlPlane, Program, Version};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use compare::{Difference, Ledger};
use script::Script;

/// Scripts at once: kubectl mostly waits.
const PARALLEL: usize = 4;

/// A cluster to talk to.
struct Side {
    name: &'static str,
    kubectl: PathBuf,
    kubeconfig: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_does_not_notice() -> Result<()> {
    let Some(real) = tokio::task::block_in_place(start_real)? else { return Ok(()) };
    let programs = Binaries::ensure(&Version::kubernetes()?, None, &[Program::Kubectl])?;
    let kubectl = programs.path(Program::Kubectl);
    let options = Options { with_koord_kinds: false, ..Options::default() };
    let sandbox = Cluster::start(options, &mut |_| {}).await?;
    let sides = [
        Side {
            name: "kubernetes",
            kubectl: kubectl.clone(),
            kubeconfig: std::fs::read_to_string(real.kubeconfig())?,
        },
        Side { name: "sandbox", kubectl, kubeconfig: sandbox.kubeconfig().to_owned() },
    ];
    let mut kubelets = Vec::new();
    for side in &sides {
        kubelets.push(hollow::start(client(&side.kubeconfig).await?).await?);
    }

    let filter = std::env::var("KOORD_CASE").unwrap_or_default();
    let mut scripts = script::load()?;
    scripts.retain(|script| script.name.contains(&filter));
    let runs = futures::stream::iter(&scripts).map(|script| judge(script, &sides));
    let results: Vec<Result<Vec<Difference>>> = runs.buffered(PARALLEL).collect().await;

    let mut ledger = Ledger::load()?;
    let (mut new, mut failed) = (Vec::new(), Vec::new());
    for (script, result) in scripts.iter().zip(results) {
        match result {
            Ok(found) => new.extend(found.into_iter().filter(|difference| !ledger.accepts(difference))),
            Err(error) => failed.push(format!("{}: {error:#}", script.name)),
        }
    }
    let names: Vec<String> = scripts.iter().map(|script| format!("kubectl/{}", script.name)).collect();
    let stale = ledger.stale(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let commands: usize = scripts.iter().map(|script| script.steps.len()).sum();
    ensure!(
        new.is_empty() && failed.is_empty() && stale.is_empty(),
        "{} scripts, {commands} commands: {} differences, {} failed\n{}\n{}\nno longer different: {stale:#?}",
        scripts.len(),
        new.len(),
        failed.len(),
        compare::report(&new),
        failed.join("\n"),
    );
    drop(kubelets);
    sandbox.stop().await;
    Ok(())
}

/// Runs a script on both sides and compares what kubectl says.
async fn judge(script: &Script, sides: &[Side; 2]) -> Result<Vec<Difference>> {
    let [real, sandbox] = sides;
    let (a, b) = tokio::join!(script::run(real, script), script::run(sandbox, script));
    let (a, b) = (a?, b?);
    let mut found = Vec::new();
    for (index, (step, (a, b))) in script.steps.iter().zip(a.iter().zip(&b)).enumerate() {
        if let Some(wanted) = step.exit {
            ensure!(a["exit"] == wanted, "step {} ({}) on {}: {a:#}", index + 1, step.run, real.name);
        }
        found.extend(compare::differences(a, b).into_iter().map(|(path, real, sandbox)| Difference {
            case: format!("kubectl/{}", script.name),
            step: index + 1,
            title: step.run.clone(),
            path: format!("/{}{path}", index + 1),
            real,
            sandbox,
        }));
    }
    Ok(found)
}

/// With its controllers, and without what only a real cluster puts into every namespace and pod.
fn start_real() -> Result<Option<ControlPlane>> {
    let builder = ControlPlane::builder()?
        .apiserver_args(["--disable-admission-plugins=ServiceAccount"])
        .controller_manager_args(["--controllers=*,-root-ca-certificate-publisher-controller"]);
    match builder.start() {
        Ok(cluster) => Ok(Some(cluster)),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// The scripts' folder.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl")
}

/// The kubeconfig with a namespace for those who name none.
fn within(kubeconfig: &str, namespace: &str) -> Result<String> {
    let mut kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let context = kubeconfig.contexts.first_mut().and_then(|named| named.context.as_mut());
    context.context("a kubeconfig has a context")?.namespace = Some(namespace.to_owned());
    // JSON is YAML, too.
    Ok(serde_json::to_string(&kubeconfig)?)
}
