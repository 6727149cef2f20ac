use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn note(pod: &str, text: &str) -> Note {
    Note {
        regarding: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some(pod.to_owned()),
            uid: Some(format!("uid-{pod}")),
            ..ObjectReference::default()
        },
        related: None,
        kind: EventType::Warning,
        reason: "FailedScheduling".to_owned(),
        action: "Scheduling".to_owned(),
        text: text.to_owned(),
    }
}

/// What became of a note, in a word: `create NAME MESSAGE`, `patch NAME COUNT`, or `skip`.
fn word(verdict: &Verdict<CoreEvent>) -> String {
    match verdict {
        Verdict::Skip => "skip".to_owned(),
        Verdict::Create(event) => format!("create {}", event.message.clone().unwrap()),
        Verdict::Patch { event, patch } => {
            assert_eq!(patch["count"], event.count.unwrap());
            format!("patch {} {}", event.count.unwrap(), event.message.clone().unwrap())
        }
    }
}

#[test]
fn a_repeat_raises_the_count() {
    let mut correlator = Correlator::new("koord-scheduler", "");
    let Verdict::Create(first) = correlator.take(at(0), note("web", "no cpu")) else { panic!("created") };
    assert_eq!(first.metadata.name.as_deref(), Some("web.17979cfe362a0000"));
    assert_eq!(first.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(first.source.as_ref().unwrap().component.as_deref(), Some("koord-scheduler"));
    for count in 2..5 {
        let verdict = correlator.take(at(i64::from(count)), note("web", "no cpu"));
        let Verdict::Patch { event, patch } = &verdict else { panic!("{verdict:?}") };
        assert_eq!(event.metadata.name, first.metadata.name);
        assert_eq!(event.first_timestamp, first.first_timestamp);
        assert_eq!(patch["count"], count);
        assert_eq!(patch["message"], "no cpu");
        let time = serde_json::to_value(&event.last_timestamp).unwrap();
        assert_eq!(patch["lastTimestamp"], time);
    }
    assert_eq!(word(&correlator.take(at(9), note("db", "no cpu"))), "create no cpu");
}

#[test]
fn similar_events_become_one() {
    let mut correlator = Correlator::new("koord-scheduler", "");
    for number in 0..9 {
        let verdict = correlator.take(at(number), note("web", &format!("node {number}")));
        assert_eq!(word(&verdict), format!("create node {number}"));
    }
    assert_eq!(
        word(&correlator.take(at(9), note("web", "node 9"))),
        "create (combined from similar events): node 9"
    );
    assert_eq!(
        word(&correlator.take(at(10), note("web", "node 10"))),
        "patch 2 (combined from similar events): node 10"
    );
    // After ten quiet minutes they are told one by one again.
    assert_eq!(word(&correlator.take(at(611), note("web", "node 11"))), "create node 11");
}

#[test]
fn a_flood_about_one_object_is_held_back() {
    let mut correlator = Correlator::new("koord-scheduler", "");
    let told = |correlator: &mut Correlator, second: i64| {
        word(&correlator.take(at(second), note("web", "again"))) != "skip"
    };
    assert_eq!((0..100).filter(|_| told(&mut correlator, 0)).count(), 25);
    assert!(!told(&mut correlator, 299));
    assert!(told(&mut correlator, 301));
    assert!(!told(&mut correlator, 302));
    // Skipped ones were counted all the same.
    let verdict = correlator.take(at(700), note("web", "again"));
    assert_eq!(word(&verdict), "patch 104 again");
    // Other objects are not affected.
    assert_eq!(word(&correlator.take(at(0), note("db", "again"))), "create again");
}

#[test]
fn the_servers_word_on_a_name_is_taken() {
    let mut correlator = Correlator::new("koord-scheduler", "");
    let Verdict::Create(mut event) = correlator.take(at(0), note("web", "x")) else { panic!("created") };
    event.metadata.name = Some("renamed".to_owned());
    correlator.stored(&event);
    let Verdict::Patch { event, .. } = correlator.take(at(1), note("web", "x")) else { panic!("patched") };
    assert_eq!(event.metadata.name.as_deref(), Some("renamed"));
}

#[test]
fn a_series_grows_quietly_and_ends_with_its_count() {
    let mut book = SeriesBook::new("koord-scheduler", "koord-scheduler-h1");
    let Verdict::Create(first) = book.take(at(0), note("web", "no cpu")) else { panic!("created") };
    let json = serde_json::to_value(&first).unwrap();
    assert_eq!(json["eventTime"], "2023-11-14T22:13:20.000000Z");
    assert_eq!(json["reportingController"], "koord-scheduler");
    assert_eq!(json["reportingInstance"], "koord-scheduler-h1");
    assert_eq!((json["action"].as_str(), json["note"].as_str()), (Some("Scheduling"), Some("no cpu")));
    let Verdict::Patch { event, patch } = book.take(at(10), note("web", "still no cpu")) else {
        panic!("patched")
    };
    assert_eq!(event.metadata.name, first.metadata.name);
    assert_eq!(
        patch.to_string(),
        r#"{"series":{"count":2,"lastObservedTime":"2023-11-14T22:13:30.000000Z"}}"#
    );
    assert_eq!(book.take(at(20), note("web", "no cpu")), Verdict::Skip);
    assert_eq!(book.take(at(30), note("web", "no cpu")), Verdict::Skip);
    assert_eq!(book.tidy(at(300)), []);
    let ended = book.tidy(at(400));
    let [Verdict::Patch { patch, .. }] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(patch["series"]["count"], 4);
    assert_eq!(book.tidy(at(900)), []);
    // A new event begins after that.
    assert!(matches!(book.take(at(1000), note("web", "no cpu")), Verdict::Create(_)));
}

#[test]
fn a_long_series_is_refreshed_before_it_expires() {
    let mut book = SeriesBook::new("koord-scheduler", "i");
    let mut writes = 0;
    for minute in 0..70 {
        if book.take(at(minute * 60), note("web", "no cpu")) != Verdict::Skip {
            writes += 1;
        }
        writes += book.tidy(at(minute * 60)).len();
    }
    assert_eq!(writes, 4, "created, made a series, refreshed twice");
    // A single event is forgotten without being written again.
    let mut book = SeriesBook::new("koord-scheduler", "i");
    book.take(at(0), note("web", "no cpu"));
    assert_eq!(book.tidy(at(400)), []);
    assert!(matches!(book.take(at(401), note("web", "no cpu")), Verdict::Create(_)));
}

#[test]
fn names_and_notes_fit_the_server() {
    assert_eq!(cut("short"), "short");
    let long = "ü".repeat(600);
    let text = cut(&long);
    assert!(text.len() <= 1024 && text.ends_with(" ..."), "{}", text.len());
    assert!(event_name(&"x".repeat(250), at(0)).len() <= 253);
    assert_eq!(event_namespace(&ObjectReference::default()), "default");
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let server = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
    });
    let client = kube::Client::new(server, "default");
    let metrics = KitMetrics::unregistered();
    let (recorder, _worker) = recorder(client, "koord-test", Flavour::Core, &metrics);
    for number in 0..QUEUE_MAX + 7 {
        recorder.event(note("web", &number.to_string()));
    }
    assert_eq!(metrics.events.get_or_create(&OutcomeLabels { outcome: "dropped" }).get(), 7);
}
