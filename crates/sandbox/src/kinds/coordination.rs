//! The coordination.k8s.io group: leases.

use jiff::Timestamp;
use serde_json::Value;

use super::rules::{self, Faults};
use super::{FieldError, Hooks, Kind, Path, cell};

pub(super) fn kinds() -> Vec<Kind> {
    let holder =
        cell::documented("Holder", "string", 0, "io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity");
    let mut lease = Kind::builtin("coordination.k8s.io/v1", "Lease", "leases")
        .columns(vec![cell::name_column(), holder, cell::age_column()])
        .hooks(Hooks {
            prepare_create: drop_election,
            prepare_update: |lease, _| drop_election(lease),
            validate,
            row,
            ..Hooks::default()
        });
    lease.create_on_update = true;
    lease.unconditional_update = false;
    vec![lease]
}

/// Fields of coordinated leader election, a feature that is off in this version.
fn drop_election(lease: &mut Value) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn validate(lease: &Value, _: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &lease["spec"];
    let mut errors = Vec::new();
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        let path = path.child("leaseDurationSeconds");
        errors.push(FieldError::invalid(&path, seconds, "must be greater than 0"));
    }
    errors.extend(rules::non_negative(&spec["leaseTransitions"], &path.child("leaseTransitions")));
    errors
}

fn row(lease: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(lease), cell::text(&lease["spec"]["holderIdentity"]), cell::age(lease, now)]
}
