//! What a Reservation is doing, for people: waiting like a pod, holding, or over.

use koord_api::quantity::ResourceList;

use super::keeper::Known;
use crate::cluster::reservations::Entry;
use crate::engine::Engine;
use crate::explain::{Explanation, Reserves, State};
use crate::time::Time;

impl Engine {
    /// Why a Reservation is as it is; none for one that nobody has told of.
    pub fn explain_reservation(&mut self, now: Time, name: &str) -> Option<Explanation> {
        let uid = self.keeper.uid_of(name)?.to_owned();
        if let Some((pod, profile)) = self.world.waiting.get(uid.as_str()).map(|w| (w.pod.clone(), w.profile))
        {
            return Some(self.explain_waiting(now, &pod, profile));
        }
        if let Some(pod) = self.world.others.get(uid.as_str()).cloned() {
            return Some(self.explain_other(now, &pod));
        }
        let known = self.keeper.get(&uid)?;
        let entry = self.world.cluster.reservations().get(&uid);
        let (state, summary) = match &known.fault {
            Some(fault) => (ended(known), format!("is not looked at: {fault}")),
            None if known.is_finished() => (ended(known), over(known)),
            None => {
                let state = State::Bound { node: known.node.to_string(), since: None };
                (state, entry.map(|entry| holding(known, entry)).unwrap_or_default())
            }
        };
        let pod = entry.map(|entry| entry.record.pod.clone());
        Some(match pod {
            Some(pod) => self.bare(now, &pod, state, summary),
            None => Explanation::of_reservation(now, known.name.to_string(), uid, state, summary),
        })
    }
}

fn ended(known: &Known) -> State {
    State::Ended { phase: known.phase.to_string() }
}

fn over(known: &Known) -> String {
    let how = if known.is_consumed() { "was consumed" } else { "has expired, or its node is gone" };
    let place = if known.node.is_empty() { String::new() } else { format!(" on {}", known.node) };
    format!("{how}{place} and holds nothing any more")
}

/// `is on n1, Reserved by r for pods with app=web until …: 8 cpu, 16Gi memory; 4 cpu are used by shop/web-0`.
fn holding(known: &Known, entry: &Entry) -> String {
    let reserves = Reserves::of(&entry.record);
    let until = reserves.until.map(|until| format!(" until {until}")).unwrap_or_default();
    let waits = match entry.is_matchable {
        _ if known.is_waiting() => ", not usable before there is room for it",
        true => "",
        false => ", not usable by others",
    };
    let users: Vec<String> = entry.owners.iter().map(|owner| owner.pod.key.to_string()).collect();
    let used = match users.is_empty() {
        true => "nothing of it is used".to_owned(),
        false => format!("{} are used by {}", amounts(&known.allocated), users.join(", ")),
    };
    format!(
        "is on {} and holds {} for {}{until}{waits}; {used}",
        known.node,
        amounts(&known.allocatable),
        reserves.owners
    )
}

fn amounts(list: &ResourceList) -> String {
    let amounts: Vec<String> = list.iter().map(|(name, amount)| format!("{amount} {name}")).collect();
    if amounts.is_empty() { "nothing".to_owned() } else { amounts.join(", ") }
}
