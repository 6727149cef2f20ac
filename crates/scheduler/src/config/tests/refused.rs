//! Files that are refused: kube-scheduler's words, byte for byte.

use super::*;

#[track_caller]
fn refuses(name: &str, result: Result<SchedulerConfig, LoadError>, want: &str) {
    match result {
        Ok(_) => panic!("{name}: accepted"),
        Err(error) => assert_eq!(error.message, want, "{name}"),
    }
}

/// The part of a profile's complaint before the plugin's own words.
const BUILDING: &str = "initializing profiles: creating profile for scheduler name s: ";

#[test]
fn top_level_fields() {
    for (name, body, want) in [
        (
            "scheduler-core#7.3.C1",
            "parallelism: 0",
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
        ),
        (
            "scheduler-core#7.3.C1 negative",
            "parallelism: -1",
            "parallelism: Invalid value: -1: should be an integer value greater than zero",
        ),
        (
            "scheduler-core#7.3.C2",
            "percentageOfNodesToScore: 101",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            "of a profile",
            "profiles: [{schedulerName: a, percentageOfNodesToScore: -1}]",
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            "scheduler-core#7.3.C3",
            "podInitialBackoffSeconds: 0",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "scheduler-core#7.3.C4",
            "podInitialBackoffSeconds: 20",
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "scheduler-core#7.3.C4 max alone",
            "podMaxBackoffSeconds: 0",
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "scheduler-core#7.3.C5",
            "leaderElection: {leaseDuration: 5s, renewDeadline: 10s, leaderElect: true}",
            "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
        ),
        (
            "renew and retry",
            "leaderElection: {renewDeadline: 2400ms}",
            "leaderElection.renewDeadline: Invalid value: \"2.4s\": must be greater than retryPeriod*JitterFactor",
        ),
        (
            "scheduler-core#7.3.C7",
            "leaderElection: {resourceLock: endpoints}",
            "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
        ),
        (
            "scheduler-core#7.3.C8",
            "profiles: [{schedulerName: a}, {}]",
            "profiles[1].schedulerName: Required value",
        ),
        ("empty name", "profiles: [{schedulerName: \"\"}]", "profiles[0].schedulerName: Required value"),
        (
            "burst",
            "clientConnection: {burst: -1}",
            "clientConnection.burst: Invalid value: -1: must be non-negative",
        ),
        (
            "all at once, in kube-scheduler's order",
            "parallelism: 0\npercentageOfNodesToScore: 101\npodInitialBackoffSeconds: 0\npodMaxBackoffSeconds: -1\n\
             clientConnection: {burst: -1}\nleaderElection: {leaseDuration: 5s, renewDeadline: 10s, retryPeriod: -1s, \
             resourceLock: endpoints}\nprofiles: [{schedulerName: a, percentageOfNodesToScore: -1},{}]",
            "[clientConnection.burst: Invalid value: -1: must be non-negative, leaderElection.retryPeriod: Invalid value: \
             \"-1s\": must be greater than zero, leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than \
             `RenewDeadline`, leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \
             \"leases\", parallelism: Invalid value: 0: should be an integer value greater than zero, \
             profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100], \
             profiles[1].schedulerName: Required value, percentageOfNodesToScore: Invalid value: 101: not in valid range \
             [0-100], podInitialBackoffSeconds: Invalid value: 0: must be greater than 0, podMaxBackoffSeconds: Invalid \
             value: -1: must be greater than or equal to PodInitialBackoffSeconds]",
        ),
    ] {
        refuses(name, check(body), want);
    }
    accepted("leaderElection: {leaseDuration: 5s, renewDeadline: 10s, leaderElect: false}");
    let defaulted = accepted("leaderElection: {resourceName: \"\"}");
    assert_eq!(defaulted.leader_election.unwrap().name, "kube-scheduler", "scheduler-core#7.3.C6");
}

