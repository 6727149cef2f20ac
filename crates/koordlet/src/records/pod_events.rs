//! What was done to pods, gathered into few events: pure, with the time as an argument.
//!
//! A pod's first changes of a kind are told after a moment, so that all of them fit into one event; what follows is told
//! at most every [`EVERY`], with the number of changes. All pods of a node together have a budget of events: what a pod
//! has heard nothing of yet comes first, then who waits longest; pods that are gone come after all others and only for
//! [`GONE_MAX`]. The audit log has every single change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pod that starts gets its values over several turns, container by container.
const GATHER: Duration = Duration::from_secs(5);
/// Between two events of a kind on one pod: a quota may move each second, and nobody reads 3,600 events.
const EVERY: Duration = Duration::from_secs(30 * 60);
/// Events that may come together: the first turn of an agent on a full node.
const BURST: u32 = 100;
/// How long a pod that is not listed may have something to tell: one that is gone, or that begins.
const GONE_MAX: Duration = Duration::from_secs(60);
/// Kinds of changes to pods that are followed. A node has some hundred pods, and few kinds happen to each.
const STORIES_MAX: usize = 2048;
/// The words of one event. The API server takes 1,024 bytes.
const TEXT_BYTES_MAX: usize = 900;
/// What is kept of one story, so that those of a node that has used its budget up stay within some MiB.
const STORY_BYTES_MAX: usize = 1600;

/// An event to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What the audit log calls it.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

/// A pod that may have something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) is_best_effort: bool,
}

/// All that waits to be told.
pub(crate) struct PodEvents {
    /// What one event takes from the budget, and what the budget has. Both in time, since that is how it fills.
    price: Duration,
    budget: Duration,
    /// The last look at the clock.
    looked: Option<Instant>,
    pods: BTreeMap<Arc<str>, Named>,
    stories: BTreeMap<Key, Story>,
    /// Stories with something new.
    waiting: usize,
    /// Stories that nobody will hear of, since there were too many or their pods went first.
    untold: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: Arc<str>,
    reason: &'static str,
}

/// Changes of one kind to one pod.
#[derive(Debug)]
struct Story {
    namespace: String,
    name: String,
    /// Since it was last told. The same value for the same reason is one change, whatever it is set for.
    changes: usize,
    /// The newest of them.
    latest: VecDeque<Change>,
    /// When the first of them was seen; none before the clock was.
    since: Option<Instant>,
    told: Option<Instant>,
}

/// What was done, and the numbers behind it.
#[derive(Debug)]
struct Change {
    /// Containers, empty for the pod itself, that had the same for the same reason.
    parts: Vec<String>,
    what: String,
    /// What was there before, where all parts had the same.
    was: Option<String>,
    why: String,
}

impl PodEvents {
    /// None when no event is wanted.
    pub(crate) fn new(per_hour: u32) -> Option<PodEvents> {
        let price = Duration::from_secs(3600).checked_div(per_hour)?;
        Some(PodEvents {
            price,
            budget: price * BURST,
            looked: None,
            pods: BTreeMap::new(),
            stories: BTreeMap::new(),
            waiting: 0,
            untold: 0,
        })
    }

    /// The pods of the node now.
    pub(crate) fn follow(&mut self, pods: impl Iterator<Item = (Arc<str>, Named)>) {
        self.pods = pods.collect();
    }

    /// Takes note of a change to a pod that is known; of another nobody can say the name.
    pub(crate) fn note(&mut self, uid: &str, container: &str, reason: &'static str, message: &str) {
        let Some((uid, pod)) = self.pods.get_key_value(uid) else { return };
        let key = Key { uid: uid.clone(), reason };
        let name = (&*pod.namespace, &*pod.name);
        let story = room(&mut self.stories, &mut self.untold, key, name);
        if let Some(story) = story {
            self.waiting += usize::from(story.note(self.looked, container, message));
        }
    }

