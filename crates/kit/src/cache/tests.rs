use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::fake::{FakeServer, Mishap};
use super::*;

/// What the tests keep of an object.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    name: String,
    value: String,
}

fn keep(key: &ObjectKey, object: ConfigMap) -> Kept {
    let value = object.data.unwrap_or_default().remove("value").unwrap_or_default();
    Kept { name: key.name.to_string(), value }
}

/// A cache on a fake server, with a reader that replays what it is told.
struct World {
    server: FakeServer,
    cache: Cache<Kept>,
    deltas: Deltas<Kept>,
    replayed: BTreeMap<String, String>,
    words: Vec<String>,
    stop: CancellationToken,
}

impl World {
    fn new(tune: impl FnOnce(CacheBuilder<Kept>) -> CacheBuilder<Kept>) -> World {
        World::on(FakeServer::default(), tune)
    }

    fn on(server: FakeServer, tune: impl FnOnce(CacheBuilder<Kept>) -> CacheBuilder<Kept>) -> World {
        let builder = CacheBuilder::of::<ConfigMap>(server.client(), keep).page_size(3);
        let (cache, worker) = tune(builder).build();
        let deltas = cache.subscribe(4);
        let stop = CancellationToken::new();
        tokio::spawn(worker.run(stop.clone()));
        World { server, cache, deltas, replayed: BTreeMap::new(), words: Vec::new(), stop }
    }

    /// Reads deltas until none comes for a while of the paused clock.
    async fn settle(&mut self) {
        while let Ok(Some(delta)) = tokio::time::timeout(Duration::from_secs(2000), self.deltas.next()).await
        {
            self.replay(delta);
        }
    }

    fn replay(&mut self, delta: Delta<Kept>) {
        let word = match delta {
            Delta::Added(new) => {
                let before = self.replayed.insert(new.name.clone(), new.value.clone());
                assert_eq!(before, None, "{} added twice", new.name);
                format!("+{}", new.name)
            }
            Delta::Updated { old, new } => {
                let before = self.replayed.insert(new.name.clone(), new.value.clone());
                assert_eq!(before.as_ref(), Some(&old.value), "{} changed from what it was not", new.name);
                format!("~{}", new.name)
            }
            Delta::Deleted(old) => {
                let before = self.replayed.remove(&old.name);
                assert_eq!(before.as_ref(), Some(&old.value), "{} deleted as what it was not", old.name);
                format!("-{}", old.name)
            }
            Delta::Synced => "synced".to_owned(),
        };
        self.words.push(word);
    }

    fn held(&self) -> BTreeMap<String, String> {
        let all = self.cache.snapshot();
        all.into_iter().map(|(key, kept)| (key.name.to_string(), kept.value.clone())).collect()
    }

    /// Settles, then compares server, cache and replay.
    async fn check(&mut self, words: &str) {
        self.settle().await;
        assert_eq!(self.held(), self.server.truth(), "cache and server");
        assert_eq!(self.replayed, self.held(), "deltas and cache");
        assert_eq!(std::mem::take(&mut self.words).join(" "), words);
    }

