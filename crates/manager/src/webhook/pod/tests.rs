//! The worked examples of manager 15, each through a whole review: request in, patch out, patch applied.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::gate::{Component, Gates};
use koord_api::keys::pod::annotation::EXTENDED_RESOURCE_SPEC;
use koord_api::keys::pod::label::{PRIORITY, PRIORITY_CLASS, QOS_CLASS};
use koord_api::keys::profile::annotation::SKIP_UPDATE_RESOURCES;
use koord_api::keys::quota::annotation::NAMESPACES;
use koord_api::keys::quota::label::TREE_ID;
use koord_api::keys::resource::{
    BATCH_CPU, BATCH_MEMORY, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, MID_CPU, MID_MEMORY,
};
use koord_api::patch::json;
use koord_api::rewrite::profile::{PriorityClassFacts, Profiles};
use serde_json::json;

use super::*;
use crate::webhook::facts::QuotaTrees;
use crate::webhook::review::{Resource, Verdict, encode};

/// A cluster, a throw of the dice, and pods that come.
struct Lab {
    facts: Facts,
    dice: i64,
}

impl Lab {
    fn new(profiles: &[(&str, Value)]) -> Lab {
        let mut facts = Facts::default();
        let preempt = Some("PreemptLowerPriority".to_owned());
        facts.priority_classes = [
            ("koord-batch", 5000, preempt.clone()),
            ("koord-mid", 7000, preempt.clone()),
            ("koord-free", 3000, preempt),
            ("plain", 5000, None),
        ]
        .into_iter()
        .map(|(name, value, preemption_policy)| {
            (name.to_owned(), PriorityClassFacts { value, preemption_policy })
        })
        .collect::<std::collections::BTreeMap<_, _>>()
        .into();
        let profiles: Vec<ClusterColocationProfile> = profiles
            .iter()
            .map(|(name, profile)| {
                let mut profile = profile.clone();
                let annotations = profile.as_object_mut().unwrap().remove("annotations of the profile");
                let metadata = json!({"name": name, "annotations": annotations});
                serde_json::from_value(json!({"metadata": metadata, "spec": profile})).unwrap()
            })
            .collect();
        facts.profiles = Profiles::new(&profiles).into();
        Lab { facts, dice: 0 }
    }

    fn gates(mut self, text: &str) -> Lab {
        self.facts.gates = Gates::parse(Component::Manager, text).unwrap().into();
        self
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut aside = Aside { dice: &mut || self.dice, step: &mut |_, _| () };
        mutate(request, &self.facts, &mut aside)
    }

    /// The pod as the API server has it afterwards, or code and text of the denial.
    fn create(&self, pod: Value) -> Result<Value, (u16, String)> {
        let request = created(pod);
        let answer = self.answer(&request);
        if let Verdict::Denied(denial) = answer.verdict {
            return Err((denial.code, denial.message));
        }
        let told: Value = serde_json::from_slice(&encode(&request, &answer)).unwrap();
        let patch = told["response"]["patch"].as_str().map(|patch| STANDARD.decode(patch).unwrap());
        Ok(match patch {
            Some(patch) => json::apply(request.object, &patch).unwrap(),
            None => request.object,
        })
    }

    #[track_caller]
    fn becomes(&self, key: &str, pod: Value, want: Value) {
        assert_eq!(self.create(pod), Ok(want), "{key}");
    }

    #[track_caller]
    fn denies(&self, key: &str, pod: Value, code: u16, text: &str) {
        let (found, message) = self.create(pod).expect_err(key);
        assert_eq!(found, code, "{key}");
        assert!(message.starts_with(text), "{key}: {message}");
    }
}

fn created(pod: Value) -> Request {
    Request {
        resource: Resource { resource: "pods".into(), version: "v1".into(), ..Resource::default() },
        namespace: "shop".into(),
        object: pod,
        ..Request::default()
    }
}

/// A pod with one container `main`.
fn pod(labels: Value, requests: Value, limits: Value) -> Value {
    let mut resources = json!({});
    for (side, list) in [("requests", requests), ("limits", limits)] {
        if list != json!({}) {
            resources[side] = list;
        }
    }
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "resources": resources}]}});
    if labels != json!({}) {
        pod["metadata"]["labels"] = labels;
    }
    pod
}

