//! What a job tells its users: every event with upstream's text, in one place. Spec: crds 2.3.

use std::fmt;

/// Who reports the events, and what it does meanwhile.
pub const REPORTER: &str = "koord-descheduler";
pub const ACTION: &str = "Migrating";

/// Reasons of conditions and of a job's end.
pub mod reason {
    pub const TIMEOUT: &str = "Timeout";
    pub const FAILED_CREATE_RESERVATION: &str = "FailedCreateReservation";
    pub const RESERVATION_EXPIRED: &str = "ReservationExpired";
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    pub const FORBIDDEN_MIGRATE_POD: &str = "ForbiddenMigratePod";
    pub const MISSING_POD: &str = "MissingPod";
    pub const MISSING_RESERVATION: &str = "MissingReservation";
    pub const PREEMPTING: &str = "Preempting";
    pub const PREEMPT_COMPLETE: &str = "PreemptComplete";
    pub const EVICTING: &str = "Evicting";
    pub const FAILED_EVICT: &str = "FailedEvict";
    pub const EVICT_COMPLETE: &str = "EvictComplete";
    pub const WAIT_FOR_POD_BIND_RESERVATION: &str = "WaitForPodBindReservation";
    pub const WAIT_FOR_BOUND_POD_READY: &str = "WaitForBoundPodReady";
    pub const INVALID_POD_REF: &str = "InvalidPodRef";
}

/// Message of a job that ends because its reservation expired.
pub const RESERVATION_EXPIRED_MESSAGE: &str = "Reservation expired";

/// Something that happened to a job. Pods are `namespace/name`. `Display` gives the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent<'a> {
    ReservationCreated {
        reservation: &'a str,
    },
    ReservationScheduled {
        reservation: &'a str,
        node: &'a str,
    },
    FailedCreateReservation {
        error: &'a str,
    },
    /// Before the call.
    Evicting {
        pod: &'a str,
    },
    /// After the call.
    Evicted {
        pod: &'a str,
        node: &'a str,
        reason: &'a str,
    },
    FailedEvict {
        pod: &'a str,
        error: &'a str,
    },
    EvictComplete {
        pod: &'a str,
    },
    WaitForPodBindReservation,
    PodBoundReservation {
        new_pod: &'a str,
    },
    WaitForBoundPodReady {
        new_pod: &'a str,
    },
    BoundPodReady {
        new_pod: &'a str,
    },
    Complete {
        new_pod: &'a str,
        reservation: &'a str,
    },
    /// Of a job that used no reservation.
    CompleteDirectly {
        pod: &'a str,
        node: &'a str,
    },
    Timeout,
    InvalidPodRef,
    MissingPod {
        pod: &'a str,
    },
    MissingReservation {
        reservation: &'a str,
    },
    BoundByAnotherPod,
    SameNode {
        reservation: &'a str,
    },
    /// The message of the reservation's Scheduled condition.
    Unschedulable {
        message: &'a str,
    },
}

impl JobEvent<'_> {
    /// Whether a person may have to act; `type: Warning` instead of `Normal`.
    pub fn is_warning(&self) -> bool {
        use JobEvent as E;
        matches!(
            self,
            E::FailedCreateReservation { .. }
                | E::FailedEvict { .. }
                | E::Timeout
                | E::InvalidPodRef
                | E::MissingPod { .. }
                | E::MissingReservation { .. }
                | E::BoundByAnotherPod
                | E::SameNode { .. }
                | E::Unschedulable { .. }
        )
    }

    /// The reason in one word.
    pub fn reason(&self) -> &'static str {
        use JobEvent as E;
        match self {
            E::ReservationCreated { .. } => "ReservationCreated",
            E::ReservationScheduled { .. } => "ReservationScheduled",
            E::FailedCreateReservation { .. } => reason::FAILED_CREATE_RESERVATION,
            E::Evicting { .. } | E::Evicted { .. } | E::FailedEvict { .. } => reason::EVICTING,
            E::EvictComplete { .. } => reason::EVICT_COMPLETE,
            E::WaitForPodBindReservation => reason::WAIT_FOR_POD_BIND_RESERVATION,
            E::PodBoundReservation { .. } => "PodBoundReservation",
            E::WaitForBoundPodReady { .. } => reason::WAIT_FOR_BOUND_POD_READY,
            E::BoundPodReady { .. } => "BoundPodReady",
            E::Complete { .. } | E::CompleteDirectly { .. } => super::COMPLETE,
            E::Timeout => reason::TIMEOUT,
            E::InvalidPodRef => reason::INVALID_POD_REF,
            E::MissingPod { .. } => reason::MISSING_POD,
            E::MissingReservation { .. } => reason::MISSING_RESERVATION,
            E::BoundByAnotherPod | E::SameNode { .. } => reason::FORBIDDEN_MIGRATE_POD,
            E::Unschedulable { .. } => reason::UNSCHEDULABLE,
        }
    }
}

