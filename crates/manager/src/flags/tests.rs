//! Flags and variables with their defaults, and what is said about wrong ones.

use std::path::PathBuf;

use super::*;
use crate::webhook::settings::Writer;

fn run(line: &str) -> Options {
    run_in(line, &[])
}

fn run_in(line: &str, environment: &[(&str, &str)]) -> Options {
    match parse(line.split_whitespace(), variables(environment)) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn variables(environment: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let environment: std::collections::BTreeMap<String, String> =
        environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    move |name| environment.get(name).cloned()
}

#[test]
fn defaults() {
    let options = run("");
    assert_eq!(options.metrics, Some(Listen::Everywhere { port: 8080 }));
    assert_eq!(options.health, Some(Listen::Everywhere { port: 8000 }));
    assert_eq!(options.election, Some(Election { namespace: Some("koordinator-system".to_owned()) }));
    assert_eq!((options.namespace, options.kubeconfig.as_str()), (None, ""));
    assert_eq!(options.sync_period, Some(Duration::from_secs(36_000)));
    assert_eq!((options.qps, options.burst), (30.0, 50));
    for name in ["colocationprofile", "nodemetric", "noderesource", "nodeslo", "quotaprofile"] {
        assert!(options.controllers.is_on(name), "{name}");
    }
    for name in [
        "MidResource",
        "BatchResource",
        "CPUNormalization",
        "ResourceAmplification",
        "GPUDeviceResource",
        "RDMADeviceResource",
    ] {
        assert!(options.node_resource_plugins.is_on(name), "{name}");
    }
    assert_eq!(options.config_name, "slo-controller-config");
    assert_eq!(options.config_namespace, "koordinator-system");
    assert!(!options.node_strategy_names);
    let seconds = Duration::from_secs;
    let profiles = ProfileOptions {
        reconcile_by_default: false,
        reconcile_interval: seconds(30),
        force_update_after: seconds(300),
        update_qps: 10.0,
        update_burst: 100,
    };
    assert_eq!(options.profiles, profiles);
    assert_eq!(options.enhanced_validator.config_name, "pod-enhanced-validator-config");
    assert_eq!(options.enhanced_validator.reconcile_interval, seconds(300));
    let quota_update = QuotaUpdateOptions {
        retries_max: 3,
        retry_jitter: Duration::ZERO,
        total_jitter_max: seconds(1),
        reads_after_conflict: false,
    };
    assert_eq!(options.quota_update, quota_update);
    let binding = options.binding_admission;
    assert_eq!((binding.user_name.as_str(), binding.dry_run), ("", false));
    assert_eq!(binding.exclude_namespaces, ["kube-system"]);
    assert_eq!(binding.bypass_labels, [koord_api::keys::pod::label::BINDING_ADMISSION_BYPASS]);
    assert!(binding.namespaces.is_empty() && binding.bypass_annotations.is_empty());
    assert!(options.warnings.is_empty());
}

#[test]
fn gates_have_their_defaults() {
    // Spec: manager 1.6.
    let gates = run("").gates;
    for name in [
        "WebhookFramework",
        "PodMutatingWebhook",
        "PodValidatingWebhook",
        "ElasticMutatingWebhook",
        "ElasticValidatingWebhook",
    ] {
        assert!(gates.is_on(name), "{name}");
    }
    for name in [
        "NodeMutatingWebhook",
        "NodeValidatingWebhook",
        "ConfigMapValidatingWebhook",
        "ReservationMutatingWebhook",
        "ColocationProfileSkipMutatingResources",
        "ColocationProfileSkipValidatingPriority",
        "MultiQuotaTree",
        "ElasticQuotaIgnorePodOverhead",
        "ElasticQuotaGuaranteeUsage",
        "ElasticQuotaEnableUpdateResourceKey",
        "ElasticQuotaEvaluationTransformPod",
        "DisableDefaultQuota",
        "SupportParentQuotaSubmitPod",
        "EnableQuotaAdmission",
        "EnableQuotaAdmissionOnUpdate",
        "EnableSyncGPUSharedResource",
        "ColocationProfileController",
        "ValidatePodDeviceResource",
        "EnablePodEnhancedValidator",
        "DisableExtendedResourceSpec",
        "DisableDeviceResourceSpec",
        "BindingAdmissionWebhook",
        "PriorityTransformer",
        "PreemptionPolicyTransformer",
        "ReplaceResourcesTransformer",
        "DisablePVCReservation",
    ] {
        assert!(!gates.is_on(name), "{name}");
        assert!(run(&format!("--feature-gates={name}=true")).gates.is_on(name), "{name}");
    }
    assert!(run("--feature-gates=AllAlpha=true").gates.is_on("NodeMutatingWebhook"));
    assert!(!run("--feature-gates=AllBeta=false").gates.is_on("WebhookFramework"));
}

#[test]
fn a_chart_s_command_line_is_read() {
    let options = run(
        "--enable-leader-election --metrics-addr=:8081 --health-probe-addr=127.0.0.1:8001 --logtostderr=true \
         --leader-election-namespace=koordinator-system --v=4 --feature-gates=NodeMutatingWebhook=true \
         --sync-period=0 --config-namespace=koord --rest-config-qps=200 --rest-config-burst=400",
    );
    assert_eq!(options.metrics, Some(Listen::Everywhere { port: 8081 }));
    assert_eq!(options.health, Some("127.0.0.1:8001".parse().unwrap()));
    assert_eq!(options.sync_period, None);
    assert_eq!(options.config_namespace, "koord");
    assert_eq!((options.qps, options.burst), (200.0, 400));
    assert!(options.gates.is_on("NodeMutatingWebhook"));
}

#[test]
fn controllers_are_chosen_by_the_first_mention() {
    for (list, nodeslo, nodemetric) in [
        ("nodeslo", true, false),
        ("*", true, true),
        ("-nodeslo,*", false, true),
        ("*,-nodeslo", false, true),
        ("-nodeslo,nodeslo", false, false),
        ("nodeslo,-nodeslo,*", true, true),
    ] {
        let chosen = run(&format!("--controllers={list}")).controllers;
        assert_eq!((chosen.is_on("nodeslo"), chosen.is_on("nodemetric")), (nodeslo, nodemetric), "{list}");
    }
}

#[test]
fn the_environment_describes_the_webhook_server() {
    let plain = run("").webhook;
    assert_eq!(plain.port, 9876);
    assert_eq!(plain.namespace, "koordinator-system");
    assert_eq!(plain.cert_dir, PathBuf::from("/tmp/koordinator-webhook-certs"));
    assert_eq!((plain.host, plain.writer), (None, Writer::Secret));
    assert_eq!(plain.secret_name, "koordinator-webhook-certs");
    assert_eq!(plain.service_name, "koordinator-webhook-service");
    assert_eq!(plain.mutating_name, "koordinator-mutating-webhook-configuration");
    assert_eq!(plain.validating_name, "koordinator-validating-webhook-configuration");
    let hosted = run_in("", &[("WEBHOOK_HOST", "10.0.0.5"), ("WEBHOOK_PORT", "29876")]).webhook;
    assert_eq!((hosted.host.as_deref(), hosted.port), (Some("10.0.0.5"), 29876));
    assert_eq!(hosted.writer, Writer::Files);
    let both = run_in("", &[("WEBHOOK_HOST", "h"), ("WEBHOOK_CERT_WRITER", "secret")]).webhook;
    assert_eq!(both.writer, Writer::Secret);
}

#[test]
fn mistakes_are_named() {
    for (line, environment, want) in [
        (
            "--metrics-addr=here",
            ("", ""),
            "flag --metrics-addr: \"here\" is not accepted, expected an address such as :8080, 127.0.0.1:8080 \
             or [::1]:8080, or 0 for none",
        ),
        ("", ("WEBHOOK_PORT", "https"), "WEBHOOK_PORT=\"https\": expected a port number"),
        ("", ("WEBHOOK_CERT_WRITER", "vault"), "WEBHOOK_CERT_WRITER=\"vault\": expected secret, fs or given"),
        ("extra", ("", ""), "koord-manager takes no arguments, got [\"extra\"]"),
        (
            "--leader-elect-resource-lock=configmaps",
            ("", ""),
            "flag --leader-elect-resource-lock: \"configmaps\" is not accepted, expected one of leases",
        ),
        (
            "--node-strategy-name-need-check=perhaps --quota-update-max-retries=-1",
            ("", ""),
            "flag --node-strategy-name-need-check: \"perhaps\" is not accepted, expected true or false\n\
             flag --quota-update-max-retries: -1 is not accepted, expected a number that is not negative",
        ),
    ] {
        match parse(line.split_whitespace(), variables(&[environment])) {
            Err(error) => assert_eq!(error.to_string(), want, "{line}"),
            Ok(found) => panic!("{line}: {found:?}"),
        }
    }
    let unknown = parse(["--feature-gates=NoSuchGate=true"], |_| None).unwrap_err().to_string();
    assert!(unknown.starts_with("unknown feature gate \"NoSuchGate\""), "{unknown}");
}

#[test]
fn a_bad_sync_period_is_told_and_left_out() {
    let options = run("--sync-period=soon");
    assert_eq!(options.sync_period, Some(Duration::from_secs(36_000)));
    assert_eq!(options.warnings, ["flag --sync-period: \"soon\" is no duration and is ignored"]);
    assert_eq!(run("--sync-period=1m30s").sync_period, Some(Duration::from_secs(90)));
}

#[test]
fn old_flags_have_no_effect_but_are_taken() {
    let options = run("--enable-pprof=false --pprof-addr=:1 --disable-no-deepcopy");
    assert_eq!(options.warnings.len(), 3, "{:?}", options.warnings);
}

#[test]
fn help_and_version() {
    let Ok(Request::Help(text)) = parse(["--help"], |_| None) else { panic!("no help") };
    assert!(text.contains("--noderesource-plugins") && text.contains("--binding-admission-user-name"));
    assert!(matches!(parse(["--version"], |_| None), Ok(Request::Version)));
}
