//! Whether a pod may be created or changed. Spec: manager 16.
//!
//! Steps in upstream's order, each a pure function; the first fault decides. [`validate`] runs them all and, in between,
//! counts the pod against its quota, which is the only step that waits and writes. A [`PodValidator`] answers requests.

use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use koord_api::gate::Gates;
use koord_api::validity::{self, FieldErrors, UpdateOptions};
use serde::Deserialize;
use serde_json::Value;

use super::denial::Denial;
use super::enhanced;
use super::handler::Handler;
use super::quota::evaluator::{Evaluator, QuotaStore};
use super::quota::{Ledger, QuotaGates, Topology, charge, membership};
use super::review::{Answer, Operation, Request, Verdict};

/// The feature gates that the check of pods looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodGates {
    pub quota: QuotaGates,
    /// ColocationProfileSkipValidatingPriority: the sub-priority label may change.
    pub skip_priority: bool,
    /// ValidatePodDeviceResource.
    pub device: bool,
    /// EnablePodEnhancedValidator.
    pub enhanced: bool,
}

impl PodGates {
    pub fn new(gates: &Gates) -> PodGates {
        PodGates {
            quota: QuotaGates::new(gates),
            skip_priority: gates.is_on("ColocationProfileSkipValidatingPriority"),
            device: gates.is_on("ValidatePodDeviceResource"),
            enhanced: gates.is_on("EnablePodEnhancedValidator"),
        }
    }
}

/// A pod that is to be created or changed.
#[derive(Clone, Copy, Debug)]
pub struct Review<'r> {
    /// The pod before an update; none on create.
    pub old: Option<&'r Pod>,
    pub new: &'r Pod,
    /// Of the request: a pod that is being created may not say its own.
    pub namespace: &'r str,
    pub is_dry_run: bool,
}

impl Review<'_> {
    fn namespace(&self) -> &str {
        let own = self.new.metadata.namespace.as_deref().filter(|text| !text.is_empty());
        own.unwrap_or(self.namespace)
    }
}

/// Answers `/validate-pod`.
pub struct PodValidator<S> {
    pub gates: PodGates,
    pub topology: Arc<RwLock<Topology>>,
    pub evaluator: Evaluator<S>,
    pub rules: enhanced::Keeper,
    /// Data of the ConfigMap that holds the rules; none when there is no such ConfigMap.
    pub read_rules: Box<dyn Fn() -> Option<enhanced::Data> + Send + Sync>,
    pub clock: fn() -> Timestamp,
}

impl<S: QuotaStore> PodValidator<S> {
    /// Decides at once, unless pods are counted against quotas.
    pub fn handler(self: Arc<PodValidator<S>>) -> Handler {
        if self.gates.quota.admission {
            return Handler::later(move |request, _, aside| {
                let this = self.clone();
                Box::pin(async move { this.answer(&request, &mut aside.step).await })
            });
        }
        Handler::now(move |request, _, aside| {
            // Nothing is counted, so nothing waits.
            self.answer(request, &mut aside.step).now_or_never().unwrap_or_else(Answer::allow)
        })
    }

    async fn answer(&self, request: &Request, done: &mut impl Done) -> Answer {
        let is_pod = request.resource.resource == "pods" && request.sub_resource.is_empty();
        if !is_pod || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Answer::allow();
        }
        let old = match request.operation {
            Operation::Update => Some(decode(&request.old_object)),
            _ => None,
        };
        let (old, new) = match (old.transpose(), decode(&request.object)) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(denial), _) | (_, Err(denial)) => return Err(denial).into(),
        };
        let now = (self.clock)();
        let rules = if self.gates.enhanced {
            self.rules.rules(now, &self.read_rules, |error| {
                tracing::warn!(%error, "rules for labels of pods cannot be read, the last ones stay");
            })
        } else {
            Arc::default()
        };
        let review = Review {
            old: old.as_ref(),
            new: &new,
            namespace: &request.namespace,
            is_dry_run: request.is_dry_run,
        };
        let judged = validate(review, self.gates, &self.topology, &self.evaluator, &rules, now, done).await;
        let mut answer = Answer::from(judged);
        if old.is_none() && answer.verdict == Verdict::Allowed {
            answer.warnings.extend(validity::combination_warning(&new));
        }
        answer
    }
}

