//! The worked examples of manager 4.4.

use std::collections::BTreeMap;

use koord_api::slo::key::{CPU_BURST, HOST_APPLICATION, RESOURCE_QOS, RESOURCE_THRESHOLD, SYSTEM};
use serde_json::{Value, json};

use super::*;

const BANDWIDTH: &str = "node.koordinator.sh/network-bandwidth";

/// A process that has seen ConfigMaps, and a node.
#[derive(Default)]
struct Case {
    config: SloConfig,
    data: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    events: Vec<String>,
}

impl Case {
    /// With a ConfigMap of these documents.
    fn new(documents: &[(&str, Value)]) -> Case {
        let texts: Vec<(&str, String)> =
            documents.iter().map(|(key, document)| (*key, document.to_string())).collect();
        let texts: Vec<(&str, Option<&str>)> =
            texts.iter().map(|(key, text)| (*key, Some(text.as_str()))).collect();
        Case::default().then(&texts)
    }

    /// Keys of the ConfigMap change; `None` takes one away.
    fn then(mut self, changes: &[(&str, Option<&str>)]) -> Case {
        for (key, text) in changes {
            match text {
                Some(text) => _ = self.data.insert((*key).to_owned(), (*text).to_owned()),
                None => _ = self.data.remove(*key),
            }
        }
        let loaded = self.config.load(Some(&self.data));
        self.events =
            loaded.events.into_iter().map(|event| format!("{}: {}", event.reason, event.message)).collect();
        self
    }

