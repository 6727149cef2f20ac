//! From a body to an object of the kind the path names: types, unknown fields, defaults.

use std::borrow::Cow;

use bytes::Bytes;
use koord_api::gojson::syntax_error;
use koord_api::patch::json::type_name;
use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::DuplicateKeyPolicy;

use super::api::FieldValidation;
use crate::kinds::{FieldError, Kind, Path, quote};
use crate::schema::decode::{DecodeError, complete, decode, decode_untyped, decode_value, strict_error};
use crate::schema::{Schema, builtin};
use crate::status::ApiError;

/// The name of the table of Go types, as messages have it.
pub(super) const SCHEME: &str = "\"pkg/runtime/scheme.go:111\"";

/// How Go prints the type that a body's head is read into.
pub(super) const GO_HEAD: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                       \"json:\\\"kind,omitempty\\\"\" }";

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
    /// Made from the object there is: its UID is no precondition but a field that may not change.
    pub is_patched: bool,
}

/// Reads a body sent to create or replace an object of `kind`.
pub fn read(kind: &Kind, format: Format, body: &[u8], validation: FieldValidation) -> Result<Read, ApiError> {
    let mut strict = Vec::new();
    let json = match format {
        Format::Json => Cow::Borrowed(body),
        Format::Yaml => {
            let read = read_yaml(body).map_err(|why| unrecognized(kind, &format!("yaml: {why}"), body))?;
            strict.extend(read.twice);
            Cow::Owned(read.json)
        }
    };
    check_type(kind, &json, body)?;
    let decoded = match kind.builtin_schema() {
        Some(schema) => decode(&json, schema, &kind.kind),
        None => decode_untyped(&json),
    };
    let decoded = decoded.map_err(|error| refuse(kind, &error, body))?;
    strict.extend(decoded.strict);
    let mut object = decoded.value;
    if kind.custom.is_some() {
        check_kind(kind, &object)?;
    }
    if object.is_null() {
        object = Value::Object(Map::new());
    }
    set_type(kind, &mut object);
    strict.extend(shape(kind, &mut object).map_err(|why| mishandled(kind, &why))?);
    let warnings = judge(strict, validation).map_err(|why| mishandled(kind, &why))?;
    Ok(Read { object, warnings, ..Read::default() })
}

/// Reads what a patch made of an object; faults are those of the patch. `blamed` is what messages show, the object
/// itself when None; `twice` are the fields that the patch names twice.
pub fn read_patched(
    kind: &Kind,
    tree: Value,
    blamed: Option<&str>,
    twice: &[String],
    validation: FieldValidation,
) -> Result<Read, ApiError> {
    let invalid = |why: String| {
        let shown = blamed.map_or_else(|| tree.to_string(), str::to_owned);
        let error = FieldError::invalid(&Path::root("patch"), shown, why);
        ApiError::invalid("", "", "", &[error])
    };
    if let Some(why) = foreign(kind, &tree) {
        return Err(invalid(why));
    }
    let (mut object, mut strict) = match kind.builtin_schema() {
        Some(schema) => {
            let decoded = decode_value(&tree, schema, &kind.kind).map_err(|e| invalid(e.to_string()))?;
            (decoded.value, decoded.strict)
        }
        None => (tree.clone(), Vec::new()),
    };
    strict.splice(0..0, twice.iter().cloned());
    strict.extend(shape(kind, &mut object).map_err(&invalid)?);
    let warnings = judge(strict, validation).map_err(&invalid)?;
    Ok(Read { object, warnings, is_patched: true, ..Read::default() })
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

/// Fields that a patch names more than once.
pub fn named_twice(patch: &[u8]) -> Vec<String> {
    decode_untyped(patch).map(|decoded| decoded.strict).unwrap_or_default()
}

/// A tree as Go prints it: `map[a:1 b:[x y]]`.
pub fn go_format(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_format).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, String)> = fields.iter().map(|(k, v)| (k, go_format(v))).collect();
            fields.sort();
            let fields: Vec<String> = fields.into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
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
    let pruned = crate::schema::shape::prune(object, schema, true);
    let mut unknown: Vec<String> =
        pruned.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    if let Some(metadata) = object.get_mut("metadata") {
        let read = decode_value(metadata, builtin::object_meta(), "ObjectMeta").map_err(|e| e.to_string())?;
        *metadata = read.value;
        unknown.extend(read.strict.iter().map(|fault| fault.replacen('"', "\"metadata.", 1)));
    }
    unknown.sort();
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

