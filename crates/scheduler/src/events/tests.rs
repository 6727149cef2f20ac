use super::*;
use crate::fake::{FakeApi, Reply, subject};
use crate::load::Limits;

fn note(pod: &str, reason: &'static str, text: &str) -> Box<Note> {
    Box::new(Note {
        about: subject(pod),
        related: None,
        scheduler: "koord-scheduler".into(),
        is_warning: reason == "FailedScheduling",
        reason,
        action: "Scheduling",
        note: text.to_owned(),
    })
}

fn scene(api: &FakeApi) -> (Notes, Worker, Arc<Load>) {
    let load = Arc::new(Load::new(Limits::default()));
    let (notes, worker) = notes(api.client(), load.clone());
    (notes, worker, load)
}

#[tokio::test]
async fn all_are_sent_before_the_end_and_repeats_become_a_series() {
    let api = FakeApi::scripted([]);
    let (notes, worker, load) = scene(&api);
    for number in 0..100 {
        notes.tell(note(&format!("p{number}"), "Scheduled", "Successfully assigned"));
    }
    for text in ["no cpu", "no cpu", "no cpu", "no memory"] {
        notes.tell(note("waits", "FailedScheduling", text));
    }
    assert_eq!(load.notes(), 104);
    drop(notes);
    worker.run(CancellationToken::new()).await;
    assert_eq!(load.notes(), 0);
    let seen = api.seen();
    let posts: Vec<_> = seen.iter().filter(|seen| seen.line.starts_with("POST")).collect();
    assert_eq!(posts.len(), 102, "another text is another event");
    assert_eq!(posts[0].line, "POST /apis/events.k8s.io/v1/namespaces/ns/events");
    assert_eq!(posts[0].body["reportingController"], "koord-scheduler");
    let patches: Vec<_> = seen.iter().filter(|seen| seen.line.starts_with("PATCH")).collect();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].body["series"]["count"], 2);
}

#[tokio::test]
async fn events_about_nodes_are_in_the_default_namespace() {
    let api = FakeApi::scripted([]);
    let (notes, worker, _load) = scene(&api);
    notes
        .tell(Box::new(Note { about: Subject::node("n1", "u1"), ..*note("x", "Malformed", "what it says") }));
    drop(notes);
    worker.run(CancellationToken::new()).await;
    let seen = api.seen();
    assert_eq!(seen[0].line, "POST /apis/events.k8s.io/v1/namespaces/default/events");
    let regarding = &seen[0].body["regarding"];
    assert_eq!((&regarding["kind"], &regarding["name"]), (&"Node".into(), &"n1".into()));
    assert!(regarding["namespace"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_waited_for() {
    let api = FakeApi::scripted([Reply::Broken, Reply::Broken]);
    let (notes, worker, load) = scene(&api);
    notes.tell(note("a", "Scheduled", "x"));
    drop(notes);
    worker.run(CancellationToken::new()).await;
    assert_eq!((api.seen().len(), load.notes()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_ever() {
    let api = FakeApi::new(|_| Reply::Broken);
    let (notes, worker, _load) = scene(&api);
    notes.tell(note("a", "Scheduled", "x"));
    let stop = CancellationToken::new();
    stop.cancel();
    // `notes` lives on; the time limit ends it.
    worker.run(stop).await;
    assert!(api.seen().len() > 1);
    drop(notes);
}

#[test]
fn events_make_way_for_bindings() {
    for (name, writes, notes, is_stopping, want) in [
        ("quiet", 0, 10, false, AT_ONCE),
        ("some bindings", QUIET, 10, false, AT_ONCE / 4),
        ("busy", BUSY, 10, false, 1),
        ("busy, but too many wait", BUSY, 50, false, AT_ONCE),
        ("busy, but it ends", BUSY, 10, true, AT_ONCE),
    ] {
        let load = Load::new(Limits { writes: 1000, notes: 100 });
        (0..writes).for_each(|_| load.begin_write());
        (0..notes).for_each(|_| load.begin_note());
        assert_eq!(width(&load, is_stopping), want, "{name}");
    }
}
