//! Jobs decided case by case.

use super::super::super::view::LabelSet;
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    Job::read(
        &json!({"metadata": {"name": "j", "namespace": "d", "uid": "job"}, "spec": spec, "status": status}),
    )
    .unwrap()
}

fn pod(name: &str, phase: Phase) -> Pod {
    Pod {
        name: name.into(),
        namespace: "d".into(),
        uid: name.into(),
        labels: LabelSet::default(),
        phase,
        is_tracked: true,
        created: Some(at(0)),
        finished: (phase > Phase::Running).then(|| at(100)),
        ..Pod::default()
    }
}

fn indexed(index: i64, phase: Phase) -> Pod {
    Pod { index: Some(index), ..pod(&format!("p{index}"), phase) }
}

fn run(job: &Job, pods: &[Pod], now: i64) -> Plan {
    plan(job, &pods.iter().collect::<Vec<_>>(), &Backoff::default(), at(now))
}

#[test]
fn as_many_pods_as_wanted_are_made() {
    let running = |n: usize| (0..n).map(|i| pod(&format!("r{i}"), Phase::Running)).collect::<Vec<_>>();
    for (name, spec, status, pods, create, delete) in [
        ("first", json!({"parallelism": 2, "completions": 5}), json!({}), running(0), 2, 0),
        ("more", json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 1}), running(2), 1, 0),
        ("the last", json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 4}), running(0), 1, 0),
        ("fewer", json!({"parallelism": 1, "completions": 5}), json!({}), running(3), 0, 2),
        ("work queue", json!({"parallelism": 3}), json!({}), running(1), 2, 0),
        ("work queue, one done", json!({"parallelism": 3}), json!({"succeeded": 1}), running(1), 0, 0),
        (
            "suspended",
            json!({"parallelism": 3, "completions": 3, "suspend": true}),
            json!({}),
            running(2),
            0,
            2,
        ),
    ] {
        let plan = run(&job(spec, status), &pods, 50);
        assert_eq!((plan.create.len(), plan.delete.len()), (create, delete), "{name}");
        assert!(plan.delete.iter().all(|(_, _, is_let_go)| *is_let_go), "{name}");
        assert!(plan.finish.is_none(), "{name}");
    }
}

