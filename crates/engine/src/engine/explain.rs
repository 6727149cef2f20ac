//! What is known of a pod, gathered for people. Nothing is decided here, and nothing that decides is changed.

use std::sync::Arc;

use super::Engine;
use super::world::{World, queue_key, queue_uid};
use crate::cluster::Row;
use crate::explain::{
    self, Change, Common, Explanation, Fix, GROUPS_EXPLAINED, Grouping, Judges, Member, NEAREST, NearNode,
    PendingGroup, PendingReport, PreemptionPlan, State, Survey, Told,
};
use crate::pod::Pod;
use crate::queue::{ProfileId, QueueName, Whereabouts};
use crate::schedule::{Attempt, Failure};
use crate::time::Time;

/// Changes shown at most.
const CHANGES_MAX: usize = 5;
/// Removing what a pod's owner put there on purpose costs nothing but a decision.
const GATES_COST: u32 = 1;

/// What a look at every node brought.
struct Findings {
    survey: Survey,
    /// The cheapest first.
    fixes: Vec<Fix>,
}

impl Engine {
    /// Why a pod is where it is, and what would help; none for a pod that nobody has told of.
    pub fn explain(&mut self, now: Time, namespace: &str, name: &str) -> Option<Explanation> {
        self.pass_time(now);
        let named = |pod: &&Arc<Pod>| *pod.key.namespace == *namespace && *pod.key.name == *name;
        let waiting = self.world.waiting.values().find(|waiting| named(&&waiting.pod));
        if let Some((pod, profile)) = waiting.map(|waiting| (waiting.pod.clone(), waiting.profile)) {
            return Some(self.explain_waiting(now, &pod, profile));
        }
        let other = self.world.others.values().find(named).cloned();
        if let Some(pod) = other {
            return Some(self.explain_other(now, &pod));
        }
        let held = self.world.cluster.all_held().find(|held| named(&&held.pod))?;
        let (pod, node) = (held.pod.clone(), self.world.cluster.node(held.row).name.to_string());
        let used = self.used_reservation(&pod.uid).map(|name| format!(", in reservation {name}"));
        let summary = format!("is on {node}{}", used.unwrap_or_default());
        let since = pod.started.map(Time::from_seconds);
        Some(self.bare(now, &pod, State::Bound { node, since }, summary))
    }

    /// A pod that somebody else has to place.
    pub(super) fn explain_other(&self, now: Time, pod: &Pod) -> Explanation {
        let known = self.scheduler_names();
        let whose = explain::unknown_scheduler(&pod.class.scheduler, &known);
        let summary = format!("waits for another scheduler: {whose}");
        self.bare(now, pod, State::UnknownScheduler { known }, summary)
    }

    fn scheduler_names(&self) -> Vec<String> {
        self.world.frameworks.iter().map(|framework| framework.scheduler.to_string()).collect()
    }

    /// What is known without looking at nodes.
    pub(super) fn bare(&self, now: Time, pod: &Pod, state: State, summary: String) -> Explanation {
        Explanation {
            pod: pod.reserves.as_ref().map_or_else(|| pod.key.to_string(), |name| name.to_string()),
            is_reservation: pod.reserves.is_some(),
            uid: pod.uid.to_string(),
            scheduler: pod.class.scheduler.to_string(),
            priority: pod.class.priority,
            at: now,
            state,
            summary,
            message: None,
            told: None,
            nodes: self.world.cluster.node_count(),
            nodes_that_fit: 0,
            reasons: Vec::new(),
            changes: Vec::new(),
            nearest: Vec::new(),
            preemption: None,
            wakes: Vec::new(),
        }
    }

    /// A pod of ours that is not bound.
    pub(super) fn explain_waiting(&mut self, now: Time, pod: &Arc<Pod>, profile: ProfileId) -> Explanation {
        let state = self.state(now, pod);
        if let State::WaitingAtPermit { node, .. } | State::Binding { node, .. } = &state {
            let summary = format!("has a place on {node} and is being bound");
            return self.bare(now, pod, state, summary);
        }
        if let Some(held) = self.world.cluster.held(&pod.uid) {
            let node = self.world.cluster.node(held.row).name.to_string();
            let summary = format!("is on {node}");
            return self.bare(now, pod, State::Bound { node, since: None }, summary);
        }
        let findings = self.look(pod, profile);
        let mut explanation = self.bare(now, pod, state, String::new());
        explanation.told = self.told(pod);
        explanation.nodes_that_fit = findings.survey.fit.len();
        explanation.wakes = self.wakes(pod);
        explanation.changes = findings.fixes;
        explanation.changes.truncate(CHANGES_MAX);
        let cluster = &self.world.cluster;
        explanation.reasons = explain::causes(cluster, &findings.survey);
        explanation.nearest = self.nearest(pod, &findings.survey);
        let failure = if findings.survey.fit.is_empty() { self.failure_now(now, pod, profile) } else { None };
        if let Some(failure) = failure {
            explanation.message = Some(message(&failure));
            explanation.preemption = self.preemption(&failure);
        }
        explanation.summary = match (&explanation.state, explanation.nodes_that_fit) {
            (State::Gated { message, .. }, _) => format!("is held back: {message}"),
            (State::Active { attempts: 0, .. }, 0) => {
                format!("was not tried yet: {}", explain::summary(explanation.nodes, &explanation.reasons))
            }
            (_, 0) => format!("waits: {}", explain::summary(explanation.nodes, &explanation.reasons)),
            (State::Active { .. }, count) => format!("is about to be tried; {} can take it", nodes(count)),
            (_, count) => format!("can be placed now: {} can take it; it is tried soon", nodes(count)),
        };
        explanation
    }

