//! How many pods per second one core creates, in process: `cargo run --release --example create_rate`.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use koord_sandbox::server::{Api, WriteOptions};
use serde_json::{Value, json};

const PODS: u32 = 20_000;

fn pod(i: u32) -> Value {
    json!({"metadata": {"name": format!("web-{i}"), "labels": {"app": "web", "tier": "front"}}, "spec": {
        "containers": [{"name": "main", "image": "example.com/web:1",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}]}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]}})
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api = Api::new(koord_sandbox::store::Limits::default());
    let kind = api.kind("", "pods")?;
    let options = WriteOptions::by("bench");
    api.create(&kind, "default", pod(PODS), &options).await?;
    let start = Instant::now();
    for i in 0..PODS {
        api.create(&kind, "default", pod(i), &options).await?;
    }
    let elapsed = start.elapsed();
    let size = api.get(&kind, "default", "web-0")?.json().len();
    let rate = f64::from(PODS) / elapsed.as_secs_f64();
    println!("{rate:.0} creates/s, {:.1} us each, {size} bytes at rest", 1e6 / rate);
    Ok(())
}
