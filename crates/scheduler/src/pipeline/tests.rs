use super::*;
use crate::events;
use crate::fake::{FakeApi, Reply, Seen, subject};
use crate::load::Limits;
use koord_engine::engine::command::{BindPlan, Binding, Condition, PreemptOrder, StatusPatch};
use serde_json::json;
use tokio_util::sync::CancellationToken;

struct Scene {
    front: Pipeline,
    outcomes: mpsc::UnboundedReceiver<Input>,
    load: Arc<Load>,
    work: tokio::task::JoinHandle<()>,
    notes: events::Worker,
}

fn scene(api: &FakeApi) -> Scene {
    scene_of(api, true)
}

fn scene_of(api: &FakeApi, leads: bool) -> Scene {
    scene_with(api, leads, Vec::new())
}

fn scene_with(api: &FakeApi, leads: bool, extenders: Vec<Arc<Http>>) -> Scene {
    let load = Arc::new(Load::new(Limits::default()));
    let (notes, worker) = events::notes(api.client(), load.clone());
    let (front, pipe, outcomes) = pipeline(Means {
        client: api.client(),
        load: load.clone(),
        notes,
        metrics: SchedulerMetrics::default(),
        may_write: Arc::new(move || leads),
        extenders,
    });
    Scene { front, outcomes, load, work: tokio::spawn(pipe.run()), notes: worker }
}

impl Scene {
    async fn outcome(&mut self) -> (String, Outcome) {
        match self.outcomes.recv().await {
            Some(Input::Outcome { uid, outcome }) => (uid, outcome),
            other => panic!("{other:?}"),
        }
    }

    /// Lets everything end; nothing more comes out.
    async fn end(self) -> Vec<Input> {
        let Scene { front, mut outcomes, load, work, notes } = self;
        drop(front);
        work.await.unwrap();
        notes.run(CancellationToken::new()).await;
        assert_eq!((load.writes(), load.notes()), (0, 0));
        let mut rest = Vec::new();
        while let Some(input) = outcomes.recv().await {
            rest.push(input);
        }
        rest
    }
}

fn bind(name: &str) -> Command {
    Command::Bind(Binding {
        pod: subject(name),
        node: "n1".into(),
        scheduler: "s".into(),
        extender: None,
        waits_for_room: false,
    })
}

fn status(name: &str, message: &str) -> Command {
    let condition = Condition {
        reason: "Unschedulable",
        message: message.to_owned(),
        observed_generation: 3,
        is_new: false,
    };
    let nominated = Some("n2".into());
    Command::PatchStatus(Box::new(StatusPatch { pod: subject(name), condition: Some(condition), nominated }))
}

#[tokio::test]
async fn a_binding_is_small_and_names_the_uid() {
    let api = FakeApi::scripted([]);
    let mut scene = scene(&api);
    scene.front.take(bind("a"));
    assert_eq!(scene.outcome().await, ("uid-a".to_owned(), Outcome::Bound));
    assert!(scene.end().await.is_empty());
    let want = Seen {
        line: "POST /api/v1/namespaces/ns/pods/a/binding".to_owned(),
        form: "application/json".to_owned(),
        body: json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": "ns", "name": "a", "uid": "uid-a"}, "target": {"kind": "Node", "name": "n1"}}),
    };
    assert_eq!(api.seen(), [want]);
}

