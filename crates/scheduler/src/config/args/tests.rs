//! Koordinator's own arguments: defaults, and what is refused. Kubernetes' are in `config/tests`.

use koord_api::annotation::gang::MatchPolicy;
use koord_api::annotation::load_aware::AggregationType;
use koord_api::duration::GoDuration;
use koord_api::gate::Component;
use koord_engine::plugins::taint_toleration::Wording;
use koord_engine::profile::args::{Allocation, CpuBindDefault};

use super::*;
use crate::config::field::join;

/// The arguments of one plugin, read and checked as when the plugin is built.
fn check(plugin: &str, text: &str) -> Result<Args, String> {
    let gates = Gates::defaults(Component::Scheduler);
    let document = Document::parse("a.yaml", &format!("args: {text}")).unwrap();
    #[derive(serde::Deserialize)]
    struct Holder {
        args: Raw,
    }
    let holder: Holder = document.decode().unwrap();
    let Decoded { value, unknown } = (family(plugin).unwrap().decode)(&document, &holder.args);
    assert!(unknown.is_empty(), "{plugin}: {unknown:?}");
    let mut raw = value.map_err(|errors| errors.to_string())?;
    raw.set_defaults(&gates);
    let mut args = Args::default();
    let faults = raw.check("", &gates, &mut args);
    if faults.is_empty() { Ok(args) } else { Err(join(&faults)) }
}

