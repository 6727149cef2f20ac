use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// When tests happen.
const NOW: i64 = 1_700_000_000_000;
const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

fn key(uid: &str) -> Key {
    Kind::PodCpuUsage.of([&Arc::from(uid)])
}

fn container_key(id: &str) -> Key {
    Kind::ContainerCpuUsage.of([&Arc::from(id)])
}

/// A store, written to by one-line batches at a clock that stands at `NOW` unless told.
struct Case {
    store: Store,
}

impl Case {
    fn new() -> Case {
        Case { store: Store::new(&Limits::default()) }
    }

    fn put(&mut self, samples: &[(&str, i64, f64)]) -> Result<(), AppendError> {
        self.put_at(NOW, samples)
    }

    fn put_at(&mut self, now_ms: i64, samples: &[(&str, i64, f64)]) -> Result<(), AppendError> {
        let mut batch = Batch::default();
        for (uid, at_ms, value) in samples {
            let id = self.store.find(key(uid));
            batch.add(id, *at_ms, *value);
        }
        self.store.commit(now_ms, &mut batch)
    }

    fn points(&self, uid: &str) -> Vec<(i64, f64)> {
        let all = Window { start_ms: i64::MIN, end_ms: i64::MAX };
        self.store.query(&key(uid).into(), all).iter().collect()
    }
}

fn fault(result: Result<(), AppendError>) -> String {
    result.unwrap_err().to_string()
}

const TOO_OLD: &str = "append error too old sample, rollback error <nil>";
const DUPLICATE: &str = "append error duplicate sample for timestamp, rollback error <nil>";

#[test]
fn a_repeated_time_needs_the_same_value() {
    // koordlet-observe#13.1.A13
    let mut case = Case::new();
    case.put(&[("a", NOW, 1.0)]).unwrap();
    assert_eq!(fault(case.put(&[("a", NOW, 2.0)])), DUPLICATE);
    case.put(&[("a", NOW, 1.0)]).unwrap();
    assert_eq!(case.points("a"), [(NOW, 1.0)]);
    // koordlet-observe#13.1.A26
    assert_eq!(fault(case.put(&[("x", NOW, 5.0), ("a", NOW, 2.0)])), DUPLICATE);
    assert_eq!(case.points("x"), []);
    // An empty batch is fine.
    case.put(&[]).unwrap();
}

#[test]
fn late_samples_of_a_series() {
    for (name, late, want) in [
        ("koordlet-observe#13.1.A14", 30 * SECOND, true),
        ("A14", 90 * SECOND, false),
        ("koordlet-observe#13.1.A17", 60 * SECOND, true),
        ("A17", 61 * SECOND, false),
    ] {
        let mut case = Case::new();
        case.put(&[("a", NOW - 5 * MINUTE, 0.5), ("a", NOW, 1.0)]).unwrap();
        let result = case.put(&[("a", NOW - late, 2.0)]);
        let mut points = vec![(NOW - 5 * MINUTE, 0.5), (NOW, 1.0)];
        if want {
            result.unwrap();
            points.insert(1, (NOW - late, 2.0));
        } else {
            assert_eq!(fault(result), TOO_OLD, "{name}");
        }
        assert_eq!(case.points("a"), points, "{name}");
    }
}

#[test]
fn late_first_samples() {
    // koordlet-observe#13.1.A18
    for (late, want) in [(90 * SECOND, true), (4 * MINUTE, true), (5 * MINUTE, true), (6 * MINUTE, false)] {
        let mut case = Case::new();
        case.put(&[("a", NOW, 1.0)]).unwrap();
        let result = case.put(&[("b", NOW - late, 2.0)]);
        assert_eq!(result.is_ok(), want, "{late}");
        assert_eq!(case.points("b").len(), usize::from(want), "{late}");
    }
}

#[test]
fn the_first_of_equal_times_stays() {
    // koordlet-observe#13.1.A19
    let mut case = Case::new();
    case.put(&[("a", NOW, 1.0), ("a", NOW, 2.0)]).unwrap();
    assert_eq!(case.points("a"), [(NOW, 1.0)]);
    // koordlet-observe#13.1.A20
    let mut case = Case::new();
    case.put(&[("a", NOW - 30 * SECOND, 3.0), ("a", NOW, 1.0)]).unwrap();
    case.put(&[("a", NOW - 30 * SECOND, 4.0)]).unwrap();
    assert_eq!(case.points("a"), [(NOW - 30 * SECOND, 3.0), (NOW, 1.0)]);
}

