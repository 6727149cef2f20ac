use super::effective::Effective;
use super::render::{percent_of_ratio, same_node_slo};
use super::strategy::SystemPartial;
use super::*;
use crate::crd::node_metric::MetricCollectPolicy;
use crate::crd::node_slo::{
    CpuQos, MemoryQos, NodeSloSpec, ResctrlQos, ResourceQos, ResourceQosStrategy, SystemStrategy,
};
use crate::gojson;
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A node with these labels and annotations under these documents.
struct Case {
    config: SloConfig,
    labels: Map,
    annotations: Map,
    loaded: Loaded,
}

fn given(documents: &[(&str, &str)]) -> Case {
    let mut config = SloConfig::default();
    let loaded = config.load(Some(&map(documents)));
    Case { config, labels: Map::new(), annotations: Map::new(), loaded }
}

impl Case {
    fn label(mut self, key: &str, value: &str) -> Case {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    fn annotation(mut self, key: &str, value: &str) -> Case {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The ConfigMap changes.
    fn then(mut self, documents: &[(&str, &str)]) -> Case {
        self.loaded = self.config.load(Some(&map(documents)));
        self
    }

    fn facts(&self) -> NodeFacts<'_> {
        NodeFacts { labels: &self.labels, annotations: &self.annotations }
    }

    fn spec(&self) -> NodeSloSpec {
        self.config.node_slo_spec(self.facts(), None).value
    }

    fn threshold(&self) -> String {
        json(&self.spec().resource_used_threshold_with_be)
    }

    fn qos(&self) -> String {
        json(&self.spec().resource_qos_strategy)
    }

    fn system(&self) -> String {
        json(&self.spec().system_strategy)
    }

    fn colocation(&self) -> ColocationStrategy {
        self.config.colocation_strategy(self.facts()).expect("available").value
    }

    /// cpu and memory reclaim percent.
    fn reclaim(&self) -> (i64, i64) {
        let strategy = self.colocation();
        let cpu = strategy.cpu_reclaim_threshold_percent.expect("has a default");
        (cpu, strategy.memory_reclaim_threshold_percent.expect("has a default"))
    }

    fn metric_policy(&self, present: Option<&MetricCollectPolicy>) -> Option<String> {
        self.config.metric_policy(self.facts(), present).map(|policy| json(&policy))
    }

    fn events(&self) -> Vec<(&str, &str)> {
        self.loaded.events.iter().map(|event| (event.reason, event.message.as_str())).collect()
    }
}

fn json(value: &impl serde::Serialize) -> String {
    gojson::to_string(value).expect("encodes")
}

fn threshold_of(enable: bool, suppress: i64, policy: &str) -> String {
    format!(
        r#"{{"enable":{enable},"cpuSuppressThresholdPercent":{suppress},"cpuSuppressPolicy":"{policy}","memoryEvictThresholdPercent":70,"cpuEvictPolicy":"evictByRealLimit"}}"#
    )
}

const THRESHOLD: &str = key::RESOURCE_THRESHOLD;
const QOS: &str = key::RESOURCE_QOS;
const SYSTEM: &str = key::SYSTEM;
const COLOCATION: &str = key::COLOCATION;
const CPU_RATIO: &str = "node.koordinator.sh/cpu-reclaim-ratio";
const MEMORY_RATIO: &str = "node.koordinator.sh/memory-reclaim-ratio";
const STRATEGY: &str = "node.koordinator.sh/colocation-strategy";
const BANDWIDTH: &str = "node.koordinator.sh/network-bandwidth";

#[test]
fn threshold_documents() {
    let item = r#"{"clusterStrategy":{"enable":true},"nodeStrategies":["#;
    let pool_a =
        r#"{"name":"a","nodeSelector":{"matchLabels":{"pool":"a"}},"cpuSuppressThresholdPercent":50}"#;
    let pool_again = r#"{"nodeSelector":{"matchLabels":{"pool":"a"}},"cpuSuppressThresholdPercent":40}"#;
    let no_selector = r#"{"cpuSuppressThresholdPercent":50}"#;
    let all = r#"{"nodeSelector":{},"cpuSuppressThresholdPercent":50}"#;
    let bogus = r#"{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Bogus"}]},"cpuSuppressThresholdPercent":50}"#;
    let all_51 = r#"{"nodeSelector":{},"cpuSuppressThresholdPercent":51}"#;
    for (name, document, want) in [
        ("api#10.56", r#"{"clusterStrategy":{"enable":true}}"#.to_owned(), (true, 65, "cpuset")),
        ("api#10.57", format!("{item}{pool_a}]}}"), (true, 50, "cpuset")),
        ("api#10.58", format!("{item}{pool_a},{pool_again}]}}"), (true, 50, "cpuset")),
        ("api#10.58 the other way round", format!("{item}{pool_again},{pool_a}]}}"), (true, 40, "cpuset")),
        ("api#10.59", format!("{item}{no_selector}]}}"), (true, 65, "cpuset")),
        ("api#10.60", format!("{item}{all}]}}"), (true, 50, "cpuset")),
        ("api#10.148", format!("{item}{bogus},{all_51}]}}"), (true, 51, "cpuset")),
        ("api#10.149", format!(r#"{item}{{"nodeSelector":{{}}}}]}}"#), (true, 65, "cpuset")),
        (
            "api#1.2.J1",
            r#"{"clusterStrategy":{"CPUSuppressThresholdPercent":10,"cpuSuppressThresholdPercent":20,"cpusuppressthresholdpercent":30}}"#.to_owned(),
            (false, 30, "cpuset"),
        ),
        (
            "api#1.2.J2",
            r#"{"clusterStrategy":{"cpuSuppressThresholdPercent":20,"CPUSUPPRESSTHRESHOLDPERCENT":30}}"#.to_owned(),
            (false, 30, "cpuset"),
        ),
        (
            "api#1.2.J3",
            r#"{"clusterStrategy":{"enable":true},"clusterStrategy":{"cpuSuppressThresholdPercent":10}}"#.to_owned(),
            (true, 10, "cpuset"),
        ),
        (
            "api#1.2.J4",
            r#"{"clusterStrategy":{"cpuSuppressThresholdPercent":null,"cpuSuppressPolicy":""}}"#.to_owned(),
            (false, 65, "cpuset"),
        ),
        ("api#1.2.J6", "null".to_owned(), (false, 65, "cpuset")),
        ("api#1.2.J8", r#"{"clusterstrategy":{"enable":true}}"#.to_owned(), (true, 65, "cpuset")),
        ("api#1.2.J9", r#"{"enable":true}"#.to_owned(), (false, 65, "cpuset")),
    ] {
        let case = given(&[(THRESHOLD, &document)]).label("pool", "a");
        assert_eq!(case.threshold(), threshold_of(want.0, want.1, want.2), "{name}");
        let bad_selectors = usize::from(name == "api#10.148");
        assert_eq!(case.loaded.events.len(), bad_selectors, "{name}: {:?}", case.loaded.events);
    }
}

#[test]
fn a_broken_key_keeps_its_last_good_value() {
    let good = r#"{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":42}}"#;
    let cluster = |members: &str| format!(r#"{{"clusterStrategy":{{{members}}}}}"#);
    for (name, broken, why) in [
        (
            "api#1.2.J5 fraction",
            cluster(r#""cpuSuppressThresholdPercent":33.0"#),
            "json: cannot unmarshal number 33.0 into Go struct field clusterStrategy.cpuSuppressThresholdPercent of type int64 (at byte 50)",
        ),
        (
            "api#1.2.J5 quoted",
            cluster(r#""cpuSuppressThresholdPercent":"33""#),
            "json: cannot unmarshal string into Go struct field clusterStrategy.cpuSuppressThresholdPercent of type int64 (at byte 50)",
        ),
        ("api#1.2.J7 empty", String::new(), "unexpected end of JSON input"),
        (
            "api#1.2.J7 list",
            "[]".to_owned(),
            "json: cannot unmarshal array into Go value of type object (at byte 0)",
        ),
        (
            "api#1.2.J7 trailing comma",
            cluster(r#""enable":true,"#),
            "invalid character '}' looking for beginning of object key string (at byte 34)",
        ),
        (
            "api#1.2.J7 more text",
            "{} x".to_owned(),
            "invalid character 'x' after top-level value (at byte 3)",
        ),
        ("api#10.64", "{".to_owned(), "unexpected end of JSON input"),
        (
            "in an item",
            r#"{"nodeStrategies":[{},{"enable":1}]}"#.to_owned(),
            "json: cannot unmarshal number 1 into Go struct field nodeStrategies[1].enable of type bool (at byte 32)",
        ),
    ] {
        let case = given(&[(THRESHOLD, good)]);
        let case =
            case.then(&[(THRESHOLD, &broken), (key::CPU_BURST, r#"{"clusterStrategy":{"policy":"auto"}}"#)]);
        assert_eq!(case.threshold(), threshold_of(true, 42, "cpuset"), "{name}");
        let message = format!("failed to unmarshal ThresholdCfg, err: {why}");
        assert_eq!(case.events(), [("SLOCfgUnmarshalFailed", message.as_str())], "{name}");
        assert_eq!(case.loaded.changed, [key::CPU_BURST], "{name}: the other keys apply");
        let burst = case.spec().cpu_burst_strategy.expect("rendered");
        assert_eq!(burst.policy.expect("set").as_str(), "auto", "{name}");
    }
}

#[test]
fn a_key_broken_from_the_start_keeps_the_present_content() {
    let case = given(&[(THRESHOLD, "{"), (QOS, "{"), (SYSTEM, "{"), (key::HOST_APPLICATION, "{")]);
    assert_eq!(case.loaded.events.len(), 4);
    let present: NodeSloSpec = gojson::from_str(
        r#"{"resourceUsedThresholdWithBE":{"enable":true},"hostApplications":[{"name":"nginx"}],"cpuBurstStrategy":{"policy":"auto"}}"#,
    )
    .expect("decodes");
    let spec = case.config.node_slo_spec(case.facts(), Some(&present)).value;
    assert_eq!(spec.resource_used_threshold_with_be, present.resource_used_threshold_with_be);
    assert_eq!(spec.host_applications, present.host_applications);
    assert_eq!(spec.cpu_burst_strategy, Some(defaults::burst()), "this key is readable: absent");
    assert_eq!(case.threshold(), threshold_of(false, 65, "cpuset"), "a new node gets the defaults");
}

#[test]
fn no_keys_at_all() {
    let want = r#"{"resourceUsedThresholdWithBE":{"enable":false,"cpuSuppressThresholdPercent":65,"cpuSuppressPolicy":"cpuset","memoryEvictThresholdPercent":70,"cpuEvictPolicy":"evictByRealLimit"},"resourceQOSStrategy":{},"cpuBurstStrategy":{"policy":"none","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":-1,"sharePoolThresholdPercent":50},"systemStrategy":{"totalNetworkBandwidth":"0"},"extensions":{"Object":{}}}"#;
    assert_eq!(json(&given(&[]).spec()), want, "api#10.147");
    let mut config = SloConfig::default();
    assert_eq!(config.load(None).events, [], "an absent ConfigMap is no reason for an event");
    let (labels, annotations) = (Map::new(), Map::new());
    let node = NodeFacts { labels: &labels, annotations: &annotations };
    assert_eq!(json(&config.node_slo_spec(node, None).value), want);
    let colocation = config.colocation_strategy(node).expect("available").value;
    assert_eq!(colocation, defaults::colocation());
    assert!(config.colocation.has_error());
}

#[test]
fn deletion_gives_the_defaults_and_an_event() {
    let mut case = given(&[(THRESHOLD, r#"{"clusterStrategy":{"enable":true}}"#)]);
    case.loaded = case.config.load(None);
    assert_eq!(case.threshold(), threshold_of(false, 65, "cpuset"));
    assert_eq!(case.events(), [("SLOCfgDeleted", "the ConfigMap was deleted, built-in defaults apply")]);
    assert_eq!(case.loaded.changed, [THRESHOLD]);
}

#[test]
fn qos_documents() {
    let be = |members: &str| format!(r#"{{"clusterStrategy":{{"beClass":{{{members}}}}}}}"#);
    for (name, document, want) in [
        (
            "api#10.61",
            be(r#""resctrlQOS":{"enable":true,"MBAPercent":20}"#),
            r#"{"beClass":{"resctrlQOS":{"enable":true,"mbaPercent":20}}}"#,
        ),
        (
            "api#10.62",
            be(r#""resctrlQOS":{"MBAPercent":20}"#),
            r#"{"beClass":{"resctrlQOS":{"mbaPercent":20}}}"#,
        ),
        (
            "api#10.150",
            be(
                r#""resctrlQoS":{"enable":true},"cpuQoS":{"enable":true},"memoryQoS":{"enable":true},"networkQos":{"enable":true}"#,
            ),
            r#"{"beClass":{"cpuQOS":{"enable":true},"memoryQOS":{"enable":true},"resctrlQOS":{"enable":true},"networkQOS":{"enable":true}}}"#,
        ),
        (
            "api#10.156",
            be(r#""networkQOS":{"ingressRequest":20,"egressRequest":"50M","egressLimit":"20"}"#),
            r#"{"beClass":{"networkQOS":{"ingressRequest":20,"egressRequest":"50M","egressLimit":"20"}}}"#,
        ),
    ] {
        assert_eq!(given(&[(QOS, &document)]).qos(), want, "{name}");
    }

    let fraction = given(&[(QOS, &be(r#""networkQOS":{"ingressRequest":20.5}"#))]);
    assert_eq!(fraction.events()[0].0, "SLOCfgUnmarshalFailed", "api#10.156 a fraction is refused");
    assert!(fraction.config.qos.rules().is_none(), "api#10.156");

    let removed = given(&[(QOS, &be(r#""cpuQOS":{"enable":true}"#))]).then(&[]);
    assert_eq!(removed.qos(), "{}", "api#10.63");
    assert_eq!(removed.loaded.changed, [QOS], "api#10.63");
}

#[test]
fn koordlet_reads_resctrl() {
    for (name, document, want) in [
        ("api#10.61", r#"{"beClass":{"resctrlQOS":{"enable":true,"mbaPercent":20}}}"#, (true, 0, 30, 20)),
        ("api#10.62", r#"{"beClass":{"resctrlQOS":{"mbaPercent":20}}}"#, (false, 0, 100, 100)),
    ] {
        let qos = on_node(document);
        let resctrl = qos.be_class.and_then(|class| class.resctrl_qos).expect("has a default");
        assert_eq!(resctrl, resctrl_of(want.0, want.1, want.2, want.3), "{name}");
    }
}

#[test]
fn blocks_are_replaced_whole() {
    let cluster = r#""clusterStrategy":{"beClass":{"blkioQOS":{"blocks":[{"name":"a","type":"device","ioCfg":{"readIOPS":1,"writeIOPS":2}},{"name":"b"}]}}}"#;
    for (blocks, want) in [
        (r#"[{"name":"c","ioCfg":{"readIOPS":5}}]"#, r#"[{"name":"c","ioCfg":{"readIOPS":5}}]"#),
        ("[]", r#"[{"name":"a","type":"device","ioCfg":{"readIOPS":1,"writeIOPS":2}},{"name":"b"}]"#),
    ] {
        let item = format!(r#"{{"nodeSelector":{{}},"beClass":{{"blkioQOS":{{"blocks":{blocks}}}}}}}"#);
        let case = given(&[(QOS, &format!(r#"{{{cluster},"nodeStrategies":[{item}]}}"#))]);
        assert_eq!(
            case.qos(),
            format!(r#"{{"beClass":{{"blkioQOS":{{"blocks":{want}}}}}}}"#),
            "api#10.155 {blocks}"
        );
    }
}

#[test]
fn system_documents() {
    let cluster = r#"{"clusterStrategy":{"totalNetworkBandwidth":"600M"}}"#;
    let with_item = r#"{"clusterStrategy":{"totalNetworkBandwidth":"600M"},"nodeStrategies":[{"nodeSelector":{},"minFreeKbytesFactor":50}]}"#;
    let features = r#"{"clusterStrategy":{"schedFeatures":{"A":true,"B":true}},"nodeStrategies":[{"nodeSelector":{},"schedFeatures":{"B":false,"C":true}}]}"#;
    for (name, document, annotation, want) in [
        ("api#10.70", cluster, Some("1G"), r#"{"totalNetworkBandwidth":"1G"}"#),
        ("api#10.151", with_item, None, r#"{"minFreeKbytesFactor":50,"totalNetworkBandwidth":"600M"}"#),
        ("api#10.152", cluster, Some("x"), r#"{"totalNetworkBandwidth":"600M"}"#),
        ("api#10.152 empty", cluster, Some(""), r#"{"totalNetworkBandwidth":"600M"}"#),
        (
            "api#10.153 number",
            r#"{"clusterStrategy":{"totalNetworkBandwidth":600000000}}"#,
            None,
            r#"{"totalNetworkBandwidth":"600M"}"#,
        ),
        (
            "api#10.154",
            features,
            None,
            r#"{"schedFeatures":{"A":true,"B":false,"C":true},"totalNetworkBandwidth":"0"}"#,
        ),
    ] {
        let mut case = given(&[(SYSTEM, document)]);
        if let Some(text) = annotation {
            case = case.annotation(BANDWIDTH, text);
        }
        assert_eq!(case.system(), want, "{name}");
        let ignored = case.config.node_slo_spec(case.facts(), None).ignored;
        assert_eq!(ignored.len(), usize::from(name.starts_with("api#10.152")), "{name}");
        assert!(ignored.iter().all(|i| i.reason.starts_with("failed to parse node bandwidth ")), "{name}");
    }

    let case =
        given(&[(SYSTEM, cluster)]).then(&[(SYSTEM, r#"{"clusterStrategy":{"totalNetworkBandwidth":""}}"#)]);
    assert_eq!(case.system(), r#"{"totalNetworkBandwidth":"600M"}"#, "api#10.153 empty: old kept");
    let (reason, message) = case.events()[0];
    assert_eq!(reason, "SLOCfgUnmarshalFailed", "api#10.153 empty");
    assert!(message.starts_with("failed to unmarshal SystemCfg, err: "), "api#10.153 empty: {message}");
}

#[test]
fn system_partial_has_every_field() {
    let full = r#"{"minFreeKbytesFactor":1,"watermarkScaleFactor":2,"memcgReapBackGround":1,"schedGroupIdentityEnabled":1,"schedIdleSaverWmark":3,"schedFeatures":{"A":true},"pageCacheLimitEnabled":1,"totalNetworkBandwidth":"1M"}"#;
    assert_eq!(json(&gojson::from_str::<SystemPartial>(full).expect("decodes")), full);
    assert_eq!(json(&gojson::from_str::<SystemStrategy>(full).expect("decodes")), full);
}

#[test]
fn host_applications_are_replaced() {
    let key = key::HOST_APPLICATION;
    let nginx = r#""applications":[{"name":"nginx"}]"#;
    for (name, item, want) in [
        ("api#10.71 empty list", r#"{"nodeSelector":{},"applications":[]}"#, 0),
        ("api#10.71 no list", r#"{"nodeSelector":{}}"#, 0),
        ("no item matches", r#"{"applications":[]}"#, 1),
        ("an item of its own", r#"{"nodeSelector":{},"applications":[{"name":"a"},{"name":"b"}]}"#, 2),
    ] {
        let case = given(&[(key, &format!(r#"{{{nginx},"nodeConfigs":[{item}]}}"#))]);
        assert_eq!(case.spec().host_applications.len(), want, "{name}");
        assert_eq!(
            json(&case.spec()).contains("hostApplications"),
            want > 0,
            "{name}: the empty list is omitted"
        );
    }
}

#[test]
fn colocation_of_a_node() {
    let reclaim = |text: &str| format!(r#"{{"enable":true,{text}}}"#);
    let item_41 = reclaim(
        r#""cpuReclaimThresholdPercent":50,"nodeConfigs":[{"nodeSelector":{},"cpuReclaimThresholdPercent":40,"memoryReclaimThresholdPercent":41}]"#,
    );
    let case = given(&[(COLOCATION, "{}")])
        .annotation(STRATEGY, r#"{"cpuReclaimThresholdPercent":70}"#)
        .label(CPU_RATIO, "0.85");
    assert_eq!(case.reclaim(), (85, 65), "api#10.67");
    for text in ["-1", "abc"] {
        let case = given(&[(COLOCATION, "{}")]).label(CPU_RATIO, text);
        assert_eq!(case.reclaim(), (60, 65), "api#10.68 {text}");
        let ignored = case.config.colocation_strategy(case.facts()).expect("available").ignored;
        assert_eq!((ignored[0].key, ignored[0].value.as_str()), (CPU_RATIO, text), "api#10.68");
    }
    let case = given(&[(COLOCATION, "{}")]).label(MEMORY_RATIO, "0.999");
    assert_eq!(case.reclaim(), (60, 99), "api#10.69");
    let case = given(&[(COLOCATION, &item_41)])
        .annotation(STRATEGY, r#"{"memoryReclaimThresholdPercent":22}"#)
        .label(CPU_RATIO, "0.3");
    assert_eq!(case.reclaim(), (30, 22), "api#10.164");
    let case = given(&[(COLOCATION, "{}")])
        .annotation(STRATEGY, r#"{"cpuReclaimThresholdPercent":-5,"degradeTimeMinutes":0}"#);
    assert_eq!(case.reclaim(), (60, 65), "api#10.165");
    assert_eq!(case.colocation().degrade_time_minutes, Some(15), "api#10.165");
    let ignored = case.config.colocation_strategy(case.facts()).expect("available").ignored;
    let want =
        "cpuReclaimThresholdPercent is -5, must be at least 0; degradeTimeMinutes is 0, must be at least 1";
    assert_eq!(ignored[0].reason, want, "api#10.165");
    let case = given(&[(COLOCATION, "{}")]).annotation(STRATEGY, "{bad");
    assert_eq!(case.colocation(), defaults::colocation(), "bad JSON is ignored");
}

#[test]
fn ratio_labels() {
    for (text, want) in [
        ("0.29", Some(29)),
        ("0.57", Some(57)),
        ("1.15", Some(115)),
        ("2", Some(200)),
        ("1e-1", Some(10)),
        ("0.005", Some(0)),
        ("", None),
    ] {
        let case = given(&[(COLOCATION, "{}")]).label(MEMORY_RATIO, text);
        assert_eq!(case.reclaim(), (60, want.unwrap_or(65)), "api#10.166 {text:?}");
    }
    for text in ["NaN", "Inf", "-Inf", "-0.1", "80%", "1e300", " 0.5"] {
        assert_eq!(percent_of_ratio(text), None, "{text}");
    }
}

#[test]
fn colocation_that_is_wrong() {
    let good = r#"{"enable":true,"cpuReclaimThresholdPercent":50}"#;
    let negative = r#"{"enable":true,"cpuReclaimThresholdPercent":-1}"#;
    let mid = r#"{"enable":true,"midCPUThresholdPercent":101}"#;
    let durations = r#"{"metricAggregatePolicy":{"durations":[60]}}"#;
    for (name, document, reason) in [
        ("api#10.65", negative, "SLOCfgInvalid"),
        ("api#10.162", mid, "SLOCfgInvalid"),
        ("api#10.163 number", durations, "ColocationCfgUnmarshalFailed"),
        ("broken", "{", "ColocationCfgUnmarshalFailed"),
    ] {
        let case = given(&[(COLOCATION, good)]).then(&[(COLOCATION, document)]);
        assert_eq!(case.reclaim(), (50, 65), "{name}: old config kept");
        assert!(case.config.colocation.has_error(), "{name}");
        assert_eq!(case.events()[0].0, reason, "{name}");
    }
    let case = given(&[(COLOCATION, good)]).then(&[(COLOCATION, "{")]);
    let want = "failed to unmarshal colocation config, err: unexpected end of JSON input";
    assert_eq!(case.events(), [("ColocationCfgUnmarshalFailed", want)]);

    for document in ["{", negative] {
        let case = given(&[(COLOCATION, document)]);
        assert!(case.config.colocation.rules().is_none(), "api#10.161 {document}: not available");
        assert!(case.config.colocation.has_error(), "api#10.161 {document}");
        assert!(case.config.colocation_strategy(case.facts()).is_none(), "api#10.161 {document}");
        assert_eq!(case.metric_policy(None), None, "api#10.161 {document}: controllers idle");
    }

    let item = r#"{"cpuReclaimThresholdPercent":55,"nodeConfigs":[{"name":"x","nodeSelector":{},"cpuReclaimThresholdPercent":40,"degradeTimeMinutes":0}]}"#;
    let case = given(&[(COLOCATION, item)]);
    assert_eq!(case.reclaim(), (55, 65), "api#10.66");
    assert_eq!(case.colocation().degrade_time_minutes, Some(15), "api#10.66");
    let want = r#"colocation-config node item 0 "x": degradeTimeMinutes is 0, must be at least 1"#;
    assert_eq!(case.events(), [("SLOCfgInvalid", want)], "api#10.66");

    for text in ["", "null"] {
        let case = given(&[(COLOCATION, good)]).then(&[(COLOCATION, text)]);
        assert_eq!(case.colocation(), defaults::colocation(), "{text:?} is an empty document");
        assert!(!case.config.colocation.has_error());
    }
}

#[test]
fn metric_policies() {
    let policy = |report: i64, durations: &str| {
        Some(format!(
            r#"{{"aggregateDurationSeconds":300,"reportIntervalSeconds":{report},"nodeAggregatePolicy":{{"durations":[{durations}]}},"nodeMemoryCollectPolicy":"usageWithoutPageCache"}}"#
        ))
    };
    let usual = r#""5m0s","10m0s","30m0s""#;
    for (name, document, want) in [
        (
            "api#10.163 one",
            r#"{"enable":true,"metricAggregatePolicy":{"durations":["1m"]}}"#,
            policy(60, r#""1m0s""#),
        ),
        (
            "api#10.163 four",
            r#"{"enable":true,"metricAggregatePolicy":{"durations":["1m","2m","3m","4m"]}}"#,
            policy(60, r#""1m0s","2m0s","3m0s","4m0s""#),
        ),
        ("api#10.167", r#"{"enable":false,"metricReportIntervalSeconds":20}"#, policy(60, usual)),
        ("enabled", r#"{"enable":true,"metricReportIntervalSeconds":20}"#, policy(20, usual)),
        ("unknown word", r#"{"enable":true,"metricMemoryCollectPolicy":"odd"}"#, policy(60, usual)),
    ] {
        assert_eq!(given(&[(COLOCATION, document)]).metric_policy(None), want, "{name}");
    }
    let stored = MetricCollectPolicy { report_interval_seconds: Some(7), ..MetricCollectPolicy::default() };
    let broken = given(&[(COLOCATION, r#"{"enable":true}"#)]).then(&[(COLOCATION, "{")]);
    assert_eq!(broken.metric_policy(Some(&stored)), None, "api#10.168: nothing is written");
    assert_eq!(broken.metric_policy(None), policy(60, usual), "a new node is still measured");
}

#[test]
fn cpu_normalization_models_are_replaced_whole() {
    let document = r#"{"enable":true,"ratioModel":{"A":{"baseRatio":1.5,"hyperThreadEnabledRatio":1.0},"B":{"baseRatio":2}},"nodeConfigs":[{"nodeSelector":{},"ratioModel":{"A":{"baseRatio":1.8}}}]}"#;
    let case = given(&[(key::CPU_NORMALIZATION, document)]);
    let strategy = case.config.cpu_normalization_strategy(case.facts()).expect("available");
    let want = r#"{"enable":true,"ratioModel":{"A":{"baseRatio":1.8},"B":{"baseRatio":2}}}"#;
    assert_eq!(json(strategy), want, "api#10.72");
    assert_eq!(strategy.ratio("A", false, false), Ok(1.8));
    let error = strategy.ratio("A", true, false).expect_err("no such ratio");
    assert_eq!(error.to_string(), r#"cpu model "A" has no ratio with hyper-threading true, turbo false"#);
    let wild = CpuNormalizationStrategy { default_ratio: Some(5.01), ..strategy.clone() };
    assert!(matches!(wild.ratio("C", true, true), Err(cpu::RatioError::OutOfRange { .. })));
    assert_eq!(CpuNormalizationStrategy::default().ratio("A", true, true), Ok(1.0), "switched off");

    let start = given(&[(key::CPU_NORMALIZATION, "{"), (key::RESOURCE_AMPLIFICATION, "")]);
    assert!(start.config.cpu_normalization_strategy(start.facts()).is_none(), "not available");
    assert!(start.config.amplification_strategy(start.facts()).is_none(), "not available");
    let eof = "unexpected end of JSON input";
    assert_eq!(
        start.events(),
        [
            (
                "CPUNormalizationCfgUnmarshalFailed",
                format!("failed to unmarshal CPUNormalizationCfg, err: {eof}").as_str()
            ),
            (
                "ResourceAmplificationCfgUnmarshalFailed",
                format!("failed to unmarshal amplificationCfg, err: {eof}").as_str()
            ),
        ]
    );
    let later = start.then(&[(
        key::RESOURCE_AMPLIFICATION,
        r#"{"enable":true,"resourceAmplificationRatio":{"cpu":1.5}}"#,
    )]);
    let amplification = later.config.amplification_strategy(later.facts()).expect("available");
    assert_eq!(amplification.resource_amplification_ratio["cpu"], 1.5);
}

fn on_node(qos: &str) -> ResourceQosStrategy {
    let spec = NodeSloSpec {
        resource_qos_strategy: Some(gojson::from_str(qos).expect("decodes")),
        ..NodeSloSpec::default()
    };
    Effective::new(&spec, &[]).qos
}

fn cpu_of(enable: bool, group_identity: i64, sched_idle: i64, core_expeller: bool) -> CpuQos {
    CpuQos {
        enable: Some(enable),
        group_identity: Some(group_identity),
        sched_idle: Some(sched_idle),
        core_expeller: Some(core_expeller),
    }
}

fn resctrl_of(enable: bool, start: i64, end: i64, mba: i64) -> ResctrlQos {
    ResctrlQos {
        enable: Some(enable),
        cat_range_start_percent: Some(start),
        cat_range_end_percent: Some(end),
        mba_percent: Some(mba),
    }
}

fn memory_of(enable: bool, wmark_ratio: i64, wmark_scale_permill: i64, wmark_min_adj: i64) -> MemoryQos {
    let zero = Some(0);
    MemoryQos {
        enable: Some(enable),
        min_limit_percent: zero,
        low_limit_percent: zero,
        throttling_percent: zero,
        wmark_ratio: Some(wmark_ratio),
        wmark_scale_permill: Some(wmark_scale_permill),
        wmark_min_adj: Some(wmark_min_adj),
        priority_enable: zero,
        priority: zero,
        oom_kill_group: zero,
        ..MemoryQos::default()
    }
}

#[test]
fn koordlet_defaults() {
    let qos = on_node("{}");
    for class in [&qos.lsr_class, &qos.ls_class, &qos.be_class, &qos.system_class] {
        let class: &ResourceQos = class.as_ref().expect("has defaults");
        assert_eq!(class.cpu_qos, Some(cpu_of(false, 0, 0, false)), "api#10.157");
        assert_eq!(class.resctrl_qos, Some(resctrl_of(false, 0, 100, 100)), "api#10.157");
        assert_eq!(class.memory_qos, Some(memory_of(false, 0, 50, 0)), "api#10.157");
        assert_eq!(json(&class.blkio_qos), r#"{"enable":false}"#);
        let network =
            r#"{"enable":false,"ingressRequest":0,"ingressLimit":0,"egressRequest":0,"egressLimit":0}"#;
        assert_eq!(json(&class.network_qos), network);
    }
    assert_eq!(json(&qos.policies), r#"{"cpuPolicy":"groupIdentity","netQOSPolicy":"tc"}"#, "api#10.157");
    assert_eq!(json(&qos.cgroup_root), r#"{"blkioQOS":{"enable":false}}"#);
}

#[test]
fn koordlet_class_defaults_when_enabled() {
    let on = r#"{"cpuQOS":{"enable":true},"resctrlQOS":{"enable":true},"memoryQOS":{"enable":true}}"#;
    let qos = on_node(&format!(r#"{{"lsrClass":{on},"lsClass":{on},"beClass":{on},"systemClass":{on}}}"#));
    for (class, cpu, resctrl, memory) in [
        (
            &qos.lsr_class,
            cpu_of(true, 2, 0, true),
            resctrl_of(true, 0, 100, 100),
            memory_of(true, 95, 20, -25),
        ),
        (
            &qos.ls_class,
            cpu_of(true, 2, 0, true),
            resctrl_of(true, 0, 100, 100),
            memory_of(true, 95, 20, -25),
        ),
        (
            &qos.be_class,
            cpu_of(true, -1, 0, false),
            resctrl_of(true, 0, 30, 100),
            memory_of(true, 95, 20, 50),
        ),
        (
            &qos.system_class,
            cpu_of(true, 0, 0, false),
            resctrl_of(true, 0, 100, 100),
            memory_of(true, 0, 50, 0),
        ),
    ] {
        let class = class.as_ref().expect("has defaults");
        assert_eq!(class.cpu_qos, Some(cpu));
        assert_eq!(class.resctrl_qos, Some(resctrl));
        assert_eq!(class.memory_qos, Some(memory));
    }
}

#[test]
fn koordlet_examples() {
    let qos = on_node(r#"{"systemClass":{"memoryQOS":{"wmarkRatio":77},"cpuQOS":{"groupIdentity":1}}}"#);
    let system = qos.system_class.expect("has defaults");
    assert_eq!(system.memory_qos, Some(memory_of(false, 77, 50, 0)), "api#10.158");
    assert_eq!(system.cpu_qos, Some(cpu_of(false, 1, 0, false)), "api#10.158");

    let qos = on_node(
        r#"{"lsrClass":{"cpuQOS":{"enable":false,"groupIdentity":2}},"lsClass":{"memoryQOS":{"enable":true,"wmarkRatio":0}}}"#,
    );
    let lsr = qos.lsr_class.expect("has defaults");
    assert_eq!(lsr.cpu_qos, Some(cpu_of(false, 0, 0, false)), "api#10.159");
    let ls = qos.ls_class.expect("has defaults");
    assert_eq!(ls.memory_qos, Some(memory_of(true, 0, 20, -25)), "api#10.159");

    let qos = on_node(r#"{"beClass":{"networkQOS":{"enable":true,"ingressRequest":20}}}"#);
    let network = qos.be_class.expect("has defaults").network_qos;
    let want = r#"{"enable":true,"ingressRequest":20,"ingressLimit":0,"egressRequest":0,"egressLimit":0}"#;
    assert_eq!(json(&network), want, "api#10.160");
}

/// Spec: api 7.8a.
const SAMPLE: &[(&str, &str)] = &[
    (
        COLOCATION,
        r#"{"enable": true, "cpuReclaimThresholdPercent": 65,
     "nodeConfigs": [{"name": "gpu-pool", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, "cpuReclaimThresholdPercent": 40}]}"#,
    ),
    (
        THRESHOLD,
        r#"{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60},
     "nodeStrategies": [{"name": "gpu-pool", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, "cpuSuppressPolicy": "cfsQuota"}]}"#,
    ),
    (
        QOS,
        r#"{"clusterStrategy": {
       "policies": {"cpuPolicy": "coreSched", "netQOSPolicy": "terway-qos"},
       "lsClass": {"cpuQOS": {"enable": true, "coreExpeller": true, "schedIdle": 0},
                   "networkQOS": {"enable": true, "ingressRequest": "40M", "ingressLimit": "90M", "egressRequest": "40M", "egressLimit": "90M"}},
       "beClass": {"cpuQOS": {"enable": true, "coreExpeller": false, "schedIdle": 1},
                   "resctrlQOS": {"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 50}}}}"#,
    ),
    (key::CPU_BURST, r#"{"clusterStrategy": {"policy": "auto"}}"#),
    (SYSTEM, r#"{"clusterStrategy": {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "600M"}}"#),
    (
        key::HOST_APPLICATION,
        r#"{"applications": [{"name": "dns", "priority": "koord-prod", "qos": "LS",
       "cgroupPath": {"base": "CgroupRoot", "parentDir": "host-ls", "relativePath": "dns"}}]}"#,
    ),
    (
        key::CPU_NORMALIZATION,
        r#"{"enable": true, "ratioModel": {"Some CPU @ 2.50GHz": {"baseRatio": 1.5, "hyperThreadEnabledRatio": 1.0, "turboEnabledRatio": 1.8, "hyperThreadTurboEnabledRatio": 1.2}}}"#,
    ),
];

#[test]
fn sample_config() {
    let case = given(SAMPLE).label("pool", "gpu");
    assert_eq!(case.events(), []);
    assert_eq!(case.reclaim(), (40, 65));
    assert_eq!(case.threshold(), threshold_of(true, 60, "cfsQuota"));
    let spec = case.spec();
    let burst = r#"{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":-1,"sharePoolThresholdPercent":50}"#;
    assert_eq!(json(&spec.cpu_burst_strategy), burst);
    assert_eq!(case.system(), r#"{"minFreeKbytesFactor":100,"totalNetworkBandwidth":"600M"}"#);
    let qos = Effective::new(&spec, &[]).qos;
    assert_eq!(qos.ls_class.expect("has defaults").cpu_qos, Some(cpu_of(true, 2, 0, true)));
    assert_eq!(qos.be_class.expect("has defaults").resctrl_qos, Some(resctrl_of(true, 0, 30, 50)));
}

#[test]
fn every_parameter_names_its_layer() {
    let case = given(SAMPLE)
        .label("pool", "gpu")
        .label(MEMORY_RATIO, "0.5")
        .annotation(STRATEGY, r#"{"degradeTimeMinutes":5}"#)
        .annotation(BANDWIDTH, "1G");
    let all = case.config.explain(case.facts());
    let item = Layer::NodeItem { index: 0, name: "gpu-pool".to_owned() };
    for (key, path, value, layer) in [
        (COLOCATION, "enable", "true", Layer::Cluster),
        (COLOCATION, "metricReportIntervalSeconds", "60", Layer::BuiltIn),
        (COLOCATION, "cpuReclaimThresholdPercent", "40", item.clone()),
        (COLOCATION, "degradeTimeMinutes", "5", Layer::NodeAnnotation(STRATEGY)),
        (COLOCATION, "memoryReclaimThresholdPercent", "50", Layer::NodeLabel(MEMORY_RATIO)),
        (THRESHOLD, "cpuSuppressPolicy", r#""cfsQuota""#, item),
        (QOS, "beClass.resctrlQOS.mbaPercent", "50", Layer::Cluster),
        (SYSTEM, "totalNetworkBandwidth", r#""1G""#, Layer::NodeAnnotation(BANDWIDTH)),
        (SYSTEM, "minFreeKbytesFactor", "100", Layer::Cluster),
        (key::CPU_BURST, "cpuBurstPercent", "1000", Layer::BuiltIn),
    ] {
        let want = Parameter { path: path.to_owned(), value: value.to_owned(), layer };
        assert!(all[key].contains(&want), "{key} {path}: {:?}", all[key]);
    }
}

#[test]
fn equal_specs_are_not_written_again() {
    let qos = r#"{"clusterStrategy":{"beClass":{"networkQOS":{"enable":true,"ingressRequest":20}}}}"#;
    let rendered = given(&[(QOS, qos)]).spec();
    let text = json(&rendered)
        .replace(
            r#""ingressRequest":20"#,
            r#""ingressRequest":20,"ingressLimit":100,"egressRequest":0,"egressLimit":100"#,
        )
        .replace(r#","extensions":{"Object":{}}"#, "");
    let stored: NodeSloSpec = serde_json::from_str(&text).expect("decodes");
    assert!(same_node_slo(&rendered, &stored));
    let other = given(&[(QOS, &qos.replace("20", "21"))]).spec();
    assert!(!same_node_slo(&other, &stored));
}

#[test]
fn extensions_of_third_parties() {
    let mut config = SloConfig::with_extensions(["vendor".to_owned()]);
    let document = r#"{"clusterStrategy":{"a":1},"nodeStrategies":[{"nodeSelector":{"matchLabels":{"pool":"x"}},"NodeStrategy":[2]}]}"#;
    assert_eq!(config.load(Some(&map(&[("vendor", document)]))).events, []);
    let annotations = Map::new();
    for (labels, want) in [(map(&[]), r#"{"a":1}"#), (map(&[("pool", "x")]), "[2]")] {
        let node = NodeFacts { labels: &labels, annotations: &annotations };
        let spec = config.node_slo_spec(node, None).value;
        assert_eq!(json(&spec.extensions), format!(r#"{{"Object":{{"vendor":{want}}}}}"#));
        let known = Effective::new(&spec, &["vendor", "other"]).extensions;
        assert_eq!(json(&known), format!(r#"{{"vendor":{want}}}"#));
    }
    let loaded = config.load(Some(&map(&[("vendor", "{")])));
    assert_eq!(loaded.events[0].message, "failed to unmarshal vendor, err: unexpected end of JSON input");
}
