//! AdmissionReview: requests as the API server sends them, answers as it wants them. Spec: manager 14.1.
//!
//! Pure. Both versions, `v1` and `v1beta1`, have one shape; the answer is in the version of the request. Objects stay
//! JSON trees, so that a patch touches only what was changed.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use koord_api::patch::diff::diff;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::denial::Denial;

/// What is asked, about which object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub version: Version,
    pub uid: String,
    pub kind: Kind,
    pub resource: Resource,
    /// Such as `status`; empty for the object itself.
    pub sub_resource: String,
    pub name: String,
    pub namespace: String,
    pub operation: Operation,
    pub user: UserInfo,
    /// Null on DELETE.
    pub object: Value,
    /// Null on CREATE.
    pub old_object: Value,
    pub is_dry_run: bool,
}

impl Request {
    /// The namespace that counts for the object: its own, else the request's.
    pub fn namespace_of(&self, object: &Value) -> String {
        let own = object.pointer("/metadata/namespace").and_then(Value::as_str).filter(|own| !own.is_empty());
        own.unwrap_or(&self.namespace).to_owned()
    }
}

/// Version of the review itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    V1,
    V1Beta1,
}

impl Version {
    const ALL: [Version; 2] = [Version::V1, Version::V1Beta1];

    fn api_version(self) -> &'static str {
        match self {
            Version::V1 => "admission.k8s.io/v1",
            Version::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    #[default]
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    fn parse(name: &str) -> Option<Operation> {
        let all = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
        all.into_iter().find(|operation| operation.name() == name)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub resource: String,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    pub username: String,
    pub groups: Vec<String>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub verdict: Verdict,
    /// Shown to the user by `kubectl`; only reviews of version `v1` carry them.
    pub warnings: Vec<String>,
    /// For the API server's audit log.
    pub audit: BTreeMap<&'static str, String>,
    /// What the owners of other objects should hear of. No part of the answer.
    pub complaints: Vec<Complaint>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Allowed,
    /// Allowed, as this object instead.
    Changed(Value),
    Denied(Denial),
}

/// A profile that does harm, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub profile: String,
    pub text: String,
}

impl Answer {
    pub fn allow() -> Answer {
        Answer::from(Verdict::Allowed)
    }

    /// Allowed as `object`; where it equals what was sent, simply allowed.
    pub fn change(object: Value) -> Answer {
        Answer::from(Verdict::Changed(object))
    }

    pub fn deny(code: u16, message: impl Into<String>) -> Answer {
        Answer::from(Verdict::Denied(Denial { code, message: message.into() }))
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Answer {
        Answer { verdict, warnings: Vec::new(), audit: BTreeMap::new(), complaints: Vec::new() }
    }
}

impl From<Result<(), Denial>> for Answer {
    fn from(checked: Result<(), Denial>) -> Answer {
        match checked {
            Ok(()) => Answer::allow(),
            Err(denial) => Answer::from(Verdict::Denied(denial)),
        }
    }
}

/// Why a body is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("request body is empty")]
    Empty,
    #[error("the body is no AdmissionReview: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("{kind:?} of {api_version:?} is no AdmissionReview of admission.k8s.io/v1 or v1beta1")]
    Version { api_version: String, kind: String },
    #[error("the AdmissionReview holds no request")]
    NoRequest,
    #[error("unknown operation {0:?}")]
    Operation(String),
}

/// Reads a request.
pub fn decode(body: &[u8]) -> Result<Request, ReviewError> {
    if body.is_empty() {
        return Err(ReviewError::Empty);
    }
    let review: WireReview = serde_json::from_slice(body)?;
    let version = Version::ALL.into_iter().find(|version| version.api_version() == review.api_version);
    let Some(version) = version.filter(|_| review.kind == "AdmissionReview") else {
        return Err(ReviewError::Version { api_version: review.api_version, kind: review.kind });
    };
    let request = review.request.ok_or(ReviewError::NoRequest)?;
    let operation = Operation::parse(&request.operation).ok_or(ReviewError::Operation(request.operation))?;
    Ok(Request {
        version,
        uid: request.uid,
        kind: request.kind,
        resource: request.resource,
        sub_resource: request.sub_resource.unwrap_or_default(),
        name: request.name.unwrap_or_default(),
        namespace: request.namespace.unwrap_or_default(),
        operation,
        user: request.user_info,
        object: request.object,
        old_object: request.old_object,
        is_dry_run: request.dry_run.unwrap_or_default(),
    })
}

/// The body of the answer to a request.
pub fn encode(request: &Request, answer: &Answer) -> Vec<u8> {
    let mut response = WireResponse {
        uid: &request.uid,
        allowed: true,
        status: WireStatus { code: 200, message: None },
        patch_type: None,
        patch: None,
        warnings: match request.version {
            Version::V1 => &answer.warnings,
            Version::V1Beta1 => &[],
        },
        audit_annotations: &answer.audit,
    };
    match &answer.verdict {
        Verdict::Allowed => {}
        Verdict::Changed(object) => {
            let changes = diff(&request.object, object);
            if !changes.is_empty() {
                response.patch_type = Some("JSONPatch");
                response.patch = Some(STANDARD.encode(to_json(&changes)));
            }
        }
        Verdict::Denied(denial) => {
            response.allowed = false;
            response.status = WireStatus { code: denial.code, message: Some(&denial.message) };
        }
    }
    to_json(&WireAnswer { api_version: request.version.api_version(), kind: "AdmissionReview", response })
}

/// The answer to a body that is no review.
pub fn encode_error(error: &ReviewError) -> Vec<u8> {
    encode(&Request::default(), &Answer::deny(400, error.to_string()))
}

/// Trees, texts and numbers are always JSON.
fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReview {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<WireRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct WireRequest {
    uid: String,
    kind: Kind,
    resource: Resource,
    sub_resource: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    operation: String,
    user_info: UserInfo,
    object: Value,
    old_object: Value,
    dry_run: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireAnswer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    status: WireStatus<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(version: &str, request: Value) -> Vec<u8> {
        json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "request": request})
            .to_string()
            .into_bytes()
    }