    fn label(mut self, key: &str, value: &str) -> Case {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    fn annotation(mut self, key: &str, value: &str) -> Case {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    fn facts(&self) -> NodeFacts<'_> {
        NodeFacts { labels: &self.labels, annotations: &self.annotations }
    }

    /// The spec that a node without NodeSLO gets.
    fn spec(&self) -> Value {
        match plan(&self.config, Some(self.facts()), None) {
            (Plan::Create(spec), _) => json!(spec),
            other => panic!("{other:?}"),
        }
    }

    fn threshold(&self) -> Value {
        self.spec()["resourceUsedThresholdWithBE"].clone()
    }
}

fn threshold(enable: bool) -> Value {
    json!({"enable": enable, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70, "cpuEvictPolicy": "evictByRealLimit"})
}

fn burst() -> Value {
    json!({"policy": "none", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1, "sharePoolThresholdPercent": 50})
}

fn with(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    value
}

#[test]
fn thresholds() {
    let chart = json!({"clusterStrategy": {"enable": true}});
    assert_eq!(Case::new(&[(RESOURCE_THRESHOLD, chart)]).threshold(), threshold(true), "manager#4.4.S1");
    let pool_a = json!({"clusterStrategy": {"enable": true}, "nodeStrategies":
        [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuEvictBEUsageThresholdPercent": 80}]});
    let of_pool =
        |pool: &str| Case::new(&[(RESOURCE_THRESHOLD, pool_a.clone())]).label("pool", pool).threshold();
    let want = with(threshold(true), json!({"cpuEvictBEUsageThresholdPercent": 80}));
    assert_eq!(of_pool("a"), want, "manager#4.4.S2");
    assert_eq!(of_pool("b"), threshold(true), "manager#4.4.S3");
    let both = json!({"nodeStrategies": [{"nodeSelector": {}, "cpuSuppressThresholdPercent": 1},
        {"nodeSelector": {}, "cpuSuppressThresholdPercent": 2}]});
    let found = Case::new(&[(RESOURCE_THRESHOLD, both)]).threshold();
    assert_eq!(found["cpuSuppressThresholdPercent"], 1, "manager#4.4.S5");
    let zeros = json!({"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}, "nodeStrategies":
        [{"nodeSelector": {}, "enable": false, "cpuSuppressPolicy": "", "cpuSuppressThresholdPercent": 0}]});
    let want =
        with(threshold(false), json!({"cpuSuppressThresholdPercent": 0, "cpuSuppressPolicy": "cfsQuota"}));
    assert_eq!(Case::new(&[(RESOURCE_THRESHOLD, zeros)]).threshold(), want, "manager#4.4.S14");
}

#[test]
fn a_broken_key_keeps_its_last_good_value() {
    let good = json!({"clusterStrategy": {"policy": "auto"}});
    let auto = with(burst(), json!({"policy": "auto"}));
    let case = || Case::new(&[(CPU_BURST, good.clone())]);
    let also = (RESOURCE_THRESHOLD, Some(r#"{"clusterStrategy":{"enable":true}}"#));
    let broken = case().then(&[(CPU_BURST, Some("{bad")), also]);
    assert_eq!(broken.spec()["cpuBurstStrategy"], auto, "manager#4.4.S6");
    assert_eq!(broken.threshold(), threshold(true), "manager#4.4.S6: other keys are updated");
    assert_eq!(broken.events.len(), 1);
    assert!(
        broken.events[0].starts_with("SLOCfgUnmarshalFailed: failed to unmarshal CPUBurstCfg, err: "),
        "{:?}",
        broken.events
    );
    let emptied = case().then(&[(CPU_BURST, Some(""))]);
    assert_eq!(emptied.spec()["cpuBurstStrategy"], auto, "manager#4.4.S10");
    assert_eq!(
        emptied.events,
        ["SLOCfgUnmarshalFailed: failed to unmarshal CPUBurstCfg, err: unexpected end of JSON input"],
        "manager#4.4.S10"
    );
    let removed = case().then(&[(CPU_BURST, None)]);
    assert_eq!(removed.spec()["cpuBurstStrategy"], burst(), "manager#4.4.S11");
    assert!(removed.events.is_empty());
    let typed =
        Case::new(&[(RESOURCE_THRESHOLD, json!({"clusterStrategy": {"cpuSuppressThresholdPercent": 50}}))])
            .then(&[(RESOURCE_THRESHOLD, Some(r#"{"clusterStrategy":{"enable":"yes"}}"#))]);
    assert_eq!(typed.threshold()["cpuSuppressThresholdPercent"], 50, "manager#4.4.S17");
    assert!(
        typed.events[0].starts_with("SLOCfgUnmarshalFailed: failed to unmarshal ThresholdCfg, err: "),
        "{:?}",
        typed.events
    );
}

#[test]
fn selectors_that_cannot_be_read_or_are_absent_match_nothing() {
    let document = json!({"nodeStrategies": [
        {"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Bad"}]}, "cpuBurstPercent": 1},
        {"cpuBurstPercent": 2},
        {"nodeSelector": {}, "cpuBurstPercent": 3}]});
    let found = Case::new(&[(CPU_BURST, document)]).spec();
    assert_eq!(found["cpuBurstStrategy"]["cpuBurstPercent"], 3, "manager#4.4.S12");
}

#[test]
fn qos_strategies() {
    let qos = |document: Value| Case::new(&[(RESOURCE_QOS, document)]).spec()["resourceQOSStrategy"].clone();
    let merged = qos(json!({
        "clusterStrategy": {"beClass": {"memoryQOS": {"wmarkRatio": 95, "enable": true}, "cpuQOS": {"enable": true}}},
        "nodeStrategies": [{"nodeSelector": {}, "beClass": {"memoryQOS": {"wmarkRatio": 90}}}]}));
    let want =
        json!({"beClass": {"memoryQOS": {"wmarkRatio": 90, "enable": true}, "cpuQOS": {"enable": true}}});
    assert_eq!(merged, want, "manager#4.4.S4");
    let blocks = qos(json!({
        "clusterStrategy": {"beClass": {"blkioQOS": {"blocks": [
            {"name": "a", "type": "device", "ioCfg": {"readIOPS": 100, "writeIOPS": 5}}, {"name": "b"}]}}},
        "nodeStrategies": [{"nodeSelector": {},
            "beClass": {"blkioQOS": {"blocks": [{"name": "c", "ioCfg": {"readIOPS": 7}}]}}}]}));
    assert_eq!(
        blocks["beClass"]["blkioQOS"]["blocks"],
        json!([{"name": "c", "ioCfg": {"readIOPS": 7}}]),
        "manager#4.4.S13 manager#26.DB-5"
    );
    let cased =
        qos(json!({"clusterStrategy": {"BEClass": {"ResctrlQOS": {"Enable": true, "MBAPercent": 50}}}}));
    assert_eq!(
        cased,
        json!({"beClass": {"resctrlQOS": {"enable": true, "mbaPercent": 50}}}),
        "manager#4.4.S15"
    );
}

#[test]
fn system_strategies() {
    let cluster = || json!({"clusterStrategy": {"totalNetworkBandwidth": "600M"}});
    let system = |case: &Case| case.spec()["systemStrategy"].clone();
    let annotated = Case::new(&[(SYSTEM, cluster())]).annotation(BANDWIDTH, "1000M");
    assert_eq!(system(&annotated), json!({"totalNetworkBandwidth": "1G"}), "manager#4.4.S7");
    let item =
        with(cluster(), json!({"nodeStrategies": [{"nodeSelector": {}, "watermarkScaleFactor": 200}]}));
    let want = json!({"totalNetworkBandwidth": "600M", "watermarkScaleFactor": 200});
    assert_eq!(system(&Case::new(&[(SYSTEM, item)])), want, "manager#4.4.S9 manager#26.DB-4");
    let features = json!({"clusterStrategy": {"schedFeatures": {"A": true, "B": true}},
        "nodeStrategies": [{"nodeSelector": {}, "schedFeatures": {"B": false, "C": true}}]});
    let found = system(&Case::new(&[(SYSTEM, features)]));
    assert_eq!(found["schedFeatures"], json!({"A": true, "B": false, "C": true}), "manager#4.4.S16");
    let odd = Case::new(&[(SYSTEM, cluster())]).annotation(BANDWIDTH, "oops");
    assert_eq!(system(&odd), json!({"totalNetworkBandwidth": "600M"}), "manager#4.4.S18 manager#26.DB-26");
    let (_, ignored) = plan(&odd.config, Some(odd.facts()), None);
    assert_eq!((ignored[0].key, ignored[0].value.as_str()), (BANDWIDTH, "oops"), "manager#26.DB-26");
}

#[test]
fn host_applications_are_replaced() {
    let document = json!({"applications": [{"name": "nginx"}],
        "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "applications": []}]});
    let case = || Case::new(&[(HOST_APPLICATION, document.clone())]);
    assert_eq!(case().spec()["hostApplications"], json!([{"name": "nginx"}]));
    let replaced = case().label("pool", "a").spec();
    assert_eq!(replaced.get("hostApplications"), None, "manager#4.4.S8");
}

#[test]
fn without_config_map_everything_has_its_default() {
    let mut case = Case::default();
    let nothing = plan(&case.config, Some(case.facts()), None);
    assert_eq!(nothing, (Plan::Nothing, Vec::new()), "before anything is known");
    case.config.load(None);
    let want = json!({"resourceUsedThresholdWithBE": threshold(false), "resourceQOSStrategy": {},
        "cpuBurstStrategy": burst(), "systemStrategy": {"totalNetworkBandwidth": "0"}, "extensions": {}});
    assert_eq!(case.spec(), want, "manager#4.4.S20");
}

#[test]
fn what_is_as_it_should_be_is_not_written() {
    let case = Case::new(&[(RESOURCE_THRESHOLD, json!({"clusterStrategy": {"enable": true}}))]);
    let stored = |spec: Value| serde_json::from_value::<NodeSloSpec>(spec).unwrap();
    let plan_over = |spec: &NodeSloSpec| plan(&case.config, Some(case.facts()), Some(Some(spec))).0;
    let same = stored(case.spec());
    assert_eq!(plan_over(&same), Plan::Nothing, "manager#4.4.S19 manager#26.DB-31");
    // As upstream has written it.
    let upstream = stored(with(case.spec(), json!({"extensions": {"Object": {}}})));
    assert_eq!(plan_over(&upstream), Plan::Nothing, "manager#26.DB-31");
    let other =
        stored(with(case.spec(), json!({"cpuBurstStrategy": with(burst(), json!({"policy": "auto"}))})));
    assert_eq!(plan_over(&other), Plan::Update(same.clone()));
    assert_eq!(plan(&case.config, Some(case.facts()), Some(None)).0, Plan::Update(same.clone()));
    assert_eq!(plan(&case.config, None, Some(Some(&same))).0, Plan::Delete);
    assert_eq!(plan(&case.config, None, None).0, Plan::Nothing);
}
