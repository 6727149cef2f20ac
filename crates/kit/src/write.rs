//! Changing objects: nothing is sent when nothing changed, nobody's change is lost, and no field that our types do
//! not know is dropped.
//!
//! [`update_with`] is for changes that depend on what is there: it reads, changes, and writes with the version it
//! read, again and again while others are faster. [`merge_patch`] sends only the difference between two states, for
//! changes of single fields that may be made blindly. [`send_steps`] changes parts of lists, for a version that is known.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use koord_api::patch::diff::Change;
use koord_api::patch::merge;
use koord_api::preserve::carry_unknown;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::core::params::{GetParams, PostParams};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use crate::random;

/// Attempts before a conflict is reported. With the waits below this outlasts dozens of busy writers.
const ATTEMPTS_MAX: u32 = 40;
const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// An answer to a write that nobody reads need not be the whole object.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
const JSON_PATCH: HeaderValue = HeaderValue::from_static("application/json-patch+json");

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
        self.code() == Some(404)
    }

    /// Whether somebody else has changed the object since the version that the write was for.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// As [`WriteError::is_conflict`], for a patch whose places may have moved with that change.
    pub fn is_outdated(&self) -> bool {
        matches!(self.code(), Some(409 | 422))
    }

    /// The status that the API server refused the request with.
    fn code(&self) -> Option<u16> {
        match self {
            WriteError::Api { source: kube::Error::Api(status), .. } => Some(status.code),
            _ => None,
        }
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
            Err(error) if error.is_conflict() => {
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
    let Some(patch) = difference(&target.encode(before)?, &target.encode(after)?) else {
        return Ok(false);
    };
    let version = guarded.then(|| before.meta().resource_version.clone().unwrap_or_default());
    send_merge_patch::<K>(client, place, part, patch, version.as_deref()).await.map(|()| true)
}

/// Sends a JSON merge patch, for exactly this version of the object where one is given.
pub async fn send_merge_patch<K>(
    client: &kube::Client,
    place: Place<'_>,
    part: Part,
    mut patch: Value,
    version: Option<&str>,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()>,
{
    let target = Target::of::<K>(place);
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    let request = match part {
        Part::Object => target.request.patch(place.name, &params, &patch),
        Part::Status => target.request.patch_subresource("status", place.name, &params, &patch),
    };
    target.send_only(client, request).await
}

/// Sends steps of a JSON patch, for exactly this version of the object.
///
/// Steps name elements of lists by their places, so what they do not name of an element stays as it is.
pub async fn send_steps<K>(
    client: &kube::Client,
    place: Place<'_>,
    version: &str,
    steps: Vec<Change>,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()>,
{
    let target = Target::of::<K>(place);
    let version = Change::Replace { path: "/metadata/resourceVersion".to_owned(), value: json!(version) };
    let patch: Vec<Change> = [version].into_iter().chain(steps).collect();
    let body = serde_json::to_vec(&patch).map_err(|source| target.fault(source))?;
    let request = http::Request::builder()
        .method(Method::PATCH)
        .uri(format!("{}/{}", target.request.url_path, place.name))
        .header(CONTENT_TYPE, JSON_PATCH)
        .body(body)
        .map_err(kube::core::request::Error::BuildRequest);
    target.send_only(client, request).await
}

/// The JSON merge patch that turns one object into the other; `None` when they are equal.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        _ if before == after => None,
        (Value::Object(before), Value::Object(after)) => Some(Value::Object(merge::diff(before, after))),
        (_, after) => Some(after.clone()),
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

    /// For a write whose outcome is heard by a watch, if at all.
    async fn send_only(
        &self,
        client: &kube::Client,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), WriteError> {
        let request = request.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            request
        });
        self.send::<IgnoredAny>(client, request).await.map(drop)
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
