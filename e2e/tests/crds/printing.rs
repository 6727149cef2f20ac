//! What `kubectl get` prints. Spec: crds 1, 2, 11.

use anyhow::{Result, anyhow};
use serde_json::{Map, Value, json};

use crate::cluster::{client, create, replace, with_crds};
use crate::kinds::kind;

/// Columns of every kind, by all names that users type.
#[tokio::test]
async fn columns() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let plain = "NAME AGE";
    let reservation = "NAME PHASE AGE NODE TTL EXPIRES";
    let job = "NAME PHASE STATUS AGE NODE RESERVATION PODNAMESPACE POD NEWPOD TTL";
    let recommendation = "NAME AGE TYPE KIND NAME LASTUPDATETIME";
    for (name, short, want) in [
        ("Reservation", None, reservation),
        ("PodMigrationJob", Some("pmj"), job),
        ("Device", None, plain),
        ("ClusterNetworkTopology", None, plain),
        ("ScheduleExplanation", Some("sched-exp"), plain),
        ("NodeMetric", None, plain),
        ("NodeSLO", None, plain),
        ("ClusterColocationProfile", None, plain),
        ("ElasticQuotaProfile", Some("eqp"), plain),
        ("Recommendation", Some("recom"), recommendation),
        ("ElasticQuota", None, plain),
        ("PodGroup", None, plain),
        ("NodeResourceTopology", Some("node-res-topo"), plain),
    ] {
        let kind = kind(name)?;
        let lists = ["topologyPolicies", "zones"].into_iter().filter(|_| name == "NodeResourceTopology");
        let fields = lists.map(|list| (list.to_owned(), json!([]))).collect();
        create(&client, kind, &kind.object("columns", fields)).await?.map_err(|e| anyhow!("{e:?}"))?;
        for word in [Some(kind.plural), Some(&name.to_lowercase()), short].into_iter().flatten() {
            let printed = cluster.kubectl_ok(["get", word, "columns"])?;
            let header: Vec<&str> = printed.lines().next().unwrap_or_default().split_whitespace().collect();
            assert_eq!(header.join(" "), want, "kubectl get {word}");
        }
    }
    Ok(())
}

/// Rows with every column filled. The age is now, so its text does not matter.
#[tokio::test]
async fn rows() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let workload = json!({ "kind": "Deployment", "name": "web", "apiVersion": "apps/v1" });
    for (name, spec, status, want) in [
        (
            "PodMigrationJob",
            json!({
                "podRef": { "namespace": "default", "name": "pod-a" },
                "reservationOptions": { "reservationRef": { "name": "d56659ab" } },
                "ttl": "5m0s",
            }),
            json!({
                "phase": "Succeeded", "status": "Complete", "nodeName": "node-1", "podRef": { "name": "pod-b" },
            }),
            "rows Succeeded Complete AGE node-1 d56659ab default pod-a pod-b 5m0s",
        ),
        (
            "Reservation",
            json!({
                "ttl": "30m", "expires": "2124-01-01T00:00:00Z", "owners": [{ "object": {} }], "template": {},
            }),
            json!({ "phase": "Available", "nodeName": "node-1" }),
            "rows Available AGE node-1 30m 2124-01-01T00:00:00Z",
        ),
        (
            "Recommendation",
            json!({ "target": { "type": "workload", "workload": workload } }),
            json!({}),
            "rows AGE workload Deployment web",
        ),
    ] {
        let kind = kind(name)?;
        let stored = |answer: Result<Value, Vec<String>>| answer.map_err(|faults| anyhow!("{faults:?}"));
        let fields = Map::from_iter([("spec".to_owned(), spec), ("status".to_owned(), status.clone())]);
        let mut object = stored(create(&client, kind, &kind.object("rows", fields)).await?)?;
        assert_eq!(object.get("status"), None, "a create does not set the status");
        object["status"] = status;
        stored(replace(&client, kind, "/status", &object).await?)?;
        let printed = cluster.kubectl_ok(["get", kind.plural, "rows", "--no-headers"])?;
        let cells = printed.split_whitespace().map(|cell| if is_age(cell) { "AGE" } else { cell });
        assert_eq!(cells.collect::<Vec<_>>().join(" "), want);
    }
    Ok(())
}

/// `0s`, `12s`: nothing here is older.
fn is_age(cell: &str) -> bool {
    cell.strip_suffix('s').is_some_and(|digits| digits.parse::<u32>().is_ok())
}
