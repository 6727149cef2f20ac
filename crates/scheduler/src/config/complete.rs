//! The configuration with everything filled in: defaults, flags, default plugins, default arguments.
//!
//! Spec: scheduler-core 7.1 to 7.3.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::expand::{PluginSet, PluginSets};
use koord_engine::profile::plugins;
use koord_engine::profile::point::Point;
use koord_kit::leader::LeaderElection;
use serde::Serialize;

use super::Overrides;
use super::args::family;
use super::decode::{File, GivenArgs, Version};
use super::raw::{RawClientConnection, RawConfiguration, RawExtender, RawLeaderElection, RawProfile};

/// What a file, flags and defaults say together; not yet checked.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) parallelism: i32,
    pub(super) leader_election: LeaderElection,
    pub(super) client_connection: ClientConnection,
    pub(super) enable_profiling: bool,
    pub(super) enable_contention_profiling: bool,
    pub(super) percentage_of_nodes_to_score: i32,
    pub(super) pod_initial_backoff_seconds: i64,
    pub(super) pod_max_backoff_seconds: i64,
    pub(super) profiles: Vec<CompletedProfile>,
    pub(super) extenders: Vec<RawExtender>,
    pub(super) delay_cache_until_active: bool,
}

/// How the API server is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// A file; empty for the cluster's own account.
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    /// Requests per second; negative is no limit.
    pub qps: f32,
    pub burst: i32,
}

#[derive(Debug)]
pub(super) struct CompletedProfile {
    pub(super) scheduler_name: String,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: PluginSets,
    pub(super) args: Vec<PluginArgs>,
}

#[derive(Debug)]
pub(super) struct PluginArgs {
    pub(super) plugin: String,
    /// The place in the file's `pluginConfig`, if it stands there.
    pub(super) index: Option<usize>,
    pub(super) args: GivenArgs,
}

/// In-tree volume limits, gone from v1; older files may still name them.
pub(super) const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Fills in everything, and says what was ignored on the way.
pub(super) fn complete(file: &mut File, overrides: &Overrides, gates: &Gates) -> (Completed, Vec<String>) {
    let mut warnings = Vec::new();
    let raw = std::mem::take(&mut file.raw);
    let mut args = std::mem::take(&mut file.args);
    let mut profiles = raw.profiles;
    if profiles.is_empty() {
        profiles.push(RawProfile::default());
        args.push(Vec::new());
    }
    if let [only] = profiles.as_mut_slice() {
        only.scheduler_name.get_or_insert_with(|| "default-scheduler".to_owned());
    }
    let profiles = profiles
        .into_iter()
        .zip(args)
        .map(|(profile, args)| complete_profile(profile, args, file.version, gates, &mut warnings))
        .collect();
    let RawConfiguration { leader_election, client_connection, .. } = raw;
    let enable_profiling = overrides.enable_profiling.or(raw.enable_profiling).unwrap_or(true);
    let contention = overrides.enable_contention_profiling.or(raw.enable_contention_profiling);
    let completed = Completed {
        parallelism: raw.parallelism.unwrap_or(16),
        leader_election: complete_election(leader_election, overrides),
        client_connection: complete_client(client_connection, overrides),
        enable_profiling,
        enable_contention_profiling: contention.unwrap_or(enable_profiling),
        percentage_of_nodes_to_score: raw.percentage_of_nodes_to_score.unwrap_or(0),
        pod_initial_backoff_seconds: raw.pod_initial_backoff_seconds.unwrap_or(1),
        pod_max_backoff_seconds: raw.pod_max_backoff_seconds.unwrap_or(10),
        profiles,
        extenders: raw.extenders,
        delay_cache_until_active: raw.delay_cache_until_active.unwrap_or(false),
    };
    (completed, warnings)
}

/// A text that is not empty.
fn filled(text: Option<String>, default: &str) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

