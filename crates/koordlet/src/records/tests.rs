use std::time::Duration;

use koord_kit::metrics::KitMetrics;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::audit::{Answer, Query};
use crate::decide::sketch::pod;
use crate::fake::{FakeApi, Seen};
use crate::metrics::KoordletMetrics;

const SUPPRESS: &str = "AdjustBEByNodeCPUUsage";

fn web(container: &'static str) -> Subject<'static> {
    Subject::Pod { uid: "web", namespace: "default", name: "web", container }
}

/// What the API server and the audit log hear of a service and a best-effort pod after `acts`.
async fn heard(per_hour: u32, acts: impl FnOnce(&Records)) -> (Vec<Seen>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let server = FakeApi::default();
    let kit = KitMetrics::new(KoordletMetrics::new("n1").internal());
    let client = server.client(|seen| (201, seen.body.clone()));
    let (recorders, workers) = Recorders::new(&client, "n1", &kit);
    let records = Records::with_events(Auditor::of_test(dir.path()), recorders, per_hour);
    records.follow(&[
        pod("web").qos("LS").kube_qos("Burstable").read(),
        pod("batch").qos("BE").kube_qos("BestEffort").read(),
        pod("done").qos("BE").kube_qos("BestEffort").phase("Succeeded").read(),
    ]);
    acts(&records);
    let start = Instant::now();
    records.tell(start);
    records.tell(start + Duration::from_secs(5));
    let Answer::Page { events, .. } = records.auditor().query(&Query::default(), start) else { panic!() };
    drop(records);
    for worker in workers {
        worker.run(CancellationToken::new()).await;
    }
    (server.seen(), events.into_iter().map(|event| format!("{} {}", event.name, event.message)).collect())
}

#[tokio::test]
async fn a_change_to_a_pod_is_an_event_on_it() {
    let (seen, log) = heard(600, |records| {
        records.record(3, web("main"), "cgroup reconcile", "update memory.min to 1, was 0".to_owned());
        records.record(3, web(""), "runtime-hooks", "update cpu.bvt_warp_ns to 2, was 0".to_owned());
        records.tell_pod("web", "", NETWORK, "update traffic class to 65539");
    })
    .await;
    assert_eq!(log, ["web update cpu.bvt_warp_ns to 2, was 0", "web update memory.min to 1, was 0"]);
    let mut told: Vec<_> = seen
        .iter()
        .map(|seen| {
            assert_eq!(seen.line, "POST /api/v1/namespaces/default/events?");
            let body = &seen.body;
            assert_eq!(body["involvedObject"]["uid"], "web");
            assert_eq!(body["involvedObject"]["kind"], "Pod");
            assert_eq!(body["type"], "Normal");
            assert_eq!((&body["source"]["host"], &body["reportingInstance"]), (&json!("n1"), &json!("n1")));
            (body["source"]["component"].clone(), body["reason"].clone(), body["message"].clone())
        })
        .collect();
    told.sort_by_key(|(_, reason, _)| reason.to_string());
    let (strategies, hooks) = (json!("koordlet-qosManager"), json!("koordlet-runtimehook"));
    assert_eq!(
        told,
        [
            (strategies, json!("CgroupReconcile"), json!("container main: update memory.min to 1, was 0")),
            (hooks.clone(), json!("NetqosReconcile"), json!("update traffic class to 65539")),
            (hooks, json!("RuntimeHooks"), json!("update cpu.bvt_warp_ns to 2, was 0")),
        ]
    );
}

/// The group of best-effort pods is theirs; what else happens to groups and the node has no pod.
#[tokio::test]
async fn what_is_done_to_the_best_effort_group_is_told_to_its_pods() {
    let text = "update BE group to cpuset: 0-1, was 0-3; capacity 4";
    let (seen, log) = heard(600, |records| {
        records.record(1, Subject::Group(BEST_EFFORT), SUPPRESS, text.to_owned());
        records.record(3, Subject::Group(BEST_EFFORT), "UpdateBlkIO", "update io.max".to_owned());
        records.record(3, Subject::Group("burstable"), SUPPRESS, "no such thing".to_owned());
        records.record(3, Subject::Node, "systemConfig reconcile", "update min_free_kbytes to 1".to_owned());
    })
    .await;
    assert_eq!(log.len(), 4);
    let told: Vec<[&serde_json::Value; 3]> = seen
        .iter()
        .map(|seen| [&seen.body["involvedObject"]["name"], &seen.body["reason"], &seen.body["message"]])
        .collect();
    let want = [["batch", SUPPRESS, text], ["batch", "UpdateBlkIO", "update io.max"]];
    assert_eq!(told, want);
}

#[tokio::test]
async fn whoever_wants_no_events_still_has_records() {
    let (seen, log) = heard(0, |records| {
        assert!(records.are_wanted(3), "by the audit log");
        records.record(3, web(""), "runtime-hooks", "m".to_owned());
    })
    .await;
    assert_eq!((seen.len(), log.len()), (0, 1));
    assert!(!Records::only(Auditor::off()).are_wanted(0));
}

#[test]
fn reasons_of_events_are_one_word() {
    for (reason, want) in [
        ("cgroup reconcile", "CgroupReconcile"),
        ("runtime-hooks", "RuntimeHooks"),
        ("AdjustBEByNodeCPUUsage", "AdjustBEByNodeCPUUsage"),
        ("suppressBECPU", "SuppressBECPU"),
        ("give back", "GiveBack"),
    ] {
        assert_eq!(camel_case(reason), want);
    }
}
