//! A number that stands for all commands so far: equal decisions, equal number.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::engine::Command;
use crate::engine::command::{BindPlan, ReservationChange, ReservationWrite, StatusPatch, Subject};

/// How many commands there were, and a hash of what they say. The same in every build and on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub commands: u64,
    pub hash: u64,
}

/// Offset and prime of FNV-1a: small, and the same everywhere.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Default for Digest {
    fn default() -> Digest {
        Digest { commands: 0, hash: OFFSET }
    }
}

impl Digest {
    pub fn add(&mut self, command: &Command) {
        self.commands = self.commands.saturating_add(1);
        for byte in text(command).bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
}

fn who(subject: &Subject) -> String {
    format!("{} {}", subject.key, subject.uid)
}

/// A command in words that stay the same though types change.
fn text(command: &Command) -> String {
    match command {
        Command::Bind(binding) => {
            format!(
                "bind {} {} {} {:?}",
                who(&binding.pod),
                binding.node,
                binding.scheduler,
                binding.extender
            )
        }
        Command::Unmark(mark) => format!("unmark {} {}", who(&mark.pod), mark.annotations.join(" ")),
        Command::WriteReservation(write) => reservation(write),
        Command::DeleteReservation { name, uid } => format!("delete reservation {name} {uid}"),
        Command::Prepare(plan) => prepare(plan),
        Command::PatchStatus(patch) => status(patch),
        Command::Preempt(order) => {
            let victims: Vec<String> = order.victims.iter().map(who).collect();
            format!("preempt {} {} {}", who(&order.preemptor), order.node, victims.join(" "))
        }
        Command::Tell(note) => format!("tell {} {} {}", who(&note.about), note.reason, note.note),
        Command::Warn(warning) => format!("warn {warning}"),
    }
}

fn prepare(plan: &BindPlan) -> String {
    let mut text = format!("prepare {} {}", plan.pod.as_ref().map(who).unwrap_or_default(), plan.node);
    let names = plan.volumes.iter().map(|volume| &volume.metadata);
    for metadata in names.chain(plan.claims.iter().map(|claim| &claim.metadata)) {
        // Writing to a string cannot fail.
        let _ = write!(text, " {}", metadata.name.as_deref().unwrap_or_default());
    }
    let _ = write!(text, " {:?} {:?}", plan.annotations, plan.labels);
    text
}

fn reservation(write: &ReservationWrite) -> String {
    let change = match &write.change {
        ReservationChange::Unschedulable { message } => format!("unschedulable {message}"),
        ReservationChange::Available => "available".to_owned(),
        ReservationChange::Expired => "expired".to_owned(),
        ReservationChange::Owners { owners, is_consumed, .. } => {
            let owners: Vec<String> = owners.iter().map(who).collect();
            format!("owners {} {is_consumed}", owners.join(" "))
        }
    };
    format!("reservation {} {} {change}", write.name, write.uid)
}

fn status(patch: &StatusPatch) -> String {
    let condition = patch.condition.as_ref();
    let condition = condition.map(|c| format!("{} {} {}", c.reason, c.message, c.observed_generation));
    format!("status {} {} {:?}", who(&patch.pod), condition.unwrap_or_default(), patch.nominated)
}
