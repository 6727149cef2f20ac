//! What the chart brings besides programs.

use anyhow::Result;
use serde_json::json;

use crate::bench_sandbox::client::Target;

pub(super) const NAMESPACE: &str = "koordinator-system";
pub(super) const CONFIG: &str = "slo-controller-config";

/// The strategies, and webhook configurations without entries: the sandbox shall not ask us about what we make there.
pub(super) async fn install(target: &Target, colocation: &str) -> Result<()> {
    let namespace = json!({"metadata": {"name": NAMESPACE, "labels": {"control-plane": "koordinator"}}});
    target.post("/api/v1/namespaces", namespace.to_string()).await?;
    let config = json!({"metadata": {"name": CONFIG}, "data": {
        "colocation-config": colocation,
        "resource-threshold-config": json!({"clusterStrategy": {"enable": true}}).to_string(),
    }});
    target.post(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), config.to_string()).await?;
    for (name, value) in
        [("koord-prod", 9000), ("koord-mid", 7000), ("koord-batch", 5000), ("koord-free", 3000)]
    {
        let class = json!({"metadata": {"name": name}, "value": value});
        target.post("/apis/scheduling.k8s.io/v1/priorityclasses", class.to_string()).await?;
    }
    for kind in ["mutating", "validating"] {
        let name = format!("koordinator-{kind}-webhook-configuration");
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        target.post(&path, json!({"metadata": {"name": name}}).to_string()).await?;
    }
    Ok(())
}