#[test]
fn clocks_that_jump() {
    // koordlet-observe#13.1.A21: ours refuses the sample of the future, and takes those of the present.
    let mut case = Case::new();
    case.put(&[("a", NOW, 1.0)]).unwrap();
    assert_eq!(
        fault(case.put(&[("a", NOW + 60 * MINUTE, 2.0)])),
        "append error sample is ahead of the clock, rollback error <nil>"
    );
    case.put_at(NOW + SECOND, &[("b", NOW + SECOND, 3.0)]).unwrap();
    // The clock is set back an hour: what was measured keeps its age.
    let back = NOW - 60 * MINUTE;
    case.put_at(back, &[("b", back + SECOND, 4.0)]).unwrap();
    assert_eq!(case.points("b"), [(back, 3.0), (back + SECOND, 4.0)]);
    assert_eq!(case.points("a"), [(back - SECOND, 1.0)]);
    // And forward.
    let later = NOW + 24 * 60 * MINUTE;
    case.put_at(later, &[("b", later, 5.0)]).unwrap();
    assert_eq!(case.points("b").len(), 3);
}

#[test]
fn windows_include_their_ends() {
    // koordlet-observe#13.1.A24
    let mut case = Case::new();
    case.put(&[("a", NOW, 1.0)]).unwrap();
    let count = |start_ms, end_ms| case.store.query(&key("a").into(), Window { start_ms, end_ms }).count();
    assert_eq!(count(NOW, NOW), 1);
    assert_eq!((count(NOW + 1, NOW + 2), count(NOW - 2, NOW - 1)), (0, 0));
    assert_eq!(
        Window::before(NOW, Duration::from_secs(5)),
        Window { start_ms: NOW - 5 * SECOND, end_ms: NOW }
    );
}

#[test]
fn queries_take_every_series_that_matches() {
    let mut store = Store::new(&Limits::default());
    let mut batch = Batch::default();
    for (minor, value) in [("0", 10.0), ("1", 30.0)] {
        let key = Kind::PodGpuCoreUsage
            .key(&[(Property::PodUid, "u"), (Property::GpuMinor, minor), (Property::GpuDeviceUuid, "g")])
            .unwrap();
        let id = store.find(key);
        batch.add(id, NOW, value);
    }
    let id = store.find(key("u"));
    batch.add(id, NOW - SECOND, 7.0);
    store.commit(NOW, &mut batch).unwrap();
    let window = Window::before(NOW, Duration::from_secs(60));
    let select = |properties: &[(Property, &str)]| Kind::PodGpuCoreUsage.select(properties).unwrap();
    let average = |properties: &[(Property, &str)]| store.query(&select(properties), window).average();
    assert_eq!(average(&[(Property::PodUid, "u")]), Ok(20.0));
    assert_eq!(average(&[(Property::GpuMinor, "1")]), Ok(30.0));
    assert!(average(&[(Property::PodUid, "other")]).is_err());
    assert_eq!(store.series(Kind::PodGpuCoreUsage).count(), 2);
    assert_eq!(
        store.newest_of_all(Kind::PodCpuUsage, window).map(|(_, value)| value).collect::<Vec<_>>(),
        [7.0]
    );
    let mut points = Points::default();
    store.read(id, window, &mut points);
    assert_eq!((points.count(), store.newest(id)), (1, Some((NOW - SECOND, 7.0))));
}