#[tokio::test(start_paused = true)]
async fn every_binding_has_exactly_one_outcome() {
    let pod = |uid: &str, node: &str| {
        Reply::Answer(200, json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}}).to_string())
    };
    let failed = |message: &str| Outcome::BindFailed { message: message.to_owned() };
    for (name, replies, want) in [
        ("refused", vec![Reply::refused(404, "pods \"a\" not found")], failed("pods \"a\" not found")),
        (
            "refused without words",
            vec![Reply::Answer(403, "no".to_owned())],
            failed("the server answered 403 Forbidden"),
        ),
        ("answer lost, bound", vec![Reply::Broken, pod("uid-a", "n1")], Outcome::Bound),
        (
            "answer lost, not bound",
            vec![Reply::Broken, pod("uid-a", "")],
            failed("ServiceError: connection reset"),
        ),
        (
            "answer lost, bound elsewhere",
            vec![Reply::refused(500, "etcd"), pod("uid-a", "n2")],
            failed("etcd"),
        ),
        (
            "conflict with ourselves",
            vec![Reply::refused(409, "already assigned"), pod("uid-a", "n1")],
            Outcome::Bound,
        ),
        ("another pod of the name", vec![Reply::refused(409, "uid"), pod("uid-b", "n1")], failed("uid")),
        (
            "nobody answers any more",
            (0..5).map(|_| Reply::Broken).collect(),
            failed("ServiceError: connection reset"),
        ),
    ] {
        let api = FakeApi::scripted(replies);
        let mut scene = scene(&api);
        scene.front.take(bind("a"));
        let (uid, outcome) = scene.outcome().await;
        assert_eq!((uid.as_str(), outcome), ("uid-a", want), "{name}");
        assert!(scene.end().await.is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_binds_and_one_that_may_be_ignored_is_replaced() {
    use crate::extender::tests::{Server, config};
    let failing = json!({"error": "taken"});
    for (answer, ignorable, want, posts) in [
        (json!({}), false, Outcome::Bound, 0),
        (failing.clone(), false, Outcome::BindFailed { message: "taken".to_owned() }, 0),
        (failing, true, Outcome::Bound, 1),
    ] {
        let mut settings = config(&Server::answering(&[("bind", answer)]).start().await);
        settings.ignorable = ignorable;
        let extender = Arc::new(Http::new(&settings).await.unwrap());
        let api = FakeApi::scripted([]);
        let mut scene = scene_with(&api, true, vec![extender]);
        let (pod, node, scheduler) = (subject("a"), "n1".into(), "s".into());
        let (extender, waits_for_room) = (Some(0), false);
        scene.front.take(Command::Bind(Binding { pod, node, scheduler, extender, waits_for_room }));
        assert_eq!(scene.outcome().await, ("uid-a".to_owned(), want));
        assert_eq!(api.lines().iter().filter(|line| line.ends_with("/binding")).count(), posts);
    }
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let api = FakeApi::scripted([]);
    let mut scene = scene_of(&api, false);
    scene.front.take(bind("a"));
    scene.front.take(status("b", "x"));
    let message = NOT_LEADING.to_owned();
    assert_eq!(scene.outcome().await, ("uid-a".to_owned(), Outcome::BindFailed { message }));
    assert!(scene.end().await.is_empty());
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn one_pod_is_served_in_order_and_others_beside_it() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let api = FakeApi::new(move |seen| match seen.line.contains("/pods/a/status") {
        true => Reply::Held(held.clone(), 200),
        false => Reply::ok(),
    });
    let mut scene = scene(&api);
    scene.front.take(status("a", "first"));
    scene.front.take(bind("a"));
    scene.front.take(bind("b"));
    assert_eq!(scene.outcome().await.0, "uid-b");
    assert!(!api.lines().iter().any(|line| line.contains("/pods/a/binding")), "{:?}", api.lines());
    gate.notify_one();
    assert_eq!(scene.outcome().await.0, "uid-a");
    assert!(scene.end().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_merged_and_tried_four_times() {
    let api = FakeApi::scripted([Reply::refused(500, "x"), Reply::Broken, Reply::refused(503, "x")]);
    let mut scene = scene(&api);
    scene.front.take(status("a", "no room"));
    assert!(scene.end().await.is_empty());
    let seen = api.seen();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[3].line, "PATCH /api/v1/namespaces/ns/pods/a/status");
    assert_eq!(seen[3].form, "application/strategic-merge-patch+json");
    let row = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room",
        "lastProbeTime": null, "observedGeneration": 3});
    let want =
        json!({"metadata": {"uid": "uid-a"}, "status": {"conditions": [row], "nominatedNodeName": "n2"}});
    assert_eq!(seen[3].body, want);
    // A refusal that stays one is not repeated, and one that ends all tries is let go.
    for (replies, tries) in
        [(vec![Reply::refused(422, "x")], 1), ((0..4).map(|_| Reply::Broken).collect(), 4)]
    {
        let api = FakeApi::scripted(replies);
        let mut scene = self::scene(&api);
        scene.front.take(status("a", "no room"));
        assert!(scene.end().await.is_empty());
        assert_eq!(api.seen().len(), tries);
    }
}

fn plan() -> BindPlan {
    let volume = json!({"metadata": {"name": "pv", "uid": "u1", "resourceVersion": "7",
        "annotations": {"bound": "yes"}}, "spec": {"claimRef": {"name": "c"}}});
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u2", "resourceVersion": "8",
        "annotations": {"node": "n1"}}});
    BindPlan {
        pod: Some(subject("a")),
        node: "n1".into(),
        nominates: true,
        volumes: vec![serde_json::from_value(volume).unwrap()],
        claims: vec![serde_json::from_value(claim).unwrap()],
        annotations: [("x".to_owned(), Some("1".to_owned())), ("y".to_owned(), None)].into(),
        ..BindPlan::default()
    }
}

