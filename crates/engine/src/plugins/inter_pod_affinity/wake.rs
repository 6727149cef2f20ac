//! Which changes may help a pod that others keep off, or that misses others. Spec: scheduler-core 6.14.

use crate::cluster::Node;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::{Change, HintFn, HintInput, wakes_if};
use crate::pod::{Class, Pod, PodTerm};

pub(super) fn registrations() -> Vec<Registration<HintFn>> {
    let pods = Action::ADD | Action::UPDATE_POD_LABEL | Action::DELETE;
    let nodes = Action::ADD | Action::UPDATE_NODE_LABEL;
    vec![
        Registration::with(Resource::Pod, pods, wakes_if(after_pod)),
        Registration::with(Resource::Node, nodes, wakes_if(after_node)),
    ]
}

fn after_pod(input: &HintInput<'_>) -> bool {
    let Change::Pod { old, new } = input.change else { return true };
    if [old, new].into_iter().flatten().any(|pod| pod.node.is_empty()) {
        return false;
    }
    let class = &input.pod.class;
    let is_meant = |term: &PodTerm, class: &Class| {
        input.cluster.matching().contains(&term.pods, class, &input.cluster.names)
    };
    let means = |terms: &[PodTerm], pod: &Pod| {
        !terms.is_empty() && terms.iter().all(|term| is_meant(term, &pod.class))
    };
    // Differs: upstream looks only at the waiting pod's own terms, so one that another pod's terms keep off is not
    // woken when that pod goes, and waits for the next flush.
    let keeps_off = |pod: &Pod| pod.class.anti_affinity.iter().any(|term| is_meant(term, class));
    let is_bad = |pod: &Pod| means(&class.anti_affinity, pod);
    let is_good = |pod: &Pod| means(&class.affinity, pod);
    match (old, new) {
        (Some(old), Some(new)) => {
            !is_good(old) && is_good(new) || is_bad(old) && !is_bad(new) || keeps_off(old) && !keeps_off(new)
        }
        (None, Some(new)) => is_good(new),
        (Some(old), None) => is_bad(old) || keeps_off(old),
        (None, None) => true,
    }
}

fn after_node(input: &HintInput<'_>) -> bool {
    let Change::Node { old, new: Some(new) } = input.change else { return true };
    let class = &input.pod.class;
    let value =
        |node: &Node, term: &PodTerm| node.labels.get(input.cluster.names.text(term.topology_key)).cloned();
    let Some(old) = old else {
        // A node without the label takes whoever wants others away; one with it may be in a domain without them.
        return !class.anti_affinity.is_empty()
            || class.affinity.iter().any(|term| value(new, term).is_some());
    };
    let appears = |term: &PodTerm| value(new, term).is_some() && value(old, term) != value(new, term);
    let disappears = |term: &PodTerm| value(old, term).is_some() && value(old, term) != value(new, term);
    class.affinity.iter().any(appears) || class.anti_affinity.iter().any(disappears)
}
