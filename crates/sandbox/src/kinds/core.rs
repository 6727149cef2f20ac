//! The core group: pods, nodes, namespaces, services, and what they use.
//!
//! One file per kind or family of kinds; `columns` has the Tables of all.

mod binding;
mod claim;
mod columns;
mod config;
mod controller;
mod endpoints;
mod limit_range;
mod namespace;
mod node;
mod pod;
mod quota;
mod service;
mod service_account;
mod volume;

use serde_json::Value;

use super::{Admission, Kind, meta};
use crate::status::ApiError;

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        binding::kind(),
        config::config_map(),
        endpoints::kind(),
        limit_range::kind(),
        namespace::kind(),
        node::kind(),
        claim::kind(),
        volume::kind(),
        pod::kind(),
        controller::pod_template(),
        controller::replication_controller(),
        quota::kind(),
        config::secret(),
        service_account::kind(),
        service::kind(),
    ]
}

/// Keeps an object until nothing uses it any more.
fn protect(object: &mut Value, finalizer: &str) {
    let mut list: Vec<Value> = meta::finalizers(object).into_iter().map(Value::from).collect();
    if !list.iter().any(|known| known == finalizer) {
        list.push(finalizer.into());
        meta::set(object, "finalizers", Some(Value::Array(list)));
    }
}

/// The name a refusal of admission speaks of.
fn shown_name(object: &Value) -> &str {
    let names = [meta::name(object), meta::text(object, "generateName")];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

/// What Kubernetes' admission plugins answer.
fn refuse(admission: &Admission<'_>, plural: &str, why: &str) -> ApiError {
    ApiError::forbidden("", plural, shown_name(admission.object), why)
}