    fn lists(&self) -> usize {
        self.server.requests().iter().filter(|request| !request.contains("watch=")).count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_and_then_a_watch() {
    let server = FakeServer::default();
    for name in ["a", "b", "c", "d"] {
        server.put(name, "1");
    }
    let mut world = World::on(server, |builder| builder);
    assert_eq!(world.cache.check(), Err("configmaps/v1 is not listed yet".to_owned()));
    world.check("+a +b +c +d synced").await;
    assert_eq!(world.cache.check(), Ok(()));
    world.server.put("a", "2");
    world.server.delete("b");
    world.server.put("e", "1");
    world.check("~a -b +e").await;
    assert_eq!(world.cache.get("n", "a").unwrap().value, "2");
    assert_eq!(world.cache.get("other", "a"), None);
    assert_eq!(world.cache.in_namespace("n").len(), 4);
    assert_eq!(world.lists(), 2, "two pages");
    assert!(world.server.requests()[0].contains("limit=3"), "{:?}", world.server.requests());
    assert!(world.server.requests()[2].contains("allowWatchBookmarks=true"), "{:?}", world.server.requests());
}

#[tokio::test(start_paused = true)]
async fn news_wait_for_each_other_where_that_is_wanted() {
    const TIME: Duration = Duration::from_millis(100);
    let mut world = World::new(|builder| builder.gather(TIME));
    world.check("synced").await;
    let told = |world: &World| world.cache.snapshot().len();
    let moment = Duration::from_millis(5);
    // Nobody was waited for while nothing came, so the first is taken in at once.
    world.server.put("a", "1");
    tokio::time::sleep(moment).await;
    assert_eq!(told(&world), 1);
    world.server.put("b", "1");
    tokio::time::sleep(moment).await;
    world.server.put("c", "1");
    tokio::time::sleep(moment).await;
    assert_eq!(told(&world), 1, "these wait");
    tokio::time::sleep(TIME).await;
    assert_eq!(told(&world), 3, "and come together");
    world.check("+a +b +c").await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_is_resumed_without_a_list() {
    let mut world = World::new(|builder| builder);
    world.server.put("a", "1");
    world.check("+a synced").await;
    for cut in [FakeServer::cut, FakeServer::break_connections] {
        cut(&world.server);
        world.server.put("b", "1");
        world.server.delete("b");
        world.check("+b -b").await;
    }
    assert_eq!(world.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_position_lists_again_with_the_right_deltas() {
    for end in [FakeServer::cut, FakeServer::expire_watches] {
        let server = FakeServer::default();
        for name in ["changed", "gone", "kept", "recreated"] {
            server.put(name, "1");
        }
        let mut world = World::on(server, |builder| builder);
        world.check("+changed +gone +kept +recreated synced").await;
        world.server.hold();
        world.server.put("changed", "2");
        world.server.delete("gone");
        world.server.delete("recreated");
        world.server.put("recreated", "2");
        world.server.put("new", "1");
        world.server.lose();
        world.server.compact();
        end(&world.server);
        world.check("~changed +new -recreated +recreated -gone synced").await;
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_and_late_events_change_nothing() {
    let mut world = World::new(|builder| builder);
    world.check("synced").await;
    world.server.put("a", "1");
    world.server.put("a", "2");
    world.server.delete("a");
    world.server.put("b", "1");
    world.server.repeat(4);
    world.check("+a ~a -a +b").await;
    assert_eq!(world.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_out_of_order_is_distrusted() {
    let mut world = World::new(|builder| builder);
    world.server.put("x", "1");
    world.check("+x synced").await;
    world.server.hold();
    world.server.put("a", "1");
    world.server.put("b", "1");
    world.server.put("a", "2");
    world.server.release(true);
    // a at version 4, b at 3: b is news, but older than the stream was.
    world.check("+a +b synced").await;
    assert_eq!(world.lists(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_object_costs_only_itself() {
    let server = FakeServer::default();
    for name in ["a", "c"] {
        server.put(name, "1");
    }
    server.put_broken("b");
    let mut world = World::on(server, |builder| builder);
    world.check("+a +c synced").await;
    let (name, reason) = world.cache.malformed().remove(0);
    assert_eq!(name, "n/b");
    assert!(reason.contains("expected a map"), "{reason}");
    // Mended, broken again (the last good state stays, across a relist too), and deleted.
    world.server.put("b", "1");
    world.check("+b").await;
    assert_eq!(world.cache.malformed(), []);
    world.server.put_broken("b");
    world.settle().await;
    assert_eq!(world.cache.get("n", "b").unwrap().value, "1");
    world.server.expire_watches();
    world.settle().await;
    assert_eq!(world.cache.get("n", "b").unwrap().value, "1");
    world.server.babble();
    world.server.delete("b");
    world.settle().await;
    assert_eq!(world.cache.get("n", "b"), None);
    assert_eq!(world.words.join(" "), "synced -b");
}

#[tokio::test(start_paused = true)]
async fn trouble_at_the_start_is_survived_and_named() {
    let server = FakeServer::default();
    server.put("a", "1");
    for mishap in [Mishap::Broken, Mishap::Status(500), Mishap::Status(403), Mishap::Status(429)] {
        server.mishap(mishap);
    }
    let mut world = World::on(server, |builder| builder);
    let named = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match world.cache.check() {
                Err(text) if text.contains("status 403") => break text,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    assert_eq!(named.await.unwrap(), "configmaps/v1 cannot be listed: status 403");
    world.check("+a synced").await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_expires_starts_the_list_over() {
    let server = FakeServer::default();
    for name in ["a", "b", "c", "d"] {
        server.put(name, "1");
    }
    let mut world = World::on(server, |builder| builder);
    world.check("+a +b +c +d synced").await;
    world.server.hold();
    world.server.delete("a");
    world.server.put("e", "1");
    world.server.lose();
    // The first page is answered, the second refused, and then the list comes in one piece.
    world.server.mishap(Mishap::None);
    world.server.mishap(Mishap::Status(410));
    world.server.expire_watches();
    world.check("+e -a synced").await;
    let requests = world.server.requests();
    let last_list = requests.iter().rfind(|request| !request.contains("watch=")).unwrap();
    assert!(!last_list.contains("limit="), "{last_list}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_named_and_waited_for() {
    let server = FakeServer::default();
    for _ in 0..20 {
        server.mishap(Mishap::Status(404));
    }
    server.put("a", "1");
    let mut world = World::on(server, |builder| builder);
    let deadline = tokio::time::timeout(Duration::from_secs(40), world.cache.synced()).await;
    assert!(deadline.is_err(), "a required kind is waited for");
    let text = world.cache.check().unwrap_err();
    assert!(
        text.starts_with("configmaps/v1 is not served by this cluster (is its CRD installed?), waiting for "),
        "{text}"
    );
    world.check("+a synced").await;
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_is_done_without_until_it_comes() {
    let server = FakeServer::default();
    for _ in 0..20 {
        server.mishap(Mishap::Status(404));
    }
    let mut world = World::on(server, |builder| builder.optional(Duration::from_secs(12)));
    tokio::time::timeout(Duration::from_secs(20), world.cache.synced()).await.expect("goes on without");
    assert!(world.cache.is_empty());
    world.server.put("a", "1");
    world.check("synced +a synced").await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_removed_takes_its_objects_along() {
    let mut world = World::new(|builder| builder);
    world.server.put("a", "1");
    world.check("+a synced").await;
    for _ in 0..12 {
        world.server.mishap(Mishap::Status(404));
    }
    world.server.delete("a");
    world.server.compact();
    world.server.cut();
    world.check("-a synced").await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_loss_is_mended_by_the_periodic_list() {
    let mut world = World::new(|builder| builder.relist_every(Duration::from_secs(60)));
    tokio::time::timeout(Duration::from_secs(5), world.cache.synced()).await.unwrap();
    world.server.hold();
    world.server.put("a", "1");
    world.server.lose();
    world.server.put("b", "1");
    let both = async {
        while world.cache.len() < 2 {
            let delta = world.deltas.next().await.unwrap();
            if let Delta::Added(new) = delta {
                world.replayed.insert(new.name.clone(), new.value.clone());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(100), both).await.expect("found by the next list");
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_the_whole_and_then_the_changes() {
    let mut world = World::new(|builder| builder);
    world.server.put("a", "1");
    world.check("+a synced").await;
    let mut late = world.cache.subscribe(1);
    assert!(matches!(late.try_next(), Some(Delta::Added(new)) if new.name == "a"));
    assert!(matches!(late.try_next(), Some(Delta::Synced)));
    world.server.put("b", "1");
    assert!(matches!(late.next().await, Some(Delta::Added(new)) if new.name == "b"));
    drop(late);
    world.server.put("c", "1");
    world.check("+b +c").await;
}

/// What may happen between a server and its cache.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Recreate(u8, u8),
    Cut,
    Break,
    Compact,
    Expire,
    Repeat(u8),
    Bookmark,
    Babble,
    Hold,
    Release(bool),
    Trouble(u16),
    Refuse,
    /// Lets the cache catch up by this many milliseconds.
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..6, any::<u8>()).prop_map(|(name, value)| Step::Put(name, value)),
        3 => (0_u8..6).prop_map(Step::Delete),
        2 => (0_u8..6, any::<u8>()).prop_map(|(name, value)| Step::Recreate(name, value)),
        1 => Just(Step::Cut),
        1 => Just(Step::Break),
        1 => Just(Step::Compact),
        1 => Just(Step::Expire),
        1 => (1_u8..6).prop_map(Step::Repeat),
        1 => Just(Step::Bookmark),
        1 => Just(Step::Babble),
        1 => Just(Step::Hold),
        2 => any::<bool>().prop_map(Step::Release),
        1 => prop_oneof![Just(500_u16), Just(429), Just(503), Just(410), Just(404)].prop_map(Step::Trouble),
        1 => Just(Step::Refuse),
        3 => (0_u16..3000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

async fn take(world: &mut World, step: &Step) {
    let server = world.server.clone();
    let name = |number: &u8| format!("o{number}");
    match step {
        Step::Put(number, value) => server.put(&name(number), &value.to_string()),
        Step::Delete(number) => server.delete(&name(number)),
        Step::Recreate(number, value) => {
            server.delete(&name(number));
            server.put(&name(number), &value.to_string());
        }
        Step::Cut => server.cut(),
        Step::Break => server.break_connections(),
        Step::Compact => server.compact(),
        Step::Expire => server.expire_watches(),
        // Only what was sent can be sent once more, and a bookmark promises that everything before it was: what is
        // held goes first.
        Step::Repeat(count) => {
            server.release(false);
            server.repeat(usize::from(*count));
        }
        Step::Bookmark => {
            server.release(false);
            server.bookmark();
        }
        Step::Babble => server.babble(),
        Step::Hold => server.hold(),
        Step::Release(reversed) => server.release(*reversed),
        Step::Trouble(code) => server.mishap(Mishap::Status(*code)),
        Step::Refuse => server.mishap(Mishap::Broken),
        Step::Wait(millis) => {
            let until = tokio::time::Instant::now() + Duration::from_millis(u64::from(*millis));
            while let Ok(Some(delta)) = tokio::time::timeout_at(until, world.deltas.next()).await {
                world.replay(delta);
            }
        }
    }
}

fn converges(steps: &[Step], gather: Option<Duration>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(|builder| match gather {
            Some(time) => builder.gather(time),
            None => builder,
        });
        for step in steps {
            take(&mut world, step).await;
        }
        world.server.release(false);
        world.settle().await;
        assert_eq!(world.held(), world.server.truth(), "cache and server");
        assert_eq!(world.replayed, world.held(), "deltas and cache");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens on the way, the cache ends up as the server is, and so does whoever replays its deltas.
    #[test]
    fn the_cache_converges(steps in steps(), is_gathering in any::<bool>()) {
        converges(&steps, is_gathering.then_some(Duration::from_millis(100)));
    }
}
