//! Which volume a claim is bound to, for the claims of this node's pods. Spec: koordlet-observe 3.6.
//!
//! Differs: upstream watches the claims of the whole cluster and keeps those that are gone; here each claim of a pod
//! of this node is asked for until it is bound, and forgotten with its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;
use tokio_util::sync::CancellationToken;

use super::{Snapshot, State};
use crate::decide::snapshot::Volume;

/// How long a claim that is not bound yet is left alone.
const RETRY: Duration = Duration::from_secs(10);

type ClaimKey = (String, String);

/// Keeps the claims of the state up to date.
pub async fn run(client: kube::Client, state: State, stop: CancellationToken) {
    let mut news = state.subscribe();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = round(&client, &state) => {}
        }
        let seen = state.load().editions.pods;
        let has_unbound = wanted(&state.load()).len() > state.load().claims.len();
        let patience = if has_unbound { RETRY } else { Duration::MAX };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(patience) => {}
            changed = news.wait_for(|snapshot| snapshot.editions.pods != seen) => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Asks for the claims that are not known yet.
async fn round(client: &kube::Client, state: &State) {
    let snapshot = state.load();
    if !snapshot.synced.pods {
        return;
    }
    let mut claims: BTreeMap<ClaimKey, String> = BTreeMap::new();
    for key in wanted(&snapshot) {
        let known = snapshot.claims.get(&key).cloned();
        let volume = match known {
            Some(volume) => Some(volume),
            None => volume(client, &key).await,
        };
        claims.extend(volume.map(|volume| (key, volume)));
    }
    if claims == *snapshot.claims && snapshot.synced.claims {
        return;
    }
    let claims = Arc::new(claims);
    state.update(|snapshot| {
        snapshot.claims = claims;
        snapshot.synced.claims = true;
    });
}

/// The claims of pods that have not ended.
fn wanted(snapshot: &Snapshot) -> BTreeSet<ClaimKey> {
    let pods = snapshot.pods.iter().filter(|pod| !pod.is_finished).map(|pod| &pod.pod);
    pods.flat_map(|pod| {
        pod.volumes.iter().filter_map(|(_, volume)| match volume {
            Volume::Claim(claim) => Some((pod.namespace.clone(), claim.clone())),
            Volume::InlineCsi | Volume::Other => None,
        })
    })
    .collect()
}

async fn volume(client: &kube::Client, (namespace, claim): &ClaimKey) -> Option<String> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    match api.get_opt(claim).await {
        Ok(claim) => claim?.spec?.volume_name.filter(|name| !name.is_empty()),
        Err(error) => {
            let error = koord_kit::log::chain(&error);
            tracing::warn!(namespace, claim, error, "a claim cannot be read, its disk is not governed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use koord_linux::cgroup::Driver;
    use serde_json::json;

    use super::*;
    use crate::fake::{FakeApi, refused};
    use crate::state::{PodState, Synced};

    fn pod(name: &str, claim: &str, phase: &str) -> Arc<PodState> {
        let object = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "shop", "uid": name },
            "spec": { "containers": [], "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": claim } },
                { "name": "tmp", "emptyDir": {} },
            ] },
            "status": { "phase": phase },
        }));
        Arc::new(PodState::read(&object.unwrap(), Driver::Systemd))
    }

    #[tokio::test]
    async fn claims_of_this_node_are_asked_for_once() {
        let api = FakeApi::default();
        let client = api.client(|seen| match seen.line.as_str() {
            "GET /api/v1/namespaces/shop/persistentvolumeclaims/bound" => {
                (200, json!({ "metadata": { "name": "bound" }, "spec": { "volumeName": "pv-1" } }))
            }
            "GET /api/v1/namespaces/shop/persistentvolumeclaims/waits" => {
                (200, json!({ "metadata": { "name": "waits" }, "spec": {} }))
            }
            _ => refused(404, "not found"),
        });
        let pods = [pod("a", "bound", "Running"), pod("b", "waits", "Pending"), pod("c", "old", "Failed")];
        let synced = Synced { pods: true, ..Synced::default() };
        let state = State::new(Snapshot { pods: pods.into(), synced, ..Snapshot::default() });
        round(&client, &state).await;
        assert_eq!(api.lines().len(), 2, "not for pods that have ended");
        let snapshot = state.load();
        assert!(snapshot.synced.claims);
        assert_eq!(snapshot.volume_name("shop", "bound"), Some("pv-1"));
        assert_eq!(snapshot.volume_name("shop", "waits"), None);
        round(&client, &state).await;
        assert_eq!(api.lines(), ["GET /api/v1/namespaces/shop/persistentvolumeclaims/waits"]);
        state.update(|snapshot| snapshot.pods = Arc::default());
        round(&client, &state).await;
        assert!(state.load().claims.is_empty(), "forgotten with its pods");
    }
}
