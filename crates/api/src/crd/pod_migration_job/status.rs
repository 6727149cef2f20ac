//! How a job moves from step to step. Pure: the time comes in. Spec: crds 2.2.

use super::{
    PodMigrationJob, PodMigrationJobCondition, PodMigrationJobConditionType, PodMigrationJobPhase,
    PodMigrationJobStatus,
};
use crate::crd::condition::ConditionStatus;
use crate::time::Time;

/// `status.status` of a job that succeeded.
pub const COMPLETE: &str = "Complete";

impl PodMigrationJob {
    /// The phase as it counts today: absent is Pending, and the old Succeed is Succeeded.
    pub fn phase(&self) -> PodMigrationJobPhase {
        match self.status.as_ref().and_then(|status| status.phase.clone()) {
            None => PodMigrationJobPhase::Pending,
            Some(PodMigrationJobPhase::Succeed) => PodMigrationJobPhase::Succeeded,
            Some(phase) => phase,
        }
    }

    /// Whether the job has ended, well or not.
    pub fn is_finished(&self) -> bool {
        use PodMigrationJobPhase::{Aborted, Failed, Succeeded};
        matches!(self.phase(), Succeeded | Failed | Aborted)
    }
}

impl PodMigrationJobStatus {
    /// Notes a step; true when that changed anything. Steps stay in order of first appearance, and
    /// the transition time moves only with the condition's status.
    pub fn set_condition(
        &mut self,
        step: PodMigrationJobConditionType,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Time,
    ) -> bool {
        let found = self.conditions.iter_mut().find(|condition| condition.condition_type == step);
        let transition = match &found {
            Some(old) if old.status == status => old.last_transition_time,
            _ => Some(now),
        };
        let condition = PodMigrationJobCondition {
            condition_type: step,
            status,
            last_probe_time: None,
            last_transition_time: transition,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        if found.as_deref() == Some(&condition) {
            return false;
        }
        self.status = condition.condition_type.to_string();
        self.reason = condition.reason.clone();
        self.message = condition.message.clone();
        match found {
            Some(old) => *old = condition,
            None => self.conditions.push(condition),
        }
        true
    }

    /// Ends the job badly. The steps, and which came last, stay to be read.
    pub fn fail(&mut self, reason: &str, message: &str) {
        self.phase = Some(PodMigrationJobPhase::Failed);
        self.reason = reason.to_owned();
        self.message = message.to_owned();
    }

    /// Ends the job well.
    pub fn succeed(&mut self, message: &str) {
        self.phase = Some(PodMigrationJobPhase::Succeeded);
        self.status = COMPLETE.to_owned();
        self.reason.clear();
        self.message = message.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::crd::decode_object;

    fn t(minute: u8) -> Time {
        format!("2024-01-01T00:{minute:02}:00Z").parse().unwrap()
    }

    #[test]
    fn old_and_unknown_phases() {
        for (stored, phase, finished) in [
            (json!({}), "Pending", false),
            (json!({ "phase": "" }), "Pending", false),
            (json!({ "phase": "Running" }), "Running", false),
            (json!({ "phase": "Succeed" }), "Succeeded", true),
            (json!({ "phase": "Succeeded" }), "Succeeded", true),
            (json!({ "phase": "Failed" }), "Failed", true),
            (json!({ "phase": "Aborted" }), "Aborted", true),
            (json!({ "phase": "Odd" }), "Odd", false),
        ] {
            let job: PodMigrationJob = decode_object(&json!({ "status": stored })).unwrap();
            assert_eq!((job.phase().as_str(), job.is_finished()), (phase, finished), "{stored}");
        }
    }

    #[test]
    fn steps() {
        use PodMigrationJobConditionType::{Eviction, ReservationCreated};
        let mut status = PodMigrationJobStatus::default();
        assert!(status.set_condition(ReservationCreated, ConditionStatus::True, "", "made", t(0)));
        assert!(status.set_condition(Eviction, ConditionStatus::False, "Evicting", "", t(1)));
        assert!(!status.set_condition(Eviction, ConditionStatus::False, "Evicting", "", t(2)), "nothing new");
        assert!(status.set_condition(Eviction, ConditionStatus::False, "FailedEvict", "e", t(3)));
        assert!(status.set_condition(Eviction, ConditionStatus::True, "EvictComplete", "", t(4)));
        let eviction = json!({ "type": "Eviction", "status": "True", "reason": "EvictComplete", "lastTransitionTime": t(4) });
        let created = json!({ "type": "ReservationCreated", "status": "True", "message": "made", "lastTransitionTime": t(0) });
        let as_json = |status: &PodMigrationJobStatus| serde_json::to_value(status).unwrap();
        let want: Value =
            json!({ "status": "Eviction", "reason": "EvictComplete", "conditions": [created, eviction] });
        assert_eq!(as_json(&status), want);

        let mut failed = status.clone();
        failed.fail("Timeout", "Abort job caused by timeout");
        assert_eq!(
            as_json(&failed),
            json!({
                "phase": "Failed", "status": "Eviction", "reason": "Timeout",
                "message": "Abort job caused by timeout", "conditions": want["conditions"],
            })
        );
        status.succeed("done");
        assert_eq!(
            as_json(&status),
            json!({ "phase": "Succeeded", "status": "Complete", "message": "done", "conditions": want["conditions"] })
        );
    }
}