    /// The same for a pod that may not be listed yet.
    pub(crate) fn note_named(
        &mut self,
        uid: Arc<str>,
        name: (&str, &str),
        container: &str,
        reason: &'static str,
        message: &str,
    ) {
        let story = room(&mut self.stories, &mut self.untold, Key { uid, reason }, name);
        if let Some(story) = story {
            self.waiting += usize::from(story.note(self.looked, container, message));
        }
    }

    /// The same for all best-effort pods: what happens to their group happens to them.
    pub(crate) fn note_best_effort(&mut self, reason: &'static str, message: &str) {
        let pods = self.pods.iter().filter(|(_, pod)| pod.is_best_effort);
        let uids: Vec<Arc<str>> = pods.map(|(uid, _)| uid.clone()).collect();
        uids.iter().for_each(|uid| self.note(uid, "", reason, message));
    }

    /// What is to be told now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Telling> {
        self.fill(now);
        if self.waiting == 0 || self.budget < self.price {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (key, story) in self.stories.iter_mut().filter(|(_, story)| story.changes > 0) {
            let gathered = *story.since.get_or_insert(now) + GATHER;
            let ripe = story.told.map_or(gathered, |told| gathered.max(told + EVERY));
            if ripe <= now {
                let is_listed = self.pods.contains_key(&key.uid);
                due.push((!is_listed, story.told.is_some(), ripe, key.clone()));
            }
        }
        due.sort();
        let mut tellings = Vec::new();
        for (_, _, _, key) in due {
            let Some(rest) = self.budget.checked_sub(self.price) else { break };
            if let Some(story) = self.stories.get_mut(&key) {
                self.budget = rest;
                self.waiting -= 1;
                tellings.push(story.tell(key, now));
            }
        }
        tellings
    }

    fn fill(&mut self, now: Instant) {
        let passed = self.looked.map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        self.looked = Some(now);
        self.budget = (self.budget + passed).min(self.price * BURST);
    }

    /// Forgets pods that are gone, and what may be told anew at once. Says of how many stories nobody will hear anything.
    pub(crate) fn tidy(&mut self, now: Instant) -> usize {
        let (pods, untold) = (&self.pods, &mut self.untold);
        self.stories.retain(|key, story| {
            let age = |since: Option<Instant>| since.map(|since| now.saturating_duration_since(since));
            let is_gone = !pods.contains_key(&key.uid)
                && (story.told.is_some() || age(story.since).is_some_and(|age| age >= GONE_MAX));
            let is_old = story.changes == 0 && age(story.told).is_some_and(|age| age >= EVERY);
            *untold += usize::from(is_gone && story.changes > 0 && story.told.is_none());
            !is_gone && !is_old
        });
        self.waiting = self.stories.values().filter(|story| story.changes > 0).count();
        std::mem::take(&mut self.untold)
    }

    /// How many things about pods are remembered.
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.stories.len()
    }
}

impl Story {
    fn of((namespace, name): (&str, &str)) -> Story {
        Story {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            changes: 0,
            latest: VecDeque::new(),
            since: None,
            told: None,
        }
    }

    /// Takes a change in, and says whether it is the first.
    fn note(&mut self, now: Option<Instant>, container: &str, message: &str) -> bool {
        let (act, why) = message.split_once("; ").unwrap_or((message, ""));
        let (what, was) = act.split_once(", was ").map_or((act, None), |(what, was)| (what, Some(was)));
        let is_same = |change: &Change| change.what == what && change.why == why;
        // Of what changed again only the last value is told.
        for change in self.latest.iter_mut().filter(|change| thing(&change.what) == thing(what)) {
            if !is_same(change) {
                change.parts.retain(|part| part != container);
            }
        }
        self.latest.retain(|change| !change.parts.is_empty());
        if let Some(same) = self.latest.iter_mut().find(|change| is_same(change)) {
            same.join(container, was);
            return false;
        }
        self.changes += 1;
        self.since = self.since.or(now);
        self.latest.push_back(Change {
            parts: vec![container.to_owned()],
            what: what.to_owned(),
            was: was.map(str::to_owned),
            why: why.to_owned(),
        });
        let is_long = |story: &Story| {
            story.words().len() > TEXT_BYTES_MAX
                || story.latest.iter().map(Change::bytes).sum::<usize>() > STORY_BYTES_MAX
        };
        while self.latest.len() > 1 && is_long(self) {
            self.latest.pop_front();
        }
        self.changes == 1
    }