fn complete_election(raw: RawLeaderElection, flags: &Overrides) -> LeaderElection {
    let defaults = LeaderElection::default();
    let duration = |flag: Option<GoDuration>, raw: Option<GoDuration>, default: GoDuration| {
        flag.or(raw.filter(|duration| *duration != GoDuration::ZERO)).unwrap_or(default)
    };
    let text = |flag: &Option<String>, raw: Option<String>, default: &str| {
        flag.clone().unwrap_or_else(|| filled(raw, default))
    };
    LeaderElection {
        leader_elect: flags.leader_elect.or(raw.leader_elect).unwrap_or(true),
        lease_duration: duration(flags.lease_duration, raw.lease_duration, defaults.lease_duration),
        renew_deadline: duration(flags.renew_deadline, raw.renew_deadline, defaults.renew_deadline),
        retry_period: duration(flags.retry_period, raw.retry_period, defaults.retry_period),
        resource_lock: text(&flags.resource_lock, raw.resource_lock, &defaults.resource_lock),
        resource_name: text(&flags.resource_name, raw.resource_name, "kube-scheduler"),
        resource_namespace: text(&flags.resource_namespace, raw.resource_namespace, "kube-system"),
    }
}

fn complete_client(raw: RawClientConnection, flags: &Overrides) -> ClientConnection {
    ClientConnection {
        kubeconfig: flags.kubeconfig.clone().or(raw.kubeconfig).unwrap_or_default(),
        accept_content_types: raw.accept_content_types.unwrap_or_default(),
        content_type: flags
            .content_type
            .clone()
            .unwrap_or_else(|| filled(raw.content_type, "application/vnd.kubernetes.protobuf")),
        qps: flags.qps.or(raw.qps.filter(|qps| *qps != 0.0)).unwrap_or(50.0),
        burst: flags.burst.or(raw.burst.filter(|burst| *burst != 0)).unwrap_or(100),
    }
}

fn complete_profile(
    raw: RawProfile,
    given: Vec<GivenArgs>,
    version: Version,
    gates: &Gates,
    warnings: &mut Vec<String>,
) -> CompletedProfile {
    let mut custom = raw.plugins.sets();
    let mut args: Vec<PluginArgs> = Vec::new();
    for (index, (config, args_given)) in raw.plugin_config.into_iter().zip(given).enumerate() {
        args.push(PluginArgs { plugin: config.name, index: Some(index), args: args_given });
    }
    if version != Version::V1 {
        drop_removed(&mut custom, &mut args, warnings);
    }
    for PluginArgs { plugin, args, .. } in &args {
        if matches!(args, GivenArgs::Other(_)) && plugins::find(plugin).is_none() {
            warnings.push(format!("there is no plugin {plugin}; its arguments are ignored"));
        }
    }
    let mut plugins = PluginSets::defaults().merge(&custom);
    plugins.add_default_pre_bind();
    let mut named: Vec<&str> = plugins.named();
    named.sort_unstable();
    for name in named {
        let is_given = args.iter().any(|args| args.plugin == name);
        if let (false, Some(family)) = (is_given, family(name).filter(|family| !family.is_quiet)) {
            let given = GivenArgs::Known((family.empty)());
            args.push(PluginArgs { plugin: name.to_owned(), index: None, args: given });
        }
    }
    for args in &mut args {
        if let GivenArgs::Known(known) = &mut args.args {
            known.set_defaults(gates);
        }
    }
    CompletedProfile {
        scheduler_name: raw.scheduler_name.unwrap_or_default(),
        percentage_of_nodes_to_score: raw.percentage_of_nodes_to_score,
        plugins,
        args,
    }
}

/// Takes the in-tree volume limits out of an older file: one plugin does the work of all.
fn drop_removed(sets: &mut PluginSets, args: &mut Vec<PluginArgs>, warnings: &mut Vec<String>) {
    for name in REMOVED {
        let mut found = false;
        let mut drop_from = |set: &mut PluginSet| {
            let before = set.enabled.len() + set.disabled.len();
            set.enabled.retain(|choice| choice.name != name);
            set.disabled.retain(|disabled| disabled != name);
            found |= before != set.enabled.len() + set.disabled.len();
        };
        drop_from(&mut sets.multi_point);
        for point in Point::ALL {
            drop_from(&mut sets.points[point]);
        }
        let before = args.len();
        args.retain(|args| args.plugin != name);
        if found || before != args.len() {
            warnings.push(format!("plugin {name} is ignored; NodeVolumeLimits does its work"));
        }
    }
}
