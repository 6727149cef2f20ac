//! Objects as controllers see them: the few fields they decide by, read leniently.
//!
//! Pure. A field of the wrong type counts as absent with its object; a cache never fails on one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use koord_api::selector::{Labels, Selector};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::kinds::meta::format_time;

/// Labels, small and in order of key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSet(pub(crate) Box<[(Box<str>, Box<str>)]>);

impl Labels for LabelSet {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| **k == *key).map(|(_, v)| &**v)
    }
}

impl<'de> Deserialize<'de> for LabelSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LabelSet, D::Error> {
        let map = Option::<std::collections::BTreeMap<Box<str>, Box<str>>>::deserialize(from)?;
        Ok(LabelSet(map.unwrap_or_default().into_iter().collect()))
    }
}

/// The metadata controllers look at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: Box<str>,
    pub(crate) namespace: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) generation: i64,
    pub(crate) labels: LabelSet,
    pub(crate) annotations: LabelSet,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    pub(crate) owner_references: Vec<Owner>,
    pub(crate) finalizers: Vec<Box<str>>,
}

impl Meta {
    /// `namespace/name`, or the name alone.
    pub(crate) fn key(&self) -> String {
        crate::store::key(&self.namespace, &self.name)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|f| **f == *name)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.label(key)
    }

    pub(crate) fn created(&self) -> i64 {
        self.creation_timestamp.map_or(0, Timestamp::as_second)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) controller: bool,
    pub(crate) block_owner_deletion: bool,
}

/// `3` or `"25%"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum IntOrPercent {
    Int(i64),
    Text(String),
}

impl IntOrPercent {
    /// Of `total`; a percentage is rounded up or down. None when the text is no percentage.
    pub(crate) fn of(&self, total: i64, up: bool) -> Option<i64> {
        match self {
            IntOrPercent::Int(value) => Some(*value),
            IntOrPercent::Text(text) => {
                let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
                let product = percent.checked_mul(total)?;
                Some(if up {
                    product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
                } else {
                    product.div_euclid(100)
                })
            }
        }
    }
}

/// A condition of any kind. Times are kept as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<Timestamp>,
    pub(crate) last_update_time: Option<Timestamp>,
}

/// The condition of this type in a status.
pub(crate) fn find_condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status.get("conditions")?.as_array()?.iter().find(|c| c["type"] == type_)
}

/// A condition as controllers write it.
pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let mut out = json!({"type": type_, "status": status});
    if !reason.is_empty() {
        out["reason"] = json!(reason);
    }
    if !message.is_empty() {
        out["message"] = json!(message);
    }
    out
}

/// Puts a condition at the end, or leaves the one of the same status and reason; keeps the time of
/// the last transition where the status stays. `times` are the names of the times it carries.
pub(crate) fn set_condition(status: &mut Value, mut new: Value, times: &[&str], now: Timestamp) {
    let type_ = new["type"].as_str().unwrap_or_default().to_owned();
    let now = json!(format_time(now));
    for time in times {
        new[*time] = now.clone();
    }
    if let Some(old) = find_condition(status, &type_) {
        if old["status"] == new["status"] && old.get("reason") == new.get("reason") {
            return;
        }
        if old["status"] == new["status"] && times.contains(&"lastTransitionTime") {
            new["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
    }
    remove_condition(status, &type_);
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    if let Some(list) = status["conditions"].as_array_mut() {
        list.push(new);
    }
}

pub(crate) fn remove_condition(status: &mut Value, type_: &str) {
    let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    list.retain(|c| c["type"] != type_);
    if list.is_empty()
        && let Some(status) = status.as_object_mut()
    {
        status.remove("conditions");
    }
}

/// The object as a view; a fault makes it absent.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(stored: &crate::store::Stored) -> Option<T> {
    serde_json::from_slice(&stored.json()).ok()
}

/// A label, or nothing.
pub(crate) fn read_label(meta: &Meta, key: &str) -> String {
    meta.labels.label(key).unwrap_or_default().to_owned()
}

pub(crate) fn read_meta(stored: &crate::store::Stored) -> Meta {
    serde_json::from_slice(stored.json_metadata()).unwrap_or_default()
}

/// A label selector as workloads carry it; one that cannot be read selects nothing.
#[derive(Clone, Debug)]
pub(crate) struct PodSelector(pub(crate) Selector);

impl Default for PodSelector {
    fn default() -> PodSelector {
        PodSelector(Selector::nothing())
    }
}

impl<'de> Deserialize<'de> for PodSelector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PodSelector, D::Error> {
        let selector = Option::<LabelSelector>::deserialize(from)?;
        let selector = Selector::new(selector.as_ref()).unwrap_or_else(|_| Selector::nothing());
        Ok(PodSelector(selector))
    }
}

/// The reference a controller puts on what it makes.
pub(crate) fn controller_ref(api_version: &str, kind: &str, meta: &Meta) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": &*meta.name, "uid": &*meta.uid,
        "controller": true, "blockOwnerDeletion": true})
}

/// A pod from a template, owned by `owner`, without a name.
pub(crate) fn pod_from_template(template: &Value, owner: Value) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|v| !v.is_null()) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// The prefix of generated pod names: the owner's name and a dash, if that makes a name.
pub(crate) fn pod_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    match crate::kinds::names::subdomain(&prefix, true).is_empty() {
        true => prefix,
        false => owner.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked() {
        for (value, total, up, want) in [
            (IntOrPercent::Int(3), 10, true, Some(3)),
            (IntOrPercent::Text("25%".into()), 10, true, Some(3)),
            (IntOrPercent::Text("25%".into()), 10, false, Some(2)),
            (IntOrPercent::Text("100%".into()), 7, true, Some(7)),
            (IntOrPercent::Text("0%".into()), 7, true, Some(0)),
            (IntOrPercent::Text("many".into()), 7, true, None),
        ] {
            assert_eq!(value.of(total, up), want, "{value:?} of {total}");
        }
    }

    #[test]
    fn conditions_keep_their_transition_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut status = json!({});
        let times = ["lastUpdateTime", "lastTransitionTime"];
        set_condition(&mut status, condition("A", "True", "One", "m"), &times, at(0));
        set_condition(&mut status, condition("A", "True", "Two", "m"), &times, at(60));
        set_condition(&mut status, condition("A", "True", "Two", "other"), &times, at(120));
        assert_eq!(
            status["conditions"],
            json!([{"type": "A", "status": "True", "reason": "Two", "message": "m",
                "lastUpdateTime": "1970-01-01T00:01:00Z", "lastTransitionTime": "1970-01-01T00:00:00Z"}])
        );
        remove_condition(&mut status, "A");
        assert_eq!(status, json!({}));
    }

    #[test]
    fn metadata_is_read_leniently() {
        let meta: Meta = serde_json::from_value(json!({"name": "a", "labels": null,
            "ownerReferences": [{"uid": "u", "kind": "K", "name": "n", "apiVersion": "v1", "controller": true}]}))
        .unwrap();
        assert_eq!(meta.controller().map(|o| &*o.uid), Some("u"));
        assert!(!meta.is_deleting());
    }
}
