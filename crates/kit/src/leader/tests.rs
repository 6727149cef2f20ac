use jiff::Timestamp;
use proptest::prelude::*;

use super::shell::{record_of, with_record};
use super::*;

fn seconds(seconds: f64) -> GoDuration {
    format!("{seconds}s").parse().unwrap()
}

fn wall(millis: u64) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap()
}

#[test]
fn timings_follow_client_go() {
    for (name, lease, renew, retry, want) in [
        ("defaults", 15.0, 10.0, 2.0, ""),
        ("short", 3.0, 2.0, 0.5, ""),
        (
            "lease as long as renewal",
            10.0,
            10.0,
            2.0,
            "leaseDuration: 10s is not accepted, expected more than renewDeadline (10s)",
        ),
        (
            "renewal too close to retry",
            15.0,
            2.4,
            2.0,
            "renewDeadline: 2.4s is not accepted, expected more than 1.2 times retryPeriod (2.4s)",
        ),
        ("nothing", 15.0, 10.0, 0.0, "retryPeriod: 0s is not accepted, expected more than 0"),
        (
            "all",
            -1.0,
            0.0,
            -2.0,
            "leaseDuration: -1s is not accepted, expected more than 0; renewDeadline: 0s is not accepted, \
             expected more than 0; retryPeriod: -2s is not accepted, expected more than 0",
        ),
    ] {
        let problems = Timing::new(seconds(lease), seconds(renew), seconds(retry)).err().unwrap_or_default();
        let text: Vec<String> =
            problems.iter().map(|(field, message)| format!("{field}: {message}")).collect();
        assert_eq!(text.join("; "), want, "{name}");
    }
    assert_eq!(Timing::DEFAULT.give_up_after(), Duration::from_secs(12));
}

#[test]
fn the_configuration_is_checked_as_a_whole() {
    let mut config = LeaderElection::default();
    let problems = config.check().unwrap_err();
    assert_eq!(
        problems.iter().map(|(field, _)| *field).collect::<Vec<_>>(),
        ["resourceName", "resourceNamespace"]
    );
    (config.resource_name, config.resource_namespace) =
        ("koord-scheduler".into(), "koordinator-system".into());
    assert_eq!(config.check(), Ok(Timing::DEFAULT));
    config.resource_lock = "endpoints".to_owned();
    let problems = config.check().unwrap_err();
    assert_eq!(problems, [("resourceLock", "\"endpoints\" is not accepted, expected \"leases\"".to_owned())]);
}

#[test]
fn the_record_is_client_gos() {
    let record = Record {
        holder: "a_1".to_owned(),
        lease_seconds: 15,
        acquired: Some(wall(1_500)),
        renewed: Some(wall(2_000)),
        transitions: 3,
    };
    let lease = with_record(Default::default(), record.clone());
    let spec = serde_json::to_value(&lease).unwrap()["spec"].to_string();
    assert_eq!(
        spec,
        r#"{"acquireTime":"1970-01-01T00:00:01.500000Z","holderIdentity":"a_1","leaseDurationSeconds":15,"leaseTransitions":3,"renewTime":"1970-01-01T00:00:02.000000Z"}"#
    );
    assert_eq!(record_of(&lease), record);
    let free = Elector::release("a_1", &record, wall(9_000)).unwrap();
    assert_eq!((free.lease_seconds, free.transitions, free.holder.as_str()), (1, 3, ""));
    assert_eq!(record_of(&with_record(lease, free)).holder, "");
    assert_eq!(Elector::release("b", &record, wall(9_000)), None);
    assert!(identity().split_once('_').is_some_and(|(host, uuid)| !host.is_empty() && uuid.len() == 36));
}

/// A lease and a candidate, step by step.
struct Story {
    elector: Elector,
    stored: Option<(u64, Record)>,
    now: Duration,
}

impl Story {
    fn new(stored: Option<Record>) -> Story {
        let elector = Elector::new(Timing::DEFAULT, "me");
        Story { elector, stored: stored.map(|record| (1, record)), now: Duration::ZERO }
    }

    fn wall(&self) -> Timestamp {
        wall(u64::try_from(self.now.as_millis()).unwrap())
    }

    /// Plays until `seconds`, answering truthfully. The changes that came up.
    fn play(&mut self, seconds: u64) -> String {
        let mut changes = Vec::new();
        while self.now < Duration::from_secs(seconds) {
            let mut action = Some(self.elector.next(self.now, self.wall()));
            while let Some(todo) = action.take() {
                if let Action::Wait(until) = todo {
                    self.now = until.min(Duration::from_secs(seconds)).max(self.now);
                    break;
                }
                let reply = serve(&mut self.stored, todo);
                action = self.elector.reply(self.now, self.wall(), 0.0, reply);
            }
            while let Some(change) = self.elector.take_change() {
                changes.push(match change {
                    Change::Started => "started".to_owned(),
                    Change::Lost(reason) => format!("lost: {reason}"),
                    Change::Leader(holder) => format!("leader {holder}"),
                });
            }
        }
        changes.join(", ")
    }
}