#[test]
fn pods_are_counted_once() {
    let job_of = |status: Value| job(json!({"parallelism": 2, "completions": 2, "backoffLimit": 3}), status);
    let pods = [pod("a", Phase::Succeeded), pod("b", Phase::Running)];
    let plan = run(&job_of(json!({})), &pods, 50);
    assert_eq!(plan.status["uncountedTerminatedPods"], json!({"succeeded": ["a"]}));
    assert_eq!(plan.release.len(), 1);
    let released = HashSet::from([Box::from("a")]);
    let settled = settle(&plan.status, &released, None, at(50));
    assert_eq!(settled["succeeded"], 1);
    assert_eq!(settled["uncountedTerminatedPods"], json!({}));
    // The same pod, let go but still there.
    let pods = [Pod { is_tracked: false, ..pod("a", Phase::Succeeded) }, pod("b", Phase::Succeeded)];
    let plan = run(&job_of(settled), &pods, 60);
    assert_eq!(plan.finish.as_ref().map(|end| end.is_success), Some(true));
    let released = HashSet::from([Box::from("b")]);
    let settled = settle(&plan.status, &released, plan.finish.as_ref(), at(60));
    assert_eq!(settled["succeeded"], 2);
    let types: Vec<&str> =
        settled["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["SuccessCriteriaMet", "Complete"]);
    assert_eq!(settled["conditions"][1]["reason"], "CompletionsReached");
    assert_eq!(settled["completionTime"], "1970-01-01T00:01:00Z");
    assert_eq!((settled["ready"].as_i64(), settled.get("active")), (Some(0), None));
}

#[test]
fn failures_back_off_and_end_the_job() {
    let job_of =
        |limit: i64| job(json!({"parallelism": 1, "completions": 1, "backoffLimit": limit}), json!({}));
    let pods = [pod("a", Phase::Failed)];
    let waiting = run(&job_of(3), &pods, 105);
    assert_eq!((waiting.create.len(), waiting.next), (0, Some(at(110))));
    assert_eq!(waiting.status["uncountedTerminatedPods"], json!({"failed": ["a"]}));
    assert_eq!(run(&job_of(3), &pods, 110).create.len(), 1);
    let pods = [pod("a", Phase::Failed), pod("b", Phase::Running)];
    let over = run(&job_of(0), &pods, 105);
    assert_eq!(over.delete, [("d/b".to_owned(), "b".into(), false)]);
    assert!(over.finish.is_none(), "the other pod is waited for");
    assert_eq!(over.status["conditions"][0]["type"], "FailureTarget");
    assert_eq!(over.status["conditions"][0]["reason"], "BackoffLimitExceeded");
    let last = job(json!({"parallelism": 1, "completions": 1, "backoffLimit": 0}), over.status);
    let plan = run(&last, &[], 106);
    let all = HashSet::from([Box::from("a"), Box::from("b")]);
    let settled = settle(&plan.status, &all, plan.finish.as_ref(), at(106));
    assert_eq!(
        (settled["failed"].as_i64(), settled["conditions"][1]["type"].as_str()),
        (Some(2), Some("Failed"))
    );
    assert!(settled.get("completionTime").is_none());
}

#[test]
fn a_deadline_ends_the_job() {
    let spec = json!({"parallelism": 1, "completions": 1, "activeDeadlineSeconds": 30});
    let running = [pod("a", Phase::Running)];
    let plan = run(&job(spec.clone(), json!({})), &running, 0);
    assert_eq!((plan.next, plan.status["startTime"].as_str()), (Some(at(30)), Some("1970-01-01T00:00:00Z")));
    let plan = run(&job(spec, plan.status), &running, 30);
    assert_eq!(plan.status["conditions"][0]["reason"], "DeadlineExceeded");
    assert_eq!(plan.delete.len(), 1);
}

#[test]
fn indexes_are_made_and_marked_off() {
    let spec = json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"});
    let pods = [indexed(0, Phase::Succeeded), indexed(1, Phase::Running), indexed(9, Phase::Succeeded)];
    let plan = run(&job(spec.clone(), json!({})), &pods, 50);
    assert_eq!(plan.create, [Some(2)]);
    assert_eq!(
        (plan.status["succeeded"].as_i64(), plan.status["completedIndexes"].as_str()),
        (Some(1), Some("0"))
    );
    assert_eq!(plan.status["uncountedTerminatedPods"], json!({}), "indexes are the count");
    let twice = [
        Pod { name: "first".into(), ready: Some(at(1)), ..indexed(1, Phase::Running) },
        Pod { name: "second".into(), ..indexed(1, Phase::Running) },
    ];
    let plan = run(&job(spec.clone(), plan.status), &twice, 50);
    assert_eq!(plan.delete.len(), 1);
    assert_eq!(plan.delete[0].0, "d/second");
    let done =
        job(spec, json!({"completedIndexes": "0-3", "succeeded": 4, "startTime": "1970-01-01T00:00:00Z"}));
    assert!(run(&done, &[], 60).finish.is_some_and(|end| end.is_success));
}

#[test]
fn a_suspended_job_resumes() {
    let spec = |is: bool| json!({"parallelism": 1, "completions": 1, "suspend": is});
    let plan = run(&job(spec(true), json!({"startTime": "1970-01-01T00:00:00Z"})), &[], 10);
    assert_eq!(plan.events, [("Suspended", "Job suspended")]);
    assert!(plan.status.get("startTime").is_none());
    let plan = run(&job(spec(false), plan.status), &[], 20);
    assert_eq!(plan.events, [("Resumed", "Job resumed")]);
    assert_eq!(plan.status["startTime"], "1970-01-01T00:00:20Z");
    assert_eq!(plan.create.len(), 1);
}
