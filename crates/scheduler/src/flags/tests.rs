use super::*;

fn run(line: &str) -> Options {
    match parse(line.split_whitespace()) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults() {
    let options = run("");
    assert_eq!(options.overrides, Overrides::default());
    let any = "0.0.0.0".parse().unwrap();
    assert_eq!(options.plain, Some(Listen { address: any, port: 10251 }));
    assert_eq!(options.secure, Some(Listen { address: any, port: 10259 }));
    assert_eq!(options.pod_max_in_unschedulable, Duration::from_secs(300));
    assert_eq!(options.monitor.timeout, Duration::from_secs(30));
    assert_eq!(options.debug.top_scores, 0);
    assert_eq!(options.gates, Gates::defaults(Component::Scheduler));
    assert!(options.config.is_none() && options.warnings.is_empty());
    assert!(options.controller_plugins.is_on("Reservation"));
}

/// The arguments of the container in the chart. Spec: scheduler-core 7.4.
#[test]
fn the_charts_own_command_line() {
    let options = run("--port=10251 --authentication-skip-lookup=true --v=4 \
                       --feature-gates=DisableCSIStorageCapacityInformer=true,CompatiblePodDisruptionBudget=true \
                       --config=/config/koord-scheduler.config");
    assert_eq!(options.config, Some(PathBuf::from("/config/koord-scheduler.config")));
    assert!(options.authentication.skip_lookup);
    assert_eq!(options.log.verbosity, 4);
    assert!(options.gates.is_on("CompatiblePodDisruptionBudget"));
    assert!(options.warnings.is_empty());
}

#[test]
fn the_file_is_overridden_by_what_is_given() {
    let options = run("--config=a.yaml --leader-elect=false --leader-elect-lease-duration 30s \
                       --leader-elect-resource-name=x --kubeconfig=k --profiling=false --kube-api-qps=7");
    let overrides = &options.overrides;
    assert_eq!(overrides.leader_elect, Some(false));
    assert_eq!(overrides.lease_duration.map(|d| d.to_string()), Some("30s".to_owned()));
    assert_eq!(overrides.resource_name.as_deref(), Some("x"));
    assert_eq!(overrides.kubeconfig.as_deref(), Some("k"));
    assert_eq!((overrides.enable_profiling, overrides.qps), (None, None));
    assert!(options.warnings.contains(&"flag --profiling has no effect: --config is given".to_owned()));
    let overrides = run("--profiling=false --kube-api-qps=7.5 --kube-api-burst=9").overrides;
    assert_eq!(
        (overrides.enable_profiling, overrides.qps, overrides.burst),
        (Some(false), Some(7.5), Some(9))
    );
}

/// Spec: scheduler-core 9.1.
#[test]
fn controllers_are_chosen_by_the_first_mention() {
    for (list, want) in [
        ("*", true),
        ("*,-A", false),
        ("-A,*", false),
        ("A,-A", true),
        ("-A,A", false),
        ("B", false),
        ("B,*", true),
        ("", false),
        ("-B,*", true),
    ] {
        let options = run(&format!("--controller-plugins={list}"));
        assert_eq!(options.controller_plugins.is_on("A"), want, "{list}");
    }
}

#[test]
fn short_forms_and_switched_off_ports() {
    let options = run("-s 5 -f -d --port 0 --secure-port=0");
    assert_eq!((options.debug.top_scores, options.debug.filters, options.debug.diagnosis), (5, true, true));
    assert_eq!((options.plain, options.secure), (None, None));
}

/// Spec: scheduler-core 9.20.
#[test]
fn gates_are_those_of_koordinator_and_of_kubernetes() {
    let gates =
        run("--feature-gates=kube:StorageCapacityScoring=true,ResizePod=true,DynamicSchedulerCheck=false")
            .gates;
    assert!(gates.is_on("StorageCapacityScoring") && gates.is_on("ResizePod"));
    assert!(!gates.is_on("DynamicSchedulerCheck") && gates.is_on("SchedulerAsyncPreemption"));
    for name in [
        "MultiQuotaTree",
        "ElasticQuotaIgnorePodOverhead",
        "ElasticQuotaIgnoreTerminatingPod",
        "ElasticQuotaImmediateIgnoreTerminatingPod",
        "ElasticQuotaGuaranteeUsage",
        "DisableDefaultQuota",
        "SupportParentQuotaSubmitPod",
        "LazyReservationRestore",
        "OmitNodeLabelsForReservation",
        "SkipReservationFitsNode",
        "CleanExpiredReservationAllocated",
        "DevicePluginAdaption",
        "CompatibleCSIStorageCapacity",
        "DisablePodDisruptionBudgetInformer",
        "DisableDynamicResourceAllocationInformer",
        "CrossSchedulerNomination",
        "SkipFilterWithNominatedPods",
        "SyncBarrier",
        "EnableInlineBatchSchedule",
        "PriorityTransformer",
        "PreemptionPolicyTransformer",
        "ReplaceResourcesTransformer",
    ] {
        assert!(!gates.is_on(name), "{name}");
        assert!(run(&format!("--feature-gates={name}=true")).gates.is_on(name), "{name}");
    }
}

#[test]
fn mistakes_are_named() {
    for (line, want) in [
        ("--port=70000", "flag --port: 70000 is not accepted, expected a port from 0 to 65535, 0 for none"),
        ("--address=here", "flag --address: \"here\" is not accepted, expected an IP address"),
        (
            "--record-limit=7 --scheduling-timeout=-1s --debug-scores=-1 extra",
            "\"koord-scheduler\" does not take any arguments, got [\"extra\"]\n\
             flag --debug-scores: -1 is not accepted, expected a number that is not negative\n\
             flag --scheduling-timeout: \"-1s\" is not accepted, expected a duration that is not negative\n\
             flag --record-limit: \"7\" is not accepted, expected a size of 1Mi at least",
        ),
        ("--confg=a", "unknown flag --confg; did you mean --config?"),
        (
            "--feature-gates=SidecarContainers=false",
            "cannot set feature gate SidecarContainers to false, feature is locked to true",
        ),
    ] {
        match parse(line.split_whitespace()) {
            Err(error) => assert_eq!(error.to_string(), want, "{line}"),
            Ok(found) => panic!("{line}: {found:?}"),
        }
    }
    let unknown = parse(["--feature-gates=NoSuchGate=true"]).unwrap_err().to_string();
    assert!(unknown.starts_with("unknown feature gate \"NoSuchGate\""), "{unknown}");
}

#[test]
fn help_and_version() {
    let Ok(Request::Help(text)) = parse(["--help"]) else { panic!("no help") };
    assert!(text.contains("--controller-plugins") && !text.contains("tls-cipher-suites"));
    assert!(matches!(parse(["--version"]), Ok(Request::Version)));
}