#[test]
fn plugins() {
    let invalid = "was invalid in version \"v1\" (KubeSchedulerConfiguration is version \
                   \"kubescheduler.config.k8s.io/v1\")";
    for (name, plugins, want) in [
        (
            "scheduler-core#7.3.C9",
            "filter: {enabled: [{name: EBSLimits}]}",
            format!("profiles[0].plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": {invalid}"),
        ),
        (
            "scheduler-core#7.3.C9 multiPoint",
            "multiPoint: {enabled: [{name: EBSLimits}]}",
            format!("{BUILDING}PreFilterPlugin \"EBSLimits\" does not exist"),
        ),
        (
            "unknown",
            "filter: {enabled: [{name: Foo}]}",
            format!("{BUILDING}FilterPlugin \"Foo\" does not exist"),
        ),
        (
            "not implemented",
            "score: {enabled: [{name: NodeName}]}",
            format!("{BUILDING}plugin \"NodeName\" does not extend ScorePlugin plugin"),
        ),
        (
            "twice",
            "score: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}",
            format!("{BUILDING}plugin \"ImageLocality\" already registered as \"ScorePlugin\""),
        ),
        (
            "no queue sort",
            "queueSort: {disabled: [{name: \"*\"}]}",
            format!("{BUILDING}only one queue sort plugin required for profile with scheduler name \"s\", but got 0"),
        ),
        (
            "two queue sorts at the point",
            "queueSort: {enabled: [{name: PrioritySort}, {name: Coscheduling}]}",
            "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled".to_owned(),
        ),
        (
            "no binder",
            "bind: {disabled: [{name: \"*\"}]}",
            format!("{BUILDING}at least one bind plugin is needed for profile with scheduler name \"s\""),
        ),
        (
            "several",
            "{filter: {enabled: [{name: Foo}]}, score: {enabled: [{name: NodeName}]}}",
            format!(
                "[{BUILDING}FilterPlugin \"Foo\" does not exist, {BUILDING}plugin \"NodeName\" does not extend \
                 ScorePlugin plugin]"
            ),
        ),
    ] {
        let plugins = if plugins.starts_with('{') { plugins.to_owned() } else { format!("{{{plugins}}}") };
        refuses(name, check(&format!("profiles: [{{schedulerName: s, plugins: {plugins}}}]")), &want);
    }
}

#[test]
fn profiles_together() {
    refuses(
        "the same name twice",
        check("profiles: [{schedulerName: a}, {schedulerName: a}]"),
        "initializing profiles: duplicate profile with scheduler name \"a\"",
    );
    refuses(
        "scheduler-core#10.S21",
        check(
            "profiles:\n- {schedulerName: a, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}\n- schedulerName: b",
        ),
        "profiles[1].plugins.queueSort: Invalid value: {\"Enabled\":null,\"Disabled\":null}: must be the same for all profiles",
    );
    refuses(
        "weights and what is disabled count too",
        check(
            "profiles: [{schedulerName: a, plugins: {queueSort: {enabled: [{name: PrioritySort, weight: 3}], disabled: \
             [{name: \"*\"}]}}},{schedulerName: b},{schedulerName: c, plugins: {queueSort: {enabled: [{name: PrioritySort}], \
             disabled: [{name: \"*\"}]}}}]",
        ),
        "[profiles[1].plugins.queueSort: Invalid value: {\"Enabled\":null,\"Disabled\":null}: must be the same for all \
         profiles, profiles[2].plugins.queueSort: Invalid value: {\"Enabled\":[{\"Name\":\"PrioritySort\",\"Weight\":0}],\
         \"Disabled\":[{\"Name\":\"*\",\"Weight\":0}]}: must be the same for all profiles]",
    );
    let sort = "plugins: {queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: \"*\"}]}}";
    let error = check(&format!(
        "profiles:\n- {{schedulerName: a, {sort}}}\n- {{schedulerName: b, {sort}, pluginConfig: [{{name: Coscheduling, \
         args: {{controllerWorkers: 2}}}}]}}"
    ))
    .unwrap_err();
    assert!(error.message.starts_with("profiles[1].pluginConfig.args: Invalid value: {"), "{error}");
    assert!(error.message.ends_with(": queueSort must be the same for all profiles"), "{error}");
}

#[test]
fn arguments() {
    let duplicate =
        "profiles: [{schedulerName: s, pluginConfig: [{name: InterPodAffinity}, {name: InterPodAffinity}]}]";
    refuses(
        "scheduler-core#7.3.C10",
        check(duplicate),
        "profiles[0].pluginConfig[1]: Duplicate value: \"InterPodAffinity\"",
    );
    refuses(
        "an old plugin's",
        check("profiles: [{schedulerName: s, pluginConfig: [{name: EBSLimits}]}]"),
        "profiles[0].pluginConfig[0]: Invalid value: \"EBSLimits\": was invalid in version \"v1\" \
         (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")",
    );
    refuses(
        "scheduler-core#7.3.C13",
        with_args("InterPodAffinity", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}"),
        "decoding .profiles[0].pluginConfig[0]: args for plugin InterPodAffinity were not of type \
         InterPodAffinityArgs.kubescheduler.config.k8s.io, got NodeAffinityArgs.kubescheduler.config.k8s.io",
    );
    refuses(
        "a kind that nobody knows",
        with_args("InterPodAffinity", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: FooArgs}"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: no kind \"FooArgs\" is \
         registered for version \"kubescheduler.config.k8s.io/v1\"",
    );
    refuses(
        "a version that nobody knows",
        with_args(
            "InterPodAffinity",
            "{apiVersion: kubescheduler.config.k8s.io/v2, kind: InterPodAffinityArgs}",
        ),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: no kind \
         \"InterPodAffinityArgs\" is registered for version \"kubescheduler.config.k8s.io/v2\"",
    );
    let strange = accepted("profiles: [{schedulerName: s, pluginConfig: [{name: Nonsense, args: {a: 1}}]}]");
    assert_eq!(strange.warnings[0].text, "there is no plugin Nonsense; its arguments are ignored");
    // A plugin that is off is not built, so nobody looks at its arguments.
    with_args("LoadAwareScheduling", "{nodeMetricExpirationSeconds: 0}").unwrap();
}

