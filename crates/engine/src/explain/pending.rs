//! All pods that wait, grouped by cause.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::change::Fix;
use crate::pod::Pod;
use crate::queue::ProfileId;
use crate::time::Time;

/// Groups that are looked into, the largest first; further ones are only listed.
pub(crate) const GROUPS_EXPLAINED: usize = 8;
/// Pods named in each group.
const EXAMPLES: usize = 5;

/// Why pods wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReport {
    /// When all this was so.
    pub at: Time,
    /// Pods that wait for a node.
    pub pods: usize,
    /// Pods that have one and are not bound yet.
    pub binding: usize,
    /// Those with the cheapest change first, then by the number of pods.
    pub groups: Vec<PendingGroup>,
}

/// Pods that wait for the same reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingGroup {
    pub pods: usize,
    /// Some of them, by name.
    pub examples: Vec<String>,
    /// Since when the first of them waits.
    pub oldest: Time,
    /// What they were told, without numbers of nodes.
    pub reasons: Vec<String>,
    /// Why, in one line; for the pod in `explained` where there is one.
    pub summary: String,
    /// The pod that was looked into, standing for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<String>,
    /// Whether all of them are alike, so that what holds for one holds for all.
    pub are_alike: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cheapest: Option<Fix>,
}

/// What a group has in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Common {
    /// No attempt yet.
    New,
    /// No node took them: these texts.
    Unfit(Vec<String>),
    Gated(String),
    UnknownScheduler(String),
}

/// One pod that waits.
pub(crate) struct Member {
    pub(crate) pod: Arc<Pod>,
    /// None when its scheduler is not ours.
    pub(crate) profile: Option<ProfileId>,
    pub(crate) since: Time,
}

/// Pods put together.
#[derive(Default)]
pub(crate) struct Grouping {
    groups: BTreeMap<Common, Vec<Member>>,
}

impl Grouping {
    pub(crate) fn add(&mut self, common: Common, member: Member) {
        self.groups.entry(common).or_default().push(member);
    }

    /// The groups, the largest first.
    pub(crate) fn finish(self) -> Vec<(Common, Vec<Member>)> {
        let mut groups: Vec<(Common, Vec<Member>)> = self.groups.into_iter().collect();
        for (_, members) in &mut groups {
            members.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
        }
        groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
        groups
    }
}

/// The pod that stands for the others: the first of the most frequent kind; and whether all are of that kind.
pub(crate) fn representative(members: &[Member]) -> Option<(&Member, bool)> {
    let mut counts: HashMap<*const crate::pod::Class, usize> = HashMap::new();
    for member in members {
        *counts.entry(Arc::as_ptr(&member.pod.class)).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let first = members.iter().find(|member| counts.get(&Arc::as_ptr(&member.pod.class)) == Some(&most))?;
    Some((first, counts.len() == 1))
}

impl PendingGroup {
    /// The group before anybody looked into it.
    pub(crate) fn new(common: &Common, members: &[Member], known: &[String]) -> PendingGroup {
        let (reasons, summary) = match common {
            Common::New => (Vec::new(), "not tried yet".to_owned()),
            Common::Unfit(texts) => (texts.clone(), texts.join(", ")),
            Common::Gated(text) => (vec![text.clone()], text.clone()),
            Common::UnknownScheduler(name) => (Vec::new(), unknown_scheduler(name, known)),
        };
        PendingGroup {
            pods: members.len(),
            examples: members.iter().take(EXAMPLES).map(|member| member.pod.title()).collect(),
            oldest: members.iter().map(|member| member.since).min().unwrap_or_default(),
            reasons,
            summary,
            explained: None,
            are_alike: representative(members).is_some_and(|(_, are_alike)| are_alike),
            cheapest: None,
        }
    }
}

/// Why nothing happens to a pod of somebody else's.
pub(crate) fn unknown_scheduler(name: &str, known: &[String]) -> String {
    format!("no profile here is called {name:?}; there is {}", known.join(", "))
}

impl PendingReport {
    /// Puts groups in order: the cheapest change first, then the most pods.
    pub(crate) fn sort(&mut self) {
        let cost = |group: &PendingGroup| group.cheapest.as_ref().map_or(u32::MAX, |fix| fix.cost);
        self.groups.sort_by_key(|group| (cost(group), std::cmp::Reverse(group.pods)));
    }
}

/// What a message says, without numbers of nodes: `Insufficient cpu`. One that is about no nodes stays whole.
pub(crate) fn texts_of(message: &str) -> Vec<String> {
    let Some((_, rest)) = message.split_once(" nodes are available: ") else {
        return vec![message.to_owned()];
    };
    let first = rest.split_once(". ").map_or(rest, |(first, _)| first).trim_end_matches('.');
    let mut texts: Vec<String> = first
        .split(", ")
        .map(|part| part.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start().to_owned())
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_numbers() {
        for (message, want) in [
            (
                "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) were unschedulable. preemption: no.",
                &["Insufficient cpu", "node(s) were unschedulable"][..],
            ),
            ("0/5 nodes are available: 12 Insufficient cpu.", &["Insufficient cpu"]),
            (
                "0/5 nodes are available: persistentvolumeclaim \"a\" not found.",
                &["persistentvolumeclaim \"a\" not found"],
            ),
            ("no nodes available to schedule pods", &["no nodes available to schedule pods"]),
        ] {
            assert_eq!(texts_of(message), want, "{message}");
        }
    }
}
