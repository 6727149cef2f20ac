//! Object metadata, alike for all kinds: what the server fills, keeps and refuses.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{FieldError, Kind, Path, names};

/// All annotations of an object together, keys and values.
const ANNOTATIONS_MAX_BYTES: i64 = 256 * 1024;
/// A generated name is cut to leave room for five random characters.
const GENERATED_BASE_MAX: usize = 58;
const GENERATED_CHARS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const FIELD_MANAGER_MAX: i64 = 128;

const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", FINALIZER_ORPHAN, FINALIZER_FOREGROUND];

pub const FINALIZER_ORPHAN: &str = "orphan";
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// `metadata`, when it is an object.
pub fn of(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// A text field of metadata; empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    of(object).and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
}

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub fn generation(object: &Value) -> i64 {
    of(object).and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0)
}

pub fn is_deleting(object: &Value) -> bool {
    of(object).is_some_and(|m| m.get("deletionTimestamp").is_some_and(|v| !v.is_null()))
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = of(object).and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// `metadata`, made an object where it is not one yet.
pub fn of_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let fields = object.as_object_mut().expect("made an object above");
    let meta = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    meta.as_object_mut().expect("made an object above")
}

/// Sets a field, or removes it when the value is None.
pub fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let meta = of_mut(object);
    match value {
        Some(value) => meta.insert(field.to_owned(), value),
        None => meta.remove(field),
    };
}

/// A time as metadata writes it: whole seconds, UTC.
pub fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time since, as tables show it: `5s`, `2m3s`, `47m`, `3h20m`, `2d4h`, `30d`.
pub fn format_age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// The age of an object, as tables show it.
pub fn age(object: &Value, now: Timestamp) -> String {
    match text(object, "creationTimestamp").parse() {
        Ok(then) => format_age(now, then),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// The name for `generateName`, from `random`, any 64 bits.
pub fn generate_name(base: &str, random: u64) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = base[..end].to_owned();
    let mut rest = random;
    let count = GENERATED_CHARS.len() as u64;
    for _ in 0..5 {
        let at = usize::try_from(rest % count).expect("less than 27");
        out.push(char::from(GENERATED_CHARS[at]));
        rest /= count;
    }
    out
}

/// What the server fills in a new object: identity, birth, generation; what it does not let in.
pub fn fill_created(object: &mut Value, kind: &Kind, uid: String, now: Timestamp) {
    let has_generation = kind.has_generation;
    let meta = of_mut(object);
    for absent in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        meta.remove(absent);
    }
    meta.insert("uid".to_owned(), Value::from(uid));
    meta.insert("creationTimestamp".to_owned(), Value::from(format_time(now)));
    if has_generation {
        meta.insert("generation".to_owned(), Value::from(1));
    }
}

/// What an update cannot change, put back; what it may leave out, filled in.
pub fn carry_over(object: &mut Value, old: &Value) {
    let old_meta = of(old);
    let keep = |field: &str| old_meta.and_then(|m| m.get(field)).filter(|v| !v.is_null()).cloned();
    set(object, "generation", keep("generation"));
    set(object, "selfLink", None);
    if uid(object).is_empty() {
        set(object, "uid", keep("uid"));
    }
    for always in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = keep(always) {
            set(object, always, Some(value));
        }
    }
    if of_mut(object).get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        set(object, "deletionGracePeriodSeconds", keep("deletionGracePeriodSeconds"));
    }
}

/// Counts a change of anything but metadata and status.
pub fn bump_generation(object: &mut Value, old: &Value) {
    if differs_outside_status(object, old) {
        set(object, "generation", Some(Value::from(generation(old) + 1)));
    }
}

/// Whether anything but metadata and status differs; empty and absent are alike.
pub fn differs_outside_status(object: &Value, old: &Value) -> bool {
    let part = |v: &Value| -> Vec<(String, Value)> {
        let Some(fields) = v.as_object() else { return Vec::new() };
        let skip = ["metadata", "status", "apiVersion", "kind"];
        let kept = fields.iter().filter(|(k, v)| !skip.contains(&k.as_str()) && !v.is_null());
        kept.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    // Compared by reference in the common case that both have the same top-level fields.
    match (object.as_object(), old.as_object()) {
        (Some(a), Some(b)) if a.len() == b.len() && a.keys().eq(b.keys()) => a
            .iter()
            .filter(|(k, _)| !["metadata", "status", "apiVersion", "kind"].contains(&k.as_str()))
            .any(|(k, v)| b.get(k) != Some(v)),
        _ => part(object) != part(old),
    }
}

/// Metadata a status update may not touch, for the kinds that forbid it (CRDs among them).
pub fn reset_for_status(object: &mut Value, old: &Value) {
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        let kept = of(old).and_then(|m| m.get(field)).cloned();
        set(object, field, kept);
    }
}

