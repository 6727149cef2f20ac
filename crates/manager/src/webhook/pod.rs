//! What new pods become: profiles, the record of their extended resources, nodes of their quota tree, GPU shares.
//!
//! Pure: a request and the facts of the moment in, an answer out. Spec: manager 15.

use koord_api::keys::pod::label::QUOTA_NAME;
use koord_api::rewrite::profile::{self, Surroundings};
use koord_api::rewrite::quota_tree::require_nodes;
use koord_api::rewrite::resources::{Recorded, record_extended, spell_out_gpu};
use koord_api::rewrite::shape;
use serde_json::Value;

use super::facts::Facts;
use super::handler::Aside;
use super::review::{Answer, Complaint, Operation, Request};

/// Names of the steps in metrics.
const PROFILES: &str = "ClusterColocationProfile";
const RECORD: &str = "ExtendedResourceSpec";
const QUOTA_TREE: &str = "MultiQuotaTree";
const DEVICES: &str = "DeviceResourceSpec";

/// Key of the applied profiles in the audit log.
const AUDIT_PROFILES: &str = "profiles";

/// Answers `/mutate-pod`.
pub fn mutate(request: &Request, facts: &Facts, aside: &mut Aside<'_>) -> Answer {
    if request.resource.resource != "pods" || !request.sub_resource.is_empty() {
        return Answer::allow();
    }
    if let Err(error) = shape::check(&request.object) {
        return Answer::deny(400, format!("the object is no pod: {error}"));
    }
    match request.operation {
        Operation::Create => create(request, facts, aside),
        _ => Answer::allow(),
    }
}

fn create(request: &Request, facts: &Facts, aside: &mut Aside<'_>) -> Answer {
    let is_on = |gate: &str| facts.gates.is_on(gate);
    let namespace = request.namespace_of(&request.object);
    let mut pod = request.object.clone();
    let around = Surroundings {
        profiles: &facts.profiles,
        namespace_labels: facts.namespace_labels(&namespace),
        priority_classes: &facts.priority_classes,
        skip_resources: is_on("ColocationProfileSkipMutatingResources"),
    };
    let applied = profile::apply(&mut pod, around, &mut *aside.dice);
    (aside.step)(PROFILES, applied.is_ok());
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) => {
            let mut answer = Answer::deny(500, error.to_string());
            let text = format!("pod {namespace}/{} was denied: {error}", shown_name(&pod));
            answer.complaints.push(Complaint { profile: error.profile, text });
            return answer;
        }
    };
    if !is_on("DisableExtendedResourceSpec") {
        let what = if is_on("ExtendedResourceSpecMid") { Recorded::BatchAndMid } else { Recorded::Batch };
        let recorded = record_extended(&mut pod, what);
        (aside.step)(RECORD, recorded.is_ok());
        if let Err(error) = recorded {
            return Answer::deny(500, error.to_string());
        }
    }
    if is_on("MultiQuotaTree") {
        let quota = pod.pointer("/metadata/labels").and_then(|labels| labels.get(QUOTA_NAME)?.as_str());
        let required = facts.quota_trees.requirements(quota, &namespace);
        require_nodes(&mut pod, required);
        (aside.step)(QUOTA_TREE, true);
    }
    if !is_on("DisableDeviceResourceSpec") {
        spell_out_gpu(&mut pod);
        (aside.step)(DEVICES, true);
    }
    let mut answer = Answer::change(pod);
    if !applied.applied.is_empty() {
        answer.audit.insert(AUDIT_PROFILES, applied.applied.join(","));
    }
    answer
}

/// A pod of a workload has no name yet.
fn shown_name(pod: &Value) -> &str {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
