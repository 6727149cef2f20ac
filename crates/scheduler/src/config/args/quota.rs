//! ElasticQuotaArgs. Spec: scheduler-gang-quota B1.5.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_api::quantity::{Quantity, ResourceList};
use koord_engine::profile::args::{Args, ElasticQuotaArgs as Engine, HookPlugin};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ElasticQuotaArgs {
    delay_evict_time: Option<GoDuration>,
    revoke_pod_interval: Option<GoDuration>,
    default_quota_group_max: Option<ResourceList>,
    system_quota_group_max: Option<ResourceList>,
    quota_group_namespace: Option<String>,
    monitor_all_quotas: Option<bool>,
    enable_check_parent_quota: Option<bool>,
    enable_runtime_quota: Option<bool>,
    enable_min_quota_scale: Option<bool>,
    disable_default_quota_preemption: Option<bool>,
    enable_queue_hint: Option<bool>,
    quota_snapshot_update_interval: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook_plugins: Option<Vec<RawHook>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawHook {
    key: Option<String>,
    factory_key: Option<String>,
    factory_args: Option<String>,
}

impl RawArgs for ElasticQuotaArgs {
    fn set_defaults(&mut self, _: &Gates) {
        let defaults = Engine::default();
        self.delay_evict_time.get_or_insert(defaults.delay_evict_time);
        self.revoke_pod_interval.get_or_insert(defaults.revoke_pod_interval);
        for max in [&mut self.default_quota_group_max, &mut self.system_quota_group_max] {
            if max.as_ref().is_none_or(ResourceList::is_empty) {
                *max = Some(Engine::default_max());
            }
        }
        if self.quota_group_namespace.as_deref().unwrap_or_default().is_empty() {
            self.quota_group_namespace = Some(defaults.quota_group_namespace);
        }
        self.monitor_all_quotas.get_or_insert(defaults.monitor_all_quotas);
        self.enable_check_parent_quota.get_or_insert(defaults.enable_check_parent_quota);
        self.enable_runtime_quota.get_or_insert(defaults.enable_runtime_quota);
        self.enable_min_quota_scale.get_or_insert(defaults.enable_min_quota_scale);
        self.disable_default_quota_preemption.get_or_insert(defaults.disable_default_quota_preemption);
        self.enable_queue_hint.get_or_insert(defaults.enable_queue_hint);
        self.quota_snapshot_update_interval.get_or_insert(defaults.quota_snapshot_update_interval);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut amounts = |field: &str, list: &Option<ResourceList>| {
            let list = list.clone().unwrap_or_default();
            for (name, amount) in list.iter().filter(|(_, amount)| **amount < Quantity::ZERO) {
                let text = format!(
                    "elasticQuotaArgs error, {field} should be a positive value, resourceName:{name}, got {amount}"
                );
                faults.push(Fault::new(below(at, field), text));
            }
            list
        };
        let default_quota_group_max = amounts("defaultQuotaGroupMax", &self.default_quota_group_max);
        let system_quota_group_max = amounts("systemQuotaGroupMax", &self.system_quota_group_max);
        let mut duration = |field: &str, name: &str, duration: Option<GoDuration>| {
            let duration = duration.unwrap_or_default();
            if duration < GoDuration::ZERO {
                let text = format!("elasticQuotaArgs error, {name} should be a positive value");
                faults.push(Fault::new(below(at, field), text));
            }
            duration
        };
        let delay_evict_time = duration("delayEvictTime", "DelayEvictTime", self.delay_evict_time);
        let revoke_pod_interval = duration("revokePodInterval", "RevokePodCycle", self.revoke_pod_interval);
        out.elastic_quota = Engine {
            delay_evict_time,
            revoke_pod_interval,
            default_quota_group_max,
            system_quota_group_max,
            quota_group_namespace: self.quota_group_namespace.clone().unwrap_or_default(),
            monitor_all_quotas: self.monitor_all_quotas.unwrap_or_default(),
            enable_check_parent_quota: self.enable_check_parent_quota.unwrap_or_default(),
            enable_runtime_quota: self.enable_runtime_quota.unwrap_or_default(),
            enable_min_quota_scale: self.enable_min_quota_scale.unwrap_or_default(),
            disable_default_quota_preemption: self.disable_default_quota_preemption.unwrap_or_default(),
            enable_queue_hint: self.enable_queue_hint.unwrap_or_default(),
            quota_snapshot_update_interval: self.quota_snapshot_update_interval.unwrap_or_default(),
            hook_plugins: listed(&self.hook_plugins).iter().map(hook).collect(),
        };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

fn hook(raw: &RawHook) -> HookPlugin {
    HookPlugin {
        key: raw.key.clone().unwrap_or_default(),
        factory_key: raw.factory_key.clone().unwrap_or_default(),
        factory_args: raw.factory_args.clone().unwrap_or_default(),
    }
}