/// The faults of a new object's metadata.
pub fn validate_created(object: &Value, kind: &Kind) -> Vec<FieldError> {
    let mut errors = validate_name(object, kind.hooks.name);
    errors.extend(validate_common(object, kind));
    errors
}

/// The faults of an updated object's metadata.
pub fn validate_updated(object: &Value, old: &Value, kind: &Kind) -> Vec<FieldError> {
    let root = Path::root("metadata");
    let mut errors = validate_name(object, names::path_segment);
    errors.extend(validate_common(object, kind));
    if is_deleting(old) {
        let known = finalizers(old);
        let mut extra: Vec<&str> = finalizers(object).into_iter().filter(|f| !known.contains(f)).collect();
        extra.sort_unstable();
        extra.dedup();
        if !extra.is_empty() {
            let list: Vec<String> = extra.iter().map(|f| super::quote(f)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden(&root.child("finalizers"), detail));
        }
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let get = |v| of(v).and_then(|m: &Map<String, Value>| m.get(field)).filter(|v| !v.is_null());
        if get(object) != get(old) {
            let value = get(object).cloned().unwrap_or(match field.ends_with("Seconds") {
                true => Value::Null,
                false => Value::from(""),
            });
            errors.push(FieldError::invalid(&root.child(field), value, "field is immutable"));
        }
    }
    errors
}

fn validate_name(object: &Value, rule: super::NameRule) -> Vec<FieldError> {
    let root = Path::root("metadata");
    let mut errors = Vec::new();
    let base = text(object, "generateName");
    if !base.is_empty() {
        let path = root.child("generateName");
        errors.extend(rule(base, true).into_iter().map(|f| FieldError::invalid(&path, base, f)));
    }
    let name = name(object);
    let path = root.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&path, "name or generateName is required"));
    } else {
        errors.extend(rule(name, false).into_iter().map(|f| FieldError::invalid(&path, name, f)));
    }
    errors
}

fn validate_common(object: &Value, kind: &Kind) -> Vec<FieldError> {
    let root = Path::root("metadata");
    let mut errors = Vec::new();
    let namespace = namespace(object);
    let path = root.child("namespace");
    match (kind.namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&path, "")),
        (true, false) => {
            let faults = names::label(namespace, false).into_iter();
            errors.extend(faults.map(|f| FieldError::invalid(&path, namespace, f)));
        }
        (false, true) => {}
        (false, false) => errors.push(FieldError::forbidden(&path, "not allowed on this type")),
    }
    errors.extend(validate_labels(of(object).and_then(|m| m.get("labels")), &root.child("labels")));
    errors.extend(validate_annotations(object, &root.child("annotations")));
    errors.extend(validate_owners(object, &root.child("ownerReferences")));
    errors.extend(validate_finalizers(object, kind.custom.is_none(), &root.child("finalizers")));
    errors.extend(validate_managed_fields(object, &root.child("managedFields")));
    errors
}

/// Faults of a label map (also of pod templates and selectors).
pub fn validate_labels(labels: Option<&Value>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let faults = names::is_qualified_name(key).into_iter();
        errors.extend(faults.map(|f| FieldError::invalid(path, key.as_str(), f)));
        let value = value.as_str().unwrap_or("");
        let faults = names::is_label_value(value).into_iter();
        errors.extend(faults.map(|f| FieldError::invalid(path, value, f)));
    }
    errors
}

/// Faults of the annotations of an object or template.
pub fn validate_annotations(object: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut bytes = 0i64;
    let annotations = of(object).and_then(|m| m.get("annotations")).and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        bytes += length(key) + value.as_str().map_or(0, length);
        let faults = names::is_qualified_name(&key.to_lowercase()).into_iter();
        errors.extend(faults.map(|f| FieldError::invalid(path, key.as_str(), f)));
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
    errors
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn validate_owners(object: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    let owners = of(object).and_then(|m| m.get("ownerReferences"));
    for owner in owners.and_then(Value::as_array).into_iter().flatten() {
        let get = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or("");
        let api_version = get("apiVersion");
        if api_version.rsplit('/').next().is_none_or(str::is_empty) {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, detail));
        }
        for field in ["kind", "name", "uid"] {
            if get(field).is_empty() {
                errors.push(FieldError::invalid(&path.child(field), "", "must not be empty"));
            }
        }
        if api_version == "v1" && get("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner.clone(), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", get("kind"), get("name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let all = owners.cloned().unwrap_or(Value::Null);
                    errors.push(FieldError::invalid(path, all, detail));
                }
            }
        }
    }
    errors
}

