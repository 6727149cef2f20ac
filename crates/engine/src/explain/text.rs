//! Explanations as text: the answer first, then the cheapest change, then everything else.

use std::fmt::Write as _;
use std::time::Duration;

use koord_api::duration::GoDuration;

use super::cause::in_words;
use super::{BindStep, Check, Explanation, Holder, NearNode, PendingGroup, PendingReport, State};
use crate::time::Time;

/// Room for the name of a node.
const NAME_WIDTH: usize = 12;

impl Explanation {
    /// For people.
    pub fn to_text(&self) -> String {
        let kind = if self.is_reservation { "Reservation" } else { "Pod" };
        let mut out = format!("{kind} {} {}.\n", self.pod, self.summary);
        if let Some(message) = &self.message {
            line(&mut out, 2, message);
        }
        if let Some((first, rest)) = self.changes.split_first() {
            line(&mut out, 0, &format!("Cheapest change: {}.", first.sentence()));
            if !rest.is_empty() {
                line(&mut out, 0, "Or:");
                rest.iter().for_each(|fix| line(&mut out, 2, &fix.sentence()));
            }
        } else if self.message.is_some() {
            line(&mut out, 0, "No single change that was thought of makes it fit.");
        }
        self.write_nodes(&mut out);
        self.write_preemption(&mut out);
        line(&mut out, 0, &format!("State: {}.", self.state.in_words(self.at)));
        if let Some(told) = &self.told
            && self.message.as_ref() != Some(&told.message)
        {
            let when = told.at.map(|at| format!(" {} ago", since(self.at, at))).unwrap_or_default();
            line(&mut out, 0, &format!("Told{when}: {}", told.message));
        }
        if !self.wakes.is_empty() {
            line(&mut out, 0, "Tried again when:");
            for wake in &self.wakes {
                line(&mut out, 2, &format!("{} ({})", wake.when, wake.plugins.join(", ")));
            }
        }
        out
    }

    fn write_nodes(&self, out: &mut String) {
        // A single reason has been told already.
        let reasons = if self.reasons.len() > 1 { self.reasons.as_slice() } else { &[] };
        if !reasons.is_empty() {
            line(out, 0, "Nodes by what refuses them first:");
        }
        for cause in reasons {
            let plugin = if cause.plugin.is_empty() { String::new() } else { format!("{}: ", cause.plugin) };
            let detail = if cause.detail.is_empty() { String::new() } else { format!(" ({})", cause.detail) };
            line(out, 2, &format!("{:>4}  {plugin}{}{detail}", cause.nodes, cause.text));
        }
        if !self.nearest.is_empty() {
            line(out, 0, "Nearest nodes:");
        }
        for node in &self.nearest {
            node.write(out);
        }
    }

    fn write_preemption(&self, out: &mut String) {
        // Why it does not help is in the message.
        let Some((plan, node)) = self.preemption.as_ref().and_then(|plan| Some((plan, plan.node.as_ref()?)))
        else {
            return;
        };
        let victims = plan.victims.join(", ");
        let budgets = match plan.violations {
            0 => String::new(),
            count => format!(" ({count} of them protected by a disruption budget)"),
        };
        line(out, 0, &format!("Preemption: makes room on {node} by deleting {victims}{budgets}."));
    }
}

impl NearNode {
    fn write(&self, out: &mut String) {
        let mut name = self.node.as_str();
        for check in &self.checks {
            line(out, 2, &format!("{name:<NAME_WIDTH$}  {}", check.in_words()));
            name = "";
        }
        for holder in &self.holders {
            line(out, 2, &format!("{:<NAME_WIDTH$}  {}", "", holder.in_words()));
        }
    }
}

impl Check {
    fn in_words(&self) -> String {
        match &self.lack {
            Some(lack) => format!("{}: {}", self.text, in_words(lack)),
            None => self.text.clone(),
        }
    }
}

impl Holder {
    fn in_words(&self) -> String {
        if let Some(reserves) = &self.reserves {
            return format!("{}: {}", reserves.in_words(), self.holds);
        }
        let owner = if self.owner.is_empty() { String::new() } else { format!(", {}", self.owner) };
        let verb = match (self.is_promised, self.is_leaving) {
            (true, _) => "is promised",
            (_, true) => "is leaving and has",
            _ => "has",
        };
        format!("{} {verb} {} (priority {}{owner})", self.pod, self.holds, self.priority)
    }
}

