//! Changing objects: nothing is sent when nothing changed, nobody's change is lost, and no field that our types do
//! not know is dropped.
//!
//! [`update_with`] is for changes that depend on what is there: it reads, changes, and writes with the version it
//! read, again and again while others are faster. [`merge_patch`] sends only the difference between two states, for
//! changes of single fields that may be made blindly.

use std::time::Duration;

use koord_api::preserve::carry_unknown;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::core::params::{GetParams, PostParams};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};

use crate::random;

/// Attempts before a conflict is reported. With the waits below this outlasts dozens of busy writers.
const ATTEMPTS_MAX: u32 = 40;
const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, for kinds with a status subresource; everything for the others.
    Object,
    /// The status subresource.
    Status,
}

/// An object's place.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// `None` for kinds without one.
    pub namespace: Option<&'p str>,
    pub name: &'p str,
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<K> {
    /// Nothing had to be sent; this is what is there.
    Unchanged(K),
    /// The server's copy after the write.
    Changed(K),
}

impl<K> Written<K> {
    pub fn into_inner(self) -> K {
        match self {
            Written::Unchanged(object) | Written::Changed(object) => object,
        }
    }
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{kind} {place} was changed by others {attempts} times in a row")]
    Contended { kind: String, place: String, attempts: u32 },
    #[error("{kind} {place} cannot be read as its type")]
    Decode { kind: String, place: String, source: serde_json::Error },
    #[error("cannot write {kind} {place}")]
    Api { kind: String, place: String, source: kube::Error },
}

impl WriteError {
    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, WriteError::Api { source: kube::Error::Api(status), .. } if status.code == 404)
    }
}

/// Reads the object, lets `change` alter it, and writes it back, until nobody came in between.
///
/// `change` may run several times, each time on a fresh copy.
pub async fn update_with<K>(
    client: &kube::Client,
    place: Place<'_>,
    part: Part,
    mut change: impl FnMut(&mut K),
) -> Result<Written<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone,
{
    let target = Target::of::<K>(place);
    for attempt in 1..=ATTEMPTS_MAX {
        let raw: Value = target.send(client, target.request.get(place.name, &GetParams::default())).await?;
        let mut object: K = target.decode(raw.clone())?;
        let before = target.encode(&object)?;
        change(&mut object);
        let after = target.encode(&object)?;
        if before == after {
            return Ok(Written::Unchanged(object));
        }
        let body = carry_unknown(&raw, &before, &after).to_string().into_bytes();
        let request = match part {
            Part::Object => target.request.replace(place.name, &PostParams::default(), body),
            Part::Status => {
                target.request.replace_subresource("status", place.name, &PostParams::default(), body)
            }
        };
        match target.send::<Value>(client, request).await {
            Ok(stored) => return target.decode(stored).map(Written::Changed),
            Err(WriteError::Api { source: kube::Error::Api(status), .. }) if status.code == 409 => {
                let wait = WAIT_MIN.saturating_mul(1 << (attempt - 1).min(10)).min(WAIT_MAX);
                tokio::time::sleep(wait.mul_f64(random::unit())).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(WriteError::Contended { kind: target.kind, place: target.place, attempts: ATTEMPTS_MAX })
}

/// Sends the difference between two states of an object as a JSON merge patch; nothing when there is none. Says
/// whether there was one.
///
/// A list that differs is sent whole, so a list whose elements may hold unknown fields belongs to [`update_with`].
/// With `guarded`, the patch applies only to exactly the version that `before` is.
pub async fn merge_patch<K>(
    client: &kube::Client,
    place: Place<'_>,
    part: Part,
    before: &K,
    after: &K,
    guarded: bool,
) -> Result<bool, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let target = Target::of::<K>(place);
    let Some(mut patch) = difference(&target.encode(before)?, &target.encode(after)?) else {
        return Ok(false);
    };
    if guarded {
        let version = before.meta().resource_version.clone().unwrap_or_default();
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    let request = match part {
        Part::Object => target.request.patch(place.name, &params, &patch),
        Part::Status => target.request.patch_subresource("status", place.name, &params, &patch),
    };
    // The answer is the whole object; whoever keeps it hears of it by its watch.
    target.send::<IgnoredAny>(client, request).await.map(|_| true)
}

/// The JSON merge patch (RFC 7386) that turns one value into the other; `None` when they are equal.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        _ if before == after => None,
        (Value::Object(before), Value::Object(after)) => {
            let mut patch = Map::new();
            for (key, value) in after {
                let change = match before.get(key) {
                    Some(old) => difference(old, value),
                    None => Some(value.clone()),
                };
                if let Some(change) = change {
                    patch.insert(key.clone(), change);
                }
            }
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            Some(Value::Object(patch))
        }
        _ => Some(after.clone()),
    }
}

struct Target {
    kind: String,
    place: String,
    request: Request,
}

impl Target {
    fn of<K: Resource<DynamicType = ()>>(place: Place<'_>) -> Target {
        let shown = match place.namespace {
            Some(namespace) => format!("{namespace}/{}", place.name),
            None => place.name.to_owned(),
        };
        Target {
            kind: K::kind(&()).into_owned(),
            place: shown,
            request: Request::new(K::url_path(&(), place.namespace)),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        client: &kube::Client,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, WriteError> {
        let result = match request {
            Ok(request) => client.request(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        let (kind, place) = (self.kind.clone(), self.place.clone());
        result.map_err(|source| WriteError::Api { kind, place, source })
    }

    fn decode<K: DeserializeOwned>(&self, value: Value) -> Result<K, WriteError> {
        serde_json::from_value(value).map_err(|source| self.fault(source))
    }

    fn encode(&self, object: &impl Serialize) -> Result<Value, WriteError> {
        serde_json::to_value(object).map_err(|source| self.fault(source))
    }

    fn fault(&self, source: serde_json::Error) -> WriteError {
        WriteError::Decode { kind: self.kind.clone(), place: self.place.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_patch_says_only_what_changed() {
        for (name, before, after, want) in [
            ("equal", json!({"a": 1}), json!({"a": 1}), None),
            ("changed", json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3}))),
            (
                "removed",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1}}),
                Some(json!({"a": {"c": null}})),
            ),
            ("added", json!({}), json!({"a": {"b": [1]}}), Some(json!({"a": {"b": [1]}}))),
            ("lists are whole", json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
        ] {
            assert_eq!(difference(&before, &after), want, "{name}");
        }
    }

    /// RFC 7386, section 2.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let Some(target) = target.as_object_mut() else { return };
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    fn objects() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3_i32).prop_map(Value::from)];
        let inner = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[abc]", inner, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        /// Applying the difference gives the other state.
        #[test]
        fn the_difference_leads_from_one_to_the_other(before in objects(), after in objects()) {
            let mut result = before.clone();
            if let Some(patch) = difference(&before, &after) {
                merge(&mut result, &patch);
            }
            prop_assert_eq!(result, after);
        }
    }
}