    fn tell(&mut self, key: Key, now: Instant) -> Telling {
        let text = self.text();
        self.told = Some(now);
        self.since = None;
        self.changes = 0;
        self.latest = VecDeque::new();
        Telling {
            uid: key.uid,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason: key.reason,
            text,
        }
    }

    fn text(&self) -> String {
        let words = self.words();
        if self.latest.len() == self.changes {
            words
        } else {
            format!("{} changes, the latest: {words}", self.changes)
        }
    }

    /// The newest changes, oldest first. What was done to the same for the same reason is one sentence.
    fn words(&self) -> String {
        let mut sentences: Vec<(&Change, String)> = Vec::new();
        for change in &self.latest {
            match sentences.last_mut() {
                Some((first, what)) if first.parts == change.parts && first.why == change.why => {
                    let next = change.act();
                    what.push_str(", ");
                    what.push_str(next.strip_prefix("update ").unwrap_or(&next));
                }
                _ => sentences.push((change, change.act())),
            }
        }
        let sentence = |(change, what): &(&Change, String)| {
            let why = if change.why.is_empty() { String::new() } else { format!("; {}", change.why) };
            format!("{}{what}{why}", change.whose())
        };
        sentences.iter().map(sentence).collect::<Vec<String>>().join(". ")
    }
}

/// What was changed, without the value: `update cpu.shares`. A disk of a file that has several belongs to it, and so does
/// the resource of a line: `update blkio.throttle.read_bps_device to 8:16`, `update schemata to L3`.
fn thing(what: &str) -> &str {
    let Some((file, value)) = what.split_once(" to ") else { return what };
    let first = value.split(' ').next().unwrap_or_default();
    let is_disk = first.starts_with(|c: char| c.is_ascii_digit());
    let own = match first.split_once(':') {
        Some(_) if is_disk => first.len(),
        Some((resource, _)) => resource.len(),
        None => return file,
    };
    &what[..file.len() + " to ".len() + own]
}

/// The story of a key, if there is room for it.
fn room<'s>(
    stories: &'s mut BTreeMap<Key, Story>,
    untold: &mut usize,
    key: Key,
    name: (&str, &str),
) -> Option<&'s mut Story> {
    if stories.len() >= STORIES_MAX && !stories.contains_key(&key) {
        *untold += 1;
        return None;
    }
    Some(stories.entry(key).or_insert_with(|| Story::of(name)))
}

impl Change {
    /// One more part that has it. A part that has it already got there in two steps, and tells where it began.
    fn join(&mut self, container: &str, was: Option<&str>) {
        if self.parts.iter().any(|part| part == container) {
            return;
        }
        self.parts.push(container.to_owned());
        self.was.take_if(|before| Some(before.as_str()) != was);
    }

    fn act(&self) -> String {
        let Change { what, was, .. } = self;
        was.as_ref().map_or_else(|| what.clone(), |was| format!("{what}, was {was}"))
    }

