//! KubeSchedulerConfiguration as files have it, field by field.

use koord_api::duration::GoDuration;
use koord_engine::profile::expand::{Choice, PluginSet, PluginSets};
use koord_engine::profile::point::Point;
use koord_kit::config::Raw;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawConfiguration {
    pub(super) parallelism: Option<i32>,
    pub(super) leader_election: RawLeaderElection,
    pub(super) client_connection: RawClientConnection,
    pub(super) enable_profiling: Option<bool>,
    pub(super) enable_contention_profiling: Option<bool>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    pub(super) profiles: Vec<RawProfile>,
    pub(super) extenders: Vec<RawExtender>,
    pub(super) delay_cache_until_active: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawLeaderElection {
    pub(super) leader_elect: Option<bool>,
    pub(super) lease_duration: Option<GoDuration>,
    pub(super) renew_deadline: Option<GoDuration>,
    pub(super) retry_period: Option<GoDuration>,
    pub(super) resource_lock: Option<String>,
    pub(super) resource_name: Option<String>,
    pub(super) resource_namespace: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawClientConnection {
    pub(super) kubeconfig: Option<String>,
    pub(super) accept_content_types: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) qps: Option<f32>,
    pub(super) burst: Option<i32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawProfile {
    pub(super) scheduler_name: Option<String>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: RawPlugins,
    pub(super) plugin_config: Vec<RawPluginConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPluginConfig {
    pub(super) name: String,
    pub(super) args: Option<Raw>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPlugins {
    pre_enqueue: RawPluginSet,
    queue_sort: RawPluginSet,
    pre_filter: RawPluginSet,
    filter: RawPluginSet,
    post_filter: RawPluginSet,
    pre_score: RawPluginSet,
    score: RawPluginSet,
    reserve: RawPluginSet,
    permit: RawPluginSet,
    pre_bind: RawPluginSet,
    bind: RawPluginSet,
    post_bind: RawPluginSet,
    multi_point: RawPluginSet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPluginSet {
    enabled: Vec<RawPlugin>,
    disabled: Vec<RawPlugin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPlugin {
    name: String,
    weight: Option<i32>,
}

impl RawPlugins {
    pub(super) fn sets(&self) -> PluginSets {
        let mut sets = PluginSets { multi_point: self.multi_point.set(), ..PluginSets::default() };
        for point in Point::ALL {
            sets.points[point] = self.at(point).set();
        }
        sets
    }

    fn at(&self, point: Point) -> &RawPluginSet {
        match point {
            Point::PreEnqueue => &self.pre_enqueue,
            Point::QueueSort => &self.queue_sort,
            Point::PreFilter => &self.pre_filter,
            Point::Filter => &self.filter,
            Point::PostFilter => &self.post_filter,
            Point::PreScore => &self.pre_score,
            Point::Score => &self.score,
            Point::Reserve => &self.reserve,
            Point::Permit => &self.permit,
            Point::PreBind => &self.pre_bind,
            Point::Bind => &self.bind,
            Point::PostBind => &self.post_bind,
        }
    }
}

impl RawPluginSet {
    fn set(&self) -> PluginSet {
        let choice =
            |raw: &RawPlugin| Choice { name: raw.name.clone(), weight: raw.weight.unwrap_or_default() };
        PluginSet {
            enabled: self.enabled.iter().map(choice).collect(),
            disabled: self.disabled.iter().map(|raw| raw.name.clone()).collect(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawExtender {
    pub(super) url_prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter_verb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preempt_verb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prioritize_verb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bind_verb: Option<String>,
    #[serde(rename = "enableHTTPS", skip_serializing_if = "Option::is_none")]
    pub(super) enable_https: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_config: Option<RawExtenderTls>,
    #[serde(rename = "httpTimeout", skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_cache_capable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) managed_resources: Option<Vec<RawManagedResource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ignorable: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawManagedResource {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ignored_by_scheduler: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawExtenderTls {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) insecure: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cert_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<String>,
    /// Base64, as are the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cert_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_data: Option<String>,
}
