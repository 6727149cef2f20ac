//! Requests about ElasticQuotas: what they ask is handed to [`fill`](super::fill) and [`validate`](super::validate).

use std::sync::{PoisonError, RwLock};

use jiff::Timestamp;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::quantity::ResourceList;
use serde::Deserialize;
use serde_json::Value;

use super::QuotaGates;
use super::fill::fill;
use super::info::QuotaKey;
use super::topology::Topology;
use super::validate::{BoundPods, Change, admit};
use crate::webhook::denial::Denial;
use crate::webhook::review::{Answer, Operation, Request};

/// Name of the step in metrics.
pub const PLUGIN: &str = "QuotaMetaChecker";

/// Answers the mutating path. `weight` hears of a shared weight that was made from max: the quota's name and the weight.
pub fn mutate(
    request: &Request,
    topology: &RwLock<Topology>,
    weight: impl FnOnce(&str, &ResourceList),
) -> Answer {
    if !is_quota(request) {
        return Answer::allow();
    }
    let quota = match decode(&request.object) {
        Ok(quota) => quota,
        Err(denial) => return Err(denial).into(),
    };
    if request.operation != Operation::Create {
        return Answer::allow();
    }
    let mut changed = request.object.clone();
    let topology = topology.read().unwrap_or_else(PoisonError::into_inner);
    match fill(&mut changed, topology.ledger()) {
        Ok(made) => {
            if let Some(made) = made {
                weight(quota.metadata.name.as_deref().unwrap_or_default(), &made);
            }
            Answer::change(changed)
        }
        Err(denial) => Err(denial).into(),
    }
}

/// Answers the validating path.
pub fn validate(
    request: &Request,
    topology: &RwLock<Topology>,
    pods: &dyn BoundPods,
    gates: QuotaGates,
    now: Timestamp,
) -> Answer {
    if !is_quota(request) {
        return Answer::allow();
    }
    judged(request, topology, pods, gates, now).into()
}

fn judged(
    request: &Request,
    topology: &RwLock<Topology>,
    pods: &dyn BoundPods,
    gates: QuotaGates,
    now: Timestamp,
) -> Result<(), Denial> {
    let (quota, old);
    let (subject, change) = match request.operation {
        Operation::Create => {
            quota = decode(&request.object)?;
            (&quota, Change::Create { quota: &quota })
        }
        Operation::Update => {
            quota = decode(&request.object)?;
            old = decode(&request.old_object).map_err(|denial| {
                Denial::bad_request(format!("failed to get quota from old object, err:{denial}"))
            })?;
            (&quota, Change::Update { old: &old, quota: &quota })
        }
        Operation::Delete => {
            quota = if request.old_object.is_null() {
                ElasticQuota::default()
            } else {
                decode(&request.old_object)?
            };
            (&quota, Change::Delete)
        }
        Operation::Connect => return Ok(()),
    };
    let mut key = QuotaKey::of(subject, &request.namespace);
    if key.name.is_empty() {
        key.name.clone_from(&request.name);
    }
    let mut topology = topology.write().unwrap_or_else(PoisonError::into_inner);
    admit(&mut topology, &key, change, pods, gates, request.is_dry_run, now)
}

fn is_quota(request: &Request) -> bool {
    request.resource.resource == "elasticquotas" && request.sub_resource.is_empty()
}

fn decode(object: &Value) -> Result<ElasticQuota, Denial> {
    ElasticQuota::deserialize(object)
        .map_err(|error| Denial::bad_request(format!("the object is no ElasticQuota: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sketch::{Pods, Sketch, info, quota};
    use super::*;
    use crate::webhook::review::{Resource, Verdict};

    fn request(operation: Operation, old_object: Value, object: Value) -> Request {
        let resource = Resource { resource: "elasticquotas".into(), ..Resource::default() };
        Request {
            resource,
            operation,
            object,
            old_object,
            name: "q".into(),
            namespace: "ns".into(),
            ..Request::default()
        }
    }

    fn object(max: &str) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"max": {"cpu": max}}})
    }

    fn text(answer: Answer) -> String {
        match answer.verdict {
            Verdict::Allowed => String::new(),
            Verdict::Changed(_) => "changed".to_owned(),
            Verdict::Denied(denial) => {
                assert_eq!(denial.code, 400);
                denial.message
            }
        }
    }

    #[test]
    fn a_quota_from_its_creation_to_its_end() {
        let topology = RwLock::<Topology>::default();
        let now = Timestamp::UNIX_EPOCH;
        let ask = |request: &Request| {
            text(validate(request, &topology, &Pods::default(), QuotaGates::default(), now))
        };
        let dry = Request { is_dry_run: true, ..request(Operation::Create, Value::Null, object("1")) };
        assert_eq!(ask(&dry), "");
        assert!(topology.read().unwrap().ledger().get("q").is_none());
        assert_eq!(ask(&request(Operation::Create, Value::Null, object("1"))), "");
        let known = topology.read().unwrap().ledger().get("q").unwrap().key.clone();
        assert_eq!(known.to_string(), "ns/q", "the namespace is the request's");
        assert_eq!(ask(&request(Operation::Update, object("1"), object("2"))), "");
        let negative = ask(&request(Operation::Update, object("1"), object("-2")));
        assert_eq!(negative, "q quota.Spec.Max's value < 0, in dimensions :[cpu]");
        assert_eq!(
            ask(&request(Operation::Delete, Value::Null, Value::Null)),
            "",
            "known by the request's name"
        );
        assert_eq!(ask(&request(Operation::Connect, Value::Null, Value::Null)), "");
        let broken = json!({"metadata": {"name": "q"}, "spec": {"max": []}});
        assert!(
            ask(&request(Operation::Create, Value::Null, broken.clone())).starts_with("the object is no")
        );
        assert!(
            ask(&request(Operation::Update, broken, object("1"))).starts_with("failed to get quota from old")
        );
        let mut status = request(Operation::Update, object("1"), object("-2"));
        status.sub_resource = "status".into();
        assert_eq!(ask(&status), "", "nobody's business");
    }

    #[test]
    fn only_new_quotas_are_filled() {
        let topology = RwLock::<Topology>::default();
        topology.write().unwrap().show(info(&quota("T").parent(true).tree("tt")));
        let mut heard = Vec::new();
        let mut ask = |request: &Request| {
            text(mutate(request, &topology, |name, weight| heard.push((name.to_owned(), weight.len()))))
        };
        assert_eq!(ask(&request(Operation::Create, Value::Null, object("1"))), "changed");
        assert_eq!(ask(&request(Operation::Update, object("1"), object("2"))), "");
        assert!(!ask(&request(Operation::Create, Value::Null, json!({"spec": 1}))).is_empty());
        assert_eq!(heard, [("q".to_owned(), 1)]);
    }
}
