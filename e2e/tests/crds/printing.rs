//! What `kubectl get` prints. Spec: crds 1, 2, 11.

use anyhow::Result;
use serde_json::{Value, json};

use crate::acceptance::kinds::*;
use crate::cluster::{client, create, replace, with_crds};

/// Columns of every kind, by the names that users type.
#[tokio::test]
async fn columns() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let plain = "NAME AGE";
    let reservation = "NAME PHASE AGE NODE TTL EXPIRES";
    let job = "NAME PHASE STATUS AGE NODE RESERVATION PODNAMESPACE POD NEWPOD TTL";
    let recommendation = "NAME AGE TYPE KIND NAME LASTUPDATETIME";
    for (kind, fields, words, want) in [
        (reservations(), json!({}), &["reservations", "reservation"][..], reservation),
        (jobs(), json!({}), &["podmigrationjobs", "podmigrationjob", "pmj"], job),
        (devices(), json!({}), &["devices", "device"], plain),
        (network_topologies(), json!({}), &["clusternetworktopologies", "clusternetworktopology"], plain),
        (explanations(), json!({}), &["scheduleexplanations", "scheduleexplanation", "sched-exp"], plain),
        (node_metrics(), json!({}), &["nodemetrics", "nodemetric"], plain),
        (node_slos(), json!({}), &["nodeslos", "nodeslo"], plain),
        (profiles(), json!({}), &["clustercolocationprofiles", "clustercolocationprofile"], plain),
        (quota_profiles(), json!({}), &["elasticquotaprofiles", "elasticquotaprofile", "eqp"], plain),
        (recommendations(), json!({}), &["recommendations", "recommendation", "recom"], recommendation),
        (quotas(), json!({}), &["elasticquotas", "elasticquota"], plain),
        (pod_groups(), json!({}), &["podgroups", "podgroup"], plain),
        (
            topologies(),
            json!({ "zones": [] }),
            &["noderesourcetopologies", "noderesourcetopology", "node-res-topo"],
            plain,
        ),
    ] {
        create(&client, kind, &kind.object("columns", &fields))
            .await?
            .map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        for word in words {
            let printed = cluster.kubectl_ok(["get", word, "columns"])?;
            let header: Vec<&str> = printed.lines().next().unwrap_or_default().split_whitespace().collect();
            assert_eq!(header.join(" "), want, "kubectl get {word}");
        }
    }
    Ok(())
}

/// Rows with every column filled. The age is now, so it is cut out.
#[tokio::test]
async fn rows() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    for (kind, mut fields, want) in [
        (
            jobs(),
            json!({
                "spec": {
                    "podRef": { "namespace": "default", "name": "pod-a" },
                    "reservationOptions": { "reservationRef": { "name": "d56659ab" } },
                    "ttl": "5m0s",
                },
                "status": { "phase": "Succeeded", "status": "Complete", "nodeName": "node-1", "podRef": { "name": "pod-b" } },
            }),
            "rows Succeeded Complete AGE node-1 d56659ab default pod-a pod-b 5m0s",
        ),
        (
            reservations(),
            json!({
                "spec": { "ttl": "30m", "expires": "2124-01-01T00:00:00Z", "owners": [{ "object": {} }], "template": {} },
                "status": { "phase": "Available", "nodeName": "node-1" },
            }),
            "rows Available AGE node-1 30m 2124-01-01T00:00:00Z",
        ),
        (
            recommendations(),
            json!({
                "spec": { "target": { "type": "workload", "workload": { "kind": "Deployment", "name": "web", "apiVersion": "apps/v1" } } },
                "status": {},
            }),
            "rows AGE workload Deployment web",
        ),
    ] {
        let status = fields.as_object_mut().and_then(|fields| fields.remove("status")).unwrap_or_default();
        let mut object = stored(create(&client, kind, &kind.object("rows", &fields)).await?)?;
        assert_eq!(object.get("status"), None, "a create does not set the status");
        object["status"] = status;
        stored(replace(&client, kind, "/status", &object).await?)?;
        let printed = cluster.kubectl_ok(["get", kind.plural, "rows", "--no-headers"])?;
        let row: Vec<&str> =
            printed.split_whitespace().map(|cell| if is_age(cell) { "AGE" } else { cell }).collect();
        assert_eq!(row.join(" "), want);
    }
    Ok(())
}

/// `0s`, `12s`: nothing here is older.
fn is_age(cell: &str) -> bool {
    cell.strip_suffix('s').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

fn stored(answer: Result<Value, Vec<String>>) -> Result<Value> {
    answer.map_err(|faults| anyhow::anyhow!("refused: {faults:?}"))
}
