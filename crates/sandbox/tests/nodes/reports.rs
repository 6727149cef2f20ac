//! What koordlet would report: NodeResourceTopology, Device, NodeMetric.

use koord_sandbox::nodes::{Options, Pool, Shape};
use koord_sandbox::server::Part;
use serde_json::{Value, json};

use crate::support::{Cluster, api, install_crds, pool};

const TOPOLOGIES: (&str, &str) = ("topology.node.k8s.io", "noderesourcetopologies");
const METRICS: (&str, &str) = ("slo.koordinator.sh", "nodemetrics");
const DEVICES: (&str, &str) = ("scheduling.koordinator.sh", "devices");

async fn cluster(pools: Vec<Pool>) -> Cluster {
    let api = api();
    install_crds(&api).await;
    Cluster::with(api, Options { pools, ..Options::default() }).await
}

fn pools_of(topology: &Value) -> &str {
    topology["metadata"]["annotations"]["node.koordinator.sh/cpu-shared-pools"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn topologies_follow_pinned_pods_and_reservations() {
    let cluster = cluster(vec![pool("n", 1)]).await;
    cluster.until("a topology", |c| c.try_get(TOPOLOGIES, "", "n-0").is_some()).await;
    let topology = cluster.try_get(TOPOLOGIES, "", "n-0").unwrap();
    assert_eq!(pools_of(&topology), r#"[{"socket":0,"node":0,"cpuset":"0-3"}]"#);
    assert_eq!(
        topology["zones"][0]["resources"][0],
        json!({"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"})
    );
    assert_eq!(topology["metadata"]["ownerReferences"][0]["uid"], cluster.node("n-0")["metadata"]["uid"]);
    let status = json!({"scheduling.koordinator.sh/resource-status": r#"{"cpuset":"1-2"}"#});
    cluster.bind("pinned", "n-0", status, json!({})).await;
    let now = |c: &Cluster| pools_of(&c.try_get(TOPOLOGIES, "", "n-0").unwrap()).to_owned();
    cluster.until("fewer shared", |c| now(c) == r#"[{"socket":0,"node":0,"cpuset":"0,3"}]"#).await;
    cluster
        .edit("nodes", "", "n-0", Part::Main, |node| {
            node["metadata"]["annotations"]["node.koordinator.sh/reservation"] =
                json!(r#"{"reservedCPUs":"0"}"#);
        })
        .await;
    cluster.until("reserved", |c| now(c) == r#"[{"socket":0,"node":0,"cpuset":"3"}]"#).await;
    cluster.delete("pinned", None).await;
    cluster.until("shared again", |c| now(c) == r#"[{"socket":0,"node":0,"cpuset":"1-3"}]"#).await;
}

#[tokio::test(start_paused = true)]
async fn devices_only_where_there_are_any() {
    let mut gpu = pool("gpu", 1);
    gpu.shape.gpus.count = 2;
    let cluster = cluster(vec![pool("n", 1), gpu]).await;
    cluster.until("a device object", |c| c.try_get(DEVICES, "", "gpu-0").is_some()).await;
    let device = cluster.try_get(DEVICES, "", "gpu-0").unwrap();
    assert_eq!(device["spec"]["devices"].as_array().unwrap().len(), 2);
    assert_eq!(device["metadata"]["labels"]["node.koordinator.sh/gpu-vendor"], "nvidia");
    assert_eq!(cluster.try_get(DEVICES, "", "n-0"), None);
    assert_eq!(cluster.node("gpu-0")["status"]["allocatable"]["nvidia.com/gpu"], "2");
}

#[tokio::test(start_paused = true)]
async fn kinds_that_come_later_are_served_later() {
    let cluster = Cluster::start(vec![pool("n", 1)]).await;
    cluster.pass(60).await;
    install_crds(&cluster.api).await;
    cluster.until("a topology", |c| c.try_get(TOPOLOGIES, "", "n-0").is_some()).await;
    cluster.until("a metric", |c| c.try_get(METRICS, "", "n-0").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn usage_feeds_the_node_metric() {
    let cluster = cluster(vec![pool("n", 1)]).await;
    let spec = json!({"containers": [{"name": "main", "image": "x",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]});
    let annotations = json!({"sandbox.koord.sh/cpu-usage": "75%", "sandbox.koord.sh/memory-usage": "256Mi"});
    cluster.bind("web", "n-0", annotations, spec).await;
    let status = |c: &Cluster| c.try_get(METRICS, "", "n-0").map(|m| m["status"].clone()).unwrap_or_default();
    cluster.until("a report about the pod", |c| status(c)["podsMetric"][0]["name"] == "web").await;
    let pod = status(&cluster)["podsMetric"][0].clone();
    assert_eq!(pod["podUsage"]["resources"], json!({"cpu": "1500m", "memory": "256Mi"}));
    assert_eq!((&pod["qos"], &pod["priority"]), (&json!("LS"), &json!("koord-prod")));
    cluster.pass(1800).await;
    let metric = status(&cluster)["nodeMetric"].clone();
    let milli = |value: &Value| -> i64 {
        let text = value["resources"]["cpu"].as_str().unwrap();
        text.strip_suffix('m').map_or_else(|| text.parse::<i64>().unwrap() * 1000, |m| m.parse().unwrap())
    };
    let (node, system) = (milli(&metric["nodeUsage"]), milli(&metric["systemUsage"]));
    assert!((1499..=1501).contains(&(node - system)), "{node} - {system}");
    let windows = metric["aggregatedNodeUsages"].as_array().unwrap();
    assert_eq!(windows.iter().map(|w| &w["duration"]).collect::<Vec<_>>(), ["5m0s", "10m0s", "30m0s"]);
    assert!(milli(&windows[2]["usage"]["p95"]) >= 1600);
    assert_eq!(
        cluster.try_get(METRICS, "", "n-0").unwrap()["spec"]["metricCollectPolicy"]["reportIntervalSeconds"],
        60
    );
}

#[tokio::test(start_paused = true)]
async fn reports_come_as_often_as_the_spec_says() {
    let cluster = cluster(vec![pool("n", 1)]).await;
    let updated = |c: &Cluster| {
        let metric = c.try_get(METRICS, "", "n-0").unwrap_or_default();
        metric["status"]["updateTime"].as_str().map(|t| t.parse::<jiff::Timestamp>().unwrap())
    };
    cluster.until("a report", |c| updated(c).is_some()).await;
    let kind = cluster.api.kind(METRICS.0, METRICS.1).unwrap();
    let slower = |metric: &mut Value| {
        metric["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] = json!(300);
        Ok(true)
    };
    let options = koord_sandbox::server::WriteOptions::by("test");
    cluster.api.edit(&kind, ("", "n-0"), Part::Main, &options, &slower).await.unwrap();
    let first = updated(&cluster);
    cluster.until("the next", |c| updated(c) != first).await;
    let second = updated(&cluster);
    cluster.until("the one after", |c| updated(c) != second).await;
    let apart = updated(&cluster).unwrap().as_second() - second.unwrap().as_second();
    assert!((299..=301).contains(&apart), "{apart}");
}

#[tokio::test(start_paused = true)]
async fn a_day_of_waves_in_24_minutes() {
    let api = api();
    install_crds(&api).await;
    let mut options = Options { pools: vec![pool("n", 1)], ..Options::default() };
    options.habits.speed = 60.0;
    let cluster = Cluster::with(api, options).await;
    let data = json!({"metadata": {"name": "load"}, "data": {"cpu.csv": "0,1\n3600,1\n7200,2\n"}});
    cluster.create(("", "configmaps"), "default", data).await;
    let spec =
        json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]});
    let wave = json!({"sandbox.koord.sh/cpu-usage": "wave:min=0,max=100%"});
    cluster.bind("wave", "n-0", wave, spec.clone()).await;
    cluster.bind("trace", "n-0", json!({"sandbox.koord.sh/cpu-usage": "trace:load/cpu.csv"}), spec).await;
    let used = |c: &Cluster, pod: &str| -> i64 {
        let metric = c.try_get(METRICS, "", "n-0").unwrap_or_default();
        let pods = metric["status"]["podsMetric"].as_array().cloned().unwrap_or_default();
        let found = pods.iter().find(|p| p["name"] == pod).map(|p| p["podUsage"]["resources"]["cpu"].clone());
        let text = found.and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        text.strip_suffix('m').map_or_else(|| text.parse::<i64>().unwrap_or(0) * 1000, |m| m.parse().unwrap())
    };
    cluster.until("noon", |c| used(c, "wave") > 900).await;
    cluster.until("midnight", |c| (1..100).contains(&used(c, "wave"))).await;
    // A window of five minutes holds two and a half rounds of the trace.
    assert!((1200..=1350).contains(&used(&cluster, "trace")), "{}", used(&cluster, "trace"));
}

#[tokio::test(start_paused = true)]
async fn shapes_reach_the_objects() {
    let shape = Shape { cores: 8, threads: 2, sockets: 2, ..Shape::default() };
    let cluster = cluster(vec![Pool { name: "smt".to_owned(), count: 1, shape }]).await;
    cluster.until("a topology", |c| c.try_get(TOPOLOGIES, "", "smt-0").is_some()).await;
    let topology = cluster.try_get(TOPOLOGIES, "", "smt-0").unwrap();
    assert_eq!(topology["zones"].as_array().unwrap().len(), 2);
    assert_eq!(cluster.node("smt-0")["status"]["capacity"]["cpu"], "16");
}

#[tokio::test(start_paused = true)]
async fn a_node_can_be_asked_to_report_often() {
    let mut often = pool("n", 1);
    let strategy = r#"{"metricReportIntervalSeconds":5}"#.to_owned();
    often.shape.annotations.insert("node.koordinator.sh/colocation-strategy".to_owned(), strategy);
    let cluster = cluster(vec![often]).await;
    let spec =
        json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}]});
    cluster.bind("web", "n-0", json!({"sandbox.koord.sh/cpu-usage": "10%"}), spec).await;
    let used = |c: &Cluster| {
        let metric = c.try_get(METRICS, "", "n-0").unwrap_or_default();
        metric["status"]["podsMetric"][0]["podUsage"]["resources"]["cpu"].clone()
    };
    let now = || tokio::time::Instant::now();
    let begun = now();
    cluster.until("it idles", |c| used(c) == "200m").await;
    let metric = cluster.try_get(METRICS, "", "n-0").unwrap();
    assert!(metric["status"]["nodeMetric"]["systemUsage"]["resources"]["cpu"].is_string(), "{metric}");
    // Somebody changes what a running pod uses.
    cluster
        .edit("pods", "default", "web", Part::Main, |pod| {
            pod["metadata"]["annotations"]["sandbox.koord.sh/cpu-usage"] = json!("90%");
        })
        .await;
    cluster.until("it wakes", |c| used(c) == "1800m").await;
    assert!((now() - begun).as_secs() <= 15, "{:?}", now() - begun);
}