fn batch_pod(requests: Value, limits: Value) -> Value {
    let mut pod = pod(json!({}), requests, limits);
    pod["spec"]["priority"] = json!(5000);
    pod
}

/// Requests and limits of the first container.
fn amounts(pod: &Value) -> (Value, Value) {
    let resources = &pod["spec"]["containers"][0]["resources"];
    (resources["requests"].clone(), resources["limits"].clone())
}

fn any() -> Lab {
    Lab::new(&[("any", json!({}))])
}

#[test]
fn the_example() {
    let lab = Lab::new(&[(
        "colocation",
        json!({"qosClass": "BE", "priorityClassName": "koord-batch", "koordinatorPriority": 1000,
               "schedulerName": "koord-scheduler"}),
    )]);
    let mut given =
        pod(json!({}), json!({"cpu": "500m", "memory": "1Gi"}), json!({"cpu": "2", "memory": "4Gi"}));
    given["spec"]["containers"][0]["futureField"] = json!({"x": [1]});
    let record = r#"{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"}}}}"#;
    let want = json!({
        "metadata": {"name": "p", "labels": {QOS_CLASS: "BE", PRIORITY: "1000"},
            "annotations": {EXTENDED_RESOURCE_SPEC: record}},
        "spec": {"schedulerName": "koord-scheduler", "priorityClassName": "koord-batch", "priority": 5000,
            "preemptionPolicy": "PreemptLowerPriority",
            "containers": [{"name": "main", "futureField": {"x": [1]}, "resources": {
                "requests": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"},
                "limits": {BATCH_CPU: "2k", BATCH_MEMORY: "4Gi"}}}]},
    });
    lab.becomes("manager 15.2 PX1", given.clone(), want);
    assert_eq!(lab.answer(&created(given)).audit, [("profiles", "colocation".to_owned())].into());
}

#[test]
fn resources_that_move() {
    let lab = any();
    let two = |requests: Value, limits: Value| (requests, limits);
    for (key, given, want) in [
        (
            "manager#15.2.P2",
            batch_pod(json!({"cpu": "0.1234"}), json!({})),
            two(json!({BATCH_CPU: "124"}), json!(null)),
        ),
        (
            "manager#15.2.P3",
            batch_pod(json!({}), json!({"cpu": "1"})),
            two(json!({BATCH_CPU: "1k"}), json!({BATCH_CPU: "1k"})),
        ),
        (
            "manager#15.2.P8",
            pod(json!({PRIORITY_CLASS: "koord-mid"}), json!({"cpu": "1", "memory": "1Gi"}), json!({})),
            two(json!({MID_CPU: "1k", MID_MEMORY: "1Gi"}), json!(null)),
        ),
        (
            "manager#15.2.P9",
            pod(json!({PRIORITY_CLASS: "koord-free"}), json!({"cpu": "1"}), json!({})),
            two(json!({"cpu": "1"}), json!(null)),
        ),
        (
            "manager#15.2.P14",
            pod(json!({QOS_CLASS: "BE"}), json!({"cpu": "500m"}), json!({})),
            two(json!({BATCH_CPU: "500"}), json!(null)),
        ),
        (
            "manager#15.2.P14, Burstable without the label",
            pod(json!({}), json!({"cpu": "500m"}), json!({})),
            two(json!({"cpu": "500m"}), json!(null)),
        ),
        (
            "manager#15.2.P17",
            batch_pod(json!({"cpu": "1", BATCH_CPU: "7"}), json!({"cpu": "2"})),
            two(json!({BATCH_CPU: "1k"}), json!({BATCH_CPU: "2k"})),
        ),
        (
            "manager#15.2.P28",
            batch_pod(json!({"memory": "1Gi"}), json!({"cpu": "2", "memory": "2Gi"})),
            two(json!({BATCH_CPU: "2k", BATCH_MEMORY: "1Gi"}), json!({BATCH_CPU: "2k", BATCH_MEMORY: "2Gi"})),
        ),
    ] {
        assert_eq!(amounts(&lab.create(given).unwrap()), want, "{key}");
    }
    let be = pod(json!({QOS_CLASS: "BE"}), json!({"cpu": "1"}), json!({}));
    Lab::new(&[]).becomes("manager#15.2.P1", be.clone(), be.clone());
    let gated = any().gates("ColocationProfileSkipMutatingResources=true");
    gated.becomes("switched off", be.clone(), be);
}

