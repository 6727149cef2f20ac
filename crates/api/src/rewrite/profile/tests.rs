use serde_json::json;

use super::*;
use crate::pod::sketch::{Sketch, pod};
use crate::pod::{annotation, label};

type Edit<'a> = &'a dyn Fn(&mut ClusterColocationProfileSpec);

fn profile(name: &str, edit: impl FnOnce(&mut ClusterColocationProfileSpec)) -> ClusterColocationProfile {
    let mut spec = ClusterColocationProfileSpec::default();
    edit(&mut spec);
    let mut profile = ClusterColocationProfile { spec: Some(spec), ..ClusterColocationProfile::default() };
    profile.metadata.name = Some(name.to_string());
    profile
}

fn skipping_resources(mut profile: ClusterColocationProfile, value: &str) -> ClusterColocationProfile {
    let annotations = profile.metadata.annotations.get_or_insert_default();
    annotations.insert(SKIP_UPDATE_RESOURCES.to_string(), value.to_string());
    profile
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn classes() -> BTreeMap<String, PriorityClassFacts> {
    let preempt = Some("PreemptLowerPriority".to_string());
    [
        ("koord-batch".to_string(), PriorityClassFacts { value: 5000, preemption_policy: preempt }),
        ("plain".to_string(), PriorityClassFacts { value: 7, preemption_policy: None }),
    ]
    .into()
}

fn run(profiles: &[ClusterColocationProfile], pod: &mut Pod, dice: i64) -> Result<Applied, ProfileError> {
    let namespace_labels = map(&[("team", "a")]);
    let around = Surroundings {
        profiles: &Profiles::new(profiles),
        namespace_labels: Some(&namespace_labels),
        priority_classes: &classes(),
        skip_resources: false,
    };
    apply_typed(pod, around, dice)
}

fn apply_typed(pod: &mut Pod, around: Surroundings<'_>, dice: i64) -> Result<Applied, ProfileError> {
    let mut tree = serde_json::to_value(&*pod).unwrap();
    let done = apply(&mut tree, around, || dice)?;
    *pod = serde_json::from_value(tree).unwrap();
    Ok(done)
}

fn applied(profiles: &[ClusterColocationProfile], pod: Pod) -> Pod {
    let mut pod = pod;
    run(profiles, &mut pod, 0).unwrap();
    pod
}

fn requests(pod: &Pod) -> String {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap_or_default();
    let list = resources.requests.unwrap_or_default();
    list.iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect::<Vec<_>>().join(" ")
}

fn batch() -> Pod {
    pod().priority(5500).container(&[("cpu", "1")], &[])
}

#[test]
fn fields() {
    let full = profile("p", |spec| {
        spec.qos_class = "BE".into();
        spec.priority_class_name = "koord-batch".into();
        spec.koordinator_priority = Some(1111);
        spec.scheduler_name = "koord-scheduler".into();
        spec.annotations = map(&[("n", "1")]);
        spec.annotation_keys_mapping = map(&[("n", "m")]);
    });
    let got = applied(&[skipping_resources(full, "false")], pod().container(&[("cpu", "1")], &[]));
    assert_eq!(label(&got, QOS_CLASS), Some("BE"), "api#10.21");
    assert_eq!(label(&got, PRIORITY), Some("1111"), "api#10.21");
    let spec = got.spec.as_ref().unwrap();
    assert_eq!(spec.priority, Some(5000), "api#10.21");
    assert_eq!(spec.preemption_policy.as_deref(), Some("PreemptLowerPriority"), "api#10.21");
    assert_eq!(requests(&got), "cpu=1", "api#10.21");
    assert_eq!(spec.priority_class_name.as_deref(), Some("koord-batch"));
    assert_eq!(spec.scheduler_name.as_deref(), Some("koord-scheduler"));
    assert_eq!(annotation(&got, "m"), Some("1"));
}

#[test]
fn order_of_profiles_and_labels() {
    let qos = |name: &str, class: &str| profile(name, |spec| spec.qos_class = class.into());
    let got = applied(&[qos("b", "LS"), qos("a", "BE")], pod());
    assert_eq!(label(&got, QOS_CLASS), Some("LS"), "api#10.22");

    let mapping = profile("p", |spec| spec.label_keys_mapping = map(&[("x", "y")]));
    assert_eq!(label(&applied(&[mapping], pod()), "y"), Some(""), "api#10.23");

    let suffix = || profile("p", |spec| spec.label_suffixes = map(&[("team", "-v2")]));
    let got = applied(&[suffix()], pod().label("team", "infra"));
    assert_eq!(label(&got, "team"), Some("infra-v2"), "api#10.24");
    assert_eq!(label(&applied(&[suffix()], pod()), "team"), None, "api#10.24");

    let all = profile("p", |spec| {
        spec.labels = map(&[("x", "fromProfile")]);
        spec.label_keys_mapping = map(&[("x", "y")]);
        spec.label_suffixes = map(&[("y", "-s"), ("zz", "-s")]);
    });
    let got = applied(&[all], pod());
    let want = map(&[("x", "fromProfile"), ("y", "fromProfile-s")]);
    assert_eq!(got.metadata.labels, Some(want), "api#10.109");
}

/// For how many of the 100 faces of the dice a profile is applied.
fn faces(probability: Option<IntOrString>) -> Result<usize, ProfileError> {
    let profiles = [profile("p", |spec| {
        spec.probability = probability;
        spec.labels = map(&[("a", "b")]);
    })];
    let mut count = 0;
    for face in 0..100 {
        let mut pod = pod();
        let done = run(&profiles, &mut pod, face)?;
        assert_eq!(done.matched, ["p"]);
        assert_eq!(label(&pod, "a").is_some(), !done.applied.is_empty());
        count += done.applied.len();
    }
    Ok(count)
}

#[test]
fn probability() {
    let text = |text: &str| Some(IntOrString::String(text.to_string()));
    let int = |int| Some(IntOrString::Int(int));
    for (key, probability, want) in [
        ("api#10.25", text("0%"), 0),
        ("api#10.25", int(0), 0),
        ("api#10.25", None, 100),
        ("api#10.25", int(100), 100),
        ("api#10.25", int(250), 100),
        ("api#10.25", int(-5), 0),
        ("api#10.110", int(50), 50),
        ("api#10.110", text("50%"), 50),
        ("one", int(1), 1),
    ] {
        assert_eq!(faces(probability), Ok(want), "{key}");
    }
    let error = faces(text("50")).unwrap_err().to_string();
    assert_eq!(
        error, "invalid value for IntOrString: invalid type: string is not a percentage",
        "api#10.110"
    );
    let error = faces(text("33.3%")).unwrap_err().to_string();
    let want = r#"invalid value for IntOrString: invalid value "33.3%": strconv.Atoi: parsing "33.3": invalid syntax"#;
    assert_eq!(error, want, "api#10.110");
}

#[test]
fn when_resources_are_translated() {
    let plain = |name: &str| profile(name, |_| ());
    let never = |name: &str| {
        profile(name, |spec| {
            spec.probability = Some(IntOrString::String("0%".into()));
            spec.labels = map(&[("a", "b")]);
        })
    };
    let other = profile("other", |spec| {
        spec.selector =
            Some(LabelSelector { match_labels: Some(map(&[("x", "y")])), ..LabelSelector::default() });
    });
    for (key, profiles, want) in [
        ("api#10.17 some profile matches", vec![plain("p")], "kubernetes.io/batch-cpu=1k"),
        ("api#10.99 no profile", vec![], "cpu=1"),
        ("api#10.99 none matches", vec![other], "cpu=1"),
        ("api#10.100", vec![never("p")], "kubernetes.io/batch-cpu=1k"),
        ("api#10.101", vec![plain("all"), skipping_resources(never("p"), "")], "cpu=1"),
    ] {
        let got = applied(&profiles, batch());
        assert_eq!(requests(&got), want, "{key}");
        assert_eq!(label(&got, "a"), None, "{key}");
    }
    let classes = classes();
    let around = Surroundings {
        profiles: &Profiles::new(&[plain("p")]),
        namespace_labels: None,
        priority_classes: &classes,
        skip_resources: true,
    };
    let mut pod = batch();
    assert!(!apply_typed(&mut pod, around, 0).unwrap().translated, "switched off by the gate");
}

#[test]
fn priority_classes() {
    let class = |name: &str| profile("p", |spec| spec.priority_class_name = name.into());
    let error = run(&[class("nope")], &mut pod(), 0).unwrap_err().to_string();
    // The resource is spelt as recorded runs have it, by kind.
    assert_eq!(error, "PriorityClass.scheduling.k8s.io \"nope\" not found", "api#10.107");
    let given = pod().edit(|spec| spec.preemption_policy = Some("PreemptLowerPriority".into()));
    let got = applied(&[class("plain")], given);
    assert_eq!(got.spec.unwrap().preemption_policy, None, "api#10.108");
}

#[test]
fn the_patch_has_the_last_word() {
    let patching = profile("p", |spec| {
        spec.qos_class = "BE".into();
        spec.patch = Some(json!({
            "metadata": {"labels": {QOS_CLASS: "LS", "a": null}},
            "spec": {"containers": [{"name": "c1", "image": "x:2"}, {"name": "side", "image": "y:1"}]},
        }));
    });
    let got = applied(&[patching], pod().label("a", "1").container(&[("cpu", "1")], &[("cpu", "2")]));
    assert_eq!(label(&got, QOS_CLASS), Some("LS"), "api#10.111");
    assert_eq!(label(&got, "a"), None, "api#10.111");
    let containers = &got.spec.as_ref().unwrap().containers;
    let names: Vec<_> = containers.iter().map(|c| (c.name.as_str(), c.image.as_deref())).collect();
    assert_eq!(names, [("c1", Some("x:2")), ("side", Some("y:1"))], "api#10.111");
    let resources = containers[0].resources.as_ref().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "2", "api#10.111");

    let wrong: [(serde_json::Value, &str); 2] = [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "profile p: map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"spec": {"priority": "high"}}), "profile p: the patched pod is not a pod: invalid type"),
    ];
    for (patch, want) in wrong {
        let profiles = [profile("p", |spec| spec.patch = Some(patch))];
        let error = run(&profiles, &mut batch(), 0).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(want), "{text}");
    }
}