fn validate_finalizers(object: &Value, is_builtin: bool, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = finalizers(object);
    for finalizer in &list {
        let faults = names::is_qualified_name(finalizer).into_iter();
        errors.extend(faults.map(|f| FieldError::invalid(path, *finalizer, f)));
    }
    // Kinds of Kubernetes itself want a domain in front of names that are not its own.
    for (index, finalizer) in list.iter().enumerate().filter(|_| is_builtin) {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path.index(index), *finalizer, detail));
        }
    }
    if list.contains(&FINALIZER_ORPHAN) && list.contains(&FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        let list: Vec<Value> = list.into_iter().map(Value::from).collect();
        errors.push(FieldError::invalid(path, list, detail));
    }
    errors
}

fn validate_managed_fields(object: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let entries = of(object).and_then(|m| m.get("managedFields")).and_then(Value::as_array);
    for (i, entry) in entries.into_iter().flatten().enumerate() {
        let at = path.index(i);
        let get = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or("");
        if !["Apply", "Update"].contains(&get("operation")) {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(&at.child("operation"), get("operation"), detail));
        }
        if !["", "FieldsV1"].contains(&get("fieldsType")) {
            let detail = "must be `FieldsV1`";
            errors.push(FieldError::invalid(&at.child("fieldsType"), get("fieldsType"), detail));
        }
        errors.extend(validate_field_manager(get("manager"), &at.child("manager")));
    }
    errors
}

/// The rule for `fieldManager`, in options and in managed fields.
pub fn validate_field_manager(manager: &str, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if length(manager) > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (i, c) in manager.char_indices() {
        if c.is_control() {
            let detail = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
            errors.push(FieldError::invalid(path, manager, detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_faults_in_kubernetes_words() {
        let kind = Kind::builtin("v1", "ConfigMap", "configmaps");
        for (meta, want) in [
            (json!({"name": "a", "namespace": "d"}), vec![]),
            (
                json!({"namespace": "d"}),
                vec!["metadata.name: Required value: name or generateName is required"],
            ),
            (json!({"name": "a"}), vec!["metadata.namespace: Required value"]),
            (
                json!({"name": "a", "namespace": "d", "labels": {"a/b/c": "x"}}),
                vec![
                    "metadata.labels: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                ],
            ),
            (
                json!({"name": "a", "namespace": "d", "finalizers": ["orphan", "foregroundDeletion"]}),
                vec![
                    "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
                ],
            ),
            (
                json!({"name": "a", "namespace": "d", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                vec!["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
            ),
        ] {
            let object = json!({"metadata": meta});
            let got: Vec<String> = validate_created(&object, &kind).iter().map(ToString::to_string).collect();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn an_update_keeps_identity_and_counts_changes() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3,
            "creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-02T00:00:00Z"},
            "spec": {"x": 1}, "status": {"y": 1}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9}, "spec": {"x": 2}});
        carry_over(&mut new, &old);
        bump_generation(&mut new, &old);
        assert_eq!(
            new["metadata"],
            json!({"name": "a", "uid": "u", "generation": 4,
                "creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-02T00:00:00Z"})
        );
        let mut same = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 2}});
        carry_over(&mut same, &old);
        bump_generation(&mut same, &old);
        assert_eq!(generation(&same), 3);
    }

    #[test]
    fn an_update_cannot_change_identity_or_add_finalizers_while_deleting() {
        let kind = Kind::builtin("v1", "ConfigMap", "configmaps");
        let old = json!({"metadata": {"name": "a", "namespace": "d", "uid": "u",
            "deletionTimestamp": "2024-01-02T00:00:00Z", "finalizers": ["x.io/a"]}});
        let mut new = old.clone();
        new["metadata"]["uid"] = json!("other");
        new["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
        let got: Vec<String> = validate_updated(&new, &old, &kind).iter().map(ToString::to_string).collect();
        assert_eq!(
            got,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/b\"}",
                "metadata.uid: Invalid value: \"other\": field is immutable",
            ]
        );
    }

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, want) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600 + 61, "8h"),
            (48 * 3600, "2d"),
            (51 * 3600, "2d3h"),
            (8 * 86400, "8d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (3000 * 86400, "8y"),
        ] {
            let then = Timestamp::from_second(1_700_000_000).unwrap();
            let now = Timestamp::from_second(1_700_000_000 + seconds).unwrap();
            assert_eq!(format_age(now, then), want, "{seconds}");
        }
    }

    #[test]
    fn generated_names_are_cut_and_random() {
        assert_eq!(generate_name("web-", 0), "web-bbbbb");
        assert_eq!(generate_name(&"a".repeat(80), 5).len(), 63);
        assert_ne!(generate_name("a", 1), generate_name("a", 2));
    }
}