/// Arguments that are looked at with the file: the path is that of the file.
#[test]
fn arguments_of_kubernetes_plugins() {
    let at = "profiles[0].pluginConfig[0].args";
    for (name, plugin, args, want) in [
        (
            "scheduler-core#7.3.C11",
            "InterPodAffinity",
            "{hardPodAffinityWeight: 101}",
            format!("{at}.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ),
        (
            "scheduler-core#7.3.C14",
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            format!(
                "[{at}.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as \
                 minCandidateNodesAbsolute, {at}.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same \
                 time as minCandidateNodesPercentage]"
            ),
        ),
        (
            "scheduler-core#7.3.C15",
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}",
            format!(
                "[{at}.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100], \
                 {at}.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)]"
            ),
        ),
        (
            "scheduler-core#7.3.C20",
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}, {name: cpu}]}",
            format!(
                "[{at}.resources[0].weight: Invalid value: 2: must be 1, {at}.resources[1].name: Duplicate value: \"cpu\"]"
            ),
        ),
        (
            "scheduler-core#7.3.C21",
            "PodTopologySpread",
            "{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]}",
            format!("{at}.defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"),
        ),
        (
            "scheduler-core#7.3.C22",
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: \"\", whenUnsatisfiable: X, \
             labelSelector: {}}, {maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 1, topologyKey: \
             z, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 1, topologyKey: z}]}",
            format!(
                "[{at}.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), \
                 {at}.defaultConstraints[0].topologyKey: Required value: can not be empty, \
                 {at}.defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"X\": supported values: \
                 \"DoNotSchedule\", \"ScheduleAnyway\", {at}.defaultConstraints[0].labelSelector: Forbidden: constraint \
                 must not define a selector, as they deduced for each pod, {at}.defaultConstraints[2]: Duplicate value: \
                 \"{{z, ScheduleAnyway}}\", {at}.defaultConstraints[3].whenUnsatisfiable: Required value: can not be empty]"
            ),
        ),
        (
            "an unknown way of defaulting",
            "PodTopologySpread",
            "{defaultingType: Foo}",
            format!(
                "{at}.defaultingType: Unsupported value: \"Foo\": supported values: \"System\", \"List\""
            ),
        ),
        (
            "scheduler-core#7.3.C23",
            "VolumeBinding",
            "{bindTimeoutSeconds: -1}",
            format!(
                "{at}.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"
            ),
        ),
        (
            "a shape without its gate",
            "VolumeBinding",
            "{shape: [{utilization: 0, score: 1}]}",
            format!(
                "{at}.shape: Invalid value: [{{\"Utilization\":0,\"Score\":1}}]: unexpected field `shape`, remove it or \
                 turn on the feature gate StorageCapacityScoring"
            ),
        ),
        (
            "scheduler-core#7.3.C25",
            "NodeAffinity",
            "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
             [{key: a, operator: Foo}]}]}}}",
            format!(
                "{at}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].\
                 matchExpressions[0].operator: Unsupported value: \"Foo\": supported values: \"In\", \"NotIn\", \"Exists\", \
                 \"DoesNotExist\", \"Gt\", \"Lt\""
            ),
        ),
        (
            "timeouts of claims",
            "DynamicResources",
            "{filterTimeout: -1s, bindingTimeout: 1s}",
            format!(
                "[{at}.filterTimeout: Invalid value: \"-1s\": must be zero or positive, {at}.bindingTimeout: Forbidden: \
                 DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled]"
            ),
        ),
    ] {
        refuses(name, with_args(plugin, args), &want);
    }
}

