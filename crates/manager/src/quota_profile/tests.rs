//! The cases of manager 13.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use koord_api::crd::elastic_quota::ElasticQuotaSpec;
use koord_api::keys::quota::annotation::{RESOURCE_KEYS, TOTAL_RESOURCE, UNSCHEDULABLE_RESOURCE};
use koord_api::keys::quota::label::IS_PARENT;

use super::*;

/// A node of 48 cores and 192Gi.
fn node(is_cordoned: bool, ready: Option<&str>) -> Node {
    let wire = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
    let mut node = Node::default();
    node.metadata.labels = Some(BTreeMap::from([("pool".to_owned(), "a".to_owned())]));
    node.spec = Some(NodeSpec { unschedulable: is_cordoned.then_some(true), ..NodeSpec::default() });
    let condition = |status: &str| NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    };
    node.status = Some(NodeStatus {
        allocatable: Some(
            [("cpu", "48"), ("memory", "192Gi"), ("bad", "lots")]
                .map(|(name, amount)| (name.to_owned(), wire(amount)))
                .into(),
        ),
        conditions: ready.map(|status| vec![condition(status)]),
        ..NodeStatus::default()
    });
    node
}

fn ready() -> Node {
    node(false, Some("True"))
}

fn profile(ratio: Option<&str>) -> ElasticQuotaProfile {
    let mut profile = ElasticQuotaProfile::default();
    profile.metadata.namespace = Some("default".to_owned());
    profile.metadata.name = Some("profile1".to_owned());
    profile.spec = Some(ElasticQuotaProfileSpec {
        quota_name: "root".to_owned(),
        resource_ratio: ratio.map(str::to_owned),
        node_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([("pool".to_owned(), "a".to_owned())])),
            match_expressions: None,
        }),
        ..ElasticQuotaProfileSpec::default()
    });
    profile
}

fn pool(profile: &ElasticQuotaProfile, nodes: &[Node]) -> Pool {
    Pool::new(profile.spec.as_ref().unwrap(), nodes).unwrap()
}

fn shaped(mut quota: ElasticQuota, profile: &ElasticQuotaProfile, nodes: &[Node]) -> ElasticQuota {
    let id = labelled_tree_id(profile).unwrap_or("7").to_owned();
    shape(&mut quota, profile, &id, &pool(profile, nodes), |_| ());
    quota
}

