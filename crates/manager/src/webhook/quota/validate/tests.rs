use koord_api::keys::quota::{annotation, label};

use super::super::QuotaGates;
use super::super::sketch::{Cluster, Pods, Sketch, quota};
use super::*;

/// A with A1 below it, as after L2.
fn l2() -> Cluster {
    let mut cluster = Cluster::default();
    let a = quota("A").parent(true).min("cpu=40").max("cpu=100");
    assert_eq!(cluster.create(a), "", "manager#17.6.L1");
    let a1 = quota("A1").below("A").min("cpu=30").max("cpu=200");
    assert_eq!(cluster.create(a1), "", "manager#17.6.L2");
    cluster
}

/// With A2 as well, as after L4.
fn l4() -> Cluster {
    let mut cluster = l2();
    let a2 = |min: &str| quota("A2").below("A").min(min).max("cpu=50");
    assert_eq!(cluster.create(a2("cpu=11")), BROTHERS_OF_A, "manager#17.6.L3");
    assert_eq!(cluster.create(a2("cpu=10")), "", "manager#17.6.L4");
    cluster
}

const BROTHERS_OF_A: &str = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: A";
const CHILDREN_OF_A: &str = "checkMinQuotaSum all children's MinQuota > current MinQuota, current: A";
const KEYS: &str =
    "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: ";

#[test]
fn the_five_rules() {
    let mut cluster = l4();
    assert_eq!(cluster.update("A", |a| a.min("cpu=39")), CHILDREN_OF_A, "manager#17.6.L5");
    let answer = cluster.update("A", |a| a.max("cpu=10"));
    assert_eq!(answer, "resourceKey cpu of quota A min 40 > max 10", "manager#17.6.L6");
    assert_eq!(cluster.update("A", |a| a.max("cpu=40")), "", "manager#17.6.L6 max 40");
    let x = |parent: &str| quota("X").below(parent).max("cpu=1");
    let answer = cluster.create(x("A1"));
    assert_eq!(answer, "X has parentName A1 but the parentQuotaInfo's IsParent is false", "manager#17.6.L7");
    assert_eq!(cluster.create(x("ghost")), "fill quota X failed, parent not exist", "manager#17.6.L8");
    let unfilled = x("ghost");
    let answer = cluster.ask(&unfilled, Change::Create { quota: &unfilled }, false);
    assert_eq!(
        answer, "X has parentName ghost but not find parentInfo in quotaInfoMap",
        "manager#17.6.L8 without mutating"
    );
    let r = quota("R").min("cpu=1000").max("cpu=1000");
    assert_eq!(cluster.create(r), "", "manager#17.6.L16");
}