/// Arguments that are looked at when the plugin is built: the path starts at the arguments.
#[test]
fn arguments_of_node_resources_fit() {
    let rule = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let types = "supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"";
    for (name, args, want) in [
        (
            "scheduler-core#7.3.C16",
            "{scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 0}, {name: memory, weight: \
             101}, {name: x, weight: -1}], requestedToCapacityRatio: {shape: [{utilization: 10, score: 11}, {utilization: \
             10, score: 1}]}}}",
            "[scoringStrategy.resources[1].weight: Invalid value: 101: resource weight of memory not in valid range (0, \
             100], scoringStrategy.resources[2].weight: Invalid value: -1: resource weight of x not in valid range (0, 100], \
             scoringStrategy.shape[1].utilization: Invalid value: 10: values must be sorted in increasing order, \
             scoringStrategy.shape[0].score: Invalid value: 11: not in valid range [0, 10]]"
                .to_owned(),
        ),
        (
            "scheduler-core#7.3.C17",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            "scoringStrategy.requestedToCapacityRatio: Required value".to_owned(),
        ),
        (
            "a shape without points",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}}",
            "scoringStrategy.shape: Required value: at least one point must be specified".to_owned(),
        ),
        (
            "scheduler-core#7.3.C18",
            "{scoringStrategy: {type: Foo, resources: [{name: cpu, weight: 101}]}, ignoredResourceGroups: [a/b, \"-\"], \
             ignoredResources: [\"a b\"]}",
            format!(
                "[ignoredResources[0]: Invalid value: \"a b\": {rule}, ignoredResourceGroups[0]: Invalid value: \"a/b\": \
                 resource group name can't contain '/', ignoredResourceGroups[1]: Invalid value: \"-\": {rule}, \
                 scoringStrategy.type: Unsupported value: \"Foo\": {types}, scoringStrategy.resources[0].weight: Invalid \
                 value: 101: resource weight of cpu not in valid range (0, 100]]"
            ),
        ),
        (
            "an own strategy without a type",
            "{scoringStrategy: {}}",
            format!("scoringStrategy.type: Unsupported value: \"\": {types}"),
        ),
    ] {
        let prefix = format!("{BUILDING}initializing plugin \"NodeResourcesFit\": ");
        refuses(name, with_args("NodeResourcesFit", args), &(prefix + &want));
    }
    let twice = with_args(
        "NodeResourcesFit",
        "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu}, {name: cpu, weight: 3}]}}",
    )
    .unwrap();
    let resources = &twice.profiles[0].args.node_resources_fit.resources;
    let weights: Vec<(&str, i64)> = resources.iter().map(|r| (r.name.as_str(), r.weight)).collect();
    assert_eq!(weights, [("cpu", 1), ("cpu", 3)], "scheduler-core#7.3.C19");
}

