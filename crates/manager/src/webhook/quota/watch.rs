//! The cluster's side of quotas: the watch that fills the topology, and the writes that count pods.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use koord_api::annotation::Annotation;
use koord_api::annotation::quota::ChildRequest;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_kit::cache::{Cache, Delta, Deltas};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::charge::QuotaState;
use super::evaluator::{QuotaStore, WriteFault};
use super::info::{QuotaInfo, QuotaKey};
use super::topology::Topology;

/// Whoever waits for an admission waits for this, too.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Keeps the topology in line with the watch until the cache ends. `synced` is called once all quotas of the first list
/// are in.
pub async fn follow(
    mut deltas: Deltas<ElasticQuota>,
    topology: Arc<RwLock<Topology>>,
    synced: impl FnOnce() + Send,
) {
    let mut synced = Some(synced);
    while let Some(delta) = deltas.next().await {
        let mut topology = topology.write().unwrap_or_else(PoisonError::into_inner);
        match delta {
            Delta::Added(quota) | Delta::Updated { new: quota, .. } => {
                topology.show(QuotaInfo::new(QuotaKey::of(&quota, ""), &quota));
            }
            Delta::Deleted(quota) => topology.gone(&QuotaKey::of(&quota, "")),
            Delta::Synced => {
                drop(topology);
                if let Some(synced) = synced.take() {
                    synced();
                }
            }
        }
    }
}

/// Puts all quotas of the API server into the topology, for those who cannot wait for the watch. Nothing changes when it
/// cannot be asked.
pub async fn look(quotas: &Api<ElasticQuota>, topology: &RwLock<Topology>) {
    let listed = match tokio::time::timeout(LOOK_MAX, quotas.list(&ListParams::default())).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => {
            tracing::warn!(%error, "quotas cannot be listed");
            return;
        }
        Err(_) => return,
    };
    let infos = listed.iter().map(|quota| QuotaInfo::new(QuotaKey::of(quota, ""), quota)).collect();
    topology.write().unwrap_or_else(PoisonError::into_inner).show_all(infos);
}

/// Quotas as the watch has them, written at the API server.
#[derive(Clone)]
pub struct ClusterQuotas {
    pub client: kube::Client,
    pub quotas: Cache<ElasticQuota>,
}

impl ClusterQuotas {
    fn api(&self, key: &QuotaKey) -> Api<ElasticQuota> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

impl QuotaStore for ClusterQuotas {
    fn cached(&self, key: &QuotaKey) -> Option<QuotaState> {
        let quota = self.quotas.get(&key.namespace, &key.name)?;
        Some(QuotaState::new(key.clone(), &quota))
    }

    async fn fresh(&self, key: &QuotaKey) -> Result<QuotaState, String> {
        let quota = self.api(key).get(&key.name).await.map_err(|error| error.to_string())?;
        Ok(QuotaState::new(key.clone(), &quota))
    }

    /// A patch of the one annotation that applies only to the version that was judged: as safe as writing the whole
    /// object, and it cannot lose fields that we do not know.
    async fn write(&self, quota: &QuotaState, child_request: &str) -> Result<QuotaState, WriteFault> {
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": quota.resource_version,
            "annotations": {ChildRequest::KEY: child_request},
        }}));
        match self.api(&quota.key).patch(&quota.key.name, &PatchParams::default(), &patch).await {
            Ok(after) => Ok(QuotaState::new(quota.key.clone(), &after)),
            Err(kube::Error::Api(status)) => {
                Err(WriteFault { is_conflict: status.code == 409, message: status.message })
            }
            Err(error) => Err(WriteFault { is_conflict: false, message: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests;
