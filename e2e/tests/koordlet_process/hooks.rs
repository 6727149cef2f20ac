//! The runtime proxy asks hooks before a pod is there.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Event;
use koord_api::hook::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse, Hook,
    LinuxContainerResources, PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};
use koordlet::run::{clean_up, start};
use kube::Api;
use kube::api::ListParams;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::node::{Tree, cluster, kubelet, objects, stop, until};

const BATCH: &str = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1k"},
    "limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"1Gi"}}}}"#;

/// One call, as the proxy makes it.
async fn call<M: Message + Default>(socket: &Path, hook: Hook, request: &impl Message) -> Result<M> {
    let stream = UnixStream::connect(socket).await.context("nobody listens")?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let message = request.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len())?.to_be_bytes());
    frame.extend(message);
    let request = http::Request::post(format!("http://localhost{}", hook.path()))
        .header("content-type", "application/grpc")
        .body(Full::<hyper::body::Bytes>::from(frame))?;
    let body = sender.send_request(request).await?.into_body().collect().await?;
    let status = body.trailers().and_then(|all| all.get("grpc-status")).cloned();
    ensure!(status.is_some_and(|status| status == "0"), "refused");
    Ok(M::decode(body.to_bytes().slice(5..))?)
}

#[tokio::test]
async fn the_runtime_proxy_is_answered_before_a_pod_begins() -> Result<()> {
    let tree = Tree::new()?;
    let (cluster, config, client) = cluster().await?;
    objects(&client).await?;
    let end = CancellationToken::new();
    let port = kubelet(Arc::new(Mutex::new(Some(Vec::new()))), end.clone()).await?;
    let (socket, folder) = (tree.path("hooks.sock"), tree.path("hookserver.d"));
    std::fs::create_dir_all(&folder)?;
    let more = format!(
        "-runtime-hooks-addr={0} -runtime-hooks-host-endpoint={0} -runtime-hooks-config-path={1}",
        socket.display(),
        folder.display()
    );
    let running = start(tree.options(port, &more)?, config).await?;
    let told: Value = serde_json::from_str(&tree.get("hookserver.d/koordlet.json")?)?;
    let stages = json!(["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources"]);
    let want = json!({"remote-endpoint": socket, "failure-policy": "Ignore", "runtime-hooks": stages});
    assert_eq!(told, want);

    // A pod that kubelet has made a group for, and that nobody has listed yet.
    tree.group("kubepods/besteffort/podnew")?;
    let meta = PodSandboxMetadata {
        name: "new".into(),
        namespace: "default".into(),
        uid: "new".into(),
        ..Default::default()
    };
    let labels = [("koordinator.sh/qosClass".to_owned(), "BE".to_owned())];
    let annotations = [("node.koordinator.sh/extended-resource-spec".to_owned(), BATCH.to_owned())];
    let request = PodSandboxHookRequest {
        pod_meta: Some(meta.clone()),
        labels: labels.into(),
        annotations: annotations.into(),
        cgroup_parent: "/kubepods/besteffort/podnew".into(),
        ..Default::default()
    };
    let answer: PodSandboxHookResponse = call(&socket, Hook::PreRunPodSandbox, &request).await?;
    assert_eq!(answer.resources.context("no resources")?.cpu_quota, 200_000);
    let file = |name: &str| tree.get(&format!("sys/fs/cgroup/{name}"));
    assert_eq!(file("cpu/kubepods/besteffort/podnew/cpu.cfs_quota_us")?, "200000");
    assert_eq!(file("cpu/kubepods/besteffort/podnew/cpu.shares")?, "1024");
    assert_eq!(file("memory/kubepods/besteffort/podnew/memory.limit_in_bytes")?, (1 << 30).to_string());

    // It hears of it though koordlet has not heard of it.
    let events: Api<Event> = Api::namespaced(client, "default");
    let of = ListParams::default().fields("involvedObject.name=new,reason=RuntimeHooks");
    let told = async || -> Result<String> {
        let found = events.list(&of).await?.items;
        Ok(found.into_iter().filter_map(|event| event.message).collect())
    };
    until("the new pod is told", || async { Ok(!told().await?.is_empty()) }).await?;
    let told = told().await?;
    let parts = ["at PreRunPodSandbox ", "cpu.cfs_quota_us 200000; ", "batch-cpu request 1000, limit 2000"];
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");

    // Services share CPUs as soon as the node's are known.
    let request = ContainerResourceHookRequest {
        pod_meta: Some(PodSandboxMetadata { name: "web".into(), uid: "web".into(), ..Default::default() }),
        container_meta: Some(ContainerMetadata { name: "main".into(), ..Default::default() }),
        container_resources: Some(LinuxContainerResources { cpu_shares: 512, ..Default::default() }),
        pod_labels: [("koordinator.sh/qosClass".to_owned(), "LS".to_owned())].into(),
        pod_cgroup_parent: "/kubepods/burstable/podweb".into(),
        ..Default::default()
    };
    until("services are given CPUs", || async {
        let answer: ContainerResourceHookResponse = call(&socket, Hook::PreCreateContainer, &request).await?;
        let resources = answer.container_resources.context("no resources")?;
        Ok((resources.cpu_shares, resources.cpuset_cpus.as_str()) == (512, "0-7"))
    })
    .await?;

    stop(running).await?;
    assert!(folder.join("koordlet.json").exists(), "a restart is no reason to forget it");
    clean_up(&tree.options(port, &more)?).context("clean-up")?;
    assert!(!folder.join("koordlet.json").exists());
    assert_eq!(file("cpu/kubepods/besteffort/podnew/cpu.cfs_quota_us")?, "-1");
    end.cancel();
    cluster.stop().await;
    Ok(())
}