#[test]
fn overhead_and_init_containers() {
    let mut given = batch_pod(json!({}), json!({}));
    given["spec"]["overhead"] = json!({"cpu": "1", "memory": "2Gi"});
    let got = any().create(given).unwrap();
    assert_eq!(got["spec"]["overhead"], json!({BATCH_CPU: "1k", BATCH_MEMORY: "2Gi"}), "manager#15.2.P12");

    let mut given = batch_pod(json!({}), json!({}));
    given["spec"]["initContainers"] =
        json!([{"name": "init", "resources": {"limits": {"cpu": "1", "memory": "1.5Gi"}}}]);
    let got = any().create(given).unwrap();
    let moved = json!({BATCH_CPU: "1k", BATCH_MEMORY: "1536Mi"});
    let want = json!({"limits": moved, "requests": moved});
    assert_eq!(got["spec"]["initContainers"][0]["resources"], want, "manager#15.2.P18");
    assert_eq!(got["metadata"].get("annotations"), None, "manager#15.2.P18");
}

#[test]
fn several_profiles() {
    let labels = |pod: Result<Value, (u16, String)>| pod.unwrap()["metadata"]["labels"].take();
    let plain = || pod(json!({}), json!({}), json!({}));
    let lab = Lab::new(&[("b", json!({"labels": {"x": "2"}})), ("a", json!({"labels": {"x": "1"}}))]);
    assert_eq!(labels(lab.create(plain())), json!({"x": "2"}), "manager#15.2.P4");

    let lab = Lab::new(&[
        ("a", json!({"labels": {"y": "1"}})),
        ("b", json!({"selector": {"matchLabels": {"y": "1"}}, "labels": {"z": "1"}})),
    ]);
    assert_eq!(labels(lab.create(plain())), json!({"y": "1"}), "manager#15.2.P31");

    let lab = Lab::new(&[("a", json!({"labelKeysMapping": {"src": "dst"}}))]);
    assert_eq!(labels(lab.create(plain())), json!({"dst": ""}), "manager#15.2.P6");
    let lab = Lab::new(&[(
        "a",
        json!({"labels": {"src": "w"}, "labelKeysMapping": {"src": "dst"}, "labelSuffixes": {"dst": "-s"}}),
    )]);
    let got = labels(lab.create(pod(json!({"src": "v"}), json!({}), json!({}))));
    assert_eq!(got, json!({"src": "w", "dst": "w-s"}), "manager#15.2.P22");
}

#[test]
fn when_resources_stay() {
    let batch = || batch_pod(json!({"cpu": "1"}), json!({}));
    let moved = (json!({BATCH_CPU: "1k"}), json!(null));
    let kept = (json!({"cpu": "1"}), json!(null));
    let skip = |value: &str| json!({SKIP_UPDATE_RESOURCES: value});
    for (key, profiles, want) in [
        ("manager#15.2.P5", vec![("a", json!({"probability": 0, "labels": {"x": "1"}}))], &moved),
        (
            "manager#15.2.P10",
            vec![("a", json!({"labels": {"x": "1"}, "annotations of the profile": skip("")}))],
            &kept,
        ),
        (
            "manager#15.2.P24",
            vec![("a", json!({"labels": {"x": "1"}, "annotations of the profile": skip("false")}))],
            &kept,
        ),
        (
            "manager#15.2.P23",
            vec![
                ("b", json!({"priorityClassName": "koord-batch", "labels": {"x": "1"}})),
                ("x", json!({"probability": 0, "annotations of the profile": skip("")})),
            ],
            &kept,
        ),
    ] {
        let got = Lab::new(&profiles).create(batch()).unwrap();
        assert_eq!(&amounts(&got), want, "{key}");
        let is_labelled = got.pointer("/metadata/labels/x").is_some();
        assert_eq!(is_labelled, key != "manager#15.2.P5", "{key}");
        assert_eq!(got["spec"].get("priorityClassName").is_some(), key == "manager#15.2.P23", "{key}");
    }
}

