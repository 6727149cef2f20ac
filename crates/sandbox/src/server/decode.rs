//! From a body to an object of the kind the path names: types, unknown fields, defaults.

use serde_json::Value;

use super::api::FieldValidation;
use crate::kinds::{FieldError, Kind, Path};
use crate::schema::decode::{
    DecodeError, complete, decode, decode_untyped, decode_value, strict_error, syntax_error,
};
use crate::schema::{Schema, builtin};
use crate::status::ApiError;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// An object read, and what to warn of.
#[derive(Clone, Debug, Default)]
pub struct Read {
    pub object: Value,
    pub warnings: Vec<String>,
    /// Its managed fields are up to date already.
    pub is_tracked: bool,
}

/// Reads a body sent to create or replace an object of `kind`.
pub fn read(kind: &Kind, format: Format, body: &[u8], validation: FieldValidation) -> Result<Read, ApiError> {
    let json;
    let body = match format {
        Format::Json => body,
        Format::Yaml => {
            json = yaml_to_json(body).map_err(|why| unrecognized(kind, &format!("yaml: {why}"), body))?;
            json.as_slice()
        }
    };
    let decoded = match kind.builtin_schema() {
        Some(schema) => decode(body, schema, &kind.kind),
        None => decode_untyped(body),
    };
    let mut decoded = decoded.map_err(|error| refuse(kind, &error, body))?;
    check_type(kind, &mut decoded.value, body)?;
    let mut strict = decoded.strict;
    let mut object = decoded.value;
    strict.extend(shape(kind, &mut object).map_err(|why| mishandled(kind, &why))?);
    let warnings = judge(strict, validation).map_err(|why| mishandled(kind, &why))?;
    Ok(Read { object, warnings, is_tracked: false })
}

/// Reads what a patch made of an object; faults are those of the patch.
pub fn read_patched(kind: &Kind, tree: Value, validation: FieldValidation) -> Result<Read, ApiError> {
    let invalid = |why: String| {
        let error = FieldError::invalid(&Path::root("patch"), tree.to_string(), why);
        ApiError::invalid("", "", "", &[error])
    };
    let (mut object, mut strict) = match kind.builtin_schema() {
        Some(schema) => {
            let decoded = decode_value(&tree, schema, &kind.kind).map_err(|e| invalid(e.to_string()))?;
            (decoded.value, decoded.strict)
        }
        None => (tree.clone(), Vec::new()),
    };
    strict.extend(shape(kind, &mut object).map_err(&invalid)?);
    let warnings = judge(strict, validation).map_err(&invalid)?;
    Ok(Read { object, warnings, is_tracked: false })
}

/// Reads an object made inside the process.
pub fn read_tree(kind: &Kind, tree: Value) -> Result<Value, ApiError> {
    let mut object = match kind.builtin_schema() {
        Some(schema) => {
            let decoded = decode_value(&tree, schema, &kind.kind);
            decoded.map_err(|error| mishandled(kind, &error.to_string()))?.value
        }
        None => tree,
    };
    set_type(kind, &mut object);
    shape(kind, &mut object).map_err(|why| mishandled(kind, &why))?;
    Ok(object)
}

/// Any JSON or YAML document as a tree, for bodies that are not objects of a kind.
pub fn read_document(format: Format, body: &[u8]) -> Result<Value, ApiError> {
    let bad = |why: String| ApiError::bad_request(why);
    match format {
        Format::Json => serde_json::from_slice(body).map_err(|_| bad(syntax_error(body))),
        Format::Yaml => {
            let json = yaml_to_json(body).map_err(bad)?;
            serde_json::from_slice(&json).map_err(|e| bad(e.to_string()))
        }
    }
}

/// Prunes and defaults a custom resource, or defaults a built-in one: the unknown fields met.
fn shape(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    if let Some(custom) = kind.custom_schema() {
        unknown = shape_custom(object, custom)?;
    }
    kind.fill_defaults(object);
    if let Some(schema) = kind.builtin_schema() {
        complete(object, schema);
    }
    Ok(unknown)
}

fn shape_custom(object: &mut Value, schema: &Schema) -> Result<Vec<String>, String> {
    let unknown = crate::schema::shape::prune(object, schema, true);
    if let Some(metadata) = object.get_mut("metadata") {
        let read = decode_value(metadata, builtin::object_meta(), "ObjectMeta").map_err(|e| e.to_string())?;
        *metadata = read.value;
    }
    crate::schema::shape::drop_nulls(object, schema);
    Ok(unknown)
}