#[test]
fn extenders() {
    refuses(
        "scheduler-core#7.3.C24",
        check(
            "extenders:\n- urlPrefix: http://x\n  prioritizeVerb: p\n  bindVerb: b\n  managedResources: [{name: foo}, {name: \
             example.com/a}, {name: example.com/a}]\n- {urlPrefix: http://x, bindVerb: b}",
        ),
        "[extenders[0].weight: Invalid value: 0: must have a positive weight applied to it, \
         extenders[0].managedResources[0].name: Invalid value: \"foo\": is an invalid extended resource name, \
         extenders[0].managedResources[2].name: Invalid value: \"example.com/a\": duplicate extender managed resource name, \
         extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind]",
    );
    refuses(
        "a certificate that is none",
        check("extenders: [{urlPrefix: http://x, tlsConfig: {caData: \"*\"}, httpTimeout: 1s}]"),
        "extenders[0].tlsConfig.caData: illegal base64 data",
    );
}

#[test]
fn unknown_and_repeated_fields() {
    for (name, body, want) in [
        ("unknown", "fooBar: 1", "strict decoding error: unknown field \"fooBar\""),
        (
            "repeated",
            "parallelism: 3\nparallelism: 4",
            "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"parallelism\" already set in map",
        ),
        (
            "both",
            "parallelism: 3\nparallelism: 4\nfooBar: 1\nleaderElection:\n  leaderElect: true\n  leaderElect: false",
            "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"parallelism\" already set in map\n  \
             line 8: key \"leaderElect\" already set in map, unknown field \"fooBar\"",
        ),
        (
            "scheduler-core#7.3.C12",
            "profiles: [{schedulerName: s, pluginConfig: [{name: InterPodAffinity, args: {foo: 1}}]}]",
            "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin \
             InterPodAffinity: strict decoding error: unknown field \"foo\"",
        ),
        (
            "everywhere",
            "fooBar: 1\nprofiles:\n- schedulerName: a\n  bogus: 2\n  pluginConfig:\n  - name: InterPodAffinity\n    args: \
             {foo: 1, bar: 2}\n  - name: NodeAffinity\n    args: {foo: 1}",
            "strict decoding error: unknown field \"fooBar\", unknown field \"profiles[0].bogus\", decoding \
             .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin InterPodAffinity: strict decoding \
             error: unknown field \"bar\", unknown field \"foo\", decoding .profiles[0].pluginConfig[1]: strict decoding \
             error: decoding args for plugin NodeAffinity: strict decoding error: unknown field \"foo\"",
        ),
    ] {
        refuses(name, check(body), want);
    }
}

/// Spec: scheduler-core 11, 7: file, line and path.
#[test]
fn the_place_is_named() {
    for (name, text, want) in [
        (
            "unknown field",
            format!("{HEADER}profiles:\n- schedulerName: a\n  plugin: 3\n"),
            "a.yaml: strict decoding error: unknown field \"profiles[0].plugin\"\n  a.yaml:5:11: profiles[0].plugin: \
             unknown field; did you mean plugins? accepted: schedulerName, percentageOfNodesToScore, plugins, pluginConfig",
        ),
        (
            "wrong type",
            format!("{HEADER}parallelism: x\nprofiles: 3\n"),
            "a.yaml: couldn't decode KubeSchedulerConfiguration\n  a.yaml:3:14: parallelism: \"x\" is not accepted, \
             expected an integer\n  a.yaml:4:11: profiles: 3 is not accepted, expected a list",
        ),
        (
            "wrong type in arguments",
            format!(
                "{HEADER}profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args:\n      hardPodAffinityWeight: x\n"
            ),
            "a.yaml: couldn't decode .profiles[0].pluginConfig[0]: args for plugin InterPodAffinity\n  a.yaml:7:30: \
             profiles[0].pluginConfig[0].args.hardPodAffinityWeight: \"x\" is not accepted, expected an integer",
        ),
        (
            "wrong value",
            format!("{HEADER}parallelism: 0\n"),
            "a.yaml: parallelism: Invalid value: 0: should be an integer value greater than zero\n  a.yaml:3:14: parallelism",
        ),
        (
            "wrong value for a plugin",
            format!(
                "{HEADER}profiles:\n- schedulerName: s\n  pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      \
                 scoringStrategy:\n        type: Foo\n"
            ),
            "a.yaml: initializing profiles: creating profile for scheduler name s: initializing plugin \
             \"NodeResourcesFit\": scoringStrategy.type: Unsupported value: \"Foo\": supported values: \"LeastAllocated\", \
             \"MostAllocated\", \"RequestedToCapacityRatio\"\n  a.yaml:9:15: \
             profiles[0].pluginConfig[0].args.scoringStrategy.type",
        ),
        (
            "another kind",
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Foo\n".to_owned(),
            "a.yaml: no kind \"Foo\" is registered for version \"kubescheduler.config.k8s.io/v1\"\n  a.yaml:1:13: \
             apiVersion: expected KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, \
             kubescheduler.config.k8s.io/v1beta3, kubescheduler.config.k8s.io/v1beta2",
        ),
        (
            "arguments alone",
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: InterPodAffinityArgs\n".to_owned(),
            "a.yaml: couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, \
             Kind=InterPodAffinityArgs\n  a.yaml:1:13: apiVersion: expected KubeSchedulerConfiguration of \
             kubescheduler.config.k8s.io/v1, kubescheduler.config.k8s.io/v1beta3, kubescheduler.config.k8s.io/v1beta2",
        ),
        ("nothing", String::new(), "a.yaml: the file is empty"),
    ] {
        match read(&text) {
            Ok(_) => panic!("{name}: accepted"),
            Err(error) => assert_eq!(error.to_string(), want, "{name}"),
        }
    }
    let broken = read("a: [\n").unwrap_err().to_string();
    assert!(broken.starts_with("a.yaml: yaml: line "), "{broken}");
    let absent = load(Some(Path::new("/nonexistent/a.yaml")), &Overrides::default(), &gates("")).unwrap_err();
    assert!(absent.to_string().starts_with("/nonexistent/a.yaml: cannot read the file: "), "{absent}");
}