/// What every object says of itself.
#[derive(Default, Deserialize)]
struct Head {
    #[serde(default, rename = "apiVersion")]
    api_version: Option<Value>,
    #[serde(default)]
    kind: Option<Value>,
}

/// The body's own kind and apiVersion must be those of the path; absent ones are taken from there.
fn check_type(kind: &Kind, json: &[u8], body: &[u8]) -> Result<(), ApiError> {
    let unread = |why: String| {
        unrecognized(kind, &format!("couldn't get version/kind; json parse error: {why}"), body)
    };
    let head = match first_byte(json) {
        Some(b'{') => serde_json::from_slice(json).map_err(|_| unread(syntax_error(json)))?,
        Some(b'n') if json.trim_ascii() == b"null" => Head::default(),
        _ => {
            let tree: Value = serde_json::from_slice(json).map_err(|_| unread(syntax_error(json)))?;
            let found = type_name(&tree);
            return Err(unread(format!("json: cannot unmarshal {found} into Go value of type {GO_HEAD}")));
        }
    };
    let text = |field: Option<Value>, name: &str| match field {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let found = type_name(&other);
            Err(unread(format!("json: cannot unmarshal {found} into Go struct field .{name} of type string")))
        }
    };
    let version = text(head.api_version, "apiVersion")?;
    let found = text(head.kind, "kind")?;
    check_version(kind, &version, &found, body)
}

/// The names must lead to the kind of the path.
fn check_version(kind: &Kind, version: &str, found: &str, body: &[u8]) -> Result<(), ApiError> {
    let expected = kind.api_version();
    let (group, short) = match version {
        "" => (kind.group.as_ref(), kind.version.as_ref()),
        _ if version.matches('/').count() > 1 => {
            return Err(unrecognized(kind, &format!("unexpected GroupVersion string: {version}"), body));
        }
        _ => version.split_once('/').unwrap_or(("", version)),
    };
    if kind.custom.is_some() && found.is_empty() {
        let text = String::from_utf8_lossy(body);
        return Err(unrecognized(kind, &format!("Object 'Kind' is missing in '{text}'"), body));
    }
    let found = if found.is_empty() { kind.kind.as_ref() } else { found };
    if (group, short, found) == (&kind.group, &kind.version, &kind.kind) {
        return Ok(());
    }
    if kind.custom.is_some() {
        return match (group, short) == (&kind.group, &kind.version) {
            // Told later, among the object's other faults.
            true => Ok(()),
            false => Err(mismatch(version, &expected)),
        };
    }
    if (group, found) == (&kind.group, &kind.kind) && is_older(group, short) {
        return Err(mismatch(version, &expected));
    }
    let why = unconvertible(kind, (group, short, found));
    let version = quote(short);
    let wanted = &kind.kind;
    Err(ApiError::bad_request(format!("{found} in version {version} cannot be handled as a {wanted}: {why}")))
}

/// Why an object of that group, version and kind is none of `kind`.
fn unconvertible(kind: &Kind, (group, version, found): (&str, &str, &str)) -> String {
    match builtin::by_name(&builtin::type_name(group, version, found)) {
        Some(_) => {
            let package = kind.group.split('.').next().filter(|p| !p.is_empty()).unwrap_or("core");
            format!("converting ({version}.{found}) to ({package}.{}): unknown conversion", kind.kind)
        }
        None => {
            let full = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            format!("no kind {} is registered for version {} in scheme {SCHEME}", quote(found), quote(&full))
        }
    }
}

/// Why a patch has made something else of an object of a built-in kind.
fn foreign(kind: &Kind, tree: &Value) -> Option<String> {
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, found) = (text("apiVersion"), text("kind"));
    if kind.custom.is_some() || (version, found) == (&kind.api_version(), &kind.kind) {
        return None;
    }
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Some(unconvertible(kind, (group, version, found)))
}

/// A custom resource of another kind is an invalid one.
fn check_kind(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let found = object["kind"].as_str().unwrap_or_default();
    if found == kind.kind {
        return Ok(());
    }
    let error = FieldError::invalid(&Path::root("kind"), found, format!("must be {}", kind.kind));
    Err(ApiError::invalid(&kind.group, found, crate::kinds::meta::name(object), &[error]))
}

fn mismatch(found: &str, expected: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    ))
}

/// Versions that Kubernetes still reads but no longer serves.
fn is_older(group: &str, version: &str) -> bool {
    !group.is_empty() && (version.contains("alpha") || version.contains("beta"))
}

