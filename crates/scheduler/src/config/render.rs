//! The effective configuration as a file of version v1, and under Go's own names for `/configz`.

use koord_engine::profile::expand::PluginSet;
use koord_engine::profile::point::Point;
use serde_json::{Map, Value, json};

use super::complete::{Completed, CompletedProfile};
use super::decode::{GivenArgs, KIND, Version};

/// What `--write-config-to` writes, before it is YAML.
pub(super) fn effective(config: &Completed) -> Value {
    let client = &config.client_connection;
    let mut out = json!({
        "apiVersion": Version::V1.text(),
        "kind": KIND,
        "parallelism": config.parallelism,
        "leaderElection": config.leader_election,
        "clientConnection": client,
        "enableProfiling": config.enable_profiling,
        "enableContentionProfiling": config.enable_contention_profiling,
        "percentageOfNodesToScore": config.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": config.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": config.pod_max_backoff_seconds,
        "profiles": config.profiles.iter().map(profile).collect::<Vec<_>>(),
    });
    out["clientConnection"]["qps"] = number(client.qps);
    if !config.extenders.is_empty() {
        out["extenders"] = json!(config.extenders);
    }
    if config.delay_cache_until_active {
        out["delayCacheUntilActive"] = json!(true);
    }
    out
}

/// A whole number without its fraction, as Go writes it.
fn number(value: f32) -> Value {
    let text = value.to_string();
    text.parse::<i64>().map_or_else(|_| json!(value), |whole| json!(whole))
}

fn profile(profile: &CompletedProfile) -> Value {
    let mut plugins = Map::new();
    plugins.insert("multiPoint".to_owned(), plugin_set(&profile.plugins.multi_point));
    for point in Point::ALL {
        plugins.insert(point.key().to_owned(), plugin_set(&profile.plugins.points[point]));
    }
    let mut out = json!({ "schedulerName": profile.scheduler_name, "plugins": plugins });
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        out["percentageOfNodesToScore"] = json!(percentage);
    }
    // Only of plugins that are built, by name.
    let named = profile.plugins.named();
    let mut configs: Vec<_> =
        profile.args.iter().filter(|config| named.contains(&config.plugin.as_str())).collect();
    configs.sort_by(|a, b| a.plugin.cmp(&b.plugin));
    let configs: Vec<Value> =
        configs.iter().map(|config| plugin_config(&config.plugin, &config.args)).collect();
    if !configs.is_empty() {
        out["pluginConfig"] = Value::Array(configs);
    }
    out
}

fn plugin_config(plugin: &str, args: &GivenArgs) -> Value {
    let args = match args {
        GivenArgs::Other(value) => value.clone(),
        GivenArgs::Known(known) => {
            let mut args = known.to_json();
            args["apiVersion"] = json!(Version::V1.text());
            args["kind"] = json!(format!("{plugin}Args"));
            args
        }
    };
    json!({ "name": plugin, "args": args })
}

fn plugin_set(set: &PluginSet) -> Value {
    let mut out = Map::new();
    let plugin = |name: &str, weight: i32| json!({ "name": name, "weight": weight });
    if !set.enabled.is_empty() {
        let enabled = set.enabled.iter().map(|choice| plugin(&choice.name, choice.weight));
        out.insert("enabled".to_owned(), enabled.collect());
    }
    if !set.disabled.is_empty() {
        out.insert("disabled".to_owned(), set.disabled.iter().map(|name| plugin(name, 0)).collect());
    }
    Value::Object(out)
}

/// Names that do not just begin with a capital letter in Go.
const GO_NAMES: &[(&str, &str)] = &[
    ("qps", "QPS"),
    ("urlPrefix", "URLPrefix"),
    ("tlsConfig", "TLSConfig"),
    ("httpTimeout", "HTTPTimeout"),
    ("caFile", "CAFile"),
    ("caData", "CAData"),
    ("numaScoringStrategy", "NUMAScoringStrategy"),
    ("gcDurationSeconds", "GCDurationSeconds"),
    ("gcIntervalSeconds", "GCIntervalSeconds"),
    ("gpuSharedResourceTemplatesConfig", "GPUSharedResourceTemplatesConfig"),
    ("gpuShareUnsupportedModels", "GPUShareUnsupportedModels"),
];
/// Fields whose names below are not Go's to choose: resource names, and types of the Kubernetes API.
const AS_THEY_ARE: &[&str] = &[
    "addedAffinity",
    "defaultConstraints",
    "resourceWeights",
    "usageThresholds",
    "prodUsageThresholds",
    "estimatedScalingFactors",
    "defaultQuotaGroupMax",
    "systemQuotaGroupMax",
];

/// What `/configz` shows: kube-scheduler's internal types have no names for JSON, so Go's show.
pub(super) fn configz(effective: &Value) -> Value {
    let mut component = go_names(effective);
    if let Value::Object(fields) = &mut component {
        // The version is the only field with a name of its own.
        let version = fields.remove("ApiVersion").unwrap_or_default();
        fields.insert("apiVersion".to_owned(), version);
        fields.remove("Kind");
    }
    json!({ "componentconfig": component })
}

fn go_names(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(go_names).collect()),
        Value::Object(fields) => {
            let renamed = fields.iter().map(|(key, value)| match key.as_str() {
                "args" => ("Args".to_owned(), go_args(value)),
                key if AS_THEY_ARE.contains(&key) => (go_name(key), value.clone()),
                key => (go_name(key), go_names(value)),
            });
            Value::Object(renamed.collect())
        }
        other => other.clone(),
    }
}

/// Arguments lose their version and kind inside; those of strangers stay as they are.
fn go_args(args: &Value) -> Value {
    let is_known = args["kind"].is_string();
    let mut out = if is_known { go_names(args) } else { args.clone() };
    if let (true, Value::Object(fields)) = (is_known, &mut out) {
        fields.remove("ApiVersion");
        fields.remove("Kind");
        // NodeResourcesFitPlus keys its resources by name.
        if let Some(resources @ Value::Object(_)) = args.get("resources") {
            fields.insert("Resources".to_owned(), resources.clone());
        }
    }
    out
}

fn go_name(key: &str) -> String {
    if let Some((_, name)) = GO_NAMES.iter().find(|(other, _)| *other == key) {
        return (*name).to_owned();
    }
    let mut letters = key.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
