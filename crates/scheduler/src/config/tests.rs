use super::*;
use koord_api::gate::Component;
use koord_engine::profile::point::Point;

mod refused;

const HEADER: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
const HEADER_V1BETA3: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n";

fn gates(text: &str) -> Gates {
    Gates::parse(Component::Scheduler, text).unwrap()
}

fn read(text: &str) -> Result<SchedulerConfig, LoadError> {
    parse(Path::new("a.yaml"), text, &Overrides::default(), &gates(""))
}

/// A v1 file with this below its header.
fn check(body: &str) -> Result<SchedulerConfig, LoadError> {
    read(&format!("{HEADER}{body}\n"))
}

fn accepted(body: &str) -> SchedulerConfig {
    check(body).unwrap_or_else(|error| panic!("{body}\n{error}"))
}

/// A v1 file with one profile `s` whose plugin has these arguments.
fn with_args(plugin: &str, args: &str) -> Result<SchedulerConfig, LoadError> {
    check(&format!("profiles:\n- schedulerName: s\n  pluginConfig:\n  - name: {plugin}\n    args: {args}"))
}

fn names(profile: &Profile, point: Point) -> Vec<&'static str> {
    profile.points[point].iter().map(|enabled| enabled.plugin).collect()
}

#[test]
fn an_empty_file_is_kube_scheduler() {
    let config = accepted("");
    assert_eq!(config.parallelism, 16);
    let election = config.leader_election.as_ref().unwrap();
    assert_eq!((election.namespace.as_str(), election.name.as_str()), ("kube-system", "kube-scheduler"));
    assert_eq!(election.timing, Timing::DEFAULT);
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (50.0, 100));
    assert_eq!(config.client_connection.content_type, "application/vnd.kubernetes.protobuf");
    assert!(config.enable_profiling && config.enable_contention_profiling);
    assert_eq!(config.percentage_of_nodes_to_score.get(), 0);
    assert_eq!(
        (config.pod_initial_backoff, config.pod_max_backoff),
        (Duration::from_secs(1), Duration::from_secs(10))
    );
    assert!(!config.delay_cache_until_active && config.extenders.is_empty() && config.warnings.is_empty());
    let [profile] = config.profiles.as_slice() else { panic!("one profile") };
    assert_eq!(profile.scheduler_name, "default-scheduler");
    assert_eq!(profile.percentage_of_nodes_to_score, None);
    assert_eq!(names(profile, Point::QueueSort), ["PrioritySort"]);
    assert_eq!(names(profile, Point::PreBind), ["VolumeBinding", "DynamicResources", "DefaultPreBind"]);
    assert_eq!(profile.args, koord_engine::profile::args::Args::default());
}

#[test]
fn every_field_is_read() {
    let config = accepted(
        "parallelism: 3\nleaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s, \
         resourceName: lease, resourceNamespace: place}\nclientConnection: {kubeconfig: k, acceptContentTypes: a, contentType: c, \
         qps: 1.5, burst: 7}\nenableProfiling: false\npercentageOfNodesToScore: 30\npodInitialBackoffSeconds: 2\n\
         podMaxBackoffSeconds: 4\ndelayCacheUntilActive: true\nprofiles:\n- {schedulerName: a, percentageOfNodesToScore: 0}\n\
         - schedulerName: b",
    );
    assert_eq!(config.parallelism, 3);
    let election = config.leader_election.clone().unwrap();
    assert_eq!((election.namespace.as_str(), election.name.as_str()), ("place", "lease"));
    assert_eq!(election.timing.renew_deadline(), Duration::from_secs(20));
    assert_eq!(config.kubeconfig(), Some(PathBuf::from("k")));
    assert_eq!((config.client_connection.qps, config.client_connection.burst), (1.5, 7));
    assert!(
        !config.enable_profiling && !config.enable_contention_profiling && config.delay_cache_until_active
    );
    assert_eq!(config.percentage_of_nodes_to_score.get(), 30);
    assert_eq!(
        (config.pod_initial_backoff, config.pod_max_backoff),
        (Duration::from_secs(2), Duration::from_secs(4))
    );
    assert_eq!(config.profiles[0].percentage_of_nodes_to_score.map(Percent::get), Some(0));
    assert_eq!(config.profiles[1].percentage_of_nodes_to_score, None);
    assert_eq!(accepted("leaderElection: {leaderElect: false, resourceLock: foo}").leader_election, None);
}

