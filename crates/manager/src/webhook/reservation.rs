//! What new Reservations become: profiles apply to them as to pods. Spec: manager 21.
//!
//! Pure: a request and the facts of the moment in, an answer out.

use koord_api::crd::reservation::Reservation;
use koord_api::rewrite::reservation;
use serde::Deserialize;
use serde_json::Value;

use super::facts::Facts;
use super::handler::Aside;
use super::review::{Answer, Complaint, Operation, Request};

/// Name of the step in metrics.
const PROFILES: &str = "ClusterColocationProfile";

/// Answers `/mutate-reservation`.
pub fn mutate(request: &Request, facts: &Facts, aside: &mut Aside<'_>) -> Answer {
    if request.resource.resource != "reservations" || !request.sub_resource.is_empty() {
        return Answer::allow();
    }
    if let Err(error) = Reservation::deserialize(&request.object) {
        return Answer::deny(400, format!("the object is no Reservation: {error}"));
    }
    if request.operation != Operation::Create {
        return Answer::allow();
    }
    let mut changed = request.object.clone();
    let applied =
        reservation::apply(&mut changed, &facts.profiles, &facts.priority_classes, &mut *aside.dice);
    (aside.step)(PROFILES, applied.is_ok());
    match applied {
        Ok(_) => Answer::change(changed),
        Err(error) => {
            let mut answer = Answer::deny(500, error.to_string());
            let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let text = format!("reservation {name} was denied: {error}");
            answer.complaints.push(Complaint { profile: error.profile, text });
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
    use koord_api::rewrite::profile::Profiles;
    use serde_json::json;

    use super::*;
    use crate::webhook::review::{Resource, Verdict};

    fn facts(spec: Value) -> Facts {
        let profile = json!({"metadata": {"name": "p"}, "spec": spec});
        let profile = ClusterColocationProfile::deserialize(&profile).unwrap();
        Facts { profiles: Arc::new(Profiles::new([&profile])), ..Facts::default() }
    }

    fn request(operation: Operation, object: Value) -> Request {
        let resource = Resource { resource: "reservations".into(), ..Resource::default() };
        Request { resource, operation, object, ..Request::default() }
    }

    fn answer(request: &Request, facts: &Facts) -> Answer {
        mutate(request, facts, &mut Aside { dice: &mut || 0, step: &mut |_, _| () })
    }

    #[test]
    fn only_new_reservations_are_changed() {
        let object = json!({"metadata": {"name": "r"}, "spec": {"template": {"spec": {}}, "unknown": 1}});
        let labels = facts(json!({"labels": {"x": "1"}}));
        let Verdict::Changed(changed) = answer(&request(Operation::Create, object.clone()), &labels).verdict
        else {
            panic!("not changed");
        };
        assert_eq!(changed["metadata"]["labels"], json!({"x": "1"}));
        assert_eq!(changed["spec"], object["spec"]);
        assert_eq!(answer(&request(Operation::Update, object.clone()), &labels), Answer::allow());
        let mut other = request(Operation::Create, object.clone());
        other.resource.resource = "pods".into();
        assert_eq!(answer(&other, &labels), Answer::allow());
        let mut status = request(Operation::Create, object);
        status.sub_resource = "status".into();
        assert_eq!(answer(&status, &labels), Answer::allow());
    }

    #[test]
    fn faults() {
        let object = json!({"metadata": {"name": "r"}, "spec": {"template": {"spec": {}}}});
        let ghost = facts(json!({"priorityClassName": "ghost"}));
        let refused = answer(&request(Operation::Create, object), &ghost);
        let Verdict::Denied(denial) = &refused.verdict else { panic!("let through") };
        assert_eq!(denial.code, 500);
        assert_eq!(refused.complaints[0].profile, "p");
        let broken = answer(&request(Operation::Create, json!({"spec": 1})), &ghost);
        assert!(matches!(broken.verdict, Verdict::Denied(denial) if denial.code == 400));
    }
}