#[test]
fn chance() {
    for (probability, want) in [
        (json!(1), 1),
        (json!(50), 50),
        (json!(99), 99),
        (json!(150), 100),
        (json!(-5), 0),
        (json!("50%"), 50),
    ] {
        let mut lab = Lab::new(&[("a", json!({"probability": probability, "labels": {"x": "1"}}))]);
        let mut count = 0;
        for dice in 0..100 {
            lab.dice = dice;
            let got = lab.create(pod(json!({}), json!({}), json!({}))).unwrap();
            count += usize::from(got["metadata"].get("labels").is_some());
        }
        assert_eq!(count, want, "manager#15.2.P30, manager#26.DB-6: {probability}");
    }
}

#[test]
fn broken_profiles_harm_only_whom_they_select() {
    let chosen = || pod(json!({"app": "web"}), json!({}), json!({}));
    let other = || pod(json!({"app": "db"}), json!({}), json!({}));
    let web = |mut profile: Value| {
        profile["selector"] = json!({"matchLabels": {"app": "web"}});
        profile
    };
    for (key, profile, text) in [
        (
            "manager#15.2.P7",
            json!({"priorityClassName": "nope"}),
            "PriorityClass.scheduling.k8s.io \"nope\" not found",
        ),
        (
            "manager#15.2.P15",
            json!({"probability": "abc"}),
            "invalid value for IntOrString: invalid type: string is not a percentage",
        ),
        ("manager#15.2.P21", json!({"patch": {"spec": {"containers": "bad"}}}), "profile broken: "),
    ] {
        let lab = Lab::new(&[("broken", web(profile))]);
        lab.denies(key, chosen(), 500, text);
        lab.becomes(key, other(), other());
        let complaints = lab.answer(&created(chosen())).complaints;
        assert_eq!(complaints[0].profile, "broken", "{key}: the owner of the profile hears of it");
        assert!(complaints[0].text.starts_with("pod shop/p was denied: "), "{key}: {complaints:?}");
    }
    let bad =
        json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}, "labels": {"x": "1"}});
    let lab = Lab::new(&[("broken", bad), ("fine", json!({"labels": {"y": "1"}}))]);
    let got = lab.create(chosen()).unwrap();
    let want = json!({"app": "web", "y": "1"});
    assert_eq!(got["metadata"]["labels"], want, "manager#15.2.P16, manager#26.DB-7");
    let namespaced = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "labels": {"x": "1"}});
    let mut lab = Lab::new(&[("a", namespaced)]);
    lab.becomes("manager#26.DB-7, an unknown namespace", other(), other());
    let labels = [("team".to_owned(), "a".to_owned())].into();
    lab.facts.namespaces = std::sync::Arc::new([("shop".to_owned(), std::sync::Arc::new(labels))].into());
    let got = lab.create(other()).unwrap();
    assert_eq!(got["metadata"]["labels"]["x"], json!("1"), "the namespace of the request counts");
    assert_eq!(got["metadata"].get("namespace"), None, "and is not written into the pod");
}

