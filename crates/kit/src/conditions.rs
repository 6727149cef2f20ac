//! Conditions of objects: set one, and its times follow Kubernetes' rule. Pure.
//!
//! The transition time moves only when the status changes. [`set`] says whether anything that readers care about
//! changed, so that a caller can leave the write away.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use koord_api::crd::pod_migration_job::PodMigrationJobCondition;
use koord_api::crd::reservation::ReservationCondition;

/// A condition of any kind of object.
pub trait ConditionLike: Clone {
    /// Whether both are about the same thing.
    fn is_about(&self, other: &Self) -> bool;

    /// Whether both say that it is so.
    fn has_status_of(&self, other: &Self) -> bool;

    /// Whether readers would see no difference, times aside.
    fn says_the_same(&self, other: &Self) -> bool;

    /// Sets when the status last changed, or keeps what another says of that.
    fn set_transition(&mut self, transition: Transition<'_, Self>);

    /// Sets when it was last looked at, for kinds that note it.
    fn set_looked_at(&mut self, now: Timestamp);
}

/// When a status changed.
pub enum Transition<'o, C> {
    Now(Timestamp),
    AsIn(&'o C),
}

/// Adds a condition or replaces the one about the same thing. Whether anything but its times changed.
pub fn set<C: ConditionLike>(conditions: &mut Vec<C>, mut new: C, now: Timestamp) -> bool {
    new.set_looked_at(now);
    let Some(old) = conditions.iter_mut().find(|old| old.is_about(&new)) else {
        new.set_transition(Transition::Now(now));
        conditions.push(new);
        return true;
    };
    if old.has_status_of(&new) {
        new.set_transition(Transition::AsIn(old));
    } else {
        new.set_transition(Transition::Now(now));
    }
    let changed = !old.says_the_same(&new);
    *old = new;
    changed
}

/// The pod condition of a type.
pub fn pod_condition<'c>(conditions: &'c [PodCondition], kind: &str) -> Option<&'c PodCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The node condition of a type.
pub fn node_condition<'c>(conditions: &'c [NodeCondition], kind: &str) -> Option<&'c NodeCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The condition of a type, for kinds that use the common shape.
pub fn condition<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// One implementation per shape; they differ in the names of their fields and in which times they have.
macro_rules! condition_like {
    ($shape:ty, $kind:ident, $time:expr, [$($said:ident),*], $looked:expr) => {
        impl ConditionLike for $shape {
            fn is_about(&self, other: &Self) -> bool {
                self.$kind == other.$kind
            }

            fn has_status_of(&self, other: &Self) -> bool {
                self.status == other.status
            }

            fn says_the_same(&self, other: &Self) -> bool {
                self.status == other.status $(&& self.$said == other.$said)*
            }

            fn set_transition(&mut self, transition: Transition<'_, Self>) {
                self.last_transition_time = match transition {
                    Transition::Now(now) => $time(now),
                    Transition::AsIn(other) => other.last_transition_time.clone(),
                };
            }

            fn set_looked_at(&mut self, now: Timestamp) {
                let look: fn(&mut Self, Timestamp) = $looked;
                look(self, now);
            }
        }
    };
}

condition_like!(
    PodCondition,
    type_,
    |now| Some(Time(now)),
    [reason, message, observed_generation],
    |_, _| {}
);
condition_like!(NodeCondition, type_, |now| Some(Time(now)), [reason, message], |condition, now| {
    condition.last_heartbeat_time = Some(Time(now));
});
condition_like!(Condition, type_, Time, [reason, message, observed_generation], |_, _| {});
condition_like!(
    ReservationCondition,
    condition_type,
    |now| Some(koord_api::time::Time(now)),
    [reason, message],
    |condition, now| condition.last_probe_time = Some(koord_api::time::Time(now))
);
condition_like!(
    PodMigrationJobCondition,
    condition_type,
    |now| Some(koord_api::time::Time(now)),
    [reason, message],
    |condition, now| condition.last_probe_time = Some(koord_api::time::Time(now))
);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_follows_the_status() {
        let pod = |status: &str, reason: &str| PodCondition {
            type_: "PodScheduled".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            ..PodCondition::default()
        };
        let mut conditions = vec![PodCondition { type_: "Ready".to_owned(), ..PodCondition::default() }];
        for (name, now, new, want_changed, want_time) in [
            ("new", 1, pod("False", "Unschedulable"), true, 1),
            ("again", 2, pod("False", "Unschedulable"), false, 1),
            ("another reason", 3, pod("False", "SchedulerError"), true, 1),
            ("another status", 4, pod("True", ""), true, 4),
        ] {
            assert_eq!(set(&mut conditions, new, at(now)), want_changed, "{name}");
            let found = pod_condition(&conditions, "PodScheduled").unwrap();
            assert_eq!(found.last_transition_time, Some(Time(at(want_time))), "{name}");
        }
        assert_eq!(conditions.len(), 2);
    }

    #[test]
    fn a_heartbeat_alone_is_no_change() {
        let ready = NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..NodeCondition::default()
        };
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, ready.clone(), at(1)));
        assert!(!set(&mut conditions, ready, at(9)));
        let found = node_condition(&conditions, "Ready").unwrap();
        assert_eq!(found.last_heartbeat_time, Some(Time(at(9))));
        assert_eq!(found.last_transition_time, Some(Time(at(1))));
    }

    #[test]
    fn the_common_shape_counts_its_generation() {
        let new = |generation| Condition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Done".to_owned(),
            message: String::new(),
            last_transition_time: Time(at(0)),
            observed_generation: Some(generation),
        };
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, new(1), at(5)));
        assert!(set(&mut conditions, new(2), at(6)));
        assert_eq!(condition(&conditions, "Ready").unwrap().last_transition_time, Time(at(5)));
        assert!(!set(&mut conditions, new(2), at(7)));
    }
}
