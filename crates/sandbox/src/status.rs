//! What a refused request is told: `metav1.Status` with Kubernetes' codes, reasons and texts.
//!
//! Every layer above the store answers with `ApiError`; only the wire turns it into JSON.

use serde_json::{Value, json};

use crate::kinds::{FieldError, Text, quote};

/// A refusal or failure, as a client reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    pub reason: Text,
    pub message: String,
    /// `details` of the Status: absent in a few answers, so an Option and not an empty struct.
    pub details: Option<Box<Details>>,
    /// Where an expired list may go on, at the price of consistency.
    pub continue_token: Option<String>,
}

/// The machine-readable half of a Status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One of several reasons for the same refusal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// `pods`, `deployments.apps`: a resource with its group, as messages spell it.
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

impl ApiError {
    pub fn new(code: u16, reason: impl Into<Text>, message: impl Into<String>) -> ApiError {
        ApiError { code, reason: reason.into(), message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> ApiError {
        let details = self.details.get_or_insert_default();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    pub fn with_causes(mut self, causes: Vec<Cause>) -> ApiError {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    pub fn with_retry_after(mut self, seconds: u32) -> ApiError {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> ApiError {
        let message = format!("{} {} not found", qualified(group, plural), quote(name));
        ApiError::new(404, "NotFound", message).about(group, plural, name)
    }

    /// The path leads nowhere: no such group, version or resource.
    pub fn no_such_path() -> ApiError {
        let error = ApiError::new(404, "NotFound", "the server could not find the requested resource");
        error.with_causes(Vec::new())
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> ApiError {
        let message = format!("{} {} already exists", qualified(group, plural), quote(name));
        ApiError::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    pub fn generate_name_conflict(group: &str, plural: &str, name: &str) -> ApiError {
        let message = format!(
            "{} {} already exists, the server was not able to generate a unique name for the object",
            qualified(group, plural),
            quote(name)
        );
        ApiError::new(409, "AlreadyExists", message).about(group, plural, name).with_retry_after(1)
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> ApiError {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", qualified(group, plural), quote(name));
        ApiError::new(409, "Conflict", message).about(group, plural, name)
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> ApiError {
        let resource = qualified(group, plural);
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        ApiError::new(403, "Forbidden", message).about(group, plural, name)
    }

    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> ApiError {
        let causes = errors.iter().map(|e| Cause {
            reason: e.reason().to_owned(),
            message: e.body(),
            field: e.field.clone(),
        });
        let causes = causes.collect();
        let mut message = format!("{} {} is invalid", qualified(group, kind), quote(name));
        let texts = aggregate(errors.iter().map(ToString::to_string));
        if !texts.is_empty() {
            message.push_str(": ");
            message.push_str(&texts);
        }
        ApiError::new(422, "Invalid", message).about(group, kind, name).with_causes(causes)
    }

    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// A watch or list position that has left the history.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn method_not_allowed() -> ApiError {
        let text = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", text).with_causes(Vec::new())
    }

    /// The resource exists but does not offer this action.
    pub fn not_supported(group: &str, plural: &str, action: &str) -> ApiError {
        let message =
            format!("{action} is not supported on resources of kind {}", quote(&qualified(group, plural)));
        ApiError::new(405, "MethodNotAllowed", message).about(group, plural, "")
    }

    pub fn not_acceptable(accepted: &str) -> ApiError {
        let message = format!("only the following media types are accepted: {accepted}");
        ApiError::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &str) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// The route of a resource knows no such content type.
    pub fn unsupported_by_route() -> ApiError {
        let text = "415: Unsupported Media Type";
        ApiError::new(415, "UnsupportedMediaType", text).with_causes(Vec::new())
    }

    pub fn too_large(message: &str) -> ApiError {
        let message = format!("Request entity too large: {message}");
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> ApiError {
        ApiError::new(429, "TooManyRequests", message).with_retry_after(retry_after_seconds)
    }

    pub fn internal(why: impl std::fmt::Display) -> ApiError {
        let message = format!("Internal error occurred: {why}");
        let cause = Cause { message: why.to_string(), ..Cause::default() };
        ApiError::new(500, "InternalError", message).with_causes(vec![cause])
    }

    /// The Status object a client receives.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self.reason.is_empty() {
            status.as_object_mut().map(|s| s.remove("reason"));
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status
    }
}

/// Several messages as one, repeated ones once: `a`, or `[a, b]`.
pub fn aggregate(messages: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in messages {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                out.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(Cause::to_json).collect();
            out.insert("causes".to_owned(), Value::Array(causes));
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".to_owned(), Value::from(self.retry_after_seconds));
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                out.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Path;

    #[test]
    fn statuses_read_as_kubernetes_writes_them() {
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let name = containers.index(0);
        let required = FieldError::required(&name.child("name"), "");
        let both = [required.clone(), FieldError::forbidden(&spec, "no"), required.clone()];
        for (error, code, reason, message) in [
            (ApiError::not_found("", "pods", "a"), 404, "NotFound", r#"pods "a" not found"#),
            (
                ApiError::already_exists("apps", "deployments", "web"),
                409,
                "AlreadyExists",
                r#"deployments.apps "web" already exists"#,
            ),
            (
                ApiError::invalid("", "Pod", "a", std::slice::from_ref(&required)),
                422,
                "Invalid",
                r#"Pod "a" is invalid: spec.containers[0].name: Required value"#,
            ),
            (
                ApiError::invalid("", "Pod", "a", &both),
                422,
                "Invalid",
                r#"Pod "a" is invalid: [spec.containers[0].name: Required value, spec: Forbidden: no]"#,
            ),
        ] {
            let status = error.to_status();
            assert_eq!(status["code"], code, "{message}");
            assert_eq!(status["reason"], reason);
            assert_eq!(status["message"], message);
        }
        let status = ApiError::invalid("", "Pod", "a", &both).to_status();
        assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(3));
        assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueRequired");
    }
}
