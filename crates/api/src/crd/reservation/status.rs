//! How a reservation moves from phase to phase. Pure: the time comes in. Spec: crds 1.2.

use super::{
    Reservation, ReservationCondition, ReservationConditionType, ReservationPhase, ReservationSpec,
    ReservationStatus,
};
use crate::annotation::reservation::ResizeAllocatable;
use crate::crd::condition::ConditionStatus;
use crate::duration::GoDuration;
use crate::pod;
use crate::quantity::ResourceList;
use crate::time::Time;

/// Reasons of conditions.
pub mod reason {
    pub const SCHEDULED: &str = "Scheduled";
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    pub const AVAILABLE: &str = "Available";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const EXPIRED: &str = "Expired";
    pub const WAITING: &str = "Waiting";
}

impl Reservation {
    /// The phase as it counts today: absent is Pending, and the old Expired is Failed.
    pub fn phase(&self) -> ReservationPhase {
        match self.status.as_ref().and_then(|status| status.phase.clone()) {
            None => ReservationPhase::Pending,
            Some(ReservationPhase::Expired) => ReservationPhase::Failed,
            Some(phase) => phase,
        }
    }

    /// The node, once there is one.
    pub fn node_name(&self) -> Option<&str> {
        self.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty())
    }

    /// Placed, and usable now.
    pub fn is_available(&self) -> bool {
        self.node_name().is_some() && self.phase() == ReservationPhase::Available
    }

    /// Placed, and usable now or later.
    pub fn is_active(&self) -> bool {
        let active = matches!(self.phase(), ReservationPhase::Available | ReservationPhase::Waiting);
        self.node_name().is_some() && active
    }

    /// Consumed or failed: it will not hold anything again.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase(), ReservationPhase::Succeeded | ReservationPhase::Failed)
    }

    /// Failed, and because of time.
    pub fn is_expired(&self) -> bool {
        let Some(status) = &self.status else { return false };
        let ready = status.condition(&ReservationConditionType::Ready);
        let by_condition = ready
            .is_some_and(|ready| ready.status == ConditionStatus::False && ready.reason == reason::EXPIRED);
        match status.phase {
            // v0.5 had a phase of its own.
            Some(ReservationPhase::Expired) => true,
            Some(ReservationPhase::Failed) => by_condition,
            _ => false,
        }
    }

    /// Whether the first owner consumes it; true unless the spec says no.
    pub fn is_allocate_once(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.allocate_once).unwrap_or(true)
    }

    /// The instant after which it expires: the earlier of `expires` and creation + `ttl`. A `ttl`
    /// of 0 switches both off.
    pub fn expires_at(&self) -> Option<Time> {
        let spec = self.spec.as_ref()?;
        if spec.ttl == Some(GoDuration::ZERO) {
            return None;
        }
        let by_age = spec.ttl.zip(self.metadata.creation_timestamp.clone()).and_then(|(ttl, created)| {
            let age = jiff::SignedDuration::from_nanos(ttl.0);
            Time::from(created).0.checked_add(age).ok().map(Time)
        });
        spec.expires.into_iter().chain(by_age).min()
    }

    /// Whether it should be expired now.
    pub fn is_due(&self, now: Time) -> bool {
        !self.is_finished() && self.expires_at().is_some_and(|end| now > end)
    }

    /// Placed on a node: holds what its template asks for, overlaid by what its annotation says.
    pub fn set_available(&mut self, node_name: &str, resize: Option<&ResizeAllocatable>, now: Time) {
        let mut allocatable = self.spec.as_ref().map(ReservationSpec::requests).unwrap_or_default();
        let resized = resize.into_iter().flat_map(|resize| &resize.resources);
        allocatable.extend(resized.map(|(name, amount)| (name.clone(), *amount)));
        let condition = |condition_type, reason: &str| ReservationCondition {
            condition_type,
            status: ConditionStatus::True,
            reason: reason.to_owned(),
            message: String::new(),
            last_probe_time: Some(now),
            last_transition_time: Some(now),
        };
        let status = self.status.get_or_insert_default();
        status.phase = Some(ReservationPhase::Available);
        status.node_name = node_name.to_owned();
        status.allocatable = allocatable;
        status.conditions = vec![
            condition(ReservationConditionType::Scheduled, reason::SCHEDULED),
            condition(ReservationConditionType::Ready, reason::AVAILABLE),
        ];
    }

    /// Placed on a node that has not enough free yet: holds it against others, and is not usable.
    pub fn set_waiting(&mut self, node_name: &str, resize: Option<&ResizeAllocatable>, now: Time) {
        self.set_available(node_name, resize, now);
        let status = self.status.get_or_insert_default();
        status.phase = Some(ReservationPhase::Waiting);
        let ready = status.condition_mut(ReservationConditionType::Ready);
        ready.set(ConditionStatus::False, reason::WAITING, now);
    }

    /// What it waited for is free.
    pub fn end_waiting(&mut self, now: Time) {
        let status = self.status.get_or_insert_default();
        status.phase = Some(ReservationPhase::Available);
        let ready = status.condition_mut(ReservationConditionType::Ready);
        ready.set(ConditionStatus::True, reason::AVAILABLE, now);
    }

    /// An attempt to place it failed. One that is placed already only notes that it was looked at.
    pub fn set_unschedulable(&mut self, message: &str, now: Time) {
        let status = self.status.get_or_insert_default();
        let scheduled = status.condition(&ReservationConditionType::Scheduled);
        if scheduled.is_some_and(|scheduled| scheduled.status == ConditionStatus::True) {
            status.condition_mut(ReservationConditionType::Scheduled).last_probe_time = Some(now);
            return;
        }
        let scheduled = status.condition_mut(ReservationConditionType::Scheduled);
        scheduled.set(ConditionStatus::False, reason::UNSCHEDULABLE, now);
        scheduled.message = message.to_owned();
    }

    /// Consumed by its one owner.
    ///
    /// Differs: upstream leaves lastTransitionTime alone when Ready turns False here.
    pub fn set_succeeded(&mut self, now: Time) {
        let status = self.status.get_or_insert_default();
        status.phase = Some(ReservationPhase::Succeeded);
        status.condition_mut(ReservationConditionType::Ready).set(
            ConditionStatus::False,
            reason::SUCCEEDED,
            now,
        );
    }

    /// Expired, or its node is gone.
    pub fn set_expired(&mut self, now: Time) {
        let status = self.status.get_or_insert_default();
        status.phase = Some(ReservationPhase::Failed);
        let ready = status.condition_mut(ReservationConditionType::Ready);
        if ready.status != ConditionStatus::False {
            ready.message.clear();
        }
        ready.set(ConditionStatus::False, reason::EXPIRED, now);
    }
}

