//! Complains of pods whose scheduling takes too long. Pure: time comes in. Spec: scheduler-core 9.13.

use std::collections::HashMap;
use std::time::Duration;

use koord_engine::engine::command::Subject;
use koord_engine::time::Time;

use crate::flags::Monitor as Times;

/// Attempts under way, and pods that were taken from the queue for one.
#[derive(Debug)]
pub struct Monitor {
    times: Times,
    next_look: Option<Time>,
    by_uid: HashMap<Box<str>, Cycle>,
}

#[derive(Clone, Debug)]
struct Cycle {
    pod: Subject,
    scheduler: Box<str>,
    taken: Time,
    /// None when there was nothing to do for the pod, as far as is known.
    begun: Option<Time>,
}

/// A pod that has been under way for longer than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    pub pod: Subject,
    pub scheduler: Box<str>,
    pub took: Duration,
    pub timeout: Duration,
}

/// Koordinator's line, which alerts look for.
impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Overdue { pod, took, timeout, .. } = self;
        write!(
            f,
            "!!!CRITICAL TIMEOUT!!! scheduling pod {}({}) took longer ({took:?}) than the timeout {timeout:?}",
            pod.key, pod.uid
        )
    }
}

impl Monitor {
    pub fn new(times: Times) -> Monitor {
        Monitor { times, next_look: None, by_uid: HashMap::new() }
    }

    /// A pod was taken from the queue.
    pub fn take(&mut self, now: Time, pod: &Subject, scheduler: &str) {
        let cycle = Cycle { pod: pod.clone(), scheduler: scheduler.into(), taken: now, begun: None };
        self.by_uid.insert(pod.uid.clone(), cycle);
    }

    /// Its cycle begins.
    pub fn begin(&mut self, now: Time, uid: &str) {
        if let Some(cycle) = self.by_uid.get_mut(uid) {
            cycle.begun = Some(now);
        }
    }

    /// A cycle has ended, well or not; complains if it was late. How long it took, if it had begun.
    pub fn end(&mut self, now: Time, uid: &str) -> (Option<Duration>, Option<Overdue>) {
        let Some(cycle) = self.by_uid.remove(uid) else { return (None, None) };
        (cycle.begun.map(|begun| now.since(begun)), self.judge(now, &cycle))
    }

    /// The pod is gone, or on its way out: nobody waits for it.
    pub fn forget(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// Everything that is late, once in a period. Those whose cycle never begins are forgotten after a while.
    pub fn look(&mut self, now: Time) -> Vec<Overdue> {
        if self.next_look.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next_look = Some(now + self.times.period);
        let patience = self.times.drop_unhandled_after;
        self.by_uid.retain(|_, cycle| cycle.begun.is_some() || now.since(cycle.taken) <= patience);
        let mut late: Vec<Overdue> =
            self.by_uid.values().filter_map(|cycle| self.judge(now, cycle)).collect();
        late.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
        late
    }

    /// How many are late now.
    pub fn late(&self, now: Time) -> usize {
        self.by_uid.values().filter(|cycle| self.judge(now, cycle).is_some()).count()
    }

    fn judge(&self, now: Time, cycle: &Cycle) -> Option<Overdue> {
        let took = now.since(cycle.begun?);
        (took > self.times.timeout).then(|| Overdue {
            pod: cycle.pod.clone(),
            scheduler: cycle.scheduler.clone(),
            took,
            timeout: self.times.timeout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use koord_engine::pod::PodKey;

    fn at(seconds: i64) -> Time {
        Time::from_seconds(seconds)
    }

    fn pod(name: &str) -> Subject {
        let key = PodKey { namespace: "ns".into(), name: name.into() };
        Subject { key, uid: format!("u-{name}").into(), reserves: None }
    }

    fn monitor() -> Monitor {
        Monitor::new(Times {
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            drop_unhandled_after: Duration::from_secs(5),
        })
    }

    #[test]
    fn a_slow_pod_is_named_every_period_and_once_more_at_its_end() {
        let mut monitor = monitor();
        for (seconds, name) in [(0, "slow"), (20, "quick")] {
            monitor.take(at(seconds), &pod(name), "s");
            monitor.begin(at(seconds), &format!("u-{name}"));
        }
        assert_eq!(monitor.look(at(10)), []);
        // At the limit is not over it.
        assert_eq!(monitor.look(at(30)), []);
        assert_eq!(monitor.look(at(35)), [], "a period has not passed");
        let late = monitor.look(at(40));
        assert_eq!(late.len(), 1);
        assert_eq!(
            late[0].to_string(),
            "!!!CRITICAL TIMEOUT!!! scheduling pod ns/slow(u-slow) took longer (40s) than the timeout 30s"
        );
        assert_eq!(monitor.late(at(45)), 1);
        assert_eq!(monitor.look(at(50)).len(), 1);
        let (took, late) = monitor.end(at(55), "u-slow");
        assert_eq!(took, Some(Duration::from_secs(55)));
        assert!(late.is_some());
        assert_eq!(monitor.end(at(56), "u-slow"), (None, None));
        assert_eq!(monitor.end(at(21), "u-quick"), (Some(Duration::from_secs(1)), None));
    }

    #[test]
    fn the_gone_are_forgotten() {
        let mut monitor = monitor();
        monitor.take(at(0), &pod("a"), "s");
        monitor.begin(at(0), "u-a");
        monitor.forget("u-a");
        assert_eq!(monitor.look(at(100)), []);
    }

    #[test]
    fn what_never_begins_is_dropped_after_a_while() {
        let mut monitor = monitor();
        monitor.take(at(0), &pod("a"), "s");
        assert_eq!(monitor.look(at(5)), []);
        assert_eq!(
            monitor.by_uid.len(),
            1,
            "not before the time that --scheduling-drop-unhandled-timeout gives"
        );
        assert_eq!((monitor.look(at(40)), monitor.by_uid.len()), (vec![], 0), "and nobody complains of it");
        // One that begins after all is looked at again.
        monitor.take(at(50), &pod("a"), "s");
        monitor.begin(at(51), "u-a");
        assert_eq!(monitor.look(at(82)).len(), 1);
        assert_eq!(monitor.end(at(83), "u-a").0, Some(Duration::from_secs(32)));
    }
}
