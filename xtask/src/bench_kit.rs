//! `cargo xtask bench kit`: how much memory the watch cache takes for a large cluster's pods.
//!
//! The pods come as JSON pages from a server in this process, so the figure covers the real path: list, decode,
//! project, store. As the measure, a sample of the same pods is kept as full typed objects in the same run.

use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use koord_kit::cache::CacheBuilder;
use koord_kit::metrics::resident_bytes;
use koord_kit::pods::PodProjection;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::step::say;

const PODS: usize = 150_000;
const TEMPLATES: usize = 500;
const NODES: usize = 5_000;

/// Pods kept as full objects for comparison.
const SAMPLE: usize = 10_000;

/// Longer than any machine of ours needs.
const LIMIT: Duration = Duration::from_secs(600);

/// Prints the cache's memory for all pods, and its ratio to full objects.
pub(crate) fn run() -> Result<()> {
    if cfg!(debug_assertions) {
        return run_optimised("kit", &[]);
    }
    say(&format!(
        "{PODS} pods of {TEMPLATES} templates on {NODES} nodes, {} bytes of JSON each",
        pod(0).len()
    ));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (cached, seconds) = runtime.block_on(cached_bytes())?;
    let full = full_objects_bytes_per_pod()?;
    let per_pod = cached / PODS;
    say(&format!(
        "cache:         {:>6.1} MiB for all pods, {per_pod} bytes per pod, listed in {seconds:.1} s",
        mib(cached)
    ));
    say(&format!(
        "full objects:  {:>6.1} MiB for as many, {full} bytes per pod (by {SAMPLE} pods)",
        mib(full * PODS)
    ));
    say(&format!("ratio:         {:.1} times less", ratio(full, per_pod)));
    Ok(())
}

/// Reading a gigabyte of JSON takes minutes without optimisation, so the task starts itself anew with it.
pub(crate) fn run_optimised(what: &str, more: &[String]) -> Result<()> {
    say("building xtask with optimisation, which takes some minutes the first time");
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "xtask", "--", "bench", what])
        .args(more)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the optimised run ended with {status}");
    Ok(())
}

fn mib(bytes: usize) -> f64 {
    ratio(bytes, 1024 * 1024)
}

fn ratio(a: usize, b: usize) -> f64 {
    let float = |n: usize| f64::from(u32::try_from(n / 16).unwrap_or(u32::MAX)) * 16.0;
    float(a) / float(b.max(16))
}

fn resident() -> Result<usize> {
    let bytes = resident_bytes().context("/proc/self/status has no VmRSS")?;
    Ok(usize::try_from(bytes)?)
}

fn full_objects_bytes_per_pod() -> Result<usize> {
    // Warms the allocator, so that the sample's growth is its own.
    let _: Pod = serde_json::from_str(&pod(0))?;
    let before = resident()?;
    let pods: Vec<Pod> =
        (0..SAMPLE).map(|number| serde_json::from_str(&pod(number))).collect::<Result<_, _>>()?;
    let grown = resident()?.saturating_sub(before);
    ensure!(pods.len() == SAMPLE, "all pods are kept until here");
    Ok(grown / SAMPLE)
}

/// Resident growth from an idle cache to a full one, and how long the list took.
async fn cached_bytes() -> Result<(usize, f64)> {
    let server = tower::service_fn(|request: Request<Body>| async move {
        // A watch has nothing to tell.
        if request.uri().query().is_some_and(|query| query.contains("watch=")) {
            std::future::pending::<()>().await;
        }
        Ok::<_, BoxError>(answer(&request))
    });
    let client = kube::Client::new(server, "default");
    let projection = Arc::new(PodProjection::new());
    let project = projection.clone();
    let (cache, worker) = CacheBuilder::of(client, move |key, pod: Pod| project.project(key, pod)).build();
    let stop = CancellationToken::new();
    let before = resident()?;
    let start = Instant::now();
    let task = tokio::spawn(worker.run(stop.clone()));
    tokio::time::timeout(LIMIT, cache.synced()).await.context("the cache did not fill in time")?;
    let seconds = start.elapsed().as_secs_f64();
    let grown = resident()?.saturating_sub(before);
    stop.cancel();
    task.await?;
    ensure!(cache.len() == PODS, "the cache holds {} pods", cache.len());
    ensure!(cache.malformed().is_empty(), "{:?}", cache.malformed().first());
    say(&format!("the cache shares {} specs among {} pods", projection.specs(), cache.len()));
    Ok((grown, seconds))
}

/// A page of pods.
fn answer(request: &Request<Body>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let value = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let from: usize = value("continue").and_then(|text| text.parse().ok()).unwrap_or(0);
    let limit: usize = value("limit").and_then(|text| text.parse().ok()).unwrap_or(PODS);
    let end = (from + limit).min(PODS);
    let items: Vec<String> = (from..end).map(pod).collect();
    let next = if end < PODS { end.to_string() } else { String::new() };
    let body = format!(
        "{{\"metadata\":{{\"resourceVersion\":\"{}\",\"continue\":\"{next}\"}},\"items\":[{}]}}",
        PODS + 1,
        items.join(",")
    );
    Response::new(Body::from(body.into_bytes()))
}