#[test]
fn older_versions_are_taken_and_only_warn() {
    let body = "parallelism: 3\nparallelism: 4\nfooBar: 1\nprofiles:\n- schedulerName: a\n  plugins:\n    filter:\n      \
                enabled: [{name: EBSLimits}]\n    multiPoint:\n      disabled: [{name: CinderLimits}]\n  pluginConfig:\n  \
                - name: InterPodAffinity\n    args: {apiVersion: kubescheduler.config.k8s.io/v1beta2, kind: \
                InterPodAffinityArgs, hardPodAffinityWeight: 5, odd: 1}\n  - name: GCEPDLimits\n";
    let config = read(&format!("{HEADER_V1BETA3}{body}")).unwrap();
    assert_eq!(config.parallelism, 4);
    assert_eq!(config.profiles[0].args.inter_pod_affinity.hard_pod_affinity_weight.get(), 5);
    let texts: Vec<&str> = config.warnings.iter().map(|warning| warning.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "a.yaml:4:1: parallelism: given twice; the last one counts",
            "a.yaml:5:9: fooBar: unknown field; accepted: parallelism, leaderElection, clientConnection, \
             enableProfiling, enableContentionProfiling, percentageOfNodesToScore, podInitialBackoffSeconds, \
             podMaxBackoffSeconds, profiles, extenders, delayCacheUntilActive",
            "a.yaml:15:120: profiles[0].pluginConfig[0].args.odd: unknown field; accepted: hardPodAffinityWeight, \
             ignorePreferredTermsOfExistingPods",
            "plugin CinderLimits is ignored; NodeVolumeLimits does its work",
            "plugin EBSLimits is ignored; NodeVolumeLimits does its work",
            "plugin GCEPDLimits is ignored; NodeVolumeLimits does its work",
        ]
    );
    let v1beta2 = HEADER.replace("/v1\n", "/v1beta2\n") + "healthzBindAddress: x\nmetricsBindAddress: y\n";
    assert_eq!(read(&v1beta2).unwrap().warnings.len(), 2);
    let mixed = with_args(
        "NodeAffinity",
        "{apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: NodeAffinityArgs}",
    );
    assert!(mixed.unwrap().warnings.is_empty());
}

#[test]
fn the_built_in_configuration_is_the_chart() {
    let config = load(None, &Overrides::default(), &gates("")).unwrap();
    assert_eq!(config.warnings, []);
    let election = config.leader_election.as_ref().unwrap();
    assert_eq!(
        (election.namespace.as_str(), election.name.as_str()),
        ("koordinator-system", "koord-scheduler")
    );
    let [profile] = config.profiles.as_slice() else { panic!("one profile") };
    assert_eq!(profile.scheduler_name, "koord-scheduler");
    // Spec: scheduler-core 7.5; the expansion itself is worked out in the engine.
    for (point, want) in [
        (Point::QueueSort, "Coscheduling"),
        (Point::PostFilter, "Reservation Coscheduling ElasticQuota DefaultPreemption"),
        (Point::Permit, "Coscheduling"),
        (
            Point::Reserve,
            "VolumeBinding DynamicResources Reservation LoadAwareScheduling NodeNUMAResource DeviceShare \
             Coscheduling ElasticQuota",
        ),
        (
            Point::PreBind,
            "VolumeBinding DynamicResources NodeNUMAResource DeviceShare Reservation DefaultPreBind",
        ),
        (Point::Bind, "Reservation DefaultBinder"),
    ] {
        assert_eq!(names(profile, point).join(" "), want, "{}", point.key());
    }
    let reservation = profile.points[Point::Score].last().unwrap();
    assert_eq!((reservation.plugin, reservation.weight), ("Reservation", 5000));
    let args = &profile.args;
    assert_eq!(args.node_resources_fit.resources.len(), 4);
    assert!(args.node_resources_fit.resources.iter().all(|resource| resource.weight == 1));
    assert!(!args.load_aware_scheduling.filter_expired_node_metrics);
    assert_eq!(args.load_aware_scheduling.node_metric_expiration, GoDuration::from_seconds(300));
    assert_eq!(args.elastic_quota.quota_group_namespace, "koordinator-system");
}

