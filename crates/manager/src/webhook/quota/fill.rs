//! What a new quota gets that its author left out: parent, tree and shared weight. Spec: manager 17.2.

use koord_api::annotation::Annotation;
use koord_api::annotation::quota::SharedWeight;
use koord_api::crd::elastic_quota::{ElasticQuota, ROOT_QUOTA};
use koord_api::keys::quota::label;
use koord_api::quantity::ResourceList;
use koord_api::rewrite::tree::texts;
use serde::Deserialize;
use serde_json::Value;

use super::info::{annotation_of, label_of};
use super::ledger::Ledger;
use crate::webhook::denial::Denial;

/// Completes a quota that is about to be created; nothing that the author wrote is lost. Gives the weight that was made
/// from max, for the gauge.
pub fn fill(quota: &mut Value, ledger: &Ledger) -> Result<Option<ResourceList>, Denial> {
    let read = ElasticQuota::deserialize(&*quota).map_err(|error| Denial::bad_request(error.to_string()))?;
    let name = read.metadata.name.as_deref().unwrap_or_default();
    if name == ROOT_QUOTA {
        return Ok(None);
    }
    let parent = match label_of(&read, label::PARENT) {
        "" => {
            set_text(quota, "labels", label::PARENT, ROOT_QUOTA.to_owned());
            ROOT_QUOTA
        }
        parent => parent,
    };
    if label_of(&read, label::TREE_ID).is_empty() && parent != ROOT_QUOTA {
        let Some(parent) = ledger.get(parent) else {
            return Err(Denial::bad_request(format!("fill quota {name} failed, parent not exist")));
        };
        if !parent.tree_id.is_empty() {
            set_text(quota, "labels", label::TREE_ID, parent.tree_id.clone());
        }
    }
    let max = read.spec.as_ref().map(|spec| spec.max.clone()).unwrap_or_default();
    let (weight, is_new) = match annotation_of::<SharedWeight>(&read) {
        "" => (Some(max.clone()), true),
        text => (aligned(text, &max)?, false),
    };
    if let Some(weight) = weight {
        set_text(quota, "annotations", SharedWeight::KEY, SharedWeight(weight).text());
    }
    Ok(is_new.then_some(max))
}

/// The weight with exactly the resources of max; none when it has these already.
fn aligned(text: &str, max: &ResourceList) -> Result<Option<ResourceList>, Denial> {
    let written = SharedWeight::parse(text).map_err(|fault| {
        Denial::bad_request(format!("fillDefaultQuotaInfo unmarshal sharedWeight failed:{fault}"))
    })?;
    if written.0.keys().eq(max.keys()) {
        return Ok(None);
    }
    let amount = |name: &String| written.0.get(name).or_else(|| max.get(name)).copied();
    Ok(Some(max.keys().filter_map(|name| Some((name.clone(), amount(name)?))).collect()))
}

/// Sets a label or an annotation of an object.
fn set_text(object: &mut Value, which: &str, key: &str, text: String) {
    texts(object, which).insert(key.to_owned(), Value::String(text));
}

#[cfg(test)]
mod tests;