#[test]
fn a_restart_keeps_the_points() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { path: Some(dir.path().join("data")), ..Limits::default() };
    let mut case = Case { store: Store::open(&limits, NOW) };
    let samples: Vec<(i64, f64)> =
        (0..2000).map(|n| (NOW + n * SECOND, f64::from(n32(n) % 97) / 64.0)).collect();
    for (at_ms, value) in &samples {
        case.put_at(*at_ms, &[("a", *at_ms, *value), ("b", *at_ms, 4096.0)]).unwrap();
        case.store.tend(*at_ms);
    }
    case.store.close();
    // koordlet-observe#13.1.A25
    let end = NOW + 2000 * SECOND;
    let mut case = Case { store: Store::open(&limits, end) };
    assert_eq!(case.points("a"), samples);
    case.put_at(end, &[("a", end, 9.0)]).unwrap();
    assert_eq!(case.points("a").last(), Some(&(end, 9.0)));
    assert!(case.store.stats().blocks >= 4);
    case.store.close();
    // Half a day later nothing of it is in memory, while the disk still has it, as long as it should.
    let later = end + 10 * 60 * MINUTE;
    let mut case = Case { store: Store::open(&limits, later) };
    assert_eq!(case.store.stats().series, 0);
    case.put_at(later, &[("b", later, 1.0)]).unwrap();
    assert_eq!(case.points("a").len(), 0);
    assert!(case.store.stats().blocks >= 4);
    case.store.close();
    let limits = Limits { disk_retention: Duration::from_secs(3600), ..limits };
    let mut case = Case { store: Store::open(&limits, later) };
    case.put_at(later + SECOND, &[("b", later + SECOND, 1.0)]).unwrap();
    assert_eq!((case.store.stats().blocks, case.points("b").len()), (1, 2));
}

/// A node that is asked for windows of two hours now and then.
struct Asked {
    store: Store,
    at_ms: i64,
}

impl Asked {
    /// Measures a pod and the node once a second; asks for two hours of the pod once a minute.
    fn live(&mut self, seconds: i64, is_asking: bool) {
        let mut batch = Batch::default();
        for n in 0..seconds {
            self.at_ms += SECOND;
            for key in [key("a"), Kind::NodeCpuUsage.of([])] {
                let id = self.store.find(key);
                batch.add(id, self.at_ms, f64::from(n32(n) % 13) / 7.0);
            }
            self.store.commit(self.at_ms, &mut batch).unwrap();
            self.store.tend(self.at_ms);
            if is_asking && n % 60 == 0 {
                self.count(key("a"), 7200);
            }
        }
    }

    fn count(&self, key: Key, seconds: u64) -> usize {
        let window = Window::before(self.at_ms, Duration::from_secs(seconds));
        self.store.query(&key.into(), window).count()
    }

    /// How many samples of the pod and of the node memory has; asking for them is no wish.
    fn kept(&self) -> [i64; 2] {
        [key("a"), Kind::NodeCpuUsage.of([])].map(|key| {
            let chain = &self.store.at(self.store.by_key[&key]).chain;
            (chain.newest().unwrap().0 - chain.first_page(&self.store.pool).unwrap().0) / SECOND
        })
    }
}

/// koordlet-observe 4.5: whoever asks is answered from memory, and the disk is not read.
#[test]
fn windows_that_are_asked_for_stay_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let limits = Limits { path: Some(path.clone()), ..Limits::default() };
    let mut asked = Asked { store: Store::open(&limits, NOW), at_ms: NOW };
    asked.live(3 * 3600, true);
    std::fs::remove_dir_all(path).unwrap();
    assert_eq!(asked.count(key("a"), 7200), 7201);
    let is_hour = |seconds| (3600..3600 + 600).contains(&seconds);
    let [pod, node] = asked.kept();
    assert!((7200..7200 + 600).contains(&pod) && is_hour(node), "{pod} {node}: only what is asked for");
    // What nobody wants any more goes in two days.
    for days in 1..4 {
        asked.at_ms = NOW + days * ASKED_MS + 4 * 3600 * SECOND;
        asked.live(3 * 3600, false);
        let [pod, node] = asked.kept();
        assert!(is_hour(node) && (days < 2 || is_hour(pod)), "{days}: {pod} {node}");
    }
    // Nobody is given more than the disk would have.
    asked.count(key("a"), u64::MAX);
    assert_eq!(asked.store.retention_of(Kind::PodCpuUsage), 12 * 60 * MINUTE);
}