fn volumes(version: &'static str) -> FakeApi {
    FakeApi::new(move |seen| match seen.line.as_str() {
        "GET /api/v1/persistentvolumes/pv" => {
            let stored = json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"novel": 1},
                "metadata": {"name": "pv", "uid": "u1", "resourceVersion": version}});
            Reply::Answer(200, stored.to_string())
        }
        "GET /api/v1/namespaces/ns/persistentvolumeclaims/c" => {
            let stored = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c", "namespace": "ns", "uid": "u2", "resourceVersion": "8"}});
            Reply::Answer(200, stored.to_string())
        }
        _ => Reply::ok(),
    })
}

#[tokio::test]
async fn everything_before_a_bind_is_written_in_order() {
    let api = volumes("7");
    let mut scene = scene(&api);
    scene.front.take(Command::Prepare(Box::new(plan())));
    assert_eq!(scene.outcome().await, ("uid-a".to_owned(), Outcome::Prepared));
    assert!(scene.end().await.is_empty());
    let want = [
        "PATCH /api/v1/namespaces/ns/pods/a/status",
        "GET /api/v1/persistentvolumes/pv",
        "PUT /api/v1/persistentvolumes/pv",
        "GET /api/v1/namespaces/ns/persistentvolumeclaims/c",
        "PUT /api/v1/namespaces/ns/persistentvolumeclaims/c",
        "PATCH /api/v1/namespaces/ns/pods/a",
    ];
    assert_eq!(api.lines(), want);
    let seen = api.seen();
    assert_eq!(seen[2].body["spec"], json!({"claimRef": {"name": "c"}, "novel": 1}));
    assert_eq!(seen[2].body["metadata"]["resourceVersion"], "7");
    let want = json!({"metadata": {"uid": "uid-a", "annotations": {"x": "1", "y": null}}});
    assert_eq!(seen[5].body, want);
}

#[tokio::test(start_paused = true)]
async fn what_stops_a_preparation_is_told_in_full() {
    let failed = |text: &str| Outcome::PrepareFailed { message: text.to_owned() };
    let mut scene = scene(&volumes("9"));
    scene.front.take(Command::Prepare(Box::new(plan())));
    let text = "running PreBind plugin \"VolumeBinding\": binding volumes: Operation cannot be fulfilled on \
        persistentvolumes \"pv\": the object has been modified; please apply your changes to the latest version and \
        try again";
    assert_eq!(scene.outcome().await.1, failed(text));
    let only_annotations = BindPlan { nominates: false, volumes: vec![], claims: vec![], ..plan() };
    let frame = "running PreBindExtension plugin \"DefaultPreBind\": ";
    let deleting = || Reply::Answer(200, json!({"metadata": {"deletionTimestamp": "t"}}).to_string());
    for (name, replies, text, tries) in [
        ("being deleted", vec![deleting()], "pod is being deleted", 1),
        ("conflicts pass", vec![Reply::refused(409, "x"), deleting()], "pod is being deleted", 2),
        ("gone", vec![Reply::refused(404, "pods \"a\" not found")], "pods \"a\" not found", 1),
    ] {
        let api = FakeApi::scripted(replies);
        let mut scene = self::scene(&api);
        scene.front.take(Command::Prepare(Box::new(only_annotations.clone())));
        assert_eq!(scene.outcome().await.1, failed(&format!("{frame}{text}")), "{name}");
        assert_eq!(api.seen().len(), tries, "{name}");
    }
}

