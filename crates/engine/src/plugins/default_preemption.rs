//! DefaultPreemption: makes room for a pod by taking away pods of lower priority. Spec: scheduler-core 6.13.
//!
//! Who may preempt is in `ineligible`, the search over nodes in `search`, what it would cost on one node in
//! `dry_run` (by the filters, always right) and `sums` (when room is all that matters), and which node is
//! best in `shortlist`. Nothing is deleted here: the engine is told whom to delete.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Registration};
use crate::framework::{
    Code, HintFn, HintInput, Hooks, Nominating, PluginName, PostFilter, PostFilterInput, PostFiltered,
    PreEnqueue, Preemption, Status,
};
use crate::pod::Pod;
use crate::profile::args::{CandidateLimits, DefaultPreemptionArgs};
use crate::random::Random;

mod dry_run;
mod search;
mod shortlist;
mod sums;

pub(super) use search::Method;
use search::Outcome;
use shortlist::{Candidate, cheapest};

pub const NAME: &str = "DefaultPreemption";

pub fn build(args: &DefaultPreemptionArgs) -> Hooks {
    let plugin = Arc::new(DefaultPreemption { limits: args.candidates, method: Method::Quickest });
    // Its gate opens by itself; what wakes the pod is for the plugins that refused it, and this one need only be heard.
    let skip: HintFn = Arc::new(|_: &HintInput<'_>| Hint::Skip);
    Hooks::new(NAME).pre_enqueue(plugin.clone()).post_filter(plugin).woken_by(vec![Registration::with(
        Resource::Pod,
        Action::DELETE,
        skip,
    )])
}

struct DefaultPreemption {
    limits: CandidateLimits,
    method: Method,
}

impl PreEnqueue for DefaultPreemption {
    fn admit(&self, cluster: &Cluster, pod: &Arc<Pod>) -> Result<(), Status> {
        match cluster.is_preempting(&pod.uid) {
            true => {
                let text = "waiting for the preemption for this pod to be finished";
                Err(Status::unresolvable(NAME, text))
            }
            false => Ok(()),
        }
    }
}

impl PostFilter for DefaultPreemption {
    fn help(&self, input: &PostFilterInput<'_>, random: &mut Random) -> PostFiltered {
        if let Some(text) = ineligible(input) {
            return refused(Status::unschedulable(NAME, said(text)), Nominating::Keep);
        }
        make_room(NAME, input, self.limits, self.method, &|_| true, random)
    }
}

/// Looks for the node where room is cheapest to make, of pods of lower priority that may go.
pub(super) fn make_room(
    plugin: PluginName,
    input: &PostFilterInput<'_>,
    limits: CandidateLimits,
    method: Method,
    may_go: &dyn Fn(&Pod) -> bool,
    random: &mut Random,
) -> PostFiltered {
    match search::run(input, limits, method, may_go, random) {
        Outcome::Found(candidates) => chosen(plugin, input, &candidates),
        Outcome::Nothing(text) => refused(Status::unschedulable(plugin, said(&text)), Nominating::Clear),
        Outcome::Broken(text) => refused(Status::error(plugin, said(&text)), Nominating::Keep),
    }
}

/// The best of the candidates that all agree to.
fn chosen(plugin: PluginName, input: &PostFilterInput<'_>, candidates: &[Candidate]) -> PostFiltered {
    let rooms = candidates.iter().map(|candidate| preemption(input.cycle.cluster, candidate)).collect();
    let rooms = match input.agreement {
        None => rooms,
        Some(agreement) => match agreement.agree(rooms) {
            Ok(rooms) => rooms,
            Err(text) => return refused(Status::error(plugin, said(&text)), Nominating::Keep),
        },
    };
    let Some(best) = cheapest(rooms, input.now) else {
        let text = said("no candidate node for preemption");
        return refused(Status::unschedulable(plugin, text), Nominating::Keep);
    };
    let status = Status { code: Code::Success, reasons: Vec::new(), plugin };
    PostFiltered { status, nominating: Nominating::Node(best.row), preemption: Some(best) }
}

fn preemption(cluster: &Cluster, candidate: &Candidate) -> Preemption {
    let all = &cluster.node(candidate.row).pods.all;
    Preemption {
        row: candidate.row,
        victims: candidate.victims.iter().filter_map(|at| all.get(*at).cloned()).collect(),
        violations: candidate.violations,
    }
}

fn said(text: &str) -> String {
    format!("preemption: {text}")
}

fn refused(status: Status, nominating: Nominating) -> PostFiltered {
    PostFiltered { status, nominating, preemption: None }
}

/// Why the pod may not take others away, or not yet.
pub(super) fn ineligible(input: &PostFilterInput<'_>) -> Option<&'static str> {
    let class = &input.cycle.pod.class;
    // Differs: upstream looks for a pod of that name, and says that there is none.
    if class.reserve.is_some() {
        return Some("not eligible due to a reservation, which takes no pods away.");
    }
    if class.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let row = input.nominated_row?;
    let pods = &input.cycle.cluster.node(row).pods;
    let mut lower = pods.all[pods.below(class.priority)..].iter();
    let is_leaving = lower.any(|pod| pod.is_deleting && pod.is_preempted);
    // A node that is out of the question now is not worth waiting for.
    (is_leaving && input.diagnosis.code_of(row) != Code::Unresolvable)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

#[cfg(test)]
mod tests;