#[test]
fn becoming_a_parent_and_ceasing_to_be_one() {
    let has_children = "quota has children, isParent is forbidden to modify as false, quotaName:A";
    let has_pods = "quota has bound pods, isParent is forbidden to modify as true, quotaName: A1";
    let mut cluster = l4();
    assert_eq!(cluster.update("A", |a| a.parent(false)), has_children, "manager#17.6.L11");
    let answer = cluster.update("A", |a| a.unlabel(label::IS_PARENT));
    assert_eq!(answer, has_children, "manager#17.6.L26");
    assert_eq!(cluster.update("A1", |a1| a1.parent(true)), "", "manager#17.6.L12");
    assert_eq!(cluster.update("A1", |a1| a1.parent(false)), "", "no children");

    for (name, pod) in [
        ("manager#17.6.L13", ("ns", "p1", "A1")),
        ("manager#17.6.L27", ("A1", "p1", "")),
        ("in a bound namespace", ("bound", "p1", "")),
    ] {
        let mut cluster = l4();
        assert_eq!(cluster.update("A1", |a1| a1.namespaces(r#"["bound"]"#)), "");
        cluster.pods = Pods(vec![pod]);
        // The old list counts, even when the update empties it.
        let answer = cluster.update("A1", |a1| a1.namespaces("[]").parent(true));
        assert_eq!(answer, has_pods, "{name}");
    }
}

#[test]
fn resources_of_parents_and_children() {
    let strict = QuotaGates::default();
    let relaxed = QuotaGates { update_resource_key: true, ..strict };
    let both = || quota("A").parent(true).min("cpu=40").max("cpu=100 memory=1Gi");
    let b = || quota("B").below("A").max("cpu=10");
    let mut cluster = Cluster::with([both()]);
    let answer = cluster.create(b());
    assert_eq!(answer, format!("{KEYS}A's max keys are not the same with B's"), "manager#17.6.L14");
    cluster.gates = relaxed;
    assert_eq!(cluster.create(b()), "", "manager#17.6.L14 gate");
    let answer = cluster.create(quota("C").below("A").max("cpu=1 gpu=1"));
    assert_eq!(answer, format!("{KEYS}C's max keys are not all included in A's"));
    let answer = cluster.update("A", |a| a.min("").max("memory=1Gi"));
    assert_eq!(answer, format!("{KEYS}B's max keys are not all included in A's"), "downward");

    let mut cluster = Cluster::with([both()]);
    let answer = cluster.create(quota("B").below("A").min("cpu=1 memory=1").max("cpu=10 memory=1Gi"));
    assert_eq!(answer, format!("{KEYS}B's min keys are not all included in A's"), "manager#17.6.L15");
    assert_eq!(cluster.create(quota("B").below("A").min("cpu=1").max("cpu=10 memory=1Gi")), "");
    let answer = cluster.update("A", |a| a.max("cpu=100"));
    assert_eq!(answer, format!("{KEYS}B's max keys are not the same with A's"), "downward");
    let answer = cluster.update("A", |a| a.min(""));
    assert_eq!(answer, format!("{KEYS}B's min keys are not all included in A's"), "downward");

    let mut cluster = Cluster::with([quota("A").parent(true).max("cpu=100")]);
    let answer = cluster.create(quota("A1").below("A").min("cpu=0").max("cpu=1"));
    assert_eq!(answer, format!("{KEYS}A1's min keys are not all included in A's"), "manager#17.6.L37");
    assert_eq!(cluster.create(quota("A1").below("A").max("cpu=1")), "", "manager#17.6.L37 without min");
}

#[test]
fn where_the_sum_of_min_is_not_checked() {
    for (name, mark) in [
        ("manager#17.6.L17", Sketch::root_of_tree as fn(ElasticQuota) -> ElasticQuota),
        ("manager#17.6.L18", Sketch::forced),
    ] {
        let mut cluster = l2();
        assert_eq!(cluster.update("A", |a| mark(a).min("cpu=10")), "", "{name}");
        let answer = cluster.create(quota("A2").below("A").min("cpu=0").max("cpu=1"));
        assert_eq!(answer, BROTHERS_OF_A, "manager#17.6.L25 after {name}");
    }
}

#[test]
fn moving_a_quota() {
    let mut cluster = l4();
    assert_eq!(cluster.create(quota("B").parent(true).min("cpu=5").max("cpu=100")), "");
    let answer = cluster.update("A2", |a2| a2.below("B"));
    let want = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: B";
    assert_eq!(answer, want, "manager#17.6.L36");
    assert_eq!(cluster.update("A2", |a2| a2.below("B").min("cpu=5")), "", "manager#17.6.L36 min 5");
    assert_eq!(
        cluster.create(quota("A3").below("A").min("cpu=10").max("cpu=10")),
        "",
        "manager#17.6.L36 room"
    );
}

#[test]
fn namespaces_belong_to_one_quota() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.create(quota("n1").max("cpu=1").namespaces(r#"["ns1"]"#)), "");
    assert_eq!(cluster.create(quota("n2").max("cpu=1")), "");
    let answer = cluster.update("n2", |n2| n2.namespaces(r#"["ns1"]"#));
    let want = "UpdadteQuota, quota n2 update namespaces, but namespace ns1 is already bound to quota n1";
    assert_eq!(answer, want, "manager#17.6.L19");
    let answer = cluster.create(quota("n3").max("cpu=1").namespaces(r#"["ns0","ns1"]"#));
    let want = "AddQuota quota n3's annotation namespace ns1 is already bound to quota n1";
    assert_eq!(answer, want, "manager#17.6.L28");
    assert_eq!(cluster.create(quota("n4").max("cpu=1").namespaces("oops")), "", "manager#17.6.L29");
    assert_eq!(cluster.update("n1", |n1| n1.namespaces("[]")), "");
    assert_eq!(cluster.update("n2", |n2| n2.namespaces(r#"["ns1"]"#)), "", "given up by the other");
}

#[test]
fn names_are_unique_in_the_cluster() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.create(quota("n1").max("cpu=1")), "");
    for namespace in ["qns", "elsewhere"] {
        let answer = cluster.create(quota("n1").max("cpu=1").within(namespace));
        assert_eq!(
            answer, "AddQuota quota already exist:n1",
            "manager#17.6.L30 manager#26.DB-27 {namespace}"
        );
    }
}

#[test]
fn deleting() {
    let mut cluster = l4();
    let failed = "delete quota failed, quota";
    assert_eq!(cluster.delete("A"), format!("{failed} A has 2 child quotas"), "manager#17.6.L20");
    for name in ["koordinator-default-quota", "koordinator-system-quota", "koordinator-root-quota"] {
        assert_eq!(cluster.delete(name), format!("can not delete quotaGroup :{name}"), "manager#17.6.L21");
    }
    assert_eq!(cluster.delete("ghost"), "not found quota:ghost");
    cluster.pods = Pods(vec![("b", "p2", "A1"), ("c", "p3", "A1"), ("a", "p1", "A1"), ("a", "p0", "A2")]);
    let want = format!("{failed} A1 has 3 child pods: p1, p2, ...");
    assert_eq!(cluster.delete("A1"), want, "manager#17.6.L31");
    cluster.pods.0.remove(1);
    assert_eq!(cluster.delete("A1"), format!("{failed} A1 has 2 child pods: p1, p2"), "manager#17.6.L31 two");
    cluster.pods.0.clear();
    assert_eq!(cluster.delete("A1"), "");
    assert_eq!(cluster.delete("A2"), "");
    assert_eq!(cluster.delete("A"), "");
}

#[test]
fn guarantees() {
    let on = QuotaGates { guarantee_usage: true, ..QuotaGates::default() };
    let tree = || {
        let t =
            quota("T").parent(true).root_of_tree().tree("tt").min("cpu=10").max("cpu=20").guaranteed("10");
        let child = |name: &str, min: &str, guaranteed: &str| {
            quota(name).below("T").tree("tt").min(min).max("cpu=20").guaranteed(guaranteed)
        };
        let mut cluster = Cluster::with([t, child("t1", "cpu=6", "6"), child("t2", "cpu=2", "3")]);
        cluster.gates = on;
        cluster
    };
    let refused = "tree root quota T can't guarantee for min t1";
    assert_eq!(tree().update("t1", |t1| t1.min("cpu=7")), "", "manager#17.6.L22");
    assert_eq!(tree().update("t1", |t1| t1.min("cpu=8")), refused, "manager#17.6.L22 min 8");
    assert_eq!(tree().update("t1", |t1| t1.min("cpu=8").guaranteed("8")), "", "manager#17.6.L24");
    assert_eq!(tree().update("t1", |t1| t1.min("cpu=8").forced()), "", "forced");
    let mut off = tree();
    off.gates = QuotaGates::default();
    assert_eq!(off.update("t1", |t1| t1.min("cpu=8")), "", "gate off");
}

#[test]
fn trees_stay_together() {
    let mut cluster = Cluster::default();
    let t = quota("T").parent(true).tree("tt").min("cpu=9").max("cpu=9");
    assert_eq!(cluster.create(t), "");
    assert_eq!(cluster.create(quota("c").below("T").max("cpu=9")), "", "manager#17.6.L32");
    assert_eq!(cluster.ledger().get("c").unwrap().tree_id, "tt", "manager#17.6.L32");
    let answer = cluster.create(quota("d").below("T").tree("uu").max("cpu=9"));
    assert_eq!(answer, "d tree id is different from parent T, [uu] vs [tt]", "manager#17.6.L32 other tree");
    let answer = cluster.update("T", |t| t.unlabel(label::TREE_ID));
    assert_eq!(answer, "T tree id changed [tt] vs []", "manager#17.6.L33");

    assert_eq!(cluster.update("c", |c| c.parent(true)), "");
    for parent in ["c", "T"] {
        let answer = cluster.update("T", |t| t.below(parent).forced());
        let want = "quota T can not be its own ancestor";
        assert_eq!(answer, want, "manager#17.6.L34 manager#26.DB-29 parent {parent}");
    }
    // Children that were there before their parent.
    let mut cluster = Cluster::with([quota("c").below("T").tree("uu").max("cpu=1")]);
    let answer = cluster.create(quota("T").parent(true).tree("tt").max("cpu=1"));
    assert_eq!(answer, "T tree id is different from child c, [tt] vs [uu]");
}

/// Quotas that were made while no webhook looked may stand in a circle; every question still has an answer.
#[test]
fn a_circle_that_is_already_there_ends() {
    let ring = |name: &str, parent: &str| quota(name).below(parent).parent(true).tree("t").max("cpu=1");
    let mut cluster = Cluster::with([ring("a", "b"), ring("b", "a")]);
    cluster.gates.guarantee_usage = true;
    let refused = cluster.create(quota("c").below("a").tree("t").min("cpu=1").max("cpu=1").forced());
    assert_eq!(refused, format!("{KEYS}c's min keys are not all included in a's"));
    assert_eq!(cluster.create(quota("c").below("a").max("cpu=1")), "");
    assert_eq!(cluster.update("a", |a| a.below("koordinator-root-quota")), "", "the way out");
}

#[test]
fn built_in_quotas() {
    let mut cluster = Cluster::default();
    let change = |name: &str, cluster: &mut Cluster| {
        let (old, new) = (quota(name), quota(name).max("cpu=1"));
        cluster.ask(&new, Change::Update { old: &old, quota: &new }, false)
    };
    let system = change("koordinator-system-quota", &mut cluster);
    assert_eq!(system, "invalid quota koordinator-system-quota", "manager#17.6.L35");
    let default = change("koordinator-default-quota", &mut cluster);
    let want = "UpdateQuota quota not exist in quotaInfoMap:koordinator-default-quota";
    assert_eq!(default, want, "manager#17.6.L35 default");
    let same = quota("koordinator-system-quota").label("other", "1");
    let old = quota("koordinator-system-quota");
    assert_eq!(cluster.ask(&same, Change::Update { old: &old, quota: &same }, false), "", "nothing of ours");
}

#[test]
fn amounts_of_one_quota() {
    let strict = |keys: &str| quota("n").annotation(annotation::MAX_STRICT_CHECK_RESOURCE_KEYS, keys);
    let weight = |text: &str| quota("n").max("cpu=1").annotation(annotation::SHARED_WEIGHT, text);
    for (name, quota, want) in [
        (
            "negative max",
            quota("n").max("cpu=-1 memory=-1 x=1"),
            "n quota.Spec.Max's value < 0, in dimensions :[cpu memory]",
        ),
        (
            "negative min",
            quota("n").max("cpu=1").min("cpu=-1"),
            "n quota.Spec.Min's value < 0, in dimensions :[cpu]",
        ),
        (
            "negative weight",
            weight(r#"{"cpu":"-1"}"#),
            "n quota.Annotation[quota.scheduling.koordinator.sh/shared-weight]'s value < 0, in dimension :[cpu]",
        ),
        (
            "min without max",
            quota("n").max("cpu=1").min("memory=1"),
            "resourceKey memory of quota n is included in min, which is not included in max",
        ),
        (
            "manager#17.6.L41",
            strict(r#"["cpu"]"#).max("memory=1").used("cpu=2"),
            "resourceKey cpu of quota n is included in used, which is not included in max but should check max >= used",
        ),
        (
            "manager#17.6.L41 too small",
            strict(r#"["cpu"]"#).max("cpu=1").used("cpu=2"),
            "resourceKey cpu of quota n max 1 < used 2",
        ),
        ("strict, not used", strict(r#"["cpu","memory"]"#).max("cpu=2").used("cpu=2"), ""),
    ] {
        let answer = Cluster::default().ask(&quota, Change::Create { quota: &quota }, false);
        assert_eq!(answer, want, "{name}");
    }
    let unreadable = strict("oops").max("cpu=1");
    let answer = Cluster::default().ask(&unreadable, Change::Create { quota: &unreadable }, false);
    let start =
        format!("n quota.Annotation[{}]'s value is invalid: ", annotation::MAX_STRICT_CHECK_RESOURCE_KEYS);
    assert!(answer.starts_with(&start), "{answer}");
    let unreadable = weight("oops");
    let answer = Cluster::default().ask(&unreadable, Change::Create { quota: &unreadable }, false);
    assert!(answer.contains("invalid character"), "{answer}");
}