/// With StorageCapacityScoring the shape has a default, and is checked.
#[test]
fn gates_open_arguments() {
    let gates = gates("StorageCapacityScoring=true,DRASchedulerFilterTimeout=false");
    let read = |body: &str| {
        let text = format!("{HEADER}profiles: [{{schedulerName: s, pluginConfig: [{body}]}}]");
        parse(Path::new("a.yaml"), &text, &Overrides::default(), &gates)
    };
    let shape = read("").unwrap().profiles[0].args.volume_binding.shape.clone().unwrap();
    let points: Vec<(i64, i64)> =
        shape.points().iter().map(|point| (point.utilization, point.score)).collect();
    assert_eq!(points, [(0, 10), (100, 0)]);
    refuses(
        "a shape that leaves its range",
        read("{name: VolumeBinding, args: {shape: [{utilization: 101, score: 0}]}}"),
        "profiles[0].pluginConfig[0].args.shape[0].utilization: Invalid value: 101: not in valid range [0, 100]",
    );
    refuses(
        "a timeout whose gate is off",
        read("{name: DynamicResources, args: {filterTimeout: 1s}}"),
        "profiles[0].pluginConfig[0].args.filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled",
    );
}

/// Every line of what Koordinator ships with another value: read or refused in words, never more than that.
#[test]
fn values_of_any_kind_are_taken_or_refused() {
    let shipped = include_str!("../builtin.yaml");
    let values = [
        "-1",
        "9223372036854775808",
        "1e400",
        "odd",
        "[]",
        "{}",
        "[1]",
        "{a: 1}",
        "null",
        "\"\"",
        "2024-01-01",
    ];
    let (mut taken, mut refused) = (0, 0);
    for (at, line) in shipped.lines().enumerate() {
        let Some((field, _)) = line.split_once(": ").or_else(|| line.strip_suffix(':').map(|f| (f, "")))
        else {
            continue;
        };
        for value in values {
            let mut lines: Vec<String> = shipped.lines().map(str::to_owned).collect();
            lines[at] = format!("{field}: {value}");
            match read(&lines.join("\n")) {
                Ok(_) => taken += 1,
                Err(error) => {
                    assert!(!error.message.is_empty(), "line {}: {field}: {value}", at + 1);
                    refused += 1;
                }
            }
        }
    }
    assert!(taken > 0 && refused > 500, "{taken} were taken, {refused} refused");
}