fn serve(stored: &mut Option<(u64, Record)>, action: Action) -> Reply {
    match (action, stored.as_mut()) {
        (Action::Read, None) => Reply::NotFound,
        (Action::Read, Some((version, record))) => {
            Reply::Found { version: version.to_string(), record: record.clone() }
        }
        (Action::Create(record), None) => {
            *stored = Some((1, record));
            Reply::Written { version: "1".to_owned() }
        }
        (Action::Update { version, record }, Some(found)) if version == found.0.to_string() => {
            *found = (found.0 + 1, record);
            Reply::Written { version: found.0.to_string() }
        }
        _ => Reply::Conflict,
    }
}

fn held_by(holder: &str, transitions: i32) -> Record {
    let time = Some(wall(0));
    Record { holder: holder.to_owned(), lease_seconds: 15, acquired: time, renewed: time, transitions }
}

#[test]
fn a_free_lease_is_taken_and_renewed() {
    let mut story = Story::new(None);
    assert_eq!(story.play(1), "started");
    let (_, first) = story.stored.clone().unwrap();
    assert_eq!((first.holder.as_str(), first.transitions, first.lease_seconds), ("me", 0, 15));
    assert_eq!(story.play(10), "");
    let (version, record) = story.stored.clone().unwrap();
    assert_eq!(version, 5, "renewed every two seconds");
    assert_eq!(record.acquired, first.acquired);
    assert!(record.renewed > first.renewed);
}

#[test]
fn a_held_lease_is_waited_for_by_our_own_clock() {
    // The record's times are an hour off: they must not matter.
    let mut story = Story::new(Some(held_by("other", 4)));
    assert_eq!(story.play(15), "leader other");
    assert_eq!(story.play(20), "started");
    let (_, record) = story.stored.clone().unwrap();
    assert_eq!((record.holder.as_str(), record.transitions), ("me", 5));
    // A released lease is taken at the next try.
    let mut story = Story::new(Some(held_by("", 7)));
    assert_eq!(story.play(1), "started");
    assert_eq!(story.stored.unwrap().1.transitions, 8);
}

#[test]
fn a_renewing_holder_is_never_displaced() {
    let mut story = Story::new(Some(held_by("other", 0)));
    assert_eq!(story.play(1), "leader other");
    for second in 2..100 {
        let (version, record) = story.stored.as_mut().unwrap();
        *version += 1;
        record.renewed = Some(wall(second * 1000));
        assert_eq!(story.play(second), "");
    }
}

#[test]
fn a_leader_without_answers_stops_in_time() {
    let mut story = Story::new(None);
    story.play(1);
    let mut lost = None;
    while lost.is_none() {
        match story.elector.next(story.now, story.wall()) {
            Action::Wait(until) => story.now = until,
            _ => assert_eq!(story.elector.reply(story.now, story.wall(), 0.5, Reply::Failed), None),
        }
        lost = story.elector.take_change();
    }
    assert_eq!(lost, Some(Change::Lost(LostReason::NotRenewed)));
    assert_eq!(story.now, Duration::from_secs(12), "twelve seconds after the last renewal was sent");
    assert!(!story.elector.holds(story.now));
}

#[test]
fn another_holder_in_the_record_ends_the_term() {
    let mut story = Story::new(None);
    story.play(1);
    story.stored = Some((77, held_by("thief", 1)));
    assert_eq!(story.play(3), "leader thief, lost: the lease was taken by thief");
}

#[test]
fn a_lost_answer_of_our_own_is_recognised() {
    let mut story = Story::new(None);
    story.play(1);
    // The next renewal is stored but its answer is lost.
    story.now = Duration::from_secs(2);
    let action = story.elector.next(story.now, story.wall());
    assert!(matches!(action, Action::Update { .. }), "{action:?}");
    serve(&mut story.stored, action);
    story.elector.reply(story.now, story.wall(), 0.0, Reply::Failed);
    assert_eq!(story.play(9), "");
    assert!(story.elector.holds(story.now));
    assert_eq!(story.stored.unwrap().1.transitions, 0);
}

/// What the world does to one of the candidates, or to all, for a while.
#[derive(Clone, Debug)]
enum Fault {
    /// The process stands still (SIGSTOP) for this many ticks.
    Pause(usize, u16),
    /// Its requests do not arrive.
    Partition(usize, u16),
    /// Its requests arrive but the answers do not.
    Deaf(usize, u16),
    /// Its answers take this many ticks.
    Slow(usize, u16),
    Calm(u16),
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let who = 0_usize..3;
    let fault = prop_oneof![
        (who.clone(), 1_u16..300).prop_map(|(who, ticks)| Fault::Pause(who, ticks)),
        (who.clone(), 1_u16..300).prop_map(|(who, ticks)| Fault::Partition(who, ticks)),
        (who.clone(), 1_u16..300).prop_map(|(who, ticks)| Fault::Deaf(who, ticks)),
        (who, 1_u16..150).prop_map(|(who, ticks)| Fault::Slow(who, ticks)),
        (1_u16..300).prop_map(Fault::Calm),
    ];
    prop::collection::vec(fault, 1..25)
}