fn judge(strict: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(strict),
        FieldValidation::Strict if strict.is_empty() => Ok(strict),
        FieldValidation::Strict => Err(strict_error(&strict)),
    }
}

fn set_type(kind: &Kind, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind".to_owned(), Value::from(kind.kind.as_ref()));
        fields.insert("apiVersion".to_owned(), Value::from(kind.api_version()));
    }
}

/// The body's own kind and apiVersion must be those of the path; absent ones are filled in.
fn check_type(kind: &Kind, object: &mut Value, body: &[u8]) -> Result<(), ApiError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    let (found_kind, found_version) = (text("kind"), text("apiVersion"));
    let expected = kind.api_version();
    if !object.is_object() {
        let why = "couldn't get version/kind; json parse error: json: cannot unmarshal value into Go value of \
                   type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                   \"json:\\\"kind,omitempty\\\"\" }";
        return Err(unrecognized(kind, why, body));
    }
    if !found_version.is_empty() && found_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({expected})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        return Err(ApiError::bad_request(format!(
            "{found_kind} in version {} cannot be handled as a {}: no kind {} is registered for the resource {}",
            crate::kinds::quote(&kind.version),
            kind.kind,
            crate::kinds::quote(found_kind),
            crate::status::qualified(&kind.group, &kind.plural),
        )));
    }
    if found_kind.is_empty() || found_version.is_empty() {
        set_type(kind, object);
    }
    Ok(())
}

fn refuse(kind: &Kind, error: &DecodeError, body: &[u8]) -> ApiError {
    match error {
        DecodeError::Syntax(why) => {
            unrecognized(kind, &format!("couldn't get version/kind; json parse error: {why}"), body)
        }
        DecodeError::Type(why) => mishandled(kind, why),
    }
}

fn mishandled(kind: &Kind, why: &str) -> ApiError {
    let version = crate::kinds::quote(&kind.version);
    ApiError::bad_request(format!("{0} in version {version} cannot be handled as a {0}: {why}", kind.kind))
}

fn unrecognized(kind: &Kind, why: &str, body: &[u8]) -> ApiError {
    let summary = summarize(body);
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({summary})",
        kind.kind
    ))
}

/// The beginning of a body nobody could read.
fn summarize(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &body[..body.len().min(SHOWN)];
    let mut text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|b| format!("{b:02x}")).collect(),
    };
    if body.len() > SHOWN {
        text.push_str(" ...");
    }
    text
}

/// YAML as JSON text, so that one decoder serves both.
pub fn yaml_to_json(body: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "invalid UTF-8".to_owned())?;
    let tree: Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    serde_json::to_vec(&tree).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_nobody_can_read_are_summarised() {
        for (body, want) in [
            ("", "<empty>"),
            ("{a", "{a"),
            ("abc", "616263"),
            ("{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "{aaaaaaaaaaaaaaaaaaaaaaaaaaaaa ..."),
        ] {
            assert_eq!(summarize(body.as_bytes()), want);
        }
    }

    #[test]
    fn yaml_and_json_read_alike() {
        let kind = Kind::builtin("v1", "ConfigMap", "configmaps");
        let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: \"1\"\n";
        let json = br#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#;
        let from_yaml = read(&kind, Format::Yaml, yaml, FieldValidation::Warn).unwrap().object;
        let from_json = read(&kind, Format::Json, json, FieldValidation::Warn).unwrap().object;
        assert_eq!(from_yaml, from_json);
        assert_eq!(from_json["kind"], "ConfigMap");
    }

    #[test]
    fn a_body_must_be_of_the_paths_kind() {
        let kind = Kind::builtin("v1", "ConfigMap", "configmaps");
        let message =
            |body: &[u8]| read(&kind, Format::Json, body, FieldValidation::Warn).err().unwrap().message;
        assert_eq!(
            message(br#"{"apiVersion":"apps/v1","kind":"ConfigMap"}"#),
            "the API version in the data (apps/v1) does not match the expected API version (v1)"
        );
        assert!(message(br#"{"kind":"Pod"}"#).contains("cannot be handled as a ConfigMap"));
        assert!(message(b"{").starts_with("the object provided is unrecognized (must be of type ConfigMap)"));
    }
}