impl fmt::Display for JobEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use JobEvent as E;
        match self {
            E::ReservationCreated { reservation } => {
                write!(f, "Successfully create Reservation \"{reservation}\"")
            }
            E::ReservationScheduled { reservation, node } => {
                write!(f, "Assigned Reservation \"{reservation}\" to node \"{node}\"")
            }
            E::FailedCreateReservation { error } => {
                write!(f, "Failed to create Reservation caused by {error}")
            }
            E::Evicting { pod } => write!(f, "Try to evict Pod \"{pod}\""),
            E::Evicted { pod, node, reason } => {
                write!(f, "Pod \"{pod}\" evicted from node \"{node}\" by the reason \"{reason}\"")
            }
            E::FailedEvict { pod, error } => write!(f, "Failed evict Pod \"{pod}\" caused by {error}"),
            E::EvictComplete { pod } => write!(f, "Pod \"{pod}\" has been evicted"),
            E::WaitForPodBindReservation => f.write_str("Waiting for Pod bind Reservation"),
            E::PodBoundReservation { new_pod } => write!(f, "Reservation bound by pod \"{new_pod}\""),
            E::WaitForBoundPodReady { new_pod } => write!(f, "Waiting for Bound Pod {new_pod} Ready"),
            E::BoundPodReady { new_pod } => write!(f, "Bind pod \"{new_pod}\" is ready"),
            E::Complete { new_pod, reservation } => {
                write!(f, "Bind Pod \"{new_pod}\" in Reservation \"{reservation}\"")
            }
            E::CompleteDirectly { pod, node } => write!(f, "Assign Pod \"{pod}\" to node \"{node}\""),
            E::Timeout => f.write_str("Abort job caused by timeout"),
            E::InvalidPodRef => f.write_str("Abort job caused by invalid PodRef"),
            E::MissingPod { pod } => write!(f, "Abort job caused by missing Pod \"{pod}\""),
            E::MissingReservation { reservation } => {
                write!(f, "Abort job caused by missing Reservation \"{reservation}\"")
            }
            E::BoundByAnotherPod => f.write_str("Reservation is already bound by another Pod"),
            // "assignes" is upstream's spelling, which users match on.
            E::SameNode { reservation } => {
                write!(f, "Scheduler assignes the Reservation \"{reservation}\" on the same node as the Pod")
            }
            E::Unschedulable { message } => f.write_str(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        use JobEvent as E;
        let (pod, new_pod, reservation, node) = ("ns/a", "ns/b", "r", "n1");
        for (event, want) in [
            (
                E::ReservationCreated { reservation },
                r#"Normal ReservationCreated Successfully create Reservation "r""#,
            ),
            (
                E::ReservationScheduled { reservation, node },
                r#"Normal ReservationScheduled Assigned Reservation "r" to node "n1""#,
            ),
            (
                E::FailedCreateReservation { error: "e" },
                "Warning FailedCreateReservation Failed to create Reservation caused by e",
            ),
            (E::Evicting { pod }, r#"Normal Evicting Try to evict Pod "ns/a""#),
            (
                E::Evicted { pod, node, reason: "x" },
                r#"Normal Evicting Pod "ns/a" evicted from node "n1" by the reason "x""#,
            ),
            (E::FailedEvict { pod, error: "e" }, r#"Warning Evicting Failed evict Pod "ns/a" caused by e"#),
            (E::EvictComplete { pod }, r#"Normal EvictComplete Pod "ns/a" has been evicted"#),
            (
                E::WaitForPodBindReservation,
                "Normal WaitForPodBindReservation Waiting for Pod bind Reservation",
            ),
            (
                E::PodBoundReservation { new_pod },
                r#"Normal PodBoundReservation Reservation bound by pod "ns/b""#,
            ),
            (
                E::WaitForBoundPodReady { new_pod },
                "Normal WaitForBoundPodReady Waiting for Bound Pod ns/b Ready",
            ),
            (E::BoundPodReady { new_pod }, r#"Normal BoundPodReady Bind pod "ns/b" is ready"#),
            (E::Complete { new_pod, reservation }, r#"Normal Complete Bind Pod "ns/b" in Reservation "r""#),
            (E::CompleteDirectly { pod, node }, r#"Normal Complete Assign Pod "ns/a" to node "n1""#),
            (E::Timeout, "Warning Timeout Abort job caused by timeout"),
            (E::InvalidPodRef, "Warning InvalidPodRef Abort job caused by invalid PodRef"),
            (E::MissingPod { pod }, r#"Warning MissingPod Abort job caused by missing Pod "ns/a""#),
            (
                E::MissingReservation { reservation },
                r#"Warning MissingReservation Abort job caused by missing Reservation "r""#,
            ),
            (E::BoundByAnotherPod, "Warning ForbiddenMigratePod Reservation is already bound by another Pod"),
            (
                E::SameNode { reservation },
                r#"Warning ForbiddenMigratePod Scheduler assignes the Reservation "r" on the same node as the Pod"#,
            ),
            (E::Unschedulable { message: "0/3 nodes" }, "Warning Unschedulable 0/3 nodes"),
        ] {
            let of_type = if event.is_warning() { "Warning" } else { "Normal" };
            assert_eq!(format!("{of_type} {} {event}", event.reason()), want);
        }
    }
}