/// The file of scheduler-core 7.4 that changes only what differs.
#[test]
fn a_users_file_is_merged() {
    let config = accepted(
        "leaderElection: {leaderElect: true, resourceName: koord-scheduler, resourceNamespace: koordinator-system}\n\
         percentageOfNodesToScore: 30\nprofiles:\n- schedulerName: koord-scheduler\n  plugins:\n    \
         queueSort: {disabled: [{name: \"*\"}], enabled: [{name: Coscheduling}]}\n    \
         preFilter: {enabled: [{name: Coscheduling}, {name: ElasticQuota}]}\n    \
         postFilter: {disabled: [{name: \"*\"}], enabled: [{name: ElasticQuota}, {name: DefaultPreemption}]}\n    \
         score:\n      disabled: [{name: ImageLocality}]\n      enabled: [{name: NodeResourcesFit, weight: 5}]\n    \
         reserve: {enabled: [{name: Coscheduling}, {name: ElasticQuota}]}\n    permit: {enabled: [{name: Coscheduling}]}\n    \
         postBind: {enabled: [{name: Coscheduling}]}\n  pluginConfig:\n  - name: ElasticQuota\n    \
         args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: ElasticQuotaArgs, quotaGroupNamespace: koordinator-system, \
         enableCheckParentQuota: true}",
    );
    let profile = &config.profiles[0];
    let score: Vec<String> = profile.points[Point::Score]
        .iter()
        .map(|enabled| format!("{} {}", enabled.plugin, enabled.weight))
        .collect();
    assert_eq!(
        score.join(", "),
        "NodeResourcesFit 5, TaintToleration 3, NodeAffinity 2, VolumeBinding 1, PodTopologySpread 2, \
         InterPodAffinity 2, DynamicResources 2, NodeResourcesBalancedAllocation 1"
    );
    // scheduler-core#10.S22
    assert_eq!(names(profile, Point::PostFilter), ["ElasticQuota", "DefaultPreemption"]);
    assert!(profile.args.elastic_quota.enable_check_parent_quota);
    assert!(config.warnings.is_empty());
}

#[test]
fn a_profile_that_checks_without_taking_is_warned_of() {
    let config = accepted(
        "profiles:\n- schedulerName: a\n  plugins: {filter: {enabled: [{name: Reservation}, {name: DeviceShare}]}, \
         reserve: {enabled: [{name: DeviceShare}]}}",
    );
    let text = "plugin Reservation is enabled at filter but not at reserve".to_owned();
    assert_eq!(config.warnings, [Warning { profile: Some("a".to_owned()), text }]);
}

#[test]
fn flags_count_before_the_file() {
    let overrides = Overrides {
        leader_elect: Some(true),
        lease_duration: Some(GoDuration::from_seconds(60)),
        resource_name: Some("flag".to_owned()),
        kubeconfig: Some("flag.conf".to_owned()),
        ..Overrides::default()
    };
    let text =
        format!("{HEADER}leaderElection: {{leaderElect: false, leaseDuration: 5s, resourceName: file}}\n");
    let config = parse(Path::new("a.yaml"), &text, &overrides, &gates("")).unwrap();
    assert_eq!(config.leader_election.clone().unwrap().name, "flag");
    assert_eq!(config.kubeconfig(), Some(PathBuf::from("flag.conf")));
    // What flags spoil is refused as well.
    let none = Overrides { resource_namespace: Some(String::new()), ..overrides };
    let error = parse(Path::new("a.yaml"), &text, &none, &gates("")).unwrap_err();
    assert_eq!(error.message, "leaderElection.resourceNamespace: Required value");
}