#[test]
fn patches_of_profiles() {
    let with_patch = |patch: Value| Lab::new(&[("a", json!({"patch": patch}))]);
    let got = with_patch(json!({"spec": {"terminationGracePeriodSeconds": 30}}));
    let got = got.create(pod(json!({}), json!({}), json!({}))).unwrap();
    assert_eq!(got["spec"]["terminationGracePeriodSeconds"], json!(30), "manager#15.2.P11");

    let patch = json!({"metadata": {"labels": {"a": null}}, "spec": {"containers": [{"name": "side", "image": "s"}]}});
    let got = with_patch(patch).create(pod(json!({"a": "1"}), json!({}), json!({}))).unwrap();
    assert_eq!(got["metadata"]["labels"], json!({}), "manager#15.2.P19");
    let names: Vec<&Value> =
        got["spec"]["containers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, [&json!("side"), &json!("main")], "manager#15.2.P19");

    let lab =
        Lab::new(&[("a", json!({"qosClass": "BE", "patch": {"metadata": {"labels": {QOS_CLASS: "LS"}}}}))]);
    let got = lab.create(pod(json!({}), json!({"cpu": "500m"}), json!({}))).unwrap();
    assert_eq!(got["metadata"]["labels"], json!({QOS_CLASS: "LS"}), "manager#15.2.P20");
    assert_eq!(amounts(&got).0, json!({"cpu": "500m"}), "manager#15.2.P20");

    let lab = Lab::new(&[("a", json!({"priorityClassName": "plain"}))]);
    let mut given = pod(json!({}), json!({}), json!({}));
    given["spec"]["preemptionPolicy"] = json!("PreemptLowerPriority");
    let got = lab.create(given).unwrap();
    assert_eq!(got["spec"].get("preemptionPolicy"), None, "manager#15.2.P29");
    assert_eq!(got["spec"]["priority"], json!(5000), "manager#15.2.P29");
    assert_eq!(got["spec"]["priorityClassName"], json!("plain"), "manager#15.2.P29");
}

#[test]
fn the_record_for_the_node() {
    let recorded = |record: &str| {
        let mut pod = batch_pod(json!({BATCH_CPU: "1k"}), json!({}));
        pod["metadata"]["annotations"] = json!({EXTENDED_RESOURCE_SPEC: record});
        pod
    };
    let right = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}"#;
    Lab::new(&[]).becomes("manager#15.2.P27", recorded(right), recorded(right));
    let request = created(recorded(right));
    let told = encode(&request, &Lab::new(&[]).answer(&request));
    assert!(!String::from_utf8(told).unwrap().contains("patch"), "manager#15.2.P27");

    let mut stale = pod(json!({}), json!({"cpu": "1"}), json!({}));
    stale["metadata"]["annotations"] = json!({EXTENDED_RESOURCE_SPEC: right.replace("main", "other")});
    let got = Lab::new(&[]).create(stale).unwrap();
    assert_eq!(got["metadata"]["annotations"][EXTENDED_RESOURCE_SPEC], json!("{}"), "manager#15.2.P25");

    let text = "failed to get current extended resource spec, err: invalid character 'o'";
    Lab::new(&[]).denies("manager#15.2.P26", recorded("oops"), 500, text);
    let off = Lab::new(&[]).gates("DisableExtendedResourceSpec=true");
    off.becomes("switched off", recorded("oops"), recorded("oops"));

    let mid = || pod(json!({}), json!({MID_CPU: "5"}), json!({}));
    Lab::new(&[]).becomes("manager#26.DB-8, as upstream", mid(), mid());
    let got = Lab::new(&[]).gates("ExtendedResourceSpecMid=true").create(mid()).unwrap();
    let want = r#"{"containers":{"main":{"requests":{"kubernetes.io/mid-cpu":"5"}}}}"#;
    assert_eq!(got["metadata"]["annotations"][EXTENDED_RESOURCE_SPEC], json!(want), "manager#26.DB-8");
}

#[test]
fn nodes_of_a_quota_tree() {
    let quota: ElasticQuota = serde_json::from_value(json!({"metadata": {"name": "q",
        "labels": {TREE_ID: "t"}, "annotations": {NAMESPACES: "[\"shop\"]"}}}))
    .unwrap();
    let profile: ElasticQuotaProfile = serde_json::from_value(json!({"metadata": {"labels": {TREE_ID: "t"}},
        "spec": {"nodeSelector": {"matchLabels": {"pool": "a"}}}}))
    .unwrap();
    let mut lab = Lab::new(&[]).gates("MultiQuotaTree=true");
    lab.facts.quota_trees = QuotaTrees::new([&quota], [&profile]).into();
    let plain = || pod(json!({}), json!({}), json!({}));
    let got = lab.create(plain()).unwrap();
    let terms = json!([{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]);
    let required = &got["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"], terms);
    lab.gates("").becomes("off by default", plain(), plain());
}