fn text(list: &ResourceList) -> String {
    list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

fn min_max(quota: &ElasticQuota) -> (String, String) {
    let spec = quota.spec.as_ref().unwrap();
    (text(&spec.min), text(&spec.max))
}

const UNBOUND: &str = "cpu=4611686018427387 memory=4611686018427387";

#[test]
fn ids_of_trees() {
    for (key, namespace, name, want) in [
        ("manager#13.E1", "default", "profile1", "3288849408605801223"),
        ("manager#13.E2", "koordinator-system", "pool-a", "1017879451904502078"),
    ] {
        assert_eq!(tree_id(namespace, name), want, "{key}");
    }
    let mut chosen = profile(None);
    assert_eq!(labelled_tree_id(&chosen), None);
    for (text, want) in [("mine", Some("mine")), ("", None)] {
        chosen.metadata.labels = Some(BTreeMap::from([(TREE_ID.to_owned(), text.to_owned())]));
        assert_eq!(labelled_tree_id(&chosen), want);
    }
}

#[test]
fn a_root_is_as_large_as_its_nodes() {
    for (key, ratio, min) in [
        ("manager#13.E3", Some("0.9"), "cpu=86400m memory=371085174374"),
        ("manager#13.E4", Some("1.5"), "cpu=96 memory=384Gi"),
        ("manager#13.E11", Some("0.333"), "cpu=31968m memory=137301514518"),
        ("manager#13.E12", Some("0"), "cpu=96 memory=384Gi"),
        ("manager#13.E12", Some("abc"), "cpu=96 memory=384Gi"),
        ("not a number", Some("NaN"), "cpu=96 memory=384Gi"),
        ("no ratio", None, "cpu=96 memory=384Gi"),
    ] {
        let quota = shaped(ElasticQuota::default(), &profile(ratio), &[ready(), ready()]);
        assert_eq!(min_max(&quota), (min.to_owned(), UNBOUND.to_owned()), "{key} {ratio:?}");
    }
}

#[test]
fn nodes_that_take_no_pods_are_told_apart() {
    for (key, ratio, second, unschedulable) in [
        ("manager#13.E5", "0.5", node(true, Some("True")), "cpu=24 memory=96Gi"),
        ("manager#13.E13", "1", node(false, None), "cpu=48 memory=192Gi"),
        ("not ready", "1", node(false, Some("Unknown")), "cpu=48 memory=192Gi"),
        ("ready", "1", ready(), ""),
    ] {
        let profile = profile(Some(ratio));
        let pool = pool(&profile, &[ready(), second]);
        assert_eq!(text(&pool.unschedulable), unschedulable, "{key}");
        let whole = self::pool(&profile, &[ready(), ready()]);
        assert_eq!(pool.total, whole.total, "{key}: the total does not change");
    }
}

#[test]
fn resource_keys() {
    for (key, keys, min, max) in [
        (
            "manager#13.E6",
            r#"["cpu","nvidia.com/gpu"]"#,
            "cpu=48 nvidia.com/gpu=0",
            "cpu=4611686018427387 nvidia.com/gpu=4611686018427387",
        ),
        ("manager#13.E14", "[]", "", ""),
        ("manager#13.E14", "oops", "cpu=48 memory=192Gi", UNBOUND),
        ("empty", "", "cpu=48 memory=192Gi", UNBOUND),
    ] {
        let mut profile = profile(None);
        profile.metadata.annotations = Some(BTreeMap::from([(RESOURCE_KEYS.to_owned(), keys.to_owned())]));
        let mut faults = 0;
        let mut quota = ElasticQuota::default();
        shape(&mut quota, &profile, "7", &pool(&profile, &[ready()]), |_| faults += 1);
        assert_eq!(min_max(&quota), (min.to_owned(), max.to_owned()), "{key} {keys:?}");
        assert_eq!(faults, i32::from(keys == "oops"), "{key} {keys:?}");
    }
}

#[test]
fn which_nodes() {
    let selector = |selector: Option<LabelSelector>| {
        let mut profile = profile(None);
        profile.spec.as_mut().unwrap().node_selector = selector;
        profile
    };
    let mut other = ready();
    other.metadata.labels = None;
    let nodes = [ready(), other];
    let total = |profile: &ElasticQuotaProfile| text(&pool(profile, &nodes).total);
    assert_eq!(total(&profile(None)), "cpu=48 memory=192Gi");
    assert_eq!(total(&selector(None)), "", "manager#13.E9");
    assert_eq!(total(&selector(Some(LabelSelector::default()))), "cpu=96 memory=384Gi", "manager#13.E9");
    let bad = LabelSelectorRequirement { key: "pool".to_owned(), operator: "Bad".to_owned(), values: None };
    let bad = selector(Some(LabelSelector { match_expressions: Some(vec![bad]), match_labels: None }));
    assert!(Pool::new(bad.spec.as_ref().unwrap(), &nodes).is_err(), "manager#13.E10");

    let nowhere = shaped(ElasticQuota::default(), &profile(None), &[]);
    assert_eq!(min_max(&nowhere), ("cpu=0 memory=0".to_owned(), UNBOUND.to_owned()), "manager#13.E7");
    let annotations = nowhere.metadata.annotations.unwrap();
    assert_eq!(annotations[TOTAL_RESOURCE], "{}", "manager#13.E7");
    assert_eq!(annotations[UNSCHEDULABLE_RESOURCE], "{}", "manager#13.E7");
}

#[test]
fn labels_of_the_root() {
    let mut profile = profile(None);
    profile.metadata.labels = Some(BTreeMap::from([(TREE_ID.to_owned(), "mine".to_owned())]));
    profile.spec.as_mut().unwrap().quota_labels =
        [(IS_PARENT, "true"), (IS_ROOT, "false"), (TREE_ID, "zz"), (PROFILE, "other")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    let quota = shaped(ElasticQuota::default(), &profile, &[ready()]);
    let want: BTreeMap<String, String> =
        [(IS_PARENT, "true"), (IS_ROOT, "true"), (TREE_ID, "mine"), (PROFILE, "other")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    assert_eq!(quota.metadata.labels, Some(want), "manager#13.E8");
}

#[test]
fn what_others_put_on_a_quota_stays() {
    let mut present = ElasticQuota::default();
    let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    present.metadata.labels = Some(one("keep", "1"));
    present.metadata.annotations = Some(one("note", "2"));
    present.spec = Some(ElasticQuotaSpec {
        max: [("gpu".to_owned(), Quantity::from_value(1, Family::DecimalSi))].into(),
        ..ElasticQuotaSpec::default()
    });
    let quota = shaped(present, &profile(None), &[ready()]);
    assert_eq!(quota.metadata.labels.as_ref().unwrap()["keep"], "1", "manager#13.E15");
    assert_eq!(quota.metadata.annotations.as_ref().unwrap()["note"], "2");
    assert_eq!(min_max(&quota).1, UNBOUND, "manager#13.E15");
    let again = shaped(quota.clone(), &profile(None), &[ready()]);
    assert_eq!(again.spec, quota.spec, "shaping twice changes nothing");
    assert_eq!(again.metadata, quota.metadata);
}