#[test]
fn extenders_are_typed() {
    let config = accepted(
        "extenders:\n- urlPrefix: http://x\n  filterVerb: f\n  prioritizeVerb: p\n  weight: 3\n  enableHTTPS: true\n  \
         httpTimeout: 2s\n  nodeCacheCapable: true\n  ignorable: true\n  managedResources:\n  - {name: example.com/a, \
         ignoredByScheduler: true}\n  - name: example.com/b\n  tlsConfig: {insecure: true, serverName: s, certData: aGk=, \
         keyFile: k}\n- urlPrefix: http://y\n  bindVerb: b",
    );
    let [first, second] = config.extenders.as_slice() else { panic!("two extenders") };
    assert_eq!(first.prioritize, Some(("p".to_owned(), 3)));
    assert_eq!((first.timeout, second.timeout), (Duration::from_secs(2), Duration::from_secs(5)));
    let tls = first.tls.clone().unwrap();
    assert_eq!(
        (tls.cert, tls.key, tls.ca),
        (Some(Pem::Data(b"hi".to_vec())), Some(Pem::File("k".to_owned())), None)
    );
    assert_eq!(second.bind_verb.as_deref(), Some("b"));
    assert!(second.filter_verb.is_none() && second.managed_resources.is_empty());
    // A resource that the extender answers for is not checked by NodeResourcesFit.
    assert_eq!(config.profiles[0].args.node_resources_fit.ignored_resources, ["example.com/a"]);
}

#[test]
fn what_is_written_reads_back_as_the_same() {
    let builtin = load(None, &Overrides::default(), &gates("")).unwrap();
    let full = accepted(
        "percentageOfNodesToScore: 5\ndelayCacheUntilActive: true\nclientConnection: {qps: 1.5}\nextenders:\n\
         - {urlPrefix: http://x, filterVerb: f, managedResources: [{name: example.com/a}]}\nprofiles:\n\
         - schedulerName: a\n  percentageOfNodesToScore: 3\n  plugins: {multiPoint: {enabled: [{name: DeviceShare}, \
         {name: Reservation, weight: 9}, {name: NodeNUMAResource}, {name: NodeResourcesFitPlus}]}}\n  pluginConfig:\n  \
         - name: PodTopologySpread\n    args: {defaultingType: List, defaultConstraints: [{maxSkew: 2, topologyKey: z, \
         whenUnsatisfiable: ScheduleAnyway}]}\n  - name: NodeResourcesFitPlus\n    args: {resources: {cpu: {type: \
         MostAllocated, weight: 2}}}\n  - name: ImageLocality\n    args: {odd: 1}",
    );
    for config in [builtin, full] {
        let again = read(&config.to_yaml()).unwrap();
        assert_eq!(again.effective, config.effective);
        assert_eq!(
            SchedulerConfig { warnings: Vec::new(), ..again },
            SchedulerConfig { warnings: Vec::new(), ..config }
        );
    }
}

#[test]
fn configz_has_the_names_of_go() {
    let config = load(None, &Overrides::default(), &gates("")).unwrap().configz();
    let component = &config["componentconfig"];
    assert_eq!(component["apiVersion"], "kubescheduler.config.k8s.io/v1");
    assert_eq!(component["ClientConnection"]["QPS"], 50);
    assert_eq!(component["LeaderElection"]["ResourceName"], "koord-scheduler");
    let profile = &component["Profiles"][0];
    assert_eq!(profile["SchedulerName"], "koord-scheduler");
    assert_eq!(profile["Plugins"]["QueueSort"]["Enabled"][0]["Name"], "Coscheduling");
    assert_eq!(profile["Plugins"]["MultiPoint"]["Enabled"][4]["Weight"], 3);
    let args = |name: &str| {
        let configs = profile["PluginConfig"].as_array().unwrap();
        configs.iter().find(|config| config["Name"] == name).unwrap()["Args"].clone()
    };
    assert_eq!(args("LoadAwareScheduling")["UsageThresholds"]["cpu"], 65);
    assert_eq!(args("NodeNUMAResource")["NUMAScoringStrategy"]["Type"], "LeastAllocated");
    assert_eq!(args("Reservation")["GCDurationSeconds"], 86_400);
    assert_eq!(args("NodeAffinity"), serde_json::json!({}));
    assert_eq!(component["Kind"], Value::Null);
}
