use std::collections::BTreeMap;

use koord_api::slo::key;

use super::*;

const COLOCATION: &str = key::COLOCATION;
const THRESHOLD: &str = key::RESOURCE_THRESHOLD;
const QOS: &str = key::RESOURCE_QOS;
const SYSTEM: &str = key::SYSTEM;
const BURST: &str = key::CPU_BURST;
const BANDWIDTH: (&str, &str) = (SYSTEM, r#"{"clusterStrategy":{"totalNetworkBandwidth":"600M"}}"#);

fn config(documents: &[(&str, &str)]) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some("slo-controller-config".into());
    config.metadata.namespace = Some("koordinator-system".into());
    config.data = Some(documents.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect());
    config
}

fn shown(result: Result<(), Denial>) -> String {
    result.err().map_or(String::new(), |denial| {
        assert_eq!(denial.code, 400);
        denial.message
    })
}

fn create(documents: &[(&str, &str)]) -> String {
    shown(validate(None, &config(documents), "", &[], &Options::default()))
}

fn update(old: &[(&str, &str)], new: &[(&str, &str)]) -> String {
    shown(validate(Some(&config(old)), &config(new), "", &[], &Options::default()))
}

/// The answer with one node of these labels there.
fn with_node(document: &str, labels: &[(&str, &str)]) -> String {
    let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let nodes = [NodeLabels { name: "n1", labels: &labels }];
    shown(validate(None, &config(&[(COLOCATION, document)]), "", &nodes, &Options::default()))
}

