//! ConfigMaps and Secrets.

use base64::Engine;
use jiff::Timestamp;
use serde_json::Value;

use super::super::cell::{age, name};
use super::super::check::{Faults, IMMUTABLE, config_key, is_same, rule};
use super::super::tree::{entries, fill, flag, has, map_mut, remove, text, text_entries};
use super::super::{FieldError, Hooks, Kind, Path};
use super::columns;

/// All data of one object together.
const DATA_MAX_BYTES: usize = 1024 * 1024;
const WHEN_IMMUTABLE: &str = "field is immutable when `immutable` is set";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub(super) fn config_map() -> Kind {
    Kind::builtin("v1", "ConfigMap", "configmaps").short(&["cm"]).columns(columns::configmaps()).hooks(
        Hooks {
            validate: validate_config_map,
            row: |map, now| vec![name(map), count(map, &["data", "binaryData"]), age(map, now)],
            ..Hooks::default()
        },
    )
}

pub(super) fn secret() -> Kind {
    Kind::builtin("v1", "Secret", "secrets").columns(columns::secrets()).hooks(Hooks {
        default: default_secret,
        prepare_update: |secret, old| {
            if text(secret, "type").is_empty() {
                secret["type"] = old["type"].clone();
            }
        },
        validate: validate_secret,
        fields: |secret| vec![("type", text(secret, "type").to_owned())],
        field_names: &["type"],
        row: |secret, now: Timestamp| {
            vec![name(secret), text(secret, "type").into(), count(secret, &["data"]), age(secret, now)]
        },
        ..Hooks::default()
    })
}

fn count(object: &Value, fields: &[&str]) -> Value {
    fields.iter().map(|field| entries(object, field).count()).sum::<usize>().into()
}

/// Plain texts become data, and are not kept.
fn default_secret(secret: &mut Value) {
    fill(secret, "type", "Opaque");
    let Some(plain) = remove(secret, "stringData") else { return };
    let Some(plain) = plain.as_object().filter(|p| !p.is_empty()) else { return };
    let Some(data) = map_mut(secret, "data") else { return };
    for (key, value) in plain {
        let value = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key.clone(), value.into());
    }
}

/// Bytes of a base64 text, once decoded.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn validate_config_map(map: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    if let Some(old) = old {
        immutable(map, old, &["data", "binaryData"], &mut out);
    }
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    let mut bytes = 0;
    for (key, value) in text_entries(map, "data") {
        rule(config_key(key), key, &data.key(key), &mut out);
        if has(&map["binaryData"], key) {
            let detail = "duplicate of key present in binaryData";
            out.push(FieldError::invalid(&data.key(key), key, detail));
        }
        bytes += value.len();
    }
    for (key, value) in text_entries(map, "binaryData") {
        rule(config_key(key), key, &binary.key(key), &mut out);
        bytes += decoded_len(value);
    }
    if bytes > DATA_MAX_BYTES {
        // Kubernetes names no field here, and prints that as an empty list.
        out.push(FieldError::too_long("[]", 1024 * 1024));
    }
    out
}

fn immutable(new: &Value, old: &Value, fields: &[&str], out: &mut Faults) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        out.push(FieldError::forbidden("immutable", WHEN_IMMUTABLE));
    }
    for field in fields {
        if !is_same(new.get(field), old.get(field)) {
            out.push(FieldError::forbidden(*field, WHEN_IMMUTABLE));
        }
    }
}

fn validate_secret(secret: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut out = Faults::new();
    if let Some(old) = old {
        let kind = text(secret, "type");
        if kind != text(old, "type") {
            out.push(FieldError::invalid("type", kind, IMMUTABLE));
        }
        immutable(secret, old, &["data"], &mut out);
    }
    let data = Path::root("data");
    let mut bytes = 0;
    for (key, value) in text_entries(secret, "data") {
        rule(config_key(key), key, &data.key(key), &mut out);
        bytes += decoded_len(value);
    }
    if bytes > DATA_MAX_BYTES {
        out.push(FieldError::too_long(&data, 1024 * 1024));
    }
    secret_type(secret, &data, &mut out);
    out
}

/// What each type of secret must hold.
fn secret_type(secret: &Value, data: &Path<'_>, out: &mut Faults) {
    let mut need = |key: &str| out.push(FieldError::required(&data.key(key), ""));
    let has_key = |key: &str| has(&secret["data"], key);
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let named = text_entries(&secret["metadata"], "annotations")
                .any(|(key, value)| key == ACCOUNT_NAME && !value.is_empty());
            if !named {
                let metadata = Path::root("metadata");
                out.push(FieldError::required(&metadata.child("annotations").key(ACCOUNT_NAME), ""));
            }
        }
        "kubernetes.io/dockercfg" => docker(secret, ".dockercfg", data, out),
        "kubernetes.io/dockerconfigjson" => docker(secret, ".dockerconfigjson", data, out),
        "kubernetes.io/basic-auth" if !has_key("username") && !has_key("password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if text(&secret["data"], "ssh-privatekey").is_empty() => {
            need("ssh-privatekey")
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter(|key| !has_key(key)).for_each(need),
        _ => {}
    }
}

fn docker(secret: &Value, key: &str, data: &Path<'_>, out: &mut Faults) {
    let Some(value) = secret["data"].get(key).and_then(Value::as_str) else {
        return out.push(FieldError::required(&data.key(key), ""));
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    let fault = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", noun(&other))
        }
        Err(_) => koord_api::gojson::syntax_error(&bytes),
    };
    out.push(FieldError::invalid(&data.key(key), "<secret contents redacted>", fault));
}

/// What Go calls a JSON value.
fn noun(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    }
}