fn first_byte(json: &[u8]) -> Option<u8> {
    json.trim_ascii_start().first().copied()
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

/// A YAML document, and the key that stands twice in it.
struct Yaml {
    json: Vec<u8>,
    twice: Option<String>,
}

/// YAML as JSON text, so that one decoder serves both.
pub fn yaml_to_json(body: &[u8]) -> Result<Vec<u8>, String> {
    read_yaml(body).map(|yaml| yaml.json)
}

fn read_yaml(body: &[u8]) -> Result<Yaml, String> {
    let text = std::str::from_utf8(body).map_err(|_| "invalid UTF-8".to_owned())?;
    let (tree, twice) = match serde_saphyr::from_str::<Value>(text) {
        Ok(tree) => (tree, None),
        Err(error) => match error.without_snippet() {
            serde_saphyr::Error::DuplicateMappingKey { key, location } => {
                let lenient = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
                let tree = serde_saphyr::from_str_with_options(text, lenient).map_err(|e| yaml_error(&e))?;
                let key = quote(key.as_deref().unwrap_or_default());
                let line = location.line();
                (tree, Some(format!("yaml: unmarshal errors:\n  line {line}: key {key} already set in map")))
            }
            error => return Err(yaml_error(error)),
        },
    };
    Ok(Yaml { json: serde_json::to_vec(&tree).map_err(|e| e.to_string())?, twice })
}

/// What is wrong and on which line, the first one unsaid.
fn yaml_error(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = error.location().map_or(0, |location| location.line());
    let what = text.lines().next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let what = match what.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, what)) => what,
        None => what,
    };
    let what = what.split(" at line ").next().unwrap_or_default();
    if line > 1 { format!("line {line}: {what}") } else { what.to_owned() }
}

/// Text that is not quite Unicode, as Go takes it: what cannot be read becomes U+FFFD.
pub fn mend(body: Bytes) -> Bytes {
    let mended = match std::str::from_utf8(&body) {
        Ok(text) => match text.contains("\\ud") || text.contains("\\uD") {
            true => mend_surrogates(text),
            false => return body,
        },
        Err(_) => mend_surrogates(&String::from_utf8_lossy(&body)),
    };
    Bytes::from(mended)
}

/// Escaped halves of a surrogate pair without their other half.
fn mend_surrogates(text: &str) -> String {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        out.push_str(&text[at..at + found]);
        at += found;
        let taken = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push('\u{fffd}');
                at += 6;
                continue;
            }
            (Some(_), _) => 6,
            // The backslash and what it escapes.
            (None, _) => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&text[at..at + taken]);
        at += taken;
    }
    out.push_str(&text[at..]);
    out
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
    fn text_that_is_not_unicode_is_mended() {
        for (body, want) in [
            (&b"{\"a\": \"\\ud83d\\ude00\"}"[..], "{\"a\": \"\\ud83d\\ude00\"}"),
            (b"\"\\ud800\"", "\"\u{fffd}\""),
            (b"\"\\ud800\\u0041\"", "\"\u{fffd}\\u0041\""),
            (b"\"\\\\ud800\"", "\"\\\\ud800\""),
            (b"\"\xff\"", "\"\u{fffd}\""),
            (b"\\", "\\"),
        ] {
            assert_eq!(mend(Bytes::copy_from_slice(body)), want.as_bytes());
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

    /// Found by fuzzing.
    #[test]
    fn a_definition_whose_version_has_no_name_reads_the_same_again() {
        let registry = crate::kinds::Registry::builtin();
        let kind = registry.find_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
        let body = br#"{"spec": {"versions": [{"served": true, "storage": true}]}}"#;
        let first = read(kind, Format::Json, body, FieldValidation::Warn).unwrap().object;
        assert_eq!(first["status"]["storedVersions"], serde_json::json!([""]));
        let text = first.to_string();
        let again = read(kind, Format::Json, text.as_bytes(), FieldValidation::Warn).unwrap().object;
        assert_eq!(again, first);
    }

    #[test]
    fn a_body_must_be_of_the_paths_kind() {
        let kind = Kind::builtin("v1", "ConfigMap", "configmaps");
        let message =
            |body: &[u8]| read(&kind, Format::Json, body, FieldValidation::Warn).err().unwrap().message;
        assert_eq!(
            message(br#"{"apiVersion":"apps/v1","kind":"ConfigMap"}"#),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for \
             version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\""
        );
        assert!(message(br#"{"kind":"Pod"}"#).contains("cannot be handled as a ConfigMap"));
        assert!(message(b"{").starts_with("the object provided is unrecognized (must be of type ConfigMap)"));
    }
}