    fn bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(String::len).sum();
        parts + self.what.len() + self.was.as_ref().map_or(0, String::len) + self.why.len()
    }

    /// `containers a, b: `; nothing in front of what concerns the pod as a whole.
    fn whose(&self) -> String {
        if self.parts.iter().any(String::is_empty) {
            return String::new();
        }
        // A sandbox has an id only.
        let (sandboxes, names): (Vec<&str>, Vec<&str>) =
            self.parts.iter().map(String::as_str).partition(|part| part.contains("://"));
        let noun = match names[..] {
            [] => return "sandbox: ".to_owned(),
            [_] => "container",
            _ => "containers",
        };
        let sandbox = if sandboxes.is_empty() { "" } else { " and sandbox" };
        format!("{noun} {}{sandbox}: ", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BURST_REASON: &str = "CFSQuotaBurst";

    fn named(name: &str, is_best_effort: bool) -> (Arc<str>, Named) {
        let named = Named { namespace: "shop".to_owned(), name: name.to_owned(), is_best_effort };
        (format!("uid-{name}").into(), named)
    }

    fn events(per_hour: u32, pods: &[&str]) -> PodEvents {
        let mut events = PodEvents::new(per_hour).unwrap();
        events.follow(pods.iter().map(|name| named(name, name.starts_with("be"))));
        events
    }

    fn texts(tellings: &[Telling]) -> Vec<String> {
        let text = |telling: &Telling| {
            format!("{}/{} {}: {}", telling.namespace, telling.name, telling.reason, telling.text)
        };
        tellings.iter().map(text).collect()
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn changes_of_a_moment_are_one_event() {
        let (mut events, start) = (events(600, &["web"]), Instant::now());
        events.note("uid-web", "", "runtime-hooks", "update cpu.bvt_warp_ns to 2, was 0; QoS LS");
        assert!(events.due(start).is_empty(), "more may follow");
        events.note("uid-web", "main", "runtime-hooks", "update cpu.bvt_warp_ns to 2, was 0; QoS LS");
        events.note("uid-web", "main", "runtime-hooks", "update cpuset.cpus to 0-3, was 0-7");
        events.note("uid-web", "side", "runtime-hooks", "update cpuset.cpus to 0-3, was 0-7");
        assert!(events.due(after(start, 4)).is_empty());
        events.note("uid-web", "main", BURST_REASON, "update cpu.cfs_quota_us to 2, was 1");
        events.note("uid-gone", "", "runtime-hooks", "nobody knows it");
        assert_eq!(
            texts(&events.due(after(start, 5))),
            [
                "shop/web runtime-hooks: update cpu.bvt_warp_ns to 2, was 0; QoS LS. containers main, side: update cpuset.cpus to 0-3, was 0-7"
            ],
            "the burst came later"
        );
        assert_eq!(
            texts(&events.due(after(start, 10))),
            ["shop/web CFSQuotaBurst: container main: update cpu.cfs_quota_us to 2, was 1"]
        );
        assert!(events.due(after(start, 15)).is_empty());
    }

    #[test]
    fn the_same_reason_is_given_once() {
        let (mut events, start) = (events(600, &["web"]), Instant::now());
        for (part, message) in [
            ("", "update cpu.shares to 1024, was 2; batch-cpu request 1000; limit none"),
            ("", "update memory.limit_in_bytes to 7, was max; batch-cpu request 1000; limit none"),
            ("main", "update cpu.shares to 512, was 2; batch-cpu request 500; limit none"),
            ("containerd://5a", "update cpuset.cpus to 0-3"),
            ("main", "update cpuset.cpus to 0-3"),
            ("containerd://5a", "update cpu.shares to 2"),
        ] {
            events.note("uid-web", part, "runtime-hooks", message);
        }
        events.due(start);
        assert_eq!(
            texts(&events.due(after(start, 5))),
            [
                "shop/web runtime-hooks: update cpu.shares to 1024, was 2, memory.limit_in_bytes to 7, was max; \
              batch-cpu request 1000; limit none. container main: update cpu.shares to 512, was 2; batch-cpu request \
              500; limit none. container main and sandbox: update cpuset.cpus to 0-3. sandbox: update cpu.shares to 2"
            ]
        );
    }

    #[test]
    fn the_last_value_of_each_thing_is_told() {
        let (mut events, start) = (events(600, &["web"]), Instant::now());
        for message in [
            "update blkio.throttle.read_bps_device to 8:16 100",
            "update blkio.throttle.read_bps_device to 8:32 100",
            "update blkio.throttle.read_bps_device to 8:16 200",
            "update cpuset.cpus to 0-3",
            "update cpuset.cpus to 0-5",
            "update schemata to L3:0=fff;1=fff",
            "update schemata to MB:0=50;1=50",
            "update schemata to L3:0=f;1=f",
        ] {
            events.note("uid-web", "", "UpdateBlkIO", message);
        }
        events.due(start);
        assert_eq!(
            texts(&events.due(after(start, 5))),
            [
                "shop/web UpdateBlkIO: 8 changes, the latest: update blkio.throttle.read_bps_device to 8:32 100, \
              blkio.throttle.read_bps_device to 8:16 200, cpuset.cpus to 0-5, schemata to MB:0=50;1=50, \
              schemata to L3:0=f;1=f"
            ]
        );
    }

    /// Suppression writes the same to the class, the pod and its containers: one change, and nobody counts files.
    #[test]
    fn one_act_is_one_change_whatever_it_is_done_to() {
        let (mut events, start) = (events(600, &["be-1"]), Instant::now());
        let reason = "AdjustBEByNodeCPUUsage";
        events.note("uid-be-1", "main", reason, "update BE group to cpuset: 0-1, was 0-3; 65 % of 4000m");
        events.note("uid-be-1", "", reason, "update BE group to cpuset: 0-1, was 0-3; 65 % of 4000m");
        events.note_best_effort(reason, "update BE group to cpuset: 0-1, was 0-7; 65 % of 4000m");
        events.due(start);
        assert_eq!(
            texts(&events.due(after(start, 5))),
            [format!("shop/be-1 {reason}: update BE group to cpuset: 0-1, was 0-3; 65 % of 4000m")]
        );
    }

    /// A set that moves is widened first. What is told is where it began and where it ended.
    #[test]
    fn a_change_in_two_steps_is_one() {
        let (mut events, start) = (events(600, &["web"]), Instant::now());
        for (part, was) in [("main", "0-3"), ("main", "0-7"), ("side", "2-3")] {
            events.note(
                "uid-web",
                part,
                "runtime-hooks",
                &format!("update cpuset.cpus to 4-7, was {was}; QoS LSR"),
            );
        }
        events.due(start);
        let told = texts(&events.due(after(start, 5)));
        assert_eq!(
            told,
            ["shop/web runtime-hooks: containers main, side: update cpuset.cpus to 4-7; QoS LSR"]
        );
        events.note("uid-web", "main", "again", "update cpuset.cpus to 4-7, was 0-3; QoS LSR");
        events.note("uid-web", "main", "again", "update cpuset.cpus to 4-7, was 0-7; QoS LSR");
        let told = texts(&events.due(after(start, 10)));
        assert_eq!(told, ["shop/web again: container main: update cpuset.cpus to 4-7, was 0-3; QoS LSR"]);
    }

    #[test]
    fn what_goes_on_is_told_twice_an_hour() {
        let (mut events, start) = (events(600, &["web"]), Instant::now());
        let mut told = Vec::new();
        for second in 0..3600 {
            events.note("uid-web", "main", BURST_REASON, &format!("update cpu.cfs_quota_us to {second}"));
            let due = events.due(after(start, second));
            told.extend(texts(&due).into_iter().map(|text| (second, text)));
            events.tidy(after(start, second));
        }
        assert_eq!(told.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [5, 1805]);
        let (_, second) = &told[1];
        assert!(
            second.starts_with("shop/web CFSQuotaBurst: 1800 changes, the latest: container main: "),
            "{second}"
        );
        assert!(second.ends_with("update cpu.cfs_quota_us to 1805"), "{second}");
        assert!(told.iter().all(|(_, text)| text.len() < 1024), "{told:?}");
    }

    #[test]
    fn what_happens_to_the_group_happens_to_its_pods() {
        let (mut events, start) = (events(600, &["be-1", "be-2", "web"]), Instant::now());
        events.note_best_effort("AdjustBEByNodeCPUUsage", "update BE group to cfs_quota: 200000");
        events.note("uid-be-1", "main", "AdjustBEByNodeCPUUsage", "update BE group to cfs_quota: 200000");
        events.due(start);
        assert_eq!(
            texts(&events.due(after(start, 5))),
            [
                "shop/be-1 AdjustBEByNodeCPUUsage: update BE group to cfs_quota: 200000",
                "shop/be-2 AdjustBEByNodeCPUUsage: update BE group to cfs_quota: 200000",
            ]
        );
    }

    #[test]
    fn a_node_has_a_budget_and_who_waits_longest_is_first() {
        let names: Vec<String> = (0..150).map(|number| format!("web-{number:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (mut events, start) = (events(60, &names), Instant::now());
        for name in &names[50..] {
            events.note(&format!("uid-{name}"), "", "runtime-hooks", "m");
        }
        events.due(start);
        events.due(after(start, 1));
        for name in &names[..50] {
            events.note(&format!("uid-{name}"), "", "runtime-hooks", "m");
        }
        let first = events.due(after(start, 6));
        assert_eq!(first.len(), 100, "the burst");
        assert!(first.iter().all(|telling| telling.name.as_str() >= "web-050"), "those that waited longer");
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        for second in 7..3600 * 2 {
            for telling in events.due(after(start, second)) {
                told.insert(telling.name, second);
            }
        }
        assert_eq!(told.len(), 50, "nothing is lost");
        assert_eq!(told["web-000"], 66, "one a minute");
        assert_eq!(told["web-001"], 126);
    }

    /// What moves all the time is ripe for long when its half hour is over.
    #[test]
    fn first_news_come_before_more_of_the_same() {
        let names: Vec<String> = (0..100).map(|number| format!("web-{number:03}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.push("new");
        let (mut events, start) = (events(120, &names), Instant::now());
        let mut told_new = None;
        for second in 0..2 * 3600 {
            for name in &names[..100] {
                events.note(&format!("uid-{name}"), "", BURST_REASON, &format!("update a to {second}"));
            }
            if second == 3700 {
                events.note("uid-new", "", "runtime-hooks", "m");
            }
            let is_new = |telling: &Telling| telling.name == "new";
            if events.due(after(start, second)).iter().any(is_new) {
                told_new = Some(second);
            }
        }
        let waited = told_new.expect("told") - 3700;
        assert!(waited < 60, "one event every 30 s, and others wait for long: {waited} s");
    }

    #[test]
    fn nobody_wants_events() {
        assert!(PodEvents::new(0).is_none());
    }

    #[test]
    fn pods_that_are_gone_are_told_of_once_and_forgotten() {
        let (mut events, start) = (events(600, &["job"]), Instant::now());
        events.note("uid-job", "", "runtime-hooks", "m");
        events.follow(std::iter::empty());
        events.due(start);
        assert_eq!(events.tidy(start), 0);
        assert_eq!(texts(&events.due(after(start, 5))), ["shop/job runtime-hooks: m"]);
        assert_eq!(events.tidy(after(start, 5)), 0);
        assert_eq!(events.len(), 0);
    }

    /// A node on which short jobs come and go has no events for all of them. Those that live come first, and what is not
    /// told is counted, not kept.
    #[test]
    fn pods_that_are_gone_keep_nobody_waiting() {
        let jobs: Vec<String> = (0..200).map(|number| format!("job-{number:03}")).collect();
        let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
        let (mut events, start) = (events(3600, &jobs), Instant::now());
        events.due(start);
        for job in &jobs {
            events.note(&format!("uid-{job}"), "", "runtime-hooks", "m");
        }
        events.follow([named("web", false)].into_iter());
        events.note("uid-web", "", "runtime-hooks", "m");
        let first = events.due(after(start, 5));
        assert_eq!((first.len(), first[0].name.as_str()), (100, "web"));
        assert_eq!(events.tidy(after(start, 30)), 0, "they may begin");
        assert_eq!(events.tidy(after(start, 60)), 101);
        assert_eq!(events.len(), 2, "the pod and what it was told");
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let (mut events, start) = (events(1, &[]), Instant::now());
        for number in 0..STORIES_MAX + 3 {
            events.note_named(format!("uid-{number}").into(), ("shop", "p"), "", "runtime-hooks", "m");
        }
        assert_eq!((events.len(), events.tidy(start)), (STORIES_MAX, 3));
    }

    #[test]
    fn a_story_stays_small() {
        let mut events = events(600, &["web"]);
        for number in 0..100 {
            let why = format!("numbers {}", "9".repeat(300));
            events.note(
                "uid-web",
                &format!("c{number}"),
                "runtime-hooks",
                &format!("update f{number} to 1; {why}"),
            );
        }
        let story = events.stories.values().next().unwrap();
        assert!(story.latest.iter().map(Change::bytes).sum::<usize>() <= STORY_BYTES_MAX);
        assert_eq!(story.changes, 100);
    }

    proptest! {
        /// Whatever happens: an event has every change since the one before it, or counts them and has the last; no pod
        /// hears of a kind more often than it should, no text is too long, and the budget holds.
        #[test]
        fn no_change_is_lost_and_no_bound_is_broken(
            steps in prop::collection::vec((0_u64..400, 0_usize..4, 0_usize..2, 1_usize..700), 1..200),
            per_hour in 1_u32..100,
        ) {
            let (mut events, start) = (events(per_hour, &["a", "b", "c", "d"]), Instant::now());
            let (mut now, mut last): (u64, BTreeMap<Key, u64>) = (0, BTreeMap::new());
            let (mut told, mut waiting): (u64, BTreeMap<Key, Vec<usize>>) = (0, BTreeMap::new());
            for (number, (pause, pod, kind, length)) in steps.iter().enumerate() {
                let (uid, reason) = (format!("uid-{}", ["a", "b", "c", "d"][*pod]), ["k1", "k2"][*kind]);
                events.note(&uid, "main", reason, &format!("<{number}> {}", "x".repeat(*length)));
                waiting.entry(Key { uid: uid.into(), reason }).or_default().push(number);
                now += pause;
                for telling in events.due(after(start, now)) {
                    told += 1;
                    prop_assert!(telling.text.len() <= 1024);
                    let key = Key { uid: telling.uid, reason: telling.reason };
                    let changes = waiting.remove(&key).unwrap_or_default();
                    let has = |number: &usize| telling.text.contains(&format!("<{number}>"));
                    let is_counted = telling.text.starts_with(&format!("{} changes, ", changes.len()));
                    prop_assert!(changes.last().is_some_and(has) && (is_counted || changes.iter().all(has)));
                    let before = last.insert(key, now);
                    prop_assert!(before.is_none_or(|before| now - before >= EVERY.as_secs()));
                }
                prop_assert_eq!(events.tidy(after(start, now)), 0);
                let stories = events.stories.iter().filter(|(_, story)| story.changes > 0);
                let counts: Vec<(&Key, usize)> = stories.map(|(key, story)| (key, story.changes)).collect();
                let wanted: Vec<(&Key, usize)> = waiting.iter().map(|(key, all)| (key, all.len())).collect();
                prop_assert_eq!(events.waiting, counts.len());
                prop_assert_eq!(counts, wanted);
            }
            prop_assert!(told <= u64::from(BURST) + now * u64::from(per_hour) / 3600 + 1);
        }
    }
}