fn decode(object: &Value) -> Result<Pod, Denial> {
    Pod::deserialize(object).map_err(|error| Denial::bad_request(format!("the object is no pod: {error}")))
}

/// Names under which the time of each step is measured. Spec: manager 24.2.
pub mod plugin {
    pub const RESERVATION: &str = "ClusterReservation";
    pub const COLOCATION: &str = "ClusterColocationProfile";
    pub const QUOTA_META: &str = "QuotaMetaChecker";
    pub const QUOTA_EVALUATION: &str = "EvaluateQuota";
    pub const DEVICE: &str = "DeviceResource";
    pub const ENHANCED: &str = "EnhancedValidation";
}

/// Told after each step: its name, and whether the pod passed it. Who measures takes the time between two calls.
pub trait Done: FnMut(&'static str, bool) {}

impl<D: FnMut(&'static str, bool)> Done for D {}

/// All steps over one pod.
pub async fn validate<S: QuotaStore>(
    review: Review<'_>,
    gates: PodGates,
    topology: &RwLock<Topology>,
    evaluator: &Evaluator<S>,
    rules: &enhanced::Rules,
    now: Timestamp,
    done: &mut impl Done,
) -> Result<(), Denial> {
    let target = {
        let topology = topology.read().unwrap_or_else(PoisonError::into_inner);
        before_quota(review, gates, topology.ledger(), done)?;
        charge::target(review.old, review.new, review.namespace(), topology.ledger(), gates.quota)
    };
    // Judged before the pod is counted, so that one that is refused anyway is not.
    let rest = Rest::of(review, gates, rules);
    let charged = match target {
        Ok(None) => Ok(()),
        Err(denial) => Err(denial),
        Ok(Some(quota)) => {
            let request = charge::request(review.new, gates.quota, now);
            // Differs: upstream counts pods of dry runs and pods that a later step refuses.
            if review.is_dry_run || rest.is_refused() {
                evaluator.try_charge(&quota, request)
            } else {
                evaluator.charge(&quota, request).await
            }
        }
    };
    told(done, plugin::QUOTA_EVALUATION, charged)?;
    told(done, plugin::DEVICE, rest.device)?;
    told(done, plugin::ENHANCED, rest.enhanced)
}

/// The steps before the pod is counted.
pub fn before_quota(
    review: Review<'_>,
    gates: PodGates,
    ledger: &Ledger,
    done: &mut impl Done,
) -> Result<(), Denial> {
    let Review { old, new, .. } = review;
    told(done, plugin::RESERVATION, answer(validity::check_reserve_pod(old, new)))?;
    let options = UpdateOptions { allow_sub_priority_change: gates.skip_priority };
    let colocation = match old {
        None => validity::check_create(new),
        Some(old) => validity::check_update(old, new, options),
    };
    told(done, plugin::COLOCATION, answer(colocation))?;
    let namespace = review.namespace();
    let membership = match old {
        None => membership::check_create(new, namespace, ledger, gates.quota),
        Some(old) => membership::check_update(old, new, namespace, ledger, gates.quota),
    };
    told(done, plugin::QUOTA_META, membership)
}

fn told(done: &mut impl Done, plugin: &'static str, result: Result<(), Denial>) -> Result<(), Denial> {
    done(plugin, result.is_ok());
    result
}

/// The steps after the pod is counted.
struct Rest {
    device: Result<(), Denial>,
    enhanced: Result<(), Denial>,
}

impl Rest {
    fn of(review: Review<'_>, gates: PodGates, rules: &enhanced::Rules) -> Rest {
        Rest {
            device: if gates.device { answer(validity::check_gpu(review.new)) } else { Ok(()) },
            enhanced: if gates.enhanced { rules.check(review.new, review.namespace()) } else { Ok(()) },
        }
    }

    fn is_refused(&self) -> bool {
        self.device.is_err() || self.enhanced.is_err()
    }
}

fn answer(errors: FieldErrors) -> Result<(), Denial> {
    if errors.is_empty() { Ok(()) } else { Err(Denial::bad_request(errors.to_string())) }
}

#[cfg(test)]
mod tests;