#[test]
fn shares_of_gpus() {
    for (key, asked, want) in [
        (
            "manager#15.5.V1",
            json!({GPU: "200"}),
            json!({GPU_CORE: "200", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"}),
        ),
        (
            "manager#15.5.V2",
            json!({GPU: "50"}),
            json!({GPU_CORE: "50", GPU_MEMORY_RATIO: "50", GPU_SHARED: "1"}),
        ),
        (
            "manager#15.5.V3",
            json!({GPU_CORE: "50", GPU_MEMORY: "8Gi"}),
            json!({GPU_CORE: "50", GPU_MEMORY: "8Gi", GPU_SHARED: "1"}),
        ),
        (
            "manager#15.5.V4",
            json!({GPU_MEMORY_RATIO: "200", GPU_SHARED: "4"}),
            json!({GPU_MEMORY_RATIO: "200", GPU_SHARED: "4"}),
        ),
        ("manager#15.5.V5", json!({"nvidia.com/gpu": "1"}), json!({"nvidia.com/gpu": "1"})),
        (
            "manager#15.5.V7",
            json!({GPU: "150"}),
            json!({GPU_CORE: "150", GPU_MEMORY_RATIO: "150", GPU_SHARED: "1"}),
        ),
        (
            "manager#15.5.V8",
            json!({GPU_CORE: "300", GPU_MEMORY_RATIO: "50"}),
            json!({GPU_CORE: "300", GPU_MEMORY_RATIO: "50", GPU_SHARED: "1"}),
        ),
        (
            "manager#15.5.V9",
            json!({GPU: "200", GPU_CORE: "50"}),
            json!({GPU_CORE: "200", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"}),
        ),
        ("manager#15.5.V10", json!({GPU_MEMORY: "8Gi"}), json!({GPU_MEMORY: "8Gi", GPU_SHARED: "1"})),
        (
            "manager#15.5.V11",
            json!({GPU: "100"}),
            json!({GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_SHARED: "1"}),
        ),
    ] {
        let got = Lab::new(&[]).create(pod(json!({}), asked.clone(), asked)).unwrap();
        assert_eq!(amounts(&got), (want.clone(), want), "{key}");
    }
    let got = Lab::new(&[]).create(pod(json!({}), json!({GPU: "200"}), json!({}))).unwrap();
    let want = json!({GPU_CORE: "200", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"});
    assert_eq!(amounts(&got), (want.clone(), want), "manager#15.5.V6, manager#26.DB-25");
    let gpu = || pod(json!({}), json!({GPU: "200"}), json!({}));
    Lab::new(&[]).gates("DisableDeviceResourceSpec=true").becomes("switched off", gpu(), gpu());
}

#[test]
fn requests_that_are_none_of_ours() {
    let lab = Lab::new(&[("a", json!({"labels": {"x": "1"}}))]);
    let given = || created(pod(json!({}), json!({}), json!({})));
    let sub = Request { sub_resource: "status".into(), ..given() };
    let other = Request { resource: Resource { resource: "nodes".into(), ..Resource::default() }, ..given() };
    let strange = Request { object: json!("not even an object"), ..other.clone() };
    for request in [
        sub,
        other,
        strange,
        Request { operation: Operation::Update, ..given() },
        Request { operation: Operation::Connect, ..given() },
    ] {
        assert_eq!(lab.answer(&request), Answer::allow(), "{request:?}");
    }
    lab.denies("not a pod", json!({"spec": {"containers": "none"}}), 400, "the object is no pod: ");
}

#[test]
fn steps_are_told() {
    let mut steps = Vec::new();
    let mut note = |name, is_fine| steps.push((name, is_fine));
    let mut aside = Aside { dice: &mut || 0, step: &mut note };
    let mut given = pod(json!({}), json!({}), json!({}));
    given["metadata"]["annotations"] = json!({EXTENDED_RESOURCE_SPEC: "oops"});
    mutate(&created(given), &Facts::default(), &mut aside);
    assert_eq!(steps, [(PROFILES, true), (RECORD, false)]);
}
