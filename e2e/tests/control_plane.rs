//! The test kit itself: control planes start side by side, keep strangers out, survive a crash of
//! their API server, and leave nothing behind.

use std::time::Duration;

use anyhow::Result;
use koord_testkit::{ControlPlane, shared, wait_until};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

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
