//! The loop around controllers: turns, retries, panics, the end of a term.

use std::sync::Mutex;

use super::*;

/// Does what it is told, and remembers what it was asked.
struct Told {
    turns: Arc<Mutex<Vec<(String, u64)>>>,
    start: tokio::time::Instant,
    answer: fn(&str, usize) -> Result<Next, Failure>,
}

impl Controller for Told {
    const NAME: &'static str = "told";

    fn listen(&self, _: &Feeds) {}

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let before = {
            let mut turns = self.turns.lock().unwrap();
            let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap();
            turns.push((key.to_string(), elapsed));
            turns.iter().filter(|(name, _)| *name == key.to_string()).count() - 1
        };
        (self.answer)(&key.name, before)
    }
}

/// The turns that a controller has had after a while, with their times in milliseconds.
async fn turns(answer: fn(&str, usize) -> Result<Next, Failure>, keys: &[&str]) -> Vec<(String, u64)> {
    let turns = Arc::default();
    let told = Told { turns: Arc::clone(&turns), start: tokio::time::Instant::now(), answer };
    let queue = WorkQueue::new(Told::NAME, Retries::default(), &QueueMetrics::unregistered());
    let stop = CancellationToken::new();
    let metrics = ManagerMetrics::unregistered();
    let worker = tokio::spawn(work(Arc::new(told), queue.clone(), Lead::Alone, metrics, stop.clone()));
    for key in keys {
        queue.add(node_key(key));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.cancel();
    worker.await.unwrap();
    let turns = turns.lock().unwrap();
    turns.clone()
}

fn at(name: &str, milliseconds: &[u64]) -> Vec<(String, u64)> {
    milliseconds.iter().map(|at| (name.to_owned(), *at)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_went_well_rests_or_comes_again_when_asked() {
    assert_eq!(turns(|_, _| Ok(Next::Done), &["a", "b", "a"]).await, [at("a", &[0]), at("b", &[0])].concat());
    let after = |_: &str, _| Ok(Next::After(Duration::from_millis(40)));
    assert_eq!(turns(after, &["a"]).await, at("a", &[0, 40, 80]));
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_ever_later() {
    let fails = |_: &str, before| match before {
        3 => Ok(Next::After(Duration::from_millis(10))),
        _ => Err("no".into()),
    };
    // 5, 10, 20 ms; then it went well, so the next failure counts as the first again.
    assert_eq!(turns(fails, &["a"]).await, at("a", &[0, 5, 15, 35, 45, 50, 60, 80]));
}

/// Ends a turn only when another has begun.
struct Meeting {
    both: tokio::sync::Barrier,
    turns: Arc<Mutex<Vec<String>>>,
}

impl Controller for Meeting {
    const NAME: &'static str = "meeting";

    fn listen(&self, _: &Feeds) {}

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        self.turns.lock().unwrap().push(key.to_string());
        self.both.wait().await;
        Ok(Next::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn several_keys_have_turns_at_once_and_no_key_has_two() {
    let turns = Arc::default();
    let meeting = Arc::new(Meeting { both: tokio::sync::Barrier::new(2), turns: Arc::clone(&turns) });
    let queue = WorkQueue::new(Meeting::NAME, Retries::default(), &QueueMetrics::unregistered());
    let stop = CancellationToken::new();
    for _ in 0..3 {
        let metrics = ManagerMetrics::unregistered();
        tokio::spawn(work(meeting.clone(), queue.clone(), Lead::Alone, metrics, stop.clone()));
    }
    let seen = || turns.lock().unwrap().clone();
    queue.add(node_key("a"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    queue.add(node_key("a"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(seen(), ["a"], "its second turn waits for the end of the first");
    queue.add(node_key("b"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(seen(), ["a", "b", "a"]);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_panic_keeps_nobody_waiting() {
    let panics = |name: &str, before| match (name, before) {
        ("bad", 0) => panic!("a bug"),
        _ => Ok(Next::Done),
    };
    let want = [at("bad", &[0]), at("good", &[0]), at("bad", &[5])].concat();
    assert_eq!(turns(panics, &["bad", "good"]).await, want);
}

/// Asks a server that never answers.
struct Stuck;

impl Controller for Stuck {
    const NAME: &'static str = "stuck";

    fn listen(&self, _: &Feeds) {}

    async fn reconcile(&self, _: &Key) -> Result<Next, Failure> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_turn_that_hangs() {
    let queue = WorkQueue::new(Stuck::NAME, Retries::default(), &QueueMetrics::unregistered());
    let (stop, start) = (CancellationToken::new(), tokio::time::Instant::now());
    let metrics = ManagerMetrics::unregistered();
    let worker = tokio::spawn(work(Arc::new(Stuck), queue.clone(), Lead::Alone, metrics, stop.clone()));
    queue.add(node_key("a"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.cancel();
    worker.await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(1) + TURN_GRACE);
}

#[test]
fn names_are_unique_and_known_to_the_flag() {
    let default = crate::flags::TABLES.iter().copied().flatten().find(|flag| flag.name == "controllers");
    let known: Vec<&str> = default.unwrap().default.split(',').collect();
    let mut names: Vec<&str> = CONTROLLERS.iter().map(|row| row.name).collect();
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}