/// Two hours of the node for one reader must not cost another the last minutes of a container.
#[test]
fn what_long_windows_keep_goes_first() {
    let limits = Limits { memory_bytes: 96 << 10, ..Limits::default() };
    let mut store = Store::new(&limits);
    let ids = [store.find(key("p")), store.find(container_key("c"))];
    let mut batch = Batch::default();
    let window = |at_ms| Window::before(at_ms, Duration::from_secs(6 * 3600));
    let mut at_ms = NOW;
    for n in 0..20_000 {
        at_ms += SECOND;
        for id in ids {
            batch.add(id, at_ms, f64::from(n32(n) % 13) / 7.0);
        }
        store.commit(at_ms, &mut batch).unwrap();
        store.tend(at_ms);
        if n % 60 == 0 {
            store.query(&key("p").into(), window(at_ms));
        }
    }
    let count = |key: Key| store.query(&key.into(), window(at_ms)).count();
    assert!(store.stats().shed_total > 0 && store.stats().memory_bytes <= 96 << 10);
    assert!(count(container_key("c")) >= 3600 && count(key("p")) > 5000);
}

/// What was saved while the clock was a day ahead neither moves the rest in time nor makes it look old.
#[test]
fn files_of_the_future_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        path: Some(dir.path().to_owned()),
        disk_retention: Duration::from_secs(3600),
        ..Limits::default()
    };
    let names = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let write = |now_ms: i64, value: f64| {
        let mut case = Case { store: Store::open(&limits, now_ms) };
        case.put_at(now_ms, &[("a", now_ms, value)]).unwrap();
        case.store.close();
    };
    let ahead = NOW + 2 * 24 * 60 * MINUTE;
    write(ahead, 9.0);
    write(NOW, 1.0);
    write(NOW + SECOND, 2.0);
    let mut case = Case { store: Store::open(&limits, NOW + 2 * SECOND) };
    assert_eq!(case.points("a"), [(NOW, 1.0), (NOW + SECOND, 2.0)]);
    assert_eq!(case.store.stats().blocks, 2);
    case.put_at(NOW + 2 * SECOND, &[("a", NOW + 2 * SECOND, 3.0)]).unwrap();
    assert_eq!(
        case.points("a"),
        [(NOW, 1.0), (NOW + SECOND, 2.0), (NOW + 2 * SECOND, 3.0)],
        "nothing was moved"
    );
    case.store.close();
    assert_eq!(names().len(), 2);
    // A clock far behind, as without a battery, takes nothing away: what it cannot read is read later.
    write(1_000_000, 4.0);
    assert_eq!(names().len(), 3);
    write(NOW + 3 * SECOND, 5.0);
    assert_eq!(names().len(), 2, "what is too old goes");
    // Files of the future go in their time, or first when there is no room.
    let later = Store::open(&limits, ahead + 71 * MINUTE);
    assert_eq!((later.stats().blocks, names().len()), (0, 0));
    later.close();
    write(ahead, 9.0);
    write(NOW, 1.0);
    let tight = Limits { disk_bytes: 100, ..limits.clone() };
    Store::open(&tight, NOW + SECOND).close();
    assert_eq!(Store::open(&limits, NOW + SECOND).stats().series, 1);
}

fn n32(n: i64) -> i32 {
    i32::try_from(n).unwrap()
}

#[test]
fn damage_costs_the_rest_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { path: Some(dir.path().to_owned()), ..Limits::default() };
    let mut case = Case { store: Store::open(&limits, NOW) };
    case.put(&[("a", NOW, 1.0), ("b", NOW, 2.0)]).unwrap();
    case.store.close();
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    for cut in 0..bytes.len() {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        let store = Store::open(&limits, NOW);
        assert!(store.stats().series < 2, "cut at {cut}");
    }
    let mut spoilt = bytes.clone();
    spoilt[20] ^= 1;
    std::fs::write(&file, &spoilt).unwrap();
    assert_eq!(Store::open(&limits, NOW).stats().series, 0);
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(Store::open(&limits, NOW).stats().series, 2);
    // A directory that cannot be made is no reason to stop.
    let limits = Limits { path: Some(file.join("below")), ..limits };
    assert_eq!(Store::open(&limits, NOW).stats().blocks, 0);
}