/// A running pod as an API server sends it: its template with its own values put in.
pub(crate) fn pod(number: usize) -> String {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    let template = number % TEMPLATES;
    let (ordinal, suffix) = ((number / TEMPLATES).to_string(), format!("{:05x}", (number * 7919) % 0xfffff));
    let is_stateful = is_stateful(template);
    let name = if is_stateful {
        format!("service-{template}-{ordinal}")
    } else {
        format!("service-{template}-6d4cf56db6-{suffix}")
    };
    let cpu = number % 96;
    [
        ("@NAME@", name),
        ("@ORDINAL@", ordinal),
        ("@SUFFIX@", suffix),
        ("@UID@", format!("{number:08x}-1c9d-4f6e-9a41-{number:012x}")),
        ("@VERSION@", (number + 1).to_string()),
        ("@NODE@", format!("node-{}.cluster.example", (number * 31) % NODES)),
        ("@CPUS@", format!("{cpu}-{}", cpu + 3)),
        ("@IP@", format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255)),
        ("@CONTAINER@", format!("{number:064x}")),
    ]
    .iter()
    .fold(
        TEXTS.get_or_init(|| (0..TEMPLATES).map(template_text).collect())[template].clone(),
        |text, (mark, value)| text.replace(mark, value),
    )
}

/// Every fifth template is a StatefulSet's, the others are Deployments'.
fn is_stateful(template: usize) -> bool {
    template.is_multiple_of(5)
}

/// A template's pod, with marks where a pod's own values go.
fn template_text(template: usize) -> String {
    let app = format!("service-{template}");
    let is_stateful = is_stateful(template);
    let mut labels = json!({"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": format!("team-{}", template % 20),
        "koordinator.sh/qosClass": if template.is_multiple_of(3) { "BE" } else { "LS" }, "version": "v1.4.2"});
    let mut volumes = json!([
        {"name": "kube-api-access-@SUFFIX@", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
            {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}}]}},
        {"name": "config", "configMap": {"name": format!("{app}-config"), "defaultMode": 420}}]);
    if is_stateful {
        labels["statefulset.kubernetes.io/pod-name"] = json!("@NAME@");
        labels["apps.kubernetes.io/pod-index"] = "@ORDINAL@".into();
        volumes.as_array_mut().into_iter().for_each(|list| {
            list.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-@NAME@"}}));
        });
    } else {
        labels["pod-template-hash"] = json!("6d4cf56db6");
    }
    let pod = json!({
        "metadata": {
            "name": "@NAME@", "generateName": format!("{app}-6d4cf56db6-"), "namespace": format!("team-{}", template % 20),
            "uid": "@UID@", "resourceVersion": "@VERSION@",
            "creationTimestamp": "2025-03-01T08:00:00Z", "labels": labels,
            "annotations": annotations(),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": if is_stateful { "StatefulSet" } else { "ReplicaSet" },
                "name": format!("{app}-6d4cf56db6"), "uid": format!("{template:08x}-77aa-4bbb-8ccc-000000000000"),
                "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_fields()
        },
        "spec": {
            "nodeName": "@NODE@", "hostname": if is_stateful { json!("@NAME@") } else { Value::Null },
            "serviceAccountName": "default", "serviceAccount": "default", "schedulerName": "koord-scheduler",
            "priorityClassName": "koord-prod", "priority": 9500, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority", "volumes": volumes, "tolerations": tolerations(),
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100,
                "podAffinityTerm": {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}}, "topologyKey": "kubernetes.io/hostname"}}]}},
            "containers": [container(&app, "main"), container(&app, "sidecar")]
        },
        "status": status()
    });
    pod.to_string()
}

fn annotations() -> Value {
    json!({
        "scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"@CPUS@\"}",
        "cni.projectcalico.org/podIP": "@IP@/32",
        "cni.projectcalico.org/containerID": "@CONTAINER@",
        "prometheus.io/scrape": "true", "prometheus.io/port": "9090"})
}

fn managed_fields() -> Value {
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:ownerReferences": {".": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:resources": {".": {}, "f:limits": {}, "f:requests": {}}}}}});
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
        "time": "2025-03-01T08:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    json!([entry("kube-controller-manager"), entry("koord-scheduler"), entry("kubelet")])
}

fn tolerations() -> Value {
    let tolerate = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!([tolerate("node.kubernetes.io/not-ready"), tolerate("node.kubernetes.io/unreachable")])
}

fn container(app: &str, name: &str) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
        "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3});
    json!({
        "name": name, "image": format!("registry.example/team/{app}/{name}:v1.4.2"), "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/config/app.yaml", "--v=2"],
        "env": [{"name": "APP", "value": app}, {"name": "GOMAXPROCS", "value": "4"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}},
        "livenessProbe": probe, "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true},
            {"name": "kube-api-access-@SUFFIX@", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]
    })
}

fn status() -> Value {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2025-03-01T08:00:05Z"});
    let container = |name: &str| {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0,
        "image": "registry.example/team/app:v1.4.2", "imageID": format!("registry.example/team/app@sha256:{:064x}", 42),
        "containerID": "containerd://@CONTAINER@", "state": {"running": {"startedAt": "2025-03-01T08:00:04Z"}}})
    };
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(condition);
    json!({"phase": "Running", "startTime": "2025-03-01T08:00:01Z", "qosClass": "Burstable", "podIP": "@IP@", "podIPs": [{"ip": "@IP@"}],
        "conditions": conditions,
        "containerStatuses": [container("main"), container("sidecar")]})
}