    /// Asks every plugin about every node, and tries changes.
    fn look(&mut self, pod: &Arc<Pod>, profile: ProfileId) -> Findings {
        self.world.cluster.attend(&pod.class);
        let order = self.world.cluster.would_visit();
        let judges = judges(&self.world, &self.nominated, profile, &order);
        let survey = Survey::of(judges, pod);
        let proposals = match survey.fit.is_empty() {
            true => explain::propose(judges, &survey, pod),
            false => Vec::new(),
        };
        let before = self.world.cluster.following();
        let variants: Vec<_> = proposals
            .iter()
            .map(|proposal| proposal.pod.class.clone())
            .filter(|class| !Arc::ptr_eq(class, &pod.class))
            .collect();
        variants.iter().for_each(|class| self.world.cluster.attend(class));
        let judges = judges_of(self, profile, &order);
        let mut fixes: Vec<Fix> = proposals.iter().filter_map(|proposal| proposal.verify(judges)).collect();
        self.world.cluster.stop_following(before, &variants);
        if !pod.class.gates.is_empty() {
            fixes.push(gates(pod, &survey));
        }
        fixes.sort_by(|a, b| (a.cost, b.nodes, &a.text).cmp(&(b.cost, a.nodes, &b.text)));
        // One model is enough.
        let mut is_first_node = true;
        fixes.retain(|fix| {
            !matches!(fix.change, Change::AddNode { .. }) || std::mem::take(&mut is_first_node)
        });
        Findings { survey, fixes }
    }

    /// Where the pod is.
    fn state(&self, now: Time, pod: &Pod) -> State {
        if let Some(binding) = self.bindings.get(&pod.uid) {
            return binding.state(self.world.cluster.node(binding.row()).name.to_string());
        }
        let whereabouts = self.queue.whereabouts(&self.world, &queue_key(pod), &queue_uid(&pod.uid));
        let waiting = match whereabouts {
            Some(Whereabouts::Queued(waiting)) => waiting,
            Some(Whereabouts::InFlight { since }) => return State::InFlight { since },
            // Between two steps: it is on its way in or out.
            None => return State::InFlight { since: now },
        };
        let (since, attempts) = (waiting.since, waiting.record.attempts);
        match waiting.queue {
            QueueName::Active => {
                State::Active { since, attempts, position: waiting.ahead.map_or(1, |ahead| ahead + 1) }
            }
            QueueName::Backoff => State::Backoff {
                since,
                attempts,
                ends: waiting.moved_at.or(waiting.backoff_ends),
                after_error: waiting.is_error,
            },
            QueueName::Unschedulable => {
                State::Unschedulable { since, attempts, retried_at: waiting.moved_at }
            }
            QueueName::Gated => State::Gated {
                since,
                plugin: waiting
                    .gate
                    .map(|gate| self.world.plugins.name(gate.plugin))
                    .unwrap_or_default()
                    .to_owned(),
                message: waiting.gate.map(|gate| gate.status.to_string()).unwrap_or_default(),
            },
        }
    }

    fn wakes(&self, pod: &Pod) -> Vec<explain::Wake> {
        match self.queue.whereabouts(&self.world, &queue_key(pod), &queue_uid(&pod.uid)) {
            Some(Whereabouts::Queued(waiting)) => {
                let registered = waiting.woken_by.iter();
                explain::wakes(registered.map(|(plugin, event)| (self.world.plugins.name(*plugin), *event)))
            }
            _ => Vec::new(),
        }
    }

    /// What users were told last: by us, or before us.
    fn told(&self, pod: &Pod) -> Option<Told> {
        let waiting = self.world.waiting.get(&pod.uid)?;
        let message = match &waiting.written {
            Some((_, message, _)) => message.clone(),
            None => pod.condition.as_ref()?.message.to_string(),
        };
        Some(Told { message, at: waiting.told_at })
    }

    fn nearest(&self, pod: &Pod, survey: &Survey) -> Vec<NearNode> {
        let cluster = &self.world.cluster;
        let near = |against: &explain::Against| NearNode {
            node: cluster.node(against.row).name.to_string(),
            checks: explain::checks(cluster, against),
            holders: explain::holders(cluster, &self.nominated, pod, against),
        };
        let nearest = if survey.fit.is_empty() { survey.nearest(cluster, NEAREST) } else { Vec::new() };
        nearest.into_iter().map(near).collect()
    }

