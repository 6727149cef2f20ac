use jiff::SignedDuration;
use koord_api::crd::elastic_quota::ElasticQuota;
use proptest::prelude::*;
use serde_json::json;

use super::super::sketch::{Cluster, Sketch, info, quota};
use super::super::validate::Change;
use super::*;

fn parent_and(children: impl IntoIterator<Item = ElasticQuota>) -> Cluster {
    let parent = quota("A").parent(true).min("cpu=10").max("cpu=100");
    Cluster::with(std::iter::once(parent).chain(children))
}

fn child(name: &str) -> ElasticQuota {
    quota(name).below("A").min("cpu=10").max("cpu=100")
}

fn create(cluster: &mut Cluster, quota: &ElasticQuota, is_dry_run: bool) -> String {
    cluster.ask(quota, Change::Create { quota }, is_dry_run)
}

const NO_ROOM: &str = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: A";

/// `kubectl apply --dry-run=server` leaves nothing behind, and neither does a create that something else refuses.
#[test]
fn what_was_never_stored_leaves_no_ghost() {
    let mut cluster = parent_and([]);
    assert_eq!(create(&mut cluster, &child("a1"), true), "", "manager#26.DB-13 dry run");
    assert_eq!(create(&mut cluster, &child("a2"), true), "", "manager#26.DB-13 takes no room");
    assert_eq!(create(&mut cluster, &child("a1"), false), "", "manager#26.DB-13 real apply");
    assert_eq!(
        create(&mut cluster, &child("a1"), false),
        "",
        "manager#26.DB-13 again, after another webhook said no"
    );
    assert_eq!(
        create(&mut cluster, &child("a2"), false),
        NO_ROOM,
        "manager#26.DB-13 the room is expected to go"
    );
    let elsewhere = child("a1").within("elsewhere");
    assert_eq!(create(&mut cluster, &elsewhere, false), "AddQuota quota already exist:a1");
    cluster.now = cluster.now.saturating_add(SignedDuration::from_secs(10)).unwrap();
    assert_eq!(create(&mut cluster, &child("a2"), false), "", "manager#26.DB-13 it never came");
}

/// What another replica has admitted is found by a list, before the watch tells.
#[test]
fn a_list_is_believed_at_once() {
    let mut cluster = parent_and([child("a1")]);
    assert_eq!(create(&mut cluster, &child("a2"), false), NO_ROOM);
    let parent = quota("A").parent(true).min("cpu=10").max("cpu=100");
    cluster.topology.show_all(vec![info(&parent)]);
    assert_eq!(create(&mut cluster, &child("a2"), false), "", "a1 is gone");
    cluster.topology.show_all(vec![info(&parent), info(&child("a1").min("cpu=1"))]);
    assert_eq!(create(&mut cluster, &child("a3").min("cpu=1"), false), NO_ROOM, "a2 is still expected");
    assert_eq!(*cluster.ledger(), cluster.topology.recount());
}

#[test]
fn an_expected_change_counts_until_the_watch_shows_it() {
    let mut cluster = parent_and([child("a1")]);
    let (old, new) = (child("a1"), child("a1").min("cpu=4"));
    assert_eq!(cluster.ask(&new, Change::Update { old: &old, quota: &new }, false), "");
    // Late news of the old state changes nothing.
    cluster.topology.show(info(&old));
    assert_eq!(create(&mut cluster, &child("a2").min("cpu=6"), false), "");
    cluster.topology.show(info(&new));
    cluster.topology.show(info(&child("a2").min("cpu=6")));
    // Nothing is expected any more, so what others do is believed at once.
    cluster.topology.show(info(&child("a1").min("cpu=1")));
    assert_eq!(cluster.ledger().get("a1").unwrap().min["cpu"].value(), 1);
}

#[test]
fn an_expected_deletion_frees_the_room_and_can_be_repeated() {
    let mut cluster = parent_and([child("a1")]);
    assert_eq!(cluster.ask(&child("a1"), Change::Delete, true), "", "dry run");
    assert_eq!(create(&mut cluster, &child("a2"), false), NO_ROOM);
    assert_eq!(cluster.ask(&child("a1"), Change::Delete, false), "");
    assert_eq!(cluster.ask(&child("a1"), Change::Delete, false), "", "the first one was lost");
    assert_eq!(cluster.ask(&quota("A"), Change::Delete, false), "", "no children are expected");
    cluster.now = cluster.now.saturating_add(SignedDuration::from_secs(11)).unwrap();
    assert_eq!(create(&mut cluster, &child("a2"), false), NO_ROOM, "a finalizer keeps it");
}

#[test]
fn what_the_debug_page_shows() {
    let cluster = parent_and([child("a1")]);
    let quota = |name: &str, parent: &str, is_parent: bool| {
        json!({"name": name, "parentName": parent, "isParent": is_parent, "allowLentResource": true,
            "max": {"cpu": "100"}, "min": {"cpu": "10"}})
    };
    let want = json!({
        "quotaInfoMap": {"A": quota("A", "koordinator-root-quota", true), "a1": quota("a1", "A", false)},
        "quotaHierarchyInfo": {"A": ["a1"], "a1": [], "koordinator-root-quota": ["A"]},
    });
    assert_eq!(cluster.ledger().summary(), want);
}

/// What can happen to quotas, in any order: duplicates, late news, two quotas of one name, lost requests, a relist.
#[derive(Clone, Debug)]
enum Step {
    Show(QuotaInfo),
    Gone(QuotaKey),
    Expect(QuotaInfo),
    ExpectGone(QuotaKey),
    Wait(i64),
    Relist,
}

fn any_info() -> impl Strategy<Value = QuotaInfo> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let namespace = prop::sample::select(vec!["n1", "n2"]);
    let parent = prop::sample::select(vec!["", "a", "b", "c", "koordinator-root-quota"]);
    let bound = prop::collection::vec(prop::sample::select(vec!["x", "y"]), 0..3);
    (name, namespace, parent, bound).prop_map(|(name, namespace, parent, bound)| {
        let namespaces = serde_json::to_string(&bound).unwrap();
        info(&quota(name).within(namespace).below(parent).namespaces(&namespaces))
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_info().prop_map(Step::Show),
        1 => any_info().prop_map(|info| Step::Gone(info.key)),
        2 => any_info().prop_map(Step::Expect),
        1 => any_info().prop_map(|info| Step::ExpectGone(info.key)),
        1 => (0..12_i64).prop_map(Step::Wait),
        1 => Just(Step::Relist),
    ]
}

proptest! {
    #[test]
    fn ledger_equals_recount(steps in prop::collection::vec(any_step(), 0..60)) {
        let mut topology = Topology::default();
        let mut now = Timestamp::UNIX_EPOCH;
        for step in steps {
            match step.clone() {
                Step::Show(info) => topology.show(info),
                Step::Gone(key) => topology.gone(&key),
                Step::Expect(info) => topology.expect(info, now),
                Step::ExpectGone(key) => topology.expect_gone(key, now),
                Step::Wait(seconds) => {
                    now = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
                    topology.expire(now);
                }
                Step::Relist => {
                    let listed: Vec<_> = topology.known.values().cloned().collect();
                    listed.into_iter().for_each(|info| topology.show((*info).clone()));
                }
            }
            prop_assert_eq!(topology.ledger(), &topology.recount(), "after {:?}", step);
        }
        now = now.saturating_add(EXPECTED_FOR).unwrap();
        topology.expire(now);
        prop_assert_eq!(topology.ledger(), &Ledger::recount(topology.known.values()), "nothing is expected for ever");
    }
}
