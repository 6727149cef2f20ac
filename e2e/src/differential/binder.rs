//! What kube-controller-manager does for claims that waited for a consumer: it carries out the scheduler's choice.

use anyhow::Result;
use serde_json::{Value, json};

use super::scenario::{name, namespace};
use super::server::Talk;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The claims of a pod: namespace and name.
pub(super) fn claims_of(pod: &Value) -> Vec<(String, String)> {
    let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let claim = |volume: &Value| {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        Some((namespace(pod).to_owned(), claim.to_owned()))
    };
    volumes.iter().filter_map(claim).collect()
}

/// Completes what the scheduler has begun for these claims.
pub(super) async fn bind(talk: &Talk, claims: &[(String, String)]) -> Result<()> {
    for (space, claim) in claims {
        // A claim that does not exist keeps its pod waiting.
        let Ok(claim) = talk.get("PersistentVolumeClaim", space, claim).await else { continue };
        if claim["spec"]["volumeName"].is_string() {
            continue;
        }
        let chosen = talk.list("PersistentVolume").await?.into_iter().find(|volume| {
            let wanted = &volume["spec"]["claimRef"];
            wanted["name"] == claim["metadata"]["name"]
                && wanted["namespace"] == claim["metadata"]["namespace"]
        });
        let node = claim["metadata"]["annotations"][SELECTED_NODE].as_str();
        let volume = match (chosen, node) {
            (Some(volume), _) => volume,
            (None, Some(node)) => talk.create(&made_for(&claim, node)).await?,
            (None, None) => continue,
        };
        complete(talk, &claim, &volume).await?;
    }
    Ok(())
}

/// What a provisioner would make. It can be reached from the chosen node only.
fn made_for(claim: &Value, node: &str) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("made-for-{}", name(claim))},
        "spec": {"capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"], "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "csi.example.com", "volumeHandle": name(claim)},
            "claimRef": reference(claim), "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
}

fn reference(claim: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(claim), "name": name(claim),
        "uid": claim["metadata"]["uid"]})
}

async fn complete(talk: &Talk, claim: &Value, volume: &Value) -> Result<()> {
    let bound = json!({"spec": {"claimRef": reference(claim)}});
    talk.patch("PersistentVolume", "", name(volume), &bound).await?;
    let phase = json!({"status": {"phase": "Bound"}});
    talk.patch_status("PersistentVolume", "", name(volume), &phase).await?;
    let marks =
        json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"});
    let bound = json!({"metadata": {"annotations": marks}, "spec": {"volumeName": name(volume)}});
    talk.patch("PersistentVolumeClaim", namespace(claim), name(claim), &bound).await?;
    talk.patch_status("PersistentVolumeClaim", namespace(claim), name(claim), &phase).await?;
    Ok(())
}