#[test]
fn silence_is_the_engines_default() {
    let gates = Gates::defaults(Component::Scheduler);
    for family in FAMILIES {
        assert!(koord_engine::profile::plugins::find(family.plugin).is_some(), "{}", family.plugin);
        let mut raw = (family.empty)();
        raw.set_defaults(&gates);
        let mut args = Args::default();
        assert_eq!(raw.check("", &gates, &mut args), [], "{}", family.plugin);
        assert_eq!(args, Args::default(), "{}", family.plugin);
        // What is shown reads back.
        let shown = raw.to_json().to_string();
        check(family.plugin, &shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
}

#[test]
fn load_aware() {
    let args = check(
        "LoadAwareScheduling",
        "{filterExpiredNodeMetrics: false, nodeMetricExpirationSeconds: 300, enableScheduleWhenNodeMetricsExpired: true, \
         resourceWeights: {cpu: 2}, usageThresholds: {cpu: 0}, prodUsageThresholds: {cpu: 55}, prodUsageIncludeSys: true, \
         scoreAccordingProdUsage: true, estimator: other, estimatedScalingFactors: {cpu: 50, a.b/c: 1}, \
         estimatedSecondsAfterPodScheduled: 5, estimatedSecondsAfterInitialized: 0, allowCustomizeEstimation: true, \
         aggregated: {usageThresholds: {cpu: 65}, usageAggregationType: p95, usageAggregatedDuration: 5m, \
         scoreAggregationType: avg}, supportedResources: [x.y/z]}",
    )
    .unwrap()
    .load_aware_scheduling;
    assert!(!args.filter_expired_node_metrics && args.enable_schedule_when_node_metrics_expired);
    assert_eq!(args.resource_weights, [("cpu".to_owned(), 2)].into());
    assert_eq!(args.usage_thresholds, [("cpu".to_owned(), 0)].into());
    assert!(
        args.prod_usage_include_sys && args.score_according_prod_usage && args.allow_customize_estimation
    );
    // Factors that are missing are filled in, one by one.
    let factors = [("a.b/c".to_owned(), 1), ("cpu".to_owned(), 50), ("memory".to_owned(), 70)];
    assert_eq!(args.estimated_scaling_factors, factors.into());
    assert_eq!(args.estimated_after_pod_scheduled, Some(GoDuration::from_seconds(5)));
    assert_eq!(args.estimated_after_initialized, None);
    let aggregated = args.aggregated.unwrap();
    assert_eq!(
        (aggregated.usage_type, aggregated.score_type),
        (Some(AggregationType::P95), Some(AggregationType::Avg))
    );
    assert_eq!(
        (aggregated.usage_duration, aggregated.score_duration),
        (Some(GoDuration::from_seconds(300)), None)
    );
    let dominant =
        check("LoadAwareScheduling", "{dominantResourceWeight: 100}").unwrap().load_aware_scheduling;
    assert!(dominant.resource_weights.is_empty());
}

#[test]
fn load_aware_refuses() {
    for (args, want) in [
        (
            "{nodeMetricExpirationSeconds: 0}",
            "nodeMetricExpiredSeconds: Invalid value: 0: nodeMetricExpiredSeconds should be a positive value",
        ),
        (
            "{dominantResourceWeight: -1}",
            "dominantResourceWeight: Invalid value: -1: dominantResourceWeight should not be a negative value",
        ),
        (
            "{dominantResourceWeight: 101}",
            "dominantResourceWeight: Invalid value: 101: dominantResourceWeight should be less than 100",
        ),
        (
            "{resourceWeights: {cpu: 0, memory: 101}}",
            "[resourceWeights: Invalid value: {\"cpu\":0,\"memory\":101}: resource Weight of cpu should be a positive \
             value, got 0, resourceWeights: Invalid value: {\"cpu\":0,\"memory\":101}: resource Weight of memory should be \
             less than 100, got 101]",
        ),
        (
            "{usageThresholds: {cpu: -1}}",
            "usageThresholds: Invalid value: {\"cpu\":-1}: resource Threshold of cpu should be a positive value, got -1",
        ),
        (
            "{prodUsageThresholds: {cpu: 200}}",
            "prodUsageThresholds: Invalid value: {\"cpu\":200}: resource Threshold of cpu should be less than 100, got 200",
        ),
        (
            "{estimatedScalingFactors: {cpu: 0}}",
            "estimatedScalingFactors: Invalid value: {\"cpu\":0,\"memory\":70}: estimated resource ScalingFactor of cpu \
             should be a positive value, got 0",
        ),
        ("{resourceWeights: {a.b/c: 1}}", "estimatedScalingFactors: Not found: \"a.b/c\""),
        (
            "{aggregated: {usageThresholds: {cpu: 101}, usageAggregationType: p42, scoreAggregatedDuration: -1s}}",
            "[aggregated.usageThresholds: Invalid value: {\"cpu\":101}: resource Threshold of cpu should be less than 100, \
             got 101, aggregated.usageAggregationType: Unsupported value: \"p42\": supported values: \"avg\", \"p50\", \
             \"p90\", \"p95\", \"p99\", aggregated.scoreAggregatedDuration: Invalid value: \"-1s\": duration must be >= 0]",
        ),
    ] {
        assert_eq!(check("LoadAwareScheduling", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn numa() {
    let policy = |text: &str| {
        let args = check("NodeNUMAResource", &format!("{{defaultCPUBindPolicy: {text}}}"));
        args.map(|args| args.node_numa_resource.default_cpu_bind_policy)
    };
    assert_eq!(policy("\"\""), Ok(CpuBindDefault::Unbound));
    assert_eq!(policy("SpreadByPCPUs"), Ok(CpuBindDefault::SpreadByPcpus));
    assert_eq!(policy("null"), Ok(CpuBindDefault::FullPcpus));
    let rule = "must specified CPU bind policy FullPCPUs or SpreadByPCPUs";
    for word in ["Foo", "ConstrainedBurst"] {
        assert_eq!(policy(word), Err(format!("defaultCPUBindPolicy: Invalid value: \"{word}\": {rule}")));
    }
    let args = check(
        "NodeNUMAResource",
        "{numaScoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 100}]}}",
    );
    let args = args.unwrap().node_numa_resource;
    assert_eq!((args.scoring.strategy, args.numa_scoring.strategy), (Allocation::Least, Allocation::Most));
    for (args, want) in [
        (
            "{scoringStrategy: {type: BalancedAllocation}}",
            "scoring strategy BalancedAllocation is not supported",
        ),
        ("{numaScoringStrategy: {type: X}}", "numa scoring strategy X is not supported"),
        (
            "{scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 0}]}, numaScoringStrategy: {type: \
             LeastAllocated, resources: [{name: memory, weight: 101}]}}",
            "[resources[0].weight: Invalid value: 0: resource weight of cpu not in valid range (0, 100], \
             resources[0].weight: Invalid value: 101: resource weight of memory not in valid range (0, 100]]",
        ),
    ] {
        assert_eq!(check("NodeNUMAResource", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn reservation() {
    let args = check(
        "Reservation",
        "{enablePreemption: true, gcDurationSeconds: 0, gcIntervalSeconds: 5, disableGarbageCollection: true, \
         preAllocationConfig: {enableClusterMode: true, clusterLabelKey: x}, ignoredResources: [example.com/a], \
         ignoredResourceGroups: [example.com], reservationSelectorIndex: {enabled: true, keys: [a, \" \", a, b]}}",
    )
    .unwrap()
    .reservation;
    assert!(
        args.enable_preemption && args.disable_garbage_collection && args.pre_allocation.enable_cluster_mode
    );
    assert_eq!(
        (args.gc_duration, args.gc_interval),
        (GoDuration::from_seconds(86_400), GoDuration::from_seconds(5))
    );
    assert_eq!(args.pre_allocation.cluster_label_key, "x");
    assert!(!args.pre_allocation.cluster_priority_annotation_key.is_empty());
    assert_eq!(args.selector_index.keys, ["a", "b"]);
    let extended =
        "must be an extended resource name (e.g. example.com/gpu); native resources cannot be ignored";
    for (args, want) in [
        (
            "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}",
            "[MinCandidateNodesPercentage: Invalid value: 101: must be in the range [0, 100], \
             MinCandidateNodesAbsolute: Invalid value: -1: must be non-negative]"
                .to_owned(),
        ),
        (
            "{gcDurationSeconds: -1, gcIntervalSeconds: -1, resyncIntervalSeconds: -1}",
            "[GcDuration: Invalid value: -1: must be non-negative, GcInterval: Invalid value: -1: must be non-negative, \
             ResyncIntervalSeconds: Invalid value: -1: must be non-negative]"
                .to_owned(),
        ),
        ("{controllerWorkers: 0}", "controllerWorkers: Invalid value: 0: must be greater than 0".to_owned()),
        (
            "{ignoredResources: [cpu, kubernetes.io/batch-cpu]}",
            format!(
                "[ignoredResources[0]: Invalid value: \"cpu\": {extended}, ignoredResources[1]: Invalid value: \
                 \"kubernetes.io/batch-cpu\": {extended}]"
            ),
        ),
        (
            "{ignoredResourceGroups: [a/b, kubernetes.io]}",
            "[ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/', \
             ignoredResourceGroups[1]: Invalid value: \"kubernetes.io\": must be usable as an extended resource prefix (a \
             valid DNS subdomain and not the reserved \"kubernetes.io\" namespace)]"
                .to_owned(),
        ),
    ] {
        assert_eq!(check("Reservation", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn device() {
    let args = check(
        "DeviceShare",
        "{allocator: x, scoringStrategy: {type: MostAllocated}, disableDeviceNUMATopologyAlignment: true, \
         gpuSharedResourceTemplatesConfig: {configMapName: t}, gpuShareUnsupportedModels: [{vendor: v, model: m}]}",
    )
    .unwrap()
    .device_share;
    assert_eq!((args.scoring.strategy, args.scoring.resources.len()), (Allocation::Most, 0));
    assert!(args.disable_device_numa_topology_alignment);
    let templates = args.gpu_shared_resource_templates;
    assert_eq!((templates.namespace.as_str(), templates.name.as_str()), ("koordinator-system", "t"));
    assert_eq!(args.gpu_share_unsupported_models[0].model, "m");
    for (args, want) in [
        ("{scoringStrategy: {type: X}}", "scoring strategy X is not supported"),
        (
            "{scoringStrategy: {type: LeastAllocated, resources: [{name: koordinator.sh/gpu-memory-ratio, weight: 0}]}}",
            "resources[0].weight: Invalid value: 0: resource weight of koordinator.sh/gpu-memory-ratio not in valid range \
             (0, 100]",
        ),
    ] {
        assert_eq!(check("DeviceShare", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn gang() {
    let args = check(
        "Coscheduling",
        "{defaultTimeout: 0s, controllerWorkers: 4, skipCheckScheduleCycle: true, enablePreemption: true, \
         awareNetworkTopology: true, defaultMatchPolicy: only-waiting}",
    )
    .unwrap()
    .coscheduling;
    assert_eq!((args.default_timeout, args.controller_workers), (GoDuration::ZERO, 4));
    assert!(args.skip_check_schedule_cycle && args.enable_preemption && args.aware_network_topology);
    assert_eq!(args.default_match_policy, MatchPolicy::OnlyWaiting);
    for (args, want) in [
        ("{defaultTimeout: -1s}", "coeSchedulingArgs DefaultTimeoutSeconds invalid"),
        ("{controllerWorkers: 0}", "coeSchedulingArgs ControllerWorkers invalid"),
        (
            "{defaultMatchPolicy: never}",
            "defaultMatchPolicy: Unsupported value: \"never\": supported values: \"once-satisfied\", \"only-waiting\", \
             \"waiting-and-running\"",
        ),
    ] {
        assert_eq!(check("Coscheduling", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn quota() {
    let defaults = Args::default().elastic_quota;
    let max: Vec<String> =
        defaults.default_quota_group_max.iter().map(|(name, max)| format!("{name} {max}")).collect();
    assert_eq!(max, ["cpu 1844674407370955161", "memory 1844674407370955161"]);
    let args = check(
        "ElasticQuota",
        "{delayEvictTime: 1m, revokePodInterval: 0s, defaultQuotaGroupMax: {cpu: 10, memory: 1Gi}, systemQuotaGroupMax: {}, \
         quotaGroupNamespace: \"\", monitorAllQuotas: true, enableCheckParentQuota: true, enableRuntimeQuota: false, \
         enableMinQuotaScale: false, disableDefaultQuotaPreemption: false, enableQueueHint: true, \
         quotaSnapshotUpdateInterval: 5s, hookPlugins: [{key: k, factoryKey: f, factoryArgs: a}]}",
    )
    .unwrap()
    .elastic_quota;
    assert_eq!(
        (args.delay_evict_time, args.revoke_pod_interval),
        (GoDuration::from_seconds(60), GoDuration::ZERO)
    );
    assert_eq!(args.default_quota_group_max["memory"].to_string(), "1Gi");
    assert_eq!(args.system_quota_group_max, defaults.system_quota_group_max);
    assert_eq!(args.quota_group_namespace, "koordinator-system");
    assert!(args.monitor_all_quotas && args.enable_check_parent_quota && args.enable_queue_hint);
    assert!(
        !args.enable_runtime_quota && !args.enable_min_quota_scale && !args.disable_default_quota_preemption
    );
    assert_eq!(
        (args.quota_snapshot_update_interval, args.hook_plugins.len()),
        (GoDuration::from_seconds(5), 1)
    );
    for (args, want) in [
        ("{delayEvictTime: -1s}", "elasticQuotaArgs error, DelayEvictTime should be a positive value"),
        ("{revokePodInterval: -1s}", "elasticQuotaArgs error, RevokePodCycle should be a positive value"),
        (
            "{defaultQuotaGroupMax: {cpu: -1}, systemQuotaGroupMax: {memory: -1Gi}}",
            "[elasticQuotaArgs error, defaultQuotaGroupMax should be a positive value, resourceName:cpu, got -1, \
             elasticQuotaArgs error, systemQuotaGroupMax should be a positive value, resourceName:memory, got -1Gi]",
        ),
    ] {
        assert_eq!(check("ElasticQuota", args).unwrap_err(), want, "{args}");
    }
}

#[test]
fn score_only_plugins_and_hints() {
    let plus = check("NodeResourcesFitPlus", "{resources: {cpu: {type: MostAllocated, weight: 2}}}").unwrap();
    assert_eq!(plus.node_resources_fit_plus.resources[0].strategy, Allocation::Most);
    assert_eq!(
        check("NodeResourcesFitPlus", "{resources: {cpu: {type: X}}}").unwrap_err(),
        "[resources[cpu].type: Unsupported value: \"X\": supported values: \"LeastAllocated\", \"MostAllocated\", \
         resources[cpu].weight: Invalid value: 0: must be greater than 0]"
    );
    let wording = |args| check("TaintToleration", args).map(|args| args.taint_toleration.wording);
    assert_eq!(wording("{}"), Ok(Wording::Plain));
    assert_eq!(wording("{wording: Named}"), Ok(Wording::Named));
    let want = "wording: Unsupported value: \"named\": supported values: \"Named\", \"Plain\"";
    assert_eq!(wording("{wording: named}"), Err(want.to_owned()));
    let scarce = check("ScarceResourceAvoidance", "{resources: [a.b/c]}").unwrap();
    assert_eq!(scarce.scarce_resource_avoidance.resources, ["a.b/c"]);
    assert_eq!(check("SchedulingHint", "{maxHintNodes: 7}").unwrap().scheduling_hint.max_hint_nodes, 7);
    assert_eq!(
        check("SchedulingHint", "{maxHintNodes: 0}").unwrap_err(),
        "maxHintNodes: Invalid value: 0: must be a positive value"
    );
}
