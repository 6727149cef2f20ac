//! The sandbox against the real kube-apiserver: the same requests, the same answers.
//!
//! Cases are files in `e2e/conformance`; what may differ stands in `differences.yaml` there, and a row of it that is no
//! longer true fails, too. `KOORD_CASE=part-of-a-name` runs some of the cases only.

mod case;
mod compare;
mod normal;
mod side;
mod talk;
mod webhook;

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use koord_sandbox::server::tls::Authority;
use koord_sandbox::server::{Api, Server, ServerConfig, User};
use koord_sandbox::store::Limits;
use koord_testkit::ControlPlane;

use case::Case;
use compare::{Difference, Ledger};
use normal::Names;
use side::{ROBOT_TOKEN, Side};

/// Conversations at once: enough to hide waiting, few enough for a small machine.
const PARALLEL: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_answers_as_kubernetes_does() -> Result<()> {
    let tokens = tempfile::NamedTempFile::new()?;
    std::fs::write(tokens.path(), format!("{ROBOT_TOKEN},robot,,\"system:masters\"\n"))?;
    let Some(cluster) = tokio::task::block_in_place(|| start_real(tokens.path()))? else { return Ok(()) };
    let real = Side::of_file("kube-apiserver", cluster.kubeconfig()).await?;
    let server = start_sandbox().await?;
    let sandbox = Side::new("sandbox", server.kubeconfig()).await?;
    let hooks = webhook::start().await?;

    let filter = std::env::var("KOORD_CASE").unwrap_or_default();
    let mut cases = case::load()?;
    cases.retain(|case| case.name.contains(&filter));
    let runs = futures::stream::iter(&cases).map(|case| judge(case, &real, &sandbox, &hooks.variables));
    let results: Vec<Result<Vec<Difference>>> = runs.buffered(PARALLEL).collect().await;

    let mut ledger = Ledger::load()?;
    let (mut new, mut failed) = (Vec::new(), Vec::new());
    for (case, result) in cases.iter().zip(results) {
        match result {
            Ok(found) => new.extend(found.into_iter().filter(|difference| !ledger.accepts(difference))),
            Err(error) => failed.push(format!("{}: {error:#}", case.name)),
        }
    }
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let stale = ledger.stale(&names);
    let differing: std::collections::BTreeSet<&str> = new.iter().map(|d| d.case.as_str()).collect();
    let is_good = new.is_empty() && failed.is_empty() && stale.is_empty();
    anyhow::ensure!(
        is_good,
        "{} cases, {} accepted rows: {} differ in {} places, {} failed\n{}\n{}\nno longer different: {stale:#?}",
        cases.len(),
        ledger.len(),
        differing.len(),
        new.len(),
        failed.len(),
        compare::report(&new),
        failed.join("\n"),
    );
    server.stop().await;
    Ok(())
}

/// Runs a case on both sides and compares.
async fn judge(
    case: &Case,
    real: &Side,
    sandbox: &Side,
    common: &talk::Variables,
) -> Result<Vec<Difference>> {
    let (a, b) = tokio::join!(talk::hold(real, case, common), talk::hold(sandbox, case, common));
    let (a, b) = (a?, b?);
    let (mut real_names, mut sandbox_names) = (Names::default(), Names::default());
    let mut found = Vec::new();
    for (index, (step, (a, b))) in case.steps.iter().zip(a.iter().zip(&b)).enumerate() {
        if let Some(wanted) = step.status {
            anyhow::ensure!(
                a.code == wanted,
                "step {}: kube-apiserver says {}: {}",
                index + 1,
                a.code,
                a.text
            );
        }
        let (a, b) = (real_names.reply(step, a), sandbox_names.reply(step, b));
        found.extend(compare::differences(&a, &b).into_iter().map(|(path, real, sandbox)| Difference {
            case: case.name.clone(),
            step: index + 1,
            title: step.title(),
            path,
            real,
            sandbox,
        }));
    }
    Ok(found)
}

/// A control plane of our own: nobody else may change what the cases look at.
fn start_real(tokens: &std::path::Path) -> Result<Option<ControlPlane>> {
    let token_file = format!("--token-auth-file={}", tokens.display());
    let builder = ControlPlane::builder()?.with_controller_manager(false).apiserver_args([token_file]);
    match builder.start() {
        Ok(cluster) => Ok(Some(cluster)),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn start_sandbox() -> Result<Server> {
    let robot =
        User { name: "robot".into(), groups: vec!["system:masters".into(), "system:authenticated".into()] };
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse()?,
        authority: Authority::generate()?,
        tokens: HashMap::from([(ROBOT_TOKEN.to_owned(), robot)]),
        control: None,
    };
    Server::start(Api::new(Limits::default()), config).await.context("start the sandbox")
}