    /// What an attempt would end with now. Its randomness and its place in the search are copies.
    fn failure_now(&self, now: Time, pod: &Arc<Pod>, profile: ProfileId) -> Option<Failure> {
        let cluster = &self.world.cluster;
        let order = cluster.would_visit();
        let promised = self.queue.nominated_node(&queue_uid(&pod.uid)).map(|node| node.as_str());
        let promised = promised.or((!pod.nominated.is_empty()).then_some(&*pod.nominated));
        let (mut start, mut random) = (self.search_start, self.random.clone());
        let attempt = Attempt {
            framework: self.world.framework(profile),
            nominated: &self.nominated,
            order: &order,
            start: &mut start,
            random: &mut random,
            nominated_row: promised.and_then(|node| cluster.row(node)),
            now,
            memory: None,
            extenders: &mut [],
        };
        attempt.run(cluster, pod).err()
    }

    fn preemption(&self, failure: &Failure) -> Option<PreemptionPlan> {
        let Failure::Unfit(unfit) = failure else { return None };
        match &unfit.preemption {
            Some(preemption) => Some(PreemptionPlan {
                node: Some(self.world.cluster.node(preemption.row).name.to_string()),
                victims: preemption.victims.iter().map(|victim| victim.key.to_string()).collect(),
                violations: preemption.violations,
                why_not: String::new(),
            }),
            None if unfit.help.is_empty() => None,
            None => Some(PreemptionPlan {
                node: None,
                victims: Vec::new(),
                violations: 0,
                why_not: unfit.help.clone(),
            }),
        }
    }

    /// Why pods wait, grouped by cause.
    pub fn explain_pending(&mut self, now: Time) -> PendingReport {
        self.pass_time(now);
        let mut grouping = Grouping::default();
        for queue in [QueueName::Active, QueueName::Backoff, QueueName::Unschedulable, QueueName::Gated] {
            for record in self.queue.list(&self.world, queue) {
                let pod = record.pod.content.clone();
                let common = match &record.gate {
                    Some(gate) => Common::Gated(gate.status.to_string()),
                    None => match self.told(&pod).filter(|_| record.attempts > 0) {
                        Some(told) => Common::Unfit(explain::texts_of(&told.message)),
                        None => Common::New,
                    },
                };
                let since = record.initial_attempt.unwrap_or(record.since);
                grouping.add(common, Member { pod, profile: Some(record.pod.profile), since });
            }
        }
        for pod in self.world.others.values() {
            let common = Common::UnknownScheduler(pod.class.scheduler.to_string());
            grouping.add(common, Member { pod: pod.clone(), profile: None, since: now });
        }
        let groups = grouping.finish();
        let known = self.scheduler_names();
        let mut report = PendingReport {
            at: now,
            pods: groups.iter().map(|(_, members)| members.len()).sum(),
            binding: self.bindings.len(),
            groups: Vec::new(),
        };
        for (index, (common, members)) in groups.iter().enumerate() {
            let mut group = PendingGroup::new(common, members, &known);
            if index < GROUPS_EXPLAINED && *common != Common::New {
                self.look_into(&mut group, common, members);
            }
            report.groups.push(group);
        }
        report.sort();
        report
    }

    /// Explains one pod of a group for all of them.
    fn look_into(&mut self, group: &mut PendingGroup, common: &Common, members: &[Member]) {
        let Some((member, _)) = explain::representative(members) else { return };
        let Some(profile) = member.profile else { return };
        let findings = self.look(&member.pod, profile);
        group.explained = Some(member.pod.title());
        group.cheapest = findings.fixes.into_iter().next();
        if let Common::Unfit(_) = common {
            let reasons = explain::causes(&self.world.cluster, &findings.survey);
            group.summary = match findings.survey.fit.len() {
                0 => explain::summary(findings.survey.node_count(), &reasons),
                count => format!("{} can take one now; they are tried soon", nodes(count)),
            };
        }
    }
}

fn judges<'a>(
    world: &'a World,
    nominated: &'a crate::schedule::Nominated,
    profile: ProfileId,
    order: &'a [Row],
) -> Judges<'a> {
    Judges { framework: world.framework(profile), nominated, cluster: &world.cluster, order }
}

fn judges_of<'a>(engine: &'a Engine, profile: ProfileId, order: &'a [Row]) -> Judges<'a> {
    judges(&engine.world, &engine.nominated, profile, order)
}

/// Removing the gates lets the pod in; whether it fits then is another question, which the number of nodes answers.
fn gates(pod: &Pod, survey: &Survey) -> Fix {
    let change = Change::RemoveGates { gates: pod.class.gates.iter().map(|gate| gate.to_string()).collect() };
    Fix { text: change.text(), change, cost: GATES_COST, nodes: survey.fit.len(), example: String::new() }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// The text of the event.
fn message(failure: &Failure) -> String {
    match failure {
        Failure::NoNodes => "no nodes available to schedule pods".to_owned(),
        Failure::Error(status) => status.to_string(),
        Failure::Unfit(unfit) => unfit.message(),
    }
}