impl ReservationSpec {
    /// What the template asks for, as if it were a pod.
    pub fn requests(&self) -> ResourceList {
        let spec = self.template.as_ref().and_then(|template| template.spec.clone());
        pod::requests(&k8s_openapi::api::core::v1::Pod { spec, ..Default::default() })
    }
}

impl ReservationStatus {
    /// The condition of this type.
    pub fn condition(&self, wanted: &ReservationConditionType) -> Option<&ReservationCondition> {
        self.conditions.iter().find(|condition| condition.condition_type == *wanted)
    }

    fn condition_mut(&mut self, wanted: ReservationConditionType) -> &mut ReservationCondition {
        let found = self.conditions.iter().position(|condition| condition.condition_type == wanted);
        let index = found.unwrap_or_else(|| {
            self.conditions.push(ReservationCondition { condition_type: wanted, ..Default::default() });
            self.conditions.len() - 1
        });
        &mut self.conditions[index]
    }
}

impl ReservationCondition {
    fn set(&mut self, status: ConditionStatus, reason: &str, now: Time) {
        if self.status != status {
            self.status = status;
            self.last_transition_time = Some(now);
        }
        self.reason = reason.to_owned();
        self.last_probe_time = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::annotation;
    use crate::crd::decode_object;

    fn reservation(object: Value) -> Reservation {
        decode_object(&object).unwrap()
    }

    /// Minute of a fixed hour.
    fn t(minute: u8) -> Time {
        format!("2024-01-01T00:{minute:02}:00Z").parse().unwrap()
    }

    fn conditions(reservation: &Reservation) -> Value {
        serde_json::to_value(&reservation.status.as_ref().unwrap().conditions).unwrap()
    }

    fn condition(
        kind: &str,
        status: &str,
        reason: &str,
        message: Option<&str>,
        probe: u8,
        transition: u8,
    ) -> Value {
        let mut condition = json!({
            "type": kind, "status": status, "reason": reason,
            "lastProbeTime": t(probe), "lastTransitionTime": t(transition),
        });
        if let Some(message) = message {
            condition["message"] = json!(message);
        }
        condition
    }

    #[test]
    fn available_holds_the_template_and_the_resize() {
        let requests = json!({ "cpu": 2, "memory": "1Gi" });
        let template =
            json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] } });
        let mut r = reservation(json!({
            "metadata": { "annotations": {
                "scheduling.koordinator.sh/reservation-resize-allocatable": r#"{"resources":{"cpu":"5","x/y":"1"}}"#,
            } },
            "spec": { "template": template },
            "status": { "conditions": [{ "type": "Odd", "status": "True" }] },
        }));
        let resize = annotation::read(r.metadata.annotations.as_ref()).unwrap();
        r.set_available("n1", resize.as_ref(), t(1));
        let status = serde_json::to_value(&r.status).unwrap();
        assert_eq!(
            status,
            json!({
                "phase": "Available",
                "nodeName": "n1",
                "allocatable": { "cpu": "5", "memory": "1Gi", "x/y": "1" },
                "conditions": [
                    condition("Scheduled", "True", "Scheduled", None, 1, 1),
                    condition("Ready", "True", "Available", None, 1, 1),
                ],
            }),
            "crds#1.4.R8"
        );
        assert!(r.is_available() && r.is_active() && !r.is_finished());
    }

    #[test]
    fn failed_attempts() {
        let mut r = reservation(json!({}));
        r.set_unschedulable("m1", t(0));
        assert_eq!(
            conditions(&r),
            json!([condition("Scheduled", "False", "Unschedulable", Some("m1"), 0, 0)])
        );
        r.set_unschedulable("m2", t(1));
        assert_eq!(
            conditions(&r),
            json!([condition("Scheduled", "False", "Unschedulable", Some("m2"), 1, 0)])
        );
        assert_eq!(r.phase(), ReservationPhase::Pending);
        assert_eq!(r.status.as_ref().unwrap().phase, None, "the phase is left alone");

        r.set_expired(t(2));
        assert_eq!(
            conditions(&r),
            json!([
                condition("Scheduled", "False", "Unschedulable", Some("m2"), 1, 0),
                condition("Ready", "False", "Expired", None, 2, 2),
            ])
        );
        assert!(r.is_expired());

        let mut r = reservation(json!({}));
        r.set_available("n1", None, t(0));
        r.set_unschedulable("m", t(3));
        assert_eq!(
            (conditions(&r), r.phase()),
            (
                json!([
                    condition("Scheduled", "True", "Scheduled", None, 3, 0),
                    condition("Ready", "True", "Available", None, 0, 0),
                ]),
                ReservationPhase::Available
            ),
            "crds#1.4.R6"
        );
    }

    #[test]
    fn consumed_and_expired() {
        let mut r = reservation(json!({}));
        r.set_available("n1", None, t(0));
        r.set_succeeded(t(1));
        assert_eq!(r.phase(), ReservationPhase::Succeeded);
        assert_eq!(conditions(&r)[1], condition("Ready", "False", "Succeeded", None, 1, 1));
        assert!(r.is_finished() && !r.is_expired());
        r.set_expired(t(2));
        assert_eq!(
            (r.phase(), &conditions(&r)[1]),
            (ReservationPhase::Failed, &condition("Ready", "False", "Expired", None, 2, 1)),
            "crds#1.4.R7"
        );
        assert!(r.is_expired());

        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Available", "message": "old",
            "lastTransitionTime": t(0),
        });
        let mut r = reservation(json!({ "status": { "conditions": [ready] } }));
        r.set_expired(t(2));
        assert_eq!(conditions(&r), json!([condition("Ready", "False", "Expired", None, 2, 2)]), "replaced");
    }

    #[test]
    fn conditions_after_each_step() {
        let scheduled = |status: &str, message: Option<&str>, probe, transition| {
            let reason = if status == "True" { "Scheduled" } else { "Unschedulable" };
            condition("Scheduled", status, reason, message, probe, transition)
        };
        let ready = |status: &str, reason: &str, message: Option<&str>, probe, transition| {
            condition("Ready", status, reason, message, probe, transition)
        };
        let step = |before: Value, act: &dyn Fn(&mut Reservation)| {
            let mut r = reservation(json!({ "status": { "conditions": before } }));
            act(&mut r);
            (conditions(&r), r.phase())
        };
        let unschedulable =
            |message: &'static str, at| move |r: &mut Reservation| r.set_unschedulable(message, t(at));
        let c1 = json!([scheduled("False", Some("m1"), 0, 0)]);
        let c2 = json!([scheduled("False", Some("m2"), 1, 0)]);
        let pending = ReservationPhase::Pending;
        let failed = ReservationPhase::Failed;
        let key = "scheduler-reservation-loadaware#A2.C1";
        assert_eq!(step(json!([]), &unschedulable("m1", 0)), (c1.clone(), pending.clone()), "{key}");
        let key = "scheduler-reservation-loadaware#A2.C2";
        assert_eq!(step(c1, &unschedulable("m2", 1)), (c2.clone(), pending.clone()), "{key}");
        let key = "scheduler-reservation-loadaware#A2.C3";
        let known = json!([scheduled("True", Some("m"), 0, 0)]);
        let want = json!([scheduled("True", Some("m"), 1, 0)]);
        assert_eq!(step(known, &unschedulable("m3", 1)), (want, pending), "{key}");
        let key = "scheduler-reservation-loadaware#A2.C4";
        let want = json!([c2[0], ready("False", "Expired", None, 2, 2)]);
        assert_eq!(step(c2, &|r| r.set_expired(t(2))), (want, failed.clone()), "{key}");
        let key = "scheduler-reservation-loadaware#A2.C5";
        let known = json!([ready("True", "Available", Some("m"), 0, 0)]);
        let want = json!([ready("False", "Expired", None, 2, 2)]);
        assert_eq!(step(known, &|r| r.set_expired(t(2))), (want, failed.clone()), "{key}");
        let key = "scheduler-reservation-loadaware#A2.C6";
        let known = json!([ready("False", "X", None, 0, 0)]);
        let want = json!([ready("False", "Expired", None, 2, 0)]);
        assert_eq!(step(known, &|r| r.set_expired(t(2))), (want, failed), "{key}");
        // Upstream leaves the transition at t0; the table of the kind (crds 1.2) wants it moved when the status flips.
        let key = "scheduler-reservation-loadaware#A2.C7";
        let known = json!([ready("True", "Available", None, 0, 0)]);
        let want = json!([ready("False", "Succeeded", None, 2, 2)]);
        assert_eq!(step(known, &|r| r.set_succeeded(t(2))), (want, ReservationPhase::Succeeded), "{key}");
    }

    #[test]
    fn waiting_ends_available() {
        let mut r = reservation(json!({}));
        r.set_waiting("n1", None, t(0));
        assert_eq!(
            (conditions(&r), r.phase()),
            (
                json!([
                    condition("Scheduled", "True", "Scheduled", None, 0, 0),
                    condition("Ready", "False", "Waiting", None, 0, 0),
                ]),
                ReservationPhase::Waiting
            )
        );
        assert!(r.is_active() && !r.is_available() && !r.is_finished());
        r.end_waiting(t(3));
        assert_eq!(conditions(&r)[1], condition("Ready", "True", "Available", None, 3, 3));
        assert!(r.is_available());
    }

    #[test]
    fn expired_is_told_from_failed() {
        let with = |phase: &str, status: &str, reason: &str| {
            let ready = json!({ "type": "Ready", "status": status, "reason": reason });
            reservation(json!({ "status": { "phase": phase, "conditions": [ready] } }))
        };
        assert!(with("Failed", "False", "Expired").is_expired());
        assert!(!with("Failed", "False", "Other").is_expired());
        assert!(!with("Failed", "True", "Expired").is_expired());
        assert!(!with("Succeeded", "False", "Expired").is_expired());
        let old = with("Expired", "True", "Available");
        assert!(old.is_expired() && old.is_finished());
        assert_eq!(old.phase(), ReservationPhase::Failed);
        assert_eq!(serde_json::to_value(&old).unwrap()["status"]["phase"], "Expired", "kept as stored");
        assert_eq!(
            reservation(json!({ "status": { "phase": "New" } })).phase(),
            ReservationPhase::Other("New".into())
        );
        assert_eq!(reservation(json!({ "status": { "phase": "" } })).phase(), ReservationPhase::Pending);
    }

    #[test]
    fn due() {
        let r = |spec: Value| reservation(json!({ "metadata": { "creationTimestamp": t(0) }, "spec": spec }));
        for (name, spec, minute, want) in [
            ("ttl not over", json!({ "ttl": "10m" }), 10, false),
            ("ttl over", json!({ "ttl": "10m" }), 11, true),
            ("expires, long ttl", json!({ "ttl": "24h", "expires": t(5) }), 6, true),
            ("expires at that instant", json!({ "ttl": "24h", "expires": t(5) }), 5, false),
            ("ttl before expires", json!({ "ttl": "5m", "expires": t(30) }), 6, true),
            ("ttl 0 switches expires off", json!({ "ttl": "0s", "expires": t(5) }), 6, false),
            ("expires alone", json!({ "expires": t(5) }), 6, true),
            ("neither", json!({}), 59, false),
            ("negative ttl", json!({ "ttl": "-1m" }), 0, true),
        ] {
            assert_eq!(r(spec).is_due(t(minute)), want, "{name}");
        }
        let mut done = r(json!({ "ttl": "1m" }));
        done.set_succeeded(t(0));
        assert!(!done.is_due(t(30)), "finished ones are left alone");
        assert!(r(json!({})).is_allocate_once() && !r(json!({ "allocateOnce": false })).is_allocate_once());
    }
}
