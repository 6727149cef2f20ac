//! ElasticQuota. Spec: scheduler-gang-quota B1.5.

use koord_api::duration::GoDuration;
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::quantity::{Family, Quantity, ResourceList};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticQuotaArgs {
    /// How long over-use must last before pods are revoked. Not negative.
    pub delay_evict_time: GoDuration,
    /// How often over-use is looked for. Not negative.
    pub revoke_pod_interval: GoDuration,
    /// Also which resources of pods in the default quota are counted. No amount is negative.
    pub default_quota_group_max: ResourceList,
    /// The same for the system quota.
    pub system_quota_group_max: ResourceList,
    pub quota_group_namespace: String,
    /// Revoke pods of quotas over their runtime.
    pub monitor_all_quotas: bool,
    /// Check every ancestor, not only the quota itself.
    pub enable_check_parent_quota: bool,
    /// The limit is the runtime; otherwise it is max.
    pub enable_runtime_quota: bool,
    pub enable_min_quota_scale: bool,
    pub disable_default_quota_preemption: bool,
    pub enable_queue_hint: bool,
    pub quota_snapshot_update_interval: GoDuration,
    pub hook_plugins: Vec<HookPlugin>,
}

/// A registered hook: its own name, its factory's, and what the factory is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookPlugin {
    pub key: String,
    pub factory_key: String,
    pub factory_args: String,
}

impl ElasticQuotaArgs {
    /// As good as no limit, with room to add some up.
    pub fn default_max() -> ResourceList {
        let max = || Quantity::from_value(i64::MAX / 5, Family::DecimalSi);
        ResourceList::from([(CPU.to_owned(), max()), (MEMORY.to_owned(), max())])
    }
}

impl Default for ElasticQuotaArgs {
    fn default() -> ElasticQuotaArgs {
        ElasticQuotaArgs {
            delay_evict_time: GoDuration::from_seconds(120),
            revoke_pod_interval: GoDuration::from_seconds(1),
            default_quota_group_max: ElasticQuotaArgs::default_max(),
            system_quota_group_max: ElasticQuotaArgs::default_max(),
            quota_group_namespace: "koordinator-system".to_owned(),
            monitor_all_quotas: false,
            enable_check_parent_quota: false,
            enable_runtime_quota: true,
            enable_min_quota_scale: true,
            disable_default_quota_preemption: true,
            enable_queue_hint: false,
            quota_snapshot_update_interval: GoDuration::from_seconds(120),
            hook_plugins: Vec::new(),
        }
    }
}
