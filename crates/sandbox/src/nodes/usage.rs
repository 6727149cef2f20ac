//! What pods and their node consume at a moment.
//!
//! Pure. A pod uses what its profile says, never more than its limit; pods together never more CPU than
//! the node has, best-effort ones giving way first.

use jiff::Timestamp;

use super::lifecycle::chance;
use super::profile::{Amount, Moment, Profile, float, whole};

/// CPU in thousandths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub cpu: i64,
    pub memory: i64,
}

impl std::ops::AddAssign for Use {
    fn add_assign(&mut self, other: Use) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }
}

/// The fleet's own time: as fast as the world's or faster.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When both showed the same.
    pub origin: Timestamp,
    pub speed: f64,
}

impl Clock {
    /// Seconds since 1970 in the fleet's time.
    pub fn time(&self, now: Timestamp) -> f64 {
        let origin = self.origin.as_duration().as_secs_f64();
        origin + (now.as_duration().as_secs_f64() - origin) * self.speed
    }
}

/// Used by containers that say nothing about themselves.
const CPU_SHARE: f64 = 0.5;
const MEMORY_SHARE: f64 = 0.6;
/// Used by pods that request nothing.
const CPU_BASE: i64 = 20;
const MEMORY_BASE: i64 = 32 << 20;

/// What a pod consumes, in few bytes.
#[derive(Clone, Debug)]
pub struct Load {
    /// None: the default.
    pub cpu: Option<Profile>,
    pub memory: Option<Profile>,
    pub request: Use,
    /// Zero where there is none.
    pub limit: Use,
}

impl Load {
    /// What the pod uses at `now` when it runs since `since`.
    pub fn at(&self, clock: &Clock, since: Timestamp, now: Timestamp) -> Use {
        let time = clock.time(now);
        let moment = Moment { time, age: time - clock.time(since) };
        let amount = |profile: &Option<Profile>, request: i64, share: f64, base: i64| match profile {
            Some(profile) => profile.at(moment, request),
            None if request == 0 => base,
            None => Profile::Constant(Amount::Share(share)).at(moment, request),
        };
        let below = |amount: i64, limit: i64| if limit > 0 { amount.min(limit) } else { amount };
        Use {
            cpu: below(amount(&self.cpu, self.request.cpu, CPU_SHARE, CPU_BASE), self.limit.cpu),
            memory: below(
                amount(&self.memory, self.request.memory, MEMORY_SHARE, MEMORY_BASE),
                self.limit.memory,
            ),
        }
    }

    /// The mean over the time from `start` to `now` that the pod was running.
    pub fn mean(&self, clock: &Clock, since: Timestamp, start: Timestamp, now: Timestamp) -> Use {
        const POINTS: i64 = 10;
        let from = start.max(since).as_millisecond();
        let length = (now.as_millisecond() - from).max(0);
        let mut sum = Use::default();
        for point in 0..POINTS {
            let at = Timestamp::from_millisecond(from + length * point / POINTS).unwrap_or(now);
            sum += self.at(clock, since, at);
        }
        Use { cpu: sum.cpu / POINTS, memory: sum.memory / POINTS }
    }
}

/// What a node's own services use: a little of each, more on larger machines, never quite the same.
pub fn system(node: &str, seed: u64, capacity: Use, now: Timestamp) -> Use {
    let minute = (now.as_second() / 60).to_string();
    let wobble = 0.9 + 0.2 * chance(&[&seed.to_string(), node, &minute]);
    Use {
        cpu: whole((100.0 + float(capacity.cpu) * 0.01) * wobble),
        memory: whole((float(512 << 20) + float(capacity.memory) * 0.01) * wobble),
    }
}

/// Squeezes CPU into what the machine has: first best-effort pods give way, then all others alike.
pub fn squeeze(capacity_cpu: i64, system: Use, pods: &mut [(Use, IsBestEffort)]) {
    let sum = |pods: &[(Use, IsBestEffort)], wanted: bool| -> i64 {
        pods.iter().filter(|(_, be)| be.0 == wanted).map(|(used, _)| used.cpu).sum()
    };
    let room = (capacity_cpu - system.cpu).max(0);
    let (firm, soft) = (sum(pods, false), sum(pods, true));
    if firm + soft <= room {
        return;
    }
    let firm_room = firm.min(room);
    let soft_room = room - firm_room;
    for (used, best_effort) in pods {
        let (part, all) = if best_effort.0 { (soft_room, soft) } else { (firm_room, firm) };
        used.cpu = whole(float(used.cpu) * float(part) / float(all.max(1)));
    }
}

/// Whether a pod runs on what others leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsBestEffort(pub bool);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::profile::{Measure, Wanted, parse};

    fn profile(measure: Measure, text: &str) -> Option<Profile> {
        match parse(measure, text).unwrap() {
            Wanted::Profile(profile) => Some(profile),
            Wanted::TraceIn { .. } => None,
        }
    }

    fn load(cpu: Option<Profile>, request: i64, limit: i64) -> Load {
        let (request, limit) = (Use { cpu: request, memory: 0 }, Use { cpu: limit, memory: 0 });
        Load { cpu, memory: None, request, limit }
    }

    #[test]
    fn defaults_profiles_and_limits() {
        let clock = Clock { origin: Timestamp::UNIX_EPOCH, speed: 1.0 };
        let now = Timestamp::from_second(1000).unwrap();
        for (name, load, want) in [
            ("half the request", load(None, 1000, 0), 500),
            ("nothing requested", load(None, 0, 0), 20),
            ("as asked", load(profile(Measure::Cpu, "80%"), 1000, 0), 800),
            ("no more than the limit", load(profile(Measure::Cpu, "3"), 1000, 2000), 2000),
        ] {
            assert_eq!(load.at(&clock, Timestamp::UNIX_EPOCH, now).cpu, want, "{name}");
            assert_eq!(load.at(&clock, Timestamp::UNIX_EPOCH, now).memory, MEMORY_BASE, "{name}");
        }
    }

    #[test]
    fn a_day_passes_in_minutes() {
        let origin: Timestamp = "2024-05-01T00:00:00Z".parse().unwrap();
        let clock = Clock { origin, speed: 60.0 };
        let load = load(profile(Measure::Cpu, "wave:min=0,max=1"), 0, 0);
        let noon = origin + jiff::SignedDuration::from_mins(12);
        assert_eq!(load.at(&clock, origin, origin).cpu, 0);
        assert_eq!(load.at(&clock, origin, noon).cpu, 1000);
        let mean = load.mean(&clock, origin, origin, origin + jiff::SignedDuration::from_mins(24));
        assert_eq!(mean.cpu, 500);
    }

    #[test]
    fn a_node_has_no_more_cpu_than_it_has() {
        let used = |cpu: i64| Use { cpu, memory: 7 };
        let system = used(100);
        for (name, pods, want) in [
            ("room for all", vec![(500, false), (300, true)], vec![500, 300]),
            ("best effort gives way", vec![(700, false), (300, true), (300, true)], vec![700, 100, 100]),
            ("then all others", vec![(1500, false), (300, false), (50, true)], vec![750, 150, 0]),
        ] {
            let mut pods: Vec<_> = pods.into_iter().map(|(cpu, be)| (used(cpu), IsBestEffort(be))).collect();
            squeeze(1000, system, &mut pods);
            assert_eq!(pods.iter().map(|(used, _)| used.cpu).collect::<Vec<_>>(), want, "{name}");
            assert!(pods.iter().all(|(used, _)| used.memory == 7));
        }
    }
}
