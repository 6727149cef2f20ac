//! Rollouts decided case by case.

use serde_json::{Value, json};

use super::rollout::{Step, plan};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn deployment(replicas: i64, surge: Value, unavailable: Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": "d", "uid": "dep", "generation": 1}, "spec": {
        "replicas": replicas, "progressDeadlineSeconds": 60, "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("new"),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
    }, "status": {}})
}

/// A ReplicaSet: template, size wanted, size available, size noted of the Deployment and its maximum.
fn set(image: &str, replicas: i64, available: i64, noted: (i64, i64), revision: i64) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": format!("web-{image}"), "namespace": "d", "uid": image, "annotations": {
            REVISION: revision.to_string(), DESIRED_REPLICAS: noted.0.to_string(), MAX_REPLICAS: noted.1.to_string()}},
        "spec": {"replicas": replicas, "template": template(image)},
        "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available},
    }))
    .unwrap()
}

fn steps(object: &Value, sets: Vec<ReplicaSet>) -> Vec<String> {
    let plan = plan(&Deployment::read(object).unwrap(), sets, &[], at(0));
    let show = |step: &Step| match step {
        Step::Create { replicas, .. } => Some(format!("create {replicas}")),
        Step::Scale { key, from, to, .. } => {
            Some(format!("{} {from}-{to}", key.trim_start_matches("d/web-")))
        }
        Step::Delete { key, .. } => Some(format!("delete {}", key.trim_start_matches("d/web-"))),
        Step::Annotate { .. } => None,
    };
    plan.steps.iter().filter_map(show).collect()
}

#[test]
fn a_rollout_keeps_to_its_limits() {
    let d = |replicas| deployment(replicas, json!(2), json!(1));
    for (name, object, sets, want) in [
        ("the first", d(5), vec![], vec!["create 5"]),
        (
            "a second one starts within the surge",
            d(5),
            vec![set("old", 5, 5, (5, 7), 1)],
            vec!["create 2", "old 5-4"],
        ),
        (
            "the old makes room",
            d(5),
            vec![set("old", 5, 5, (5, 7), 1), set("new", 2, 0, (5, 7), 2)],
            vec!["old 5-4"],
        ),
        (
            "the new one grows",
            d(5),
            vec![set("old", 4, 4, (5, 7), 1), set("new", 2, 0, (5, 7), 2)],
            vec!["new 2-3"],
        ),
        (
            "nothing while the new is not ready",
            d(5),
            vec![set("old", 4, 4, (5, 7), 1), set("new", 3, 0, (5, 7), 2)],
            vec![],
        ),
        (
            "the old goes as the new gets ready",
            d(5),
            vec![set("old", 4, 4, (5, 7), 1), set("new", 3, 3, (5, 7), 2)],
            vec!["old 4-1"],
        ),
        (
            "sick old pods go first",
            d(5),
            vec![set("old", 5, 2, (5, 7), 1), set("new", 2, 0, (5, 7), 2)],
            vec!["old 5-4"],
        ),
        ("too large", d(5), vec![set("new", 9, 9, (5, 7), 2)], vec!["new 9-5"]),
    ] {
        assert_eq!(steps(&object, sets), want, "{name}");
    }
}

#[test]
fn a_new_size_is_spread_in_proportion() {
    let d = |replicas| deployment(replicas, json!(0), json!(1));
    for (name, object, sets, want) in [
        ("one set", d(8), vec![set("new", 5, 5, (5, 5), 1)], vec!["new 5-8"]),
        ("none active: the newest", d(4), vec![set("new", 0, 0, (0, 0), 1)], vec!["new 0-4"]),
        (
            "both grow",
            d(20),
            vec![set("old", 5, 5, (10, 10), 1), set("new", 5, 5, (10, 10), 2)],
            vec!["old 5-10", "new 5-10"],
        ),
        (
            "both shrink",
            d(5),
            vec![set("old", 8, 8, (10, 10), 1), set("new", 2, 2, (10, 10), 2)],
            vec!["old 8-4", "new 2-1"],
        ),
        (
            "to nothing",
            d(0),
            vec![set("old", 3, 3, (10, 10), 1), set("new", 7, 7, (10, 10), 2)],
            vec!["new 7-0", "old 3-0"],
        ),
    ] {
        let got = steps(&object, sets);
        let (mut sorted, mut want) = (got.clone(), want);
        sorted.sort();
        want.sort();
        assert_eq!(sorted, want, "{name}");
    }
}

#[test]
fn history_is_cut_when_the_rollout_is_complete() {
    let mut object = deployment(1, json!(1), json!(0));
    object["status"] =
        json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    let sets = vec![
        set("a", 0, 0, (1, 2), 1),
        set("b", 0, 0, (1, 2), 2),
        set("c", 0, 0, (1, 2), 3),
        set("new", 1, 1, (1, 2), 4),
    ];
    assert_eq!(steps(&object, sets), ["delete a", "delete b"]);
}

#[test]
fn a_template_seen_before_counts_as_a_new_revision() {
    let object = deployment(1, json!(1), json!(0));
    let sets = vec![set("new", 0, 0, (1, 2), 1), set("old", 1, 1, (1, 2), 2)];
    let plan = plan(&Deployment::read(&object).unwrap(), sets, &[], at(0));
    assert_eq!(plan.revision.as_deref(), Some("3"));
    let Some(Step::Annotate { annotations, .. }) = plan.steps.first() else { panic!("{:?}", plan.steps) };
    assert_eq!(annotations[REVISION_HISTORY], "1");
}

#[test]
fn progress_is_told_and_its_lack() {
    let mut object = deployment(2, json!(1), json!(0));
    let progress = |status: &Value| {
        let c = view::find_condition(status, "Progressing").unwrap();
        (c["status"].as_str().unwrap().to_owned(), c["reason"].as_str().unwrap().to_owned())
    };
    let run = |object: &Value, available: i64, now: i64| {
        let sets = vec![set("new", 2, available, (2, 3), 1)];
        plan(&Deployment::read(object).unwrap(), sets, &[], at(now))
    };
    let first = run(&object, 0, 0);
    assert_eq!(progress(&first.status), ("True".into(), "ReplicaSetUpdated".into()));
    assert_eq!(first.next, Some(at(61)));
    object["status"] = first.status;
    let late = run(&object, 0, 61);
    assert_eq!(progress(&late.status), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(late.next, None);
    object["status"] = late.status;
    let done = run(&object, 2, 100);
    assert_eq!(progress(&done.status), ("True".into(), "NewReplicaSetAvailable".into()));
    let available = view::find_condition(&done.status, "Available").unwrap();
    assert_eq!(available["reason"], "MinimumReplicasAvailable");
    assert_eq!(done.status["updatedReplicas"], 2);
}

#[test]
fn fenceposts_leave_room_to_move() {
    let percent = |text: &str| IntOrPercent::Text(text.to_owned());
    for (surge, unavailable, replicas, want) in [
        (percent("25%"), percent("25%"), 10, (3, 2)),
        (percent("25%"), percent("25%"), 1, (1, 0)),
        (percent("0%"), percent("10%"), 5, (0, 1)),
        (IntOrPercent::Int(0), IntOrPercent::Int(0), 5, (0, 1)),
    ] {
        let Strategy::Rolling { surge, unavailable } = fenceposts(Some(&surge), Some(&unavailable), replicas)
        else {
            panic!("rolling")
        };
        assert_eq!((surge, unavailable), want);
    }
}