    fn answered(request: &Request, answer: &Answer) -> Value {
        serde_json::from_slice(&encode(request, answer)).unwrap()
    }

    #[test]
    fn a_request_is_read() {
        let body = review(
            "v1beta1",
            json!({"uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "status",
                "requestKind": {}, "namespace": "shop", "operation": "UPDATE",
                "userInfo": {"username": "jo", "groups": ["a"], "extra": {"x": ["y"]}},
                "object": {"metadata": {"namespace": "own"}}, "oldObject": {}, "dryRun": true, "options": null}),
        );
        let request = decode(&body).unwrap();
        assert_eq!(request.version, Version::V1Beta1);
        assert_eq!((request.uid.as_str(), request.name.as_str()), ("u", ""));
        assert_eq!((request.resource.resource.as_str(), request.sub_resource.as_str()), ("pods", "status"));
        assert_eq!((request.operation, request.is_dry_run), (Operation::Update, true));
        assert_eq!((request.user.username.as_str(), request.user.groups.len()), ("jo", 1));
        assert_eq!(request.namespace_of(&request.object), "own");
        assert_eq!(request.namespace_of(&request.old_object), "shop");
    }

    #[test]
    fn what_is_no_review() {
        let shapeless = |body: &[u8], want: &str| {
            let text = decode(body).unwrap_err().to_string();
            assert!(text.starts_with(want), "{text}");
        };
        shapeless(b"", "request body is empty");
        shapeless(b"{", "the body is no AdmissionReview: ");
        shapeless(br#"{"request": 1}"#, "the body is no AdmissionReview: ");
        shapeless(b"{}", "\"\" of \"\" is no AdmissionReview");
        shapeless(&review("v2", json!({})), "\"AdmissionReview\" of \"admission.k8s.io/v2\" is no");
        shapeless(&review("v1", json!(null)), "the AdmissionReview holds no request");
        shapeless(&review("v1", json!({"operation": "PATCH"})), "unknown operation \"PATCH\"");
        let told: Value = serde_json::from_slice(&encode_error(&ReviewError::NoRequest)).unwrap();
        assert_eq!(told["response"]["allowed"], json!(false));
        assert_eq!(told["response"]["status"]["code"], json!(400));
    }

    #[test]
    fn answers() {
        for (version, warnings) in [("v1", json!(["mind"])), ("v1beta1", json!(null))] {
            let mut request = decode(&review(version, json!({"uid": "u", "operation": "CREATE"}))).unwrap();
            request.object = json!({"metadata": {"name": "a"}, "unknown": [1]});
            let mut allowed = answered(&request, &Answer::allow());
            assert_eq!(allowed["apiVersion"], json!(format!("admission.k8s.io/{version}")));
            let want = json!({"uid": "u", "allowed": true, "status": {"code": 200}});
            assert_eq!(allowed["response"].take(), want);

            let same = answered(&request, &Answer::change(request.object.clone()));
            assert_eq!(same["response"], want, "an untouched object yields no patch");

            let mut changed = request.object.clone();
            changed["metadata"]["labels"] = json!({"x": "1"});
            let mut answer = Answer::change(changed);
            answer.warnings.push("mind".into());
            answer.audit.insert("profiles", "a".into());
            let response = answered(&request, &answer)["response"].take();
            assert_eq!((&response["patchType"], &response["warnings"]), (&json!("JSONPatch"), &warnings));
            assert_eq!(response["auditAnnotations"], json!({"profiles": "a"}));
            let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
            let patch: Value = serde_json::from_slice(&patch).unwrap();
            assert_eq!(patch, json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "1"}}]));

            let denied = answered(&request, &Answer::deny(500, "no"))["response"].take();
            let want = json!({"uid": "u", "allowed": false, "status": {"code": 500, "message": "no"}});
            assert_eq!(denied, want);
        }
    }
}