impl State {
    fn in_words(&self, now: Time) -> String {
        let tried = |attempts: &u32| match attempts {
            0 => "not tried yet".to_owned(),
            1 => "tried once".to_owned(),
            times => format!("tried {times} times"),
        };
        let waited = |start: &Time| since(now, *start);
        match self {
            State::Active { since, attempts, position } => {
                let place = if *position == 1 { "next".to_owned() } else { format!("number {position}") };
                format!("in the active queue for {}, {place} to be tried, {}", waited(since), tried(attempts))
            }
            State::Backoff { since, attempts, ends, after_error } => {
                let why = if *after_error { " after an error" } else { "" };
                let ends = ends.map(|ends| format!(", for {} more", left(now, ends))).unwrap_or_default();
                format!("rests{why} for {}{ends}, {}", waited(since), tried(attempts))
            }
            State::Unschedulable { since, attempts, retried_at } => {
                let again =
                    retried_at.map(|at| format!(", tried again in {} though nothing changes", left(now, at)));
                let again = again.unwrap_or_default();
                format!("unschedulable for {}, {}{again}", waited(since), tried(attempts))
            }
            State::Gated { since, plugin, message } => {
                format!("held back for {} by {plugin}: {message}", waited(since))
            }
            State::InFlight { since } => format!("being tried for {}", waited(since)),
            State::WaitingAtPermit { since, node, waits_for } => {
                let whom =
                    waits_for.iter().map(|wait| format!("{} ({} left)", wait.plugin, left(now, wait.until)));
                let whom: Vec<String> = whom.collect();
                format!("has a place on {node} and waits for {} for {}", whom.join(", "), waited(since))
            }
            State::Binding { since, node, step } => {
                let step = match step {
                    BindStep::Preparing => "volumes and annotations are being written",
                    BindStep::Settling => "what was written has to take effect",
                    BindStep::Binding => "the API is being told",
                };
                format!("being bound to {node} for {}: {step}", waited(since))
            }
            State::Bound { node, since } => match since {
                Some(start) => format!("on {node}, started {} ago", waited(start)),
                None => format!("on {node}, not started yet"),
            },
            State::Ended { phase } => format!("ended as {phase}"),
            State::UnknownScheduler { known } => {
                format!("another scheduler's; ours are {}", known.join(", "))
            }
        }
    }
}

impl PendingReport {
    /// For people.
    pub fn to_text(&self) -> String {
        let binding = match self.binding {
            0 => String::new(),
            count => format!("; {count} more have a node and are being bound"),
        };
        let mut out = match (self.pods, self.groups.len()) {
            (0, _) => format!("No pod waits for a node{binding}.\n"),
            (pods, groups) => format!(
                "{}, for {}{binding}.\n",
                counted(pods, "pod waits", "pods wait"),
                counted(groups, "reason", "reasons")
            ),
        };
        for (group, number) in self.groups.iter().zip(1..) {
            group.write(&mut out, number, self.at);
        }
        out
    }
}

impl PendingGroup {
    fn write(&self, out: &mut String, number: usize, now: Time) {
        let pods = counted(self.pods, "pod", "pods");
        line(out, 0, &format!("{number}. {pods}: {}.", self.summary));
        if let Some(fix) = &self.cheapest {
            let whom = match (&self.explained, self.are_alike) {
                (Some(pod), false) => format!(", for {pod}"),
                _ => String::new(),
            };
            line(out, 3, &format!("Cheapest change{whom}: {}.", fix.sentence()));
        }
        let more = match self.pods.saturating_sub(self.examples.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let waited = since(now, self.oldest);
        line(out, 3, &format!("{}{more}; for up to {waited}", self.examples.join(", ")));
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn line(out: &mut String, indent: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:indent$}{}", "", text.trim_end());
}

/// How long ago, in whole seconds.
fn since(now: Time, then: Time) -> String {
    seconds(now.since(then))
}

/// How long until, in whole seconds, rounded up.
fn left(now: Time, then: Time) -> String {
    seconds(then.since(now) + Duration::from_millis(999))
}

fn seconds(duration: Duration) -> String {
    GoDuration::try_from(Duration::from_secs(duration.as_secs())).unwrap_or_default().to_string()
}
