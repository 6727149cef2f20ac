use super::*;
use crate::fake::{FakeBrain, subject};
use crate::load::Limits;
use koord_engine::engine::command::Binding;

/// Hands that keep what they get.
struct Kept {
    commands: mpsc::UnboundedSender<Command>,
    load: Arc<Load>,
}

impl Hands for Kept {
    fn take(&mut self, command: Command) {
        self.load.begin_write();
        self.commands.send(command).unwrap();
    }
}

struct Scene {
    brain: FakeBrain,
    desk: Desk,
    load: Arc<Load>,
    switches: Arc<Switches>,
    outcomes: mpsc::UnboundedSender<Input>,
    commands: mpsc::UnboundedReceiver<Command>,
    stop: CancellationToken,
    abandon: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

fn scene(limits: Limits, watches: usize) -> Scene {
    let (brain, load, switches) =
        (FakeBrain::default(), Arc::new(Load::new(limits)), Arc::new(Switches::default()));
    let (outcomes, results) = mpsc::unbounded_channel();
    let (sender, commands) = mpsc::unbounded_channel();
    let parts = Parts {
        brain: brain.clone(),
        hands: Kept { commands: sender, load: load.clone() },
        outcomes: results,
        load: load.clone(),
        clock: Clock::start(),
        monitor: Monitor::new(crate::flags::Monitor {
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            drop_unhandled_after: Duration::from_secs(5),
        }),
        switches: switches.clone(),
        metrics: SchedulerMetrics::default(),
        watches,
    };
    let (stop, abandon) = (CancellationToken::new(), CancellationToken::new());
    let (desk, thread) = start(parts, stop.clone(), abandon.clone()).unwrap();
    Scene { brain, desk, load, switches, outcomes, commands, stop, abandon, thread }
}

fn bind(name: &str) -> Command {
    Command::Bind(Binding {
        pod: subject(name),
        node: "n".into(),
        scheduler: "s".into(),
        extender: None,
        waits_for_room: false,
    })
}

fn ready(name: &str) -> (koord_engine::engine::command::Subject, Attempted, Vec<Command>) {
    (subject(name), Attempted::Placed, vec![bind(name)])
}

fn bound(name: &str) -> Input {
    Input::Outcome { uid: subject(name).uid.to_string(), outcome: Outcome::Bound }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_tried_only_when_leading_and_listed() {
    let mut scene = scene(Limits::default(), 2);
    scene.brain.with(|state| state.ready.push_back(ready("a")));
    scene.desk.send(Letter::Listed).await;
    scene.desk.send(Letter::Lead).await;
    // An answer means that everything before it was worked in.
    assert_eq!(scene.desk.ask(View::Queue).await, Ok(Some("Queue".into())));
    assert_eq!((scene.desk.listed(), scene.brain.with(|state| state.steps)), (1, 0));
    scene.desk.send(Letter::Listed).await;
    assert_eq!(scene.commands.recv().await, Some(bind("a")));
    scene.desk.all_listed(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pipeline_stops_the_trying_until_there_is_room() {
    let mut scene = scene(Limits { writes: 2, notes: 10 }, 0);
    for name in ["a", "b", "c", "d"] {
        scene.brain.with(|state| state.ready.push_back(ready(name)));
    }
    scene.desk.send(Letter::Lead).await;
    assert_eq!(scene.commands.recv().await, Some(bind("a")));
    assert_eq!(scene.commands.recv().await, Some(bind("b")));
    scene.desk.ask(View::Queue).await.unwrap();
    assert_eq!(scene.brain.with(|state| state.steps), 2);
    scene.outcomes.send(bound("a")).unwrap();
    scene.load.end_write();
    assert_eq!(scene.commands.recv().await, Some(bind("c")));
    assert_eq!(scene.brain.with(|state| state.taken.clone()), [bound("a")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_what_was_begun_and_takes_its_outcomes() {
    let mut scene = scene(Limits::default(), 0);
    scene.brain.with(|state| state.ready.push_back(ready("a")));
    scene.desk.send(Letter::Lead).await;
    assert_eq!(scene.commands.recv().await, Some(bind("a")));
    scene.stop.cancel();
    assert_eq!(scene.desk.ask(View::Queue).await, Ok(Some("Queue".into())));
    assert!(!scene.thread.is_finished());
    // The outcome comes before the count falls, as the pipeline has it.
    scene.outcomes.send(bound("a")).unwrap();
    scene.load.end_write();
    tokio::task::spawn_blocking(|| scene.thread.join().unwrap()).await.unwrap();
    assert_eq!(scene.brain.with(|state| (state.taken.clone(), state.steps)), (vec![bound("a")], 1));
    assert_eq!(scene.desk.ask(View::Queue).await, Err(Stopping));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_waits_for_nothing() {
    let mut scene = scene(Limits::default(), 0);
    scene.brain.with(|state| state.ready.push_back(ready("a")));
    scene.desk.send(Letter::Lead).await;
    assert_eq!(scene.commands.recv().await, Some(bind("a")));
    scene.stop.cancel();
    scene.abandon.cancel();
    tokio::task::spawn_blocking(|| scene.thread.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn time_switches_and_numbers_reach_the_engine() {
    let scene = scene(Limits::default(), 0);
    scene.brain.with(|state| state.wake_at = Some(Time::from_seconds(1)));
    scene.switches.set_top_scores("3").unwrap();
    scene.desk.send(Letter::Lead).await;
    while scene.brain.with(|state| state.dumps.top_scores) != 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.desk.measure().await, Ok(Measured::default()));
    while !scene.brain.with(|state| state.taken.contains(&Input::Tick)) {
        tokio::task::yield_now().await;
    }
}