/// One simulated process with its own clock.
struct Process {
    elector: Elector,
    offset: Duration,
    speed: f64,
    paused_until: u64,
    cut_until: u64,
    deaf_until: u64,
    slow_until: u64,
    latency: u64,
    waiting: Option<(u64, Option<Reply>)>,
}

/// A tenth of a second.
const TICK: Duration = Duration::from_millis(100);

impl Process {
    fn clock(&self, tick: u64) -> Duration {
        let real = TICK * u32::try_from(tick).unwrap();
        self.offset + real.mul_f64(self.speed)
    }

    fn step(&mut self, tick: u64, stored: &mut Option<(u64, Record)>) {
        if tick < self.paused_until {
            return;
        }
        let now = self.clock(tick);
        let stamp = wall(tick * 100);
        let mut action = match self.waiting.take() {
            Some((due, reply)) if tick < due => {
                // The shell gives up on a request when the term or the renewal time is over.
                self.waiting = Some((due, reply));
                if self.elector.holds_until().is_none_or(|until| now < until) {
                    return;
                }
                self.waiting = None;
                self.elector.reply(now, stamp, 0.3, Reply::Failed)
            }
            Some((_, reply)) => self.elector.reply(now, stamp, 0.3, reply.unwrap_or(Reply::Failed)),
            None => Some(self.elector.next(now, stamp)),
        };
        while let Some(todo) = action.take() {
            if matches!(todo, Action::Wait(_)) {
                break;
            }
            let is_cut = tick < self.cut_until;
            let reply = if is_cut { None } else { Some(serve(stored, todo)) };
            let reply = reply.filter(|_| tick >= self.deaf_until);
            let timeout = 100;
            let delay = match &reply {
                None => timeout,
                Some(_) if tick < self.slow_until => self.latency,
                Some(_) => 0,
            };
            if delay > 0 {
                self.waiting = Some((tick + delay, reply));
                break;
            }
            action = self.elector.reply(now, stamp, 0.3, reply.unwrap_or(Reply::Failed));
        }
        while self.elector.take_change().is_some() {}
    }
}

fn at_most_one_leads(faults: &[Fault], speeds: [f64; 3]) {
    let mut processes: Vec<Process> = speeds
        .iter()
        .enumerate()
        .map(|(index, speed)| Process {
            elector: Elector::new(Timing::DEFAULT, format!("p{index}")),
            offset: Duration::from_secs(1000 * u64::try_from(index).unwrap()),
            speed: *speed,
            paused_until: 0,
            cut_until: 0,
            deaf_until: 0,
            slow_until: 0,
            latency: 0,
            waiting: None,
        })
        .collect();
    let mut stored = None;
    let mut tick = 0;
    let advance =
        |ticks: u64, tick: &mut u64, processes: &mut Vec<Process>, stored: &mut Option<(u64, Record)>| {
            for _ in 0..ticks {
                *tick += 1;
                for process in processes.iter_mut() {
                    process.step(*tick, stored);
                }
                let leading: Vec<usize> = (0..processes.len())
                    .filter(|i| processes[*i].elector.holds(processes[*i].clock(*tick)))
                    .collect();
                assert!(leading.len() <= 1, "{leading:?} lead at tick {tick}");
            }
        };
    for fault in faults {
        let ticks = match fault {
            Fault::Pause(who, ticks) => {
                processes[*who].paused_until = tick + u64::from(*ticks);
                ticks / 2
            }
            Fault::Partition(who, ticks) => {
                processes[*who].cut_until = tick + u64::from(*ticks);
                ticks / 2
            }
            Fault::Deaf(who, ticks) => {
                processes[*who].deaf_until = tick + u64::from(*ticks);
                ticks / 2
            }
            Fault::Slow(who, ticks) => {
                processes[*who].slow_until = tick + u64::from(*ticks);
                processes[*who].latency = u64::from(*ticks / 4);
                ticks / 2
            }
            Fault::Calm(ticks) => *ticks,
        };
        advance(u64::from(ticks), &mut tick, &mut processes, &mut stored);
    }
    // Long after the last fault, someone leads.
    advance(1200, &mut tick, &mut processes, &mut stored);
    let leads = processes.iter().any(|process| process.elector.holds(process.clock(tick)));
    assert!(leads, "nobody leads");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Pauses, partitions, lost and late answers, and clocks that run up to a tenth apart: never two at once.
    #[test]
    fn never_two_leaders(faults in faults(), a in 0.95_f64..1.05, b in 0.95_f64..1.05, c in 0.95_f64..1.05) {
        at_most_one_leads(&faults, [a, b, c]);
    }
}