#[test]
fn memory_has_an_end_and_containers_go_first() {
    let limits = Limits { memory_bytes: 32 << 10, ..Limits::default() };
    let mut store = Store::new(&limits);
    let pod = store.find(key("p"));
    let container = store.find(container_key("c"));
    let mut batch = Batch::default();
    let count = 20_000;
    for n in 0..count {
        let at_ms = NOW + n * SECOND;
        for (id, value) in [(pod, f64::from(n32(n) % 13) / 7.0), (container, f64::from(n32(n) % 7) / 3.0)] {
            batch.add(id, at_ms, value);
        }
        store.commit(at_ms, &mut batch).unwrap();
    }
    let points = |key: Key| {
        store.query(&key.into(), Window { start_ms: 0, end_ms: i64::MAX }).iter().collect::<Vec<_>>()
    };
    let (of_pod, of_container) = (points(key("p")), points(container_key("c")));
    assert!(store.stats().memory_bytes <= 32 << 10);
    assert!(store.stats().shed_total > 0);
    assert!(of_pod.len() > 3 * of_container.len(), "{} {}", of_pod.len(), of_container.len());
    for points in [of_pod, of_container] {
        assert_eq!(points.last().unwrap().0, NOW + (count - 1) * SECOND);
        assert!(points.windows(2).all(|pair| pair[1].0 == pair[0].0 + SECOND));
    }
}

#[test]
fn churn_leaves_nothing_behind() {
    let mut store = Store::new(&Limits::default());
    let mut batch = Batch::default();
    let mut bytes = 0;
    for n in 0..(4 * 3600) {
        let at_ms = NOW + n * SECOND;
        // Ten pods a minute, each living for three.
        for pod in (n / 6).saturating_sub(30)..=(n / 6) {
            let id = store.find(key(&format!("pod-{pod}")));
            batch.add(id, at_ms, 0.25);
        }
        store.commit(at_ms, &mut batch).unwrap();
        store.tend(at_ms);
        if n == 2 * 3600 {
            bytes = store.stats().memory_bytes;
        }
    }
    let stats = store.stats();
    assert!(stats.series < 31 + 600 + 60, "{stats:?}");
    assert!(stats.memory_bytes <= bytes + bytes / 10, "{bytes} {stats:?}");
}

#[test]
fn ids_outlive_their_series() {
    let mut store = Store::new(&Limits::default());
    let mut id = Id::default();
    let first = store.place(&mut id, || key("a"));
    let mut batch = Batch::default();
    batch.add(first, NOW, 1.0);
    store.commit(NOW, &mut batch).unwrap();
    for _ in 0..2 {
        store.tend(NOW + 2 * 60 * MINUTE);
    }
    batch.add(first, NOW + 2 * 60 * MINUTE, 1.0);
    let now_ms = NOW + 2 * 60 * MINUTE;
    assert_eq!(store.commit(now_ms, &mut batch), Err(AppendError(Fault::Ended)));
    assert_ne!(store.place(&mut id, || key("a")), first);
    batch.add(id, now_ms, 1.0);
    store.commit(now_ms, &mut batch).unwrap();
}

proptest! {
    /// Whatever comes in whatever order, the store holds what a plain map would.
    #[test]
    fn the_store_is_a_map(steps in proptest::collection::vec((0..3_u8, -70..5_i64, 0..6_u8), 1..400)) {
        let mut case = Case::new();
        let mut model: Vec<std::collections::BTreeMap<i64, f64>> = vec![Default::default(); 3];
        let mut clock = NOW;
        for (series, ahead, shape) in steps {
            clock += SECOND;
            let at_ms = clock + ahead.min(0) * SECOND;
            let value = [0.0, 0.25, 4096.0, 1.0 / 3.0, -7.0, 1e300][usize::from(shape)];
            let names = ["a", "b", "c"];
            if case.put_at(clock, &[(names[usize::from(series)], at_ms, value)]).is_ok() {
                model[usize::from(series)].entry(at_ms).or_insert(value);
            }
        }
        for (name, want) in ["a", "b", "c"].into_iter().zip(model) {
            prop_assert_eq!(case.points(name), want.into_iter().collect::<Vec<_>>());
        }
    }
}