fn order(victims: &[&str]) -> Command {
    Command::Preempt(Box::new(PreemptOrder {
        preemptor: subject("p"),
        scheduler: "s".into(),
        node: "n1".into(),
        victims: victims.iter().map(|name| subject(name)).collect(),
    }))
}

#[tokio::test]
async fn victims_are_marked_deleted_and_told_and_the_last_goes_last() {
    let api = FakeApi::new(|seen| match seen.line.as_str() {
        // This one has gone by itself.
        "PATCH /api/v1/namespaces/ns/pods/gone/status" => Reply::refused(404, "pods \"gone\" not found"),
        _ => Reply::ok(),
    });
    let mut scene = scene(&api);
    scene.front.take(order(&["v1", "gone", "last"]));
    assert_eq!(scene.outcome().await, ("uid-p".to_owned(), Outcome::Preempted));
    assert!(scene.end().await.is_empty());
    let lines = api.lines();
    let at = |line: &str| {
        lines.iter().position(|seen| seen == line).unwrap_or_else(|| panic!("{line} in {lines:?}"))
    };
    let mark = at("PATCH /api/v1/namespaces/ns/pods/v1/status");
    let delete = at("DELETE /api/v1/namespaces/ns/pods/v1");
    assert!(mark < delete && delete < at("PATCH /api/v1/namespaces/ns/pods/last/status"), "{lines:?}");
    assert!(!lines.contains(&"DELETE /api/v1/namespaces/ns/pods/gone".to_owned()), "{lines:?}");
    let seen = api.seen();
    let row = &seen[mark].body["status"]["conditions"][0];
    assert_eq!(row["type"], "DisruptionTarget");
    assert_eq!(row["reason"], "PreemptionByScheduler");
    assert_eq!(row["message"], "s: preempting to accommodate a higher priority pod");
    assert_eq!(seen[delete].body["preconditions"]["uid"], "uid-v1");
    let events: Vec<&Seen> = seen.iter().filter(|seen| seen.line.contains("/events")).collect();
    assert_eq!(events.len(), 2);
    let told = events.iter().find(|event| event.body["regarding"]["name"] == "v1").unwrap();
    assert_eq!(told.body["note"], "Preempted by pod uid-p on node n1");
    assert_eq!((&told.body["reason"], &told.body["action"]), (&json!("Preempted"), &json!("Preempting")));
    assert_eq!(told.body["related"]["name"], "p");
    assert_eq!(told.body["reportingController"], "s");
}

#[tokio::test]
async fn a_victim_that_cannot_go_spares_the_last() {
    let api = FakeApi::new(|seen| match seen.line.as_str() {
        "DELETE /api/v1/namespaces/ns/pods/v1" => Reply::refused(403, "not allowed"),
        _ => Reply::ok(),
    });
    let mut scene = scene(&api);
    scene.front.take(order(&["v1", "last"]));
    let message = "not allowed".to_owned();
    assert_eq!(scene.outcome().await, ("uid-p".to_owned(), Outcome::PreemptFailed { message }));
    assert!(scene.end().await.is_empty());
    assert!(!api.lines().iter().any(|line| line.contains("/pods/last")), "{:?}", api.lines());
}

mod reservations;