#[test]
fn selectors() {
    let labels =
        |pairs: &[(&str, &str)]| LabelSelector { match_labels: Some(map(pairs)), ..LabelSelector::default() };
    let bogus = || {
        let text = json!({"matchExpressions": [{"key": "a", "operator": "Bogus"}]});
        serde_json::from_value::<LabelSelector>(text).unwrap()
    };
    let cases: [(&str, Edit<'_>, bool, usize); 8] = [
        ("no selectors", &|_| (), true, 0),
        (
            "empty selectors",
            &|s| (s.selector, s.namespace_selector) = (Some(labels(&[])), Some(labels(&[]))),
            true,
            0,
        ),
        ("namespace", &|s| s.namespace_selector = Some(labels(&[("team", "a")])), true, 0),
        ("other namespace", &|s| s.namespace_selector = Some(labels(&[("team", "b")])), false, 0),
        ("labels", &|s| s.selector = Some(labels(&[("app", "web")])), true, 0),
        ("odd labels match nothing", &|s| s.selector = Some(labels(&[("a b", "c")])), false, 0),
        ("unreadable selector", &|s| s.selector = Some(bogus()), false, 1),
        ("unreadable namespace selector", &|s| s.namespace_selector = Some(bogus()), false, 1),
    ];
    for (name, edit, want, faults) in cases {
        let profile = profile("p", edit);
        let found = Profile::new(&profile).faults(&classes());
        let done = run(&[profile], &mut pod().label("app", "web"), 0).unwrap();
        assert_eq!((!done.matched.is_empty(), found.len()), (want, faults), "{name} {done:?} {found:?}");
    }
    let needs_namespace = [profile("p", |s| s.namespace_selector = Some(labels(&[("team", "a")])))];
    let around = Surroundings {
        profiles: &Profiles::new(&needs_namespace),
        namespace_labels: None,
        priority_classes: &classes(),
        skip_resources: false,
    };
    assert!(around.profiles.ask_for_namespaces());
    assert!(!Profiles::new(&[profile("p", |_| ())]).ask_for_namespaces());
    let done = apply_typed(&mut pod(), around, 0).unwrap();
    assert!(done.matched.is_empty(), "the labels of the namespace are not known");
}

#[test]
fn faults_are_found_without_a_pod() {
    let cases: [(&str, Edit<'_>, Option<&str>); 6] = [
        ("sound", &|s| s.priority_class_name = "koord-batch".into(), None),
        (
            "no class",
            &|s| s.priority_class_name = "nope".into(),
            Some("pods it selects are denied: PriorityClass.scheduling.k8s.io \"nope\" not found"),
        ),
        (
            "probability",
            &|s| s.probability = Some(IntOrString::String("abc".into())),
            Some(
                "pods it selects are denied: invalid value for IntOrString: invalid type: string is not a percentage",
            ),
        ),
        (
            "patch of another type",
            &|s| s.patch = Some(json!({"spec": {"containers": "bad"}})),
            Some("pods it selects are denied: profile p: the patched pod is not a pod: "),
        ),
        (
            "no patch",
            &|s| s.patch = Some(json!([])),
            Some("pods it selects are denied: profile p: the patch is not an object"),
        ),
        (
            "selector",
            &|s| {
                let bogus = json!({"matchExpressions": [{"key": "a", "operator": "Bogus"}]});
                s.selector = Some(serde_json::from_value(bogus).unwrap());
            },
            Some("it selects no pods, because its selector cannot be read: \"Bogus\" is not a valid"),
        ),
    ];
    for (name, edit, want) in cases {
        let found = Profile::new(&profile("p", edit)).faults(&classes());
        match want {
            None => assert!(found.is_empty(), "{name}: {found:?}"),
            Some(want) => assert!(found[0].starts_with(want), "{name}: {found:?}"),
        }
    }
}