fn faults(faults: &[(&str, &str)]) -> String {
    let members: Vec<_> = faults.iter().map(|(path, text)| format!(r#""{path}":"{text}""#)).collect();
    format!(r#"___{{"reason":"ConfigParamInvalid","message":{{{}}}}}___"#, members.join(","))
}

/// colocation-config with node entries x, y of these selectors.
fn entries(selectors: &[&str]) -> String {
    let entries: Vec<_> = selectors
        .iter()
        .zip(["x", "y"])
        .map(|(selector, name)| format!(r#"{{"name":"{name}","nodeSelector":{selector}}}"#))
        .collect();
    format!(r#"{{"nodeConfigs":[{}]}}"#, entries.join(","))
}

const A_1: &str = r#"{"matchLabels":{"a":"1"}}"#;
const A_2: &str = r#"{"matchLabels":{"a":"2"}}"#;
const B_2: &str = r#"{"matchLabels":{"b":"2"}}"#;
const A_1_B_2: &str = r#"{"matchLabels":{"a":"1","b":"2"}}"#;
const A_IN_1_2: &str = r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#;
const A_NOT_IN_1: &str = r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#;
const A_EXISTS: &str = r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#;

#[test]
fn colocation_fields() {
    let at = |field: &str| format!("ColocationCfg.ColocationStrategy.{field}");
    let diff = at("ResourceDiffThreshold");
    for (name, document, want) in [
        (
            "manager#20.K1",
            r#"{"cpuReclaimThresholdPercent":-1}"#,
            faults(&[(&at("CPUReclaimThresholdPercent"), "CPUReclaimThresholdPercent must be 0 or greater")]),
        ),
        (
            "manager#20.K2",
            r#"{"resourceDiffThreshold":1.5}"#,
            faults(&[(&diff, "ResourceDiffThreshold must be 1 or less")]),
        ),
        (
            "manager#20.K13",
            r#"{"metricReportIntervalSeconds":0,"nodeConfigs":[{"nodeSelector":{"matchLabels":{"a":"1"}},"degradeTimeMinutes":0}]}"#,
            faults(&[
                (&at("MetricReportIntervalSeconds"), "MetricReportIntervalSeconds must be 1 or greater"),
                (
                    "ColocationCfg.NodeConfigs[0].ColocationStrategy.DegradeTimeMinutes",
                    "DegradeTimeMinutes must be 1 or greater",
                ),
            ]),
        ),
        ("manager#20.K14 one", r#"{"resourceDiffThreshold":1}"#, String::new()),
        (
            "manager#20.K14 zero",
            r#"{"resourceDiffThreshold":0}"#,
            faults(&[(&diff, "ResourceDiffThreshold must be greater than 0")]),
        ),
    ] {
        assert_eq!(create(&[(COLOCATION, document)]), want, "{name}");
    }
}

#[test]
fn entries_that_meet() {
    let overlap = r#"___{"reason":"NodeStrategiesOverlap","message":{"config":"colocation-config","strategies":["x","y"]}}___"#;
    for (name, selectors, want) in [
        ("manager#20.K3", [A_1, A_1_B_2], overlap),
        ("manager#20.K5", [A_1, B_2], ""),
        ("manager#20.K15", [A_IN_1_2, A_2], overlap),
        ("manager#20.K16", [A_NOT_IN_1, B_2], overlap),
    ] {
        assert_eq!(create(&[(COLOCATION, &entries(&selectors))]), want, "{name}");
    }
    let conflict = r#"___{"reason":"ExistNodeConfict","message":{"config":"colocation-config","strategies":["x","y"],"exampleNodes":["n1"]}}___"#;
    let both = [("a", "1"), ("b", "2")];
    assert_eq!(with_node(&entries(&[A_1, B_2]), &both), conflict, "manager#20.K4");
    assert_eq!(with_node(&entries(&[A_1, B_2]), &both[..1]), "", "manager#20.K5 another node");
    assert_eq!(with_node(&entries(&[A_EXISTS, B_2]), &both[..1]), "", "manager#20.K17");
    let empty = r#"___{"reason":"ConfigParamInvalid","message":"nodeConfigs NodeSelector must not empty error! configType: colocation-config,nodeConfig name:x"}___"#;
    assert_eq!(create(&[(COLOCATION, &entries(&["{}"]))]), empty, "manager#20.K12");
    assert_eq!(create(&[(COLOCATION, r#"{"nodeConfigs":[{"name":"x"}]}"#)]), empty, "manager#20.K12 absent");
}

#[test]
fn what_is_looked_at() {
    let bad = create(&[(COLOCATION, "{bad")]);
    let start = r#"___{"reason":"ParseConfigFail","message":"Failed to parse colocation config in configmap koordinator-system/slo-controller-config, err: "#;
    assert!(bad.starts_with(start) && bad.ends_with(r#""}___"#), "manager#20.K10 {bad}");
    assert_eq!(update(&[("other", "1")], &[("other", "2")]), "", "manager#20.K9");
    let stored = (COLOCATION, "{bad");
    assert_eq!(update(&[stored], &[stored, (BURST, "{}")]), "", "manager#20.K11");
    let first = create(&[(COLOCATION, r#"{"cpuReclaimThresholdPercent":-1}"#), (BURST, "{bad")]);
    assert!(
        first.contains("CPUReclaimThresholdPercent") && !first.contains("CpuBurst"),
        "manager#20.K24 {first}"
    );
    assert_eq!(create(&[("host-application-config", "{bad")]), "", "manager#20.K26");

    let mut other = config(&[(COLOCATION, "{bad")]);
    other.metadata.name = Some("other".into());
    assert_eq!(shown(validate(None, &other, "", &[], &Options::default())), "", "another ConfigMap");
    let renamed = Options { name: "other".into(), ..Options::default() };
    assert!(!shown(validate(None, &other, "", &[], &renamed)).is_empty(), "--slo-config-name");
    other.metadata.namespace = None;
    assert!(is_ours(&other, "koordinator-system", &renamed));
    assert!(!is_ours(&other, "default", &renamed));
}

fn cluster(members: &str) -> String {
    format!(r#"{{"clusterStrategy":{{{members}}}}}"#)
}

#[test]
fn pairs_of_fields() {
    let be = |members: &str| cluster(&format!(r#""beClass":{{"resctrlQOS":{{{members}}}}}"#));
    let cat = create(&[(QOS, &be(r#""catRangeStartPercent":50,"catRangeEndPercent":30"#))]);
    assert!(
        cat.contains("CATRangeEndPercent must be greater than CATRangeStartPercent"),
        "manager#20.K6 {cat}"
    );
    let memory = |upper: i32, lower: i32| {
        let members = format!(r#""memoryEvictThresholdPercent":{upper},"memoryEvictLowerPercent":{lower}"#);
        create(&[(THRESHOLD, &cluster(&members))])
    };
    assert!(memory(70, 70).contains("must be less than"), "manager#20.K18");
    assert_eq!(memory(70, 68), "", "manager#20.K18 apart");
    for (key, document) in [
        (THRESHOLD, cluster(r#""memoryEvictThresholdPercent":70"#)),
        (QOS, be(r#""catRangeEndPercent":30"#)),
        (THRESHOLD, cluster(r#""cpuEvictBESatisfactionLowerPercent":60"#)),
    ] {
        assert_eq!(create(&[(key, &document)]), "", "manager#20.K19 manager#26.DB-14 {document}");
    }
    let burst = cluster(
        r#""cpuBurstPercent":0,"cfsQuotaBurstPercent":99,"cfsQuotaBurstPeriodSeconds":-2,"sharePoolThresholdPercent":101"#,
    );
    let four = create(&[(BURST, &burst)]);
    for field in
        ["CPUBurstPercent", "CFSQuotaBurstPercent", "CFSQuotaBurstPeriodSeconds", "SharePoolThresholdPercent"]
    {
        assert!(four.contains(&format!(".{field}\":\"{field} must be")), "manager#20.K25 {field} {four}");
    }
    let block = cluster(r#""beClass":{"blkioQOS":{"blocks":[{"name":"d","ioCfg":{"ioWeightPercent":0}}]}}"#);
    assert_eq!(create(&[(QOS, &block)]), "", "manager#20.K27");
}

#[test]
fn network_rules() {
    let qos = |ls: &str, be: &str| {
        cluster(&format!(r#""lsClass":{{"networkQOS":{{{ls}}}}},"beClass":{{"networkQOS":{{{be}}}}}"#))
    };
    let ingress = |amount: &str| format!(r#""ingressRequest":{amount}"#);
    let sum = |ls: &str, be: &str| qos(&ingress(ls), &ingress(be));
    let over = "ClusterStrategy total net bandwidth percentage already over 100";
    assert_eq!(create(&[(QOS, &sum("60", "50")), BANDWIDTH]), over, "manager#20.K7");
    assert_eq!(create(&[(QOS, &sum("60", "40")), BANDWIDTH]), "", "manager#20.K7 60 + 40");
    assert_eq!(
        create(&[(QOS, &sum(r#""50M""#, r#""10M""#)), BANDWIDTH]),
        "",
        "manager#20.K8 manager#26.DB-15"
    );
    assert_eq!(create(&[(QOS, &sum("60", "40"))]), "", "manager#20.K20 manager#26.DB-15");
    let nothing = (SYSTEM, r#"{"clusterStrategy":{}}"#);
    assert_eq!(create(&[(QOS, &qos(&ingress("60"), "")), nothing]), "", "manager#20.K21 manager#26.DB-15");
    let mixed = create(&[(QOS, &sum(r#""50M""#, "10")), BANDWIDTH]);
    assert_eq!(
        mixed, "only one type can be used for percentages or quantity in clusterStrategy",
        "manager#20.K22"
    );
    let high = create(&[(QOS, &qos(&ingress("101"), "")), BANDWIDTH]);
    let want = "ResourceQOSCfg.ClusterStrategy.LSClass.IngressRequest: Invalid value: 101: must be percentage value just in 0-100'";
    assert_eq!(high, want, "manager#20.K23");
    let unit = create(&[(QOS, &qos(r#""ingressLimit":"5X""#, "")), BANDWIDTH]);
    assert!(unit.contains("LSClass.IngressLimit: Invalid value: \"5X\""), "manager#20.K23 unit {unit}");
}

#[test]
fn requests() {
    let ask = |operation: Operation, old: Value, new: Value, resource: &str| {
        let resource = crate::webhook::review::Resource { resource: resource.into(), ..Default::default() };
        let request = Request { operation, resource, object: new, old_object: old, ..Request::default() };
        let mut steps = Vec::new();
        let answer = answer(&request, &[], &Options::default(), &mut |step, good| steps.push((step, good)));
        (answer.verdict == crate::webhook::review::Verdict::Allowed, steps)
    };
    let object = |text: &str| serde_json::to_value(config(&[(COLOCATION, text)])).unwrap();
    let seen = |good: bool| (good, vec![("SLOConfig", good)]);
    let none = || Value::Null;
    assert_eq!(ask(Operation::Create, none(), object("{bad"), "configmaps"), seen(false));
    assert_eq!(ask(Operation::Update, object("{}"), object("{bad"), "configmaps"), seen(false));
    assert_eq!(ask(Operation::Update, object("{bad"), object("{bad"), "configmaps"), seen(true));
    assert_eq!(ask(Operation::Delete, object("{bad"), none(), "configmaps"), seen(true));
    assert_eq!(ask(Operation::Create, none(), object("{bad"), "secrets"), (true, vec![]));
    assert_eq!(ask(Operation::Create, none(), serde_json::json!({"data": 1}), "configmaps"), seen(false));
}
