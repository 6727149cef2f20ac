//! Query options, as Kubernetes reads them from the URL.

use std::borrow::Cow;
use std::sync::Arc;

use koord_api::gojson::syntax_error;
use serde_json::Value;

use super::api::{FieldValidation, User, WriteOptions};
use super::decode::{Format, SCHEME, yaml_to_json};
use super::delete::DeleteOptions;
use super::list::ListOptions;
use crate::kinds::{FieldError, Path, meta, quote};
use crate::patch::managed::manager_name;
use crate::schema::builtin;
use crate::schema::decode::decode;
use crate::status::ApiError;

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The decoded query of one request.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn parse(query: &str) -> Parameters {
        Parameters(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Present and neither `false` nor `0` is true, as in Kubernetes.
    fn flag(&self, name: &str) -> Option<bool> {
        self.has(name).then(|| !["false", "0"].contains(&self.text(name).to_lowercase().as_str()))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let quoted = crate::kinds::quote(text);
            ApiError::bad_request(format!("strconv.ParseInt: parsing {quoted}: invalid syntax"))
        })
    }

    pub(super) fn list_options(&self) -> Result<ListOptions, ApiError> {
        let natural = |number: Option<i64>| number.and_then(|n| u64::try_from(n).ok());
        let limit = natural(self.number("limit")?);
        Ok(ListOptions {
            label_selector: self.text("labelSelector").to_owned(),
            field_selector: self.text("fieldSelector").to_owned(),
            watch: self.flag("watch").unwrap_or(false),
            allow_bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: self.flag("sendInitialEvents"),
            timeout_seconds: natural(self.number("timeoutSeconds")?),
            limit: limit.and_then(|n| usize::try_from(n).ok()),
            continue_token: self.text("continue").to_owned(),
            revision: self.text("resourceVersion").to_owned(),
            revision_match: self.text("resourceVersionMatch").to_owned(),
        })
    }

    /// Options of create, update and patch; `kind` names them in faults.
    pub(super) fn write_options(
        &self,
        user: Arc<User>,
        agent: &str,
        kind: &str,
    ) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        let is_apply = kind == "ApplyOptions";
        let manager = self.text("fieldManager");
        let path = Path::root("fieldManager");
        if is_apply && manager.is_empty() {
            errors.push(FieldError::required(&path, "is required for apply patch"));
        }
        let force = self.flag("force");
        if kind == "PatchOptions" && force.is_some() {
            let detail = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden(&Path::root("force"), detail));
        }
        errors.extend(meta::validate_field_manager(manager, &path));
        let dry_run = self.all("dryRun");
        errors.extend(validate_dry_run(&dry_run));
        let validation = match self.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let path = Path::root("fieldValidation");
                errors.push(FieldError::not_supported(&path, other, ["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            let kind = if is_apply { "PatchOptions" } else { kind };
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &errors));
        }
        Ok(WriteOptions {
            user,
            manager: manager_name(manager, agent),
            dry_run: !dry_run.is_empty(),
            validation,
            force: force.unwrap_or(false),
        })
    }

    /// Options of a delete without a body.
    pub(super) fn delete_options(&self, write: WriteOptions) -> Result<DeleteOptions, ApiError> {
        let text = |name: &str| Some(self.text(name).to_owned()).filter(|t| !t.is_empty());
        Ok(DeleteOptions {
            write,
            grace_seconds: self.number("gracePeriodSeconds")?,
            propagation: text("propagationPolicy"),
            orphan: self.flag("orphanDependents"),
            ..DeleteOptions::default()
        })
    }
}

fn validate_dry_run(found: &[&str]) -> Vec<FieldError> {
    match found.iter().all(|value| *value == "All") {
        true => Vec::new(),
        false => {
            let list: Vec<Value> = found.iter().map(|v| Value::from(*v)).collect();
            vec![FieldError::not_supported(&Path::root("dryRun"), list, ["All"])]
        }
    }
}

/// Reads a body that must be DeleteOptions.
pub(super) fn read_delete_options(format: Format, body: &[u8]) -> Result<Value, ApiError> {
    let bad = |why: String| ApiError::bad_request(why);
    let unread = |why| bad(format!("couldn't get version/kind; json parse error: {why}"));
    let json = match format {
        Format::Json => Cow::Borrowed(body),
        Format::Yaml => Cow::Owned(yaml_to_json(body).map_err(unread)?),
    };
    let tree: Value = serde_json::from_slice(&json).map_err(|_| unread(syntax_error(&json)))?;
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if !["", "DeleteOptions"].contains(&kind) {
        return Err(bad(format!(
            "no kind {} is registered for version {} in scheme {SCHEME}",
            quote(kind),
            quote(if version.is_empty() { "v1" } else { version }),
        )));
    }
    let Some(schema) = builtin::by_name(DELETE_OPTIONS) else { return Ok(tree) };
    match decode(&json, schema, "DeleteOptions") {
        Ok(decoded) => Ok(decoded.value),
        Err(error) => Err(bad(error.to_string())),
    }
}

/// DeleteOptions as a body carries them.
pub(super) fn delete_options(body: &Value, write: &WriteOptions) -> Result<DeleteOptions, ApiError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dry_run = body["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
    let dry_run: Vec<&str> = dry_run.iter().filter_map(Value::as_str).collect();
    let errors = validate_dry_run(&dry_run);
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    let mut write = write.clone();
    write.dry_run |= !dry_run.is_empty();
    Ok(DeleteOptions {
        write,
        grace_seconds: body["gracePeriodSeconds"].as_i64(),
        propagation: text(&body["propagationPolicy"]),
        orphan: body["orphanDependents"].as_bool(),
        uid: text(&body["preconditions"]["uid"]),
        revision: text(&body["preconditions"]["resourceVersion"]),
        is_collection: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_numbers_read_as_kubernetes_reads_them() {
        let parameters = Parameters::parse("watch=1&allowWatchBookmarks=&sendInitialEvents=False&limit=5");
        let options = parameters.list_options().unwrap();
        assert!(options.watch && options.allow_bookmarks);
        assert_eq!((options.send_initial_events, options.limit), (Some(false), Some(5)));
        assert_eq!(
            Parameters::parse("limit=x").list_options().unwrap_err().message,
            "strconv.ParseInt: parsing \"x\": invalid syntax"
        );
    }

    #[test]
    fn write_options_are_checked() {
        let check = |query: &str, kind: &str| {
            let user = Arc::new(User::default());
            Parameters::parse(query).write_options(user, "kubectl/v1.35 (linux)", kind)
        };
        assert_eq!(check("", "CreateOptions").unwrap().manager, "kubectl");
        assert_eq!(check("fieldManager=me", "CreateOptions").unwrap().manager, "me");
        for (query, kind, want) in [
            (
                "dryRun=x",
                "CreateOptions",
                r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All""#,
            ),
            (
                "fieldValidation=x",
                "UpdateOptions",
                r#"UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn""#,
            ),
            (
                "",
                "ApplyOptions",
                r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
            ),
            (
                "force=true",
                "PatchOptions",
                r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
            ),
        ] {
            assert_eq!(check(query, kind).unwrap_err().message, want);
        }
    }
}
