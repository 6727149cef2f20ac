//! What a definition must look like, outside its schemas.

use serde_json::Value;

use super::super::admissionregistration::validate_client;
use super::super::rules::{self, Faults};
use super::super::{FieldError, Path, meta, names, quote};

const APPROVED: &str = "api-approved.kubernetes.io";
const ABOUT_APPROVAL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn definition(definition: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("spec");
    let spec = &definition["spec"];
    let mut errors = Vec::new();
    if old.is_none() {
        let wanted = format!("{}.{}", rules::text(&spec["names"]["plural"]), rules::text(&spec["group"]));
        if meta::name(definition) != wanted {
            let metadata = Path::root("metadata");
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid(&metadata.child("name"), meta::name(definition), detail));
        }
    }
    errors.extend(spec_faults(spec, &path));
    if let Some(old) = old {
        errors.extend(frozen(spec, old, &path));
    }
    errors.extend(status(definition));
    errors.extend(stored_versions(definition));
    errors.extend(approval(definition, old));
    if spec["preserveUnknownFields"] == true
        && old.is_none_or(|old| old["spec"]["preserveUnknownFields"] != true)
    {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    errors
}

pub(super) fn status(definition: &Value) -> Faults {
    let path = Path::root("status");
    name_faults(&definition["status"]["acceptedNames"], &path.child("acceptedNames"))
}

fn spec_faults(spec: &Value, path: &Path<'_>) -> Faults {
    let mut errors: Faults = group(rules::text(&spec["group"]), &path.child("group")).into_iter().collect();
    match rules::text(&spec["scope"]) {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        _ => errors.extend(rules::one_of(&spec["scope"], &["Cluster", "Namespaced"], &path.child("scope"))),
    }
    errors.extend(versions(spec, path));
    let (kind_names, names_path) = (&spec["names"], path.child("names"));
    for field in ["plural", "singular", "kind", "listKind"] {
        if rules::text(&kind_names[field]).is_empty() {
            errors.push(FieldError::required(&names_path.child(field), ""));
        }
    }
    errors.extend(name_faults(kind_names, &names_path));
    errors.extend(shared_parts(spec, path));
    errors.extend(conversion(spec, &path.child("conversion")));
    errors
}

fn group(group: &str, path: &Path<'_>) -> Option<FieldError> {
    if group.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let faults = names::is_subdomain(group);
    if !faults.is_empty() {
        return Some(FieldError::invalid(path, group, faults.join(",")));
    }
    let detail = "should be a domain with at least one dot";
    (!group.contains('.')).then(|| FieldError::invalid(path, group, detail))
}

fn versions(spec: &Value, path: &Path<'_>) -> Faults {
    let list = rules::list(&spec["versions"]);
    let at = path.child("versions");
    let mut errors = Vec::new();
    for (i, version) in list.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            let version = at.index(i);
            let schema = version.child("schema");
            errors.push(FieldError::required(&schema.child("openAPIV3Schema"), ""));
        }
    }
    for (i, version) in list.iter().enumerate() {
        let at = at.index(i);
        errors.extend(joined(names::is_label_1035, rules::text(&version["name"]), "", &at.child("name")));
        errors.extend(deprecation(version, &at.child("deprecationWarning")));
        if !all_same(list, "subresources") {
            errors.extend(subresources(&version["subresources"], &at.child("subresources")));
        }
        if !all_same(list, "additionalPrinterColumns") {
            errors.extend(columns(version, &at.child("additionalPrinterColumns")));
        }
        if !all_same(list, "selectableFields") {
            errors.extend(selectable(version, &at.child("selectableFields")));
        }
    }
    let name_of = |version: &Value| version["name"].clone();
    let is_unique = (1..list.len()).all(|i| list[..i].iter().all(|v| name_of(v) != name_of(&list[i])));
    if !is_unique {
        errors.push(rules::invalid_as(&at, &show_versions(list), "must contain unique version names"));
    }
    if list.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let shown = if spec["versions"].is_null() { "null".to_owned() } else { show_versions(list) };
        errors.push(rules::invalid_as(&at, &shown, detail));
    }
    if let Some(first) = list.first() {
        // The first version is the one the oldest clients know, as `spec.version`.
        errors.extend(joined(names::is_label_1035, rules::text(&first["name"]), "", &path.child("version")));
    }
    errors
}

/// What all versions say alike is told once, under `spec`, as the oldest clients know it.
fn all_same(versions: &[Value], field: &str) -> bool {
    let first = versions.first().map(|version| &version[field]).unwrap_or(&Value::Null);
    versions.iter().all(|version| rules::same(&version[field], first))
}

fn shared_parts(spec: &Value, path: &Path<'_>) -> Faults {
    let list = rules::list(&spec["versions"]);
    let Some(first) = list.first() else { return Vec::new() };
    let mut errors = Vec::new();
    if all_same(list, "subresources") {
        errors.extend(subresources(&first["subresources"], &path.child("subresources")));
    }
    if all_same(list, "additionalPrinterColumns") {
        errors.extend(columns(first, &path.child("additionalPrinterColumns")));
    }
    if all_same(list, "selectableFields") {
        errors.extend(selectable(first, &path.child("selectableFields")));
    }
    errors
}

/// Versions as Go prints them. Differs: parts that versions do not share are not printed.
fn show_versions(versions: &[Value]) -> String {
    let shown = versions.iter().map(|version| {
        let flag = |field: &str| version[field] == true;
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
             \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
            version["name"],
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version["deprecationWarning"],
        )
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

/// All faults of a name in one.
fn joined(rule: fn(&str) -> Vec<String>, name: &str, prefix: &str, path: &Path<'_>) -> Option<FieldError> {
    let faults = rule(name);
    (!faults.is_empty()).then(|| FieldError::invalid(path, name, format!("{prefix}{}", faults.join(","))))
}

fn deprecation(version: &Value, path: &Path<'_>) -> Faults {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let mut details = Vec::new();
    if version["deprecated"] != true {
        details.push("can only be set for deprecated versions".to_owned());
    }
    if warning.is_empty() {
        details.push("must not be an empty string".to_owned());
    }
    if warning.len() > 256 {
        details.push(format!("must be <= 256 characters, got {}", warning.len()));
    }
    if let Some((at, found)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        let code = u32::from(found);
        details.push(format!("must only contain printable UTF-8 characters; non-printable character found at index {at}: U+{code:04X}"));
    }
    details.into_iter().map(|detail| FieldError::invalid(path, warning, detail)).collect()
}

fn name_faults(found: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let mixed = "may have mixed case, but should otherwise match: ";
    for field in ["plural", "singular"] {
        let name = rules::text(&found[field]);
        if !name.is_empty() {
            errors.extend(joined(names::is_label_1035, name, "", &path.child(field)));
        }
    }
    for field in ["kind", "listKind"] {
        let name = rules::text(&found[field]);
        let lower = |name: &str| names::is_label_1035(&name.to_lowercase());
        if !name.is_empty() {
            errors.extend(joined(lower, name, mixed, &path.child(field)));
        }
    }
    let list = |field: &'static str| -> Faults {
        let at = path.child(field);
        let all = rules::list(&found[field]).iter().map(rules::text).enumerate();
        all.filter_map(|(i, name)| joined(names::is_label_1035, name, "", &at.index(i))).collect()
    };
    errors.extend(list("shortNames"));
    let (kind, list_kind) = (rules::text(&found["kind"]), rules::text(&found["listKind"]));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&path.child("listKind"), list_kind, detail));
    }
    errors.extend(list("categories"));
    errors
}

fn json_path(text: &str, path: &Path<'_>) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!text.starts_with('.')).then(|| FieldError::invalid(path, text, detail))
}

fn subresources(subresources: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let scale = &subresources["scale"];
    if scale.is_null() {
        return errors;
    }
    for (field, place, below) in [
        ("specReplicasPath", "scale.specReplicasPath", ".spec."),
        ("statusReplicasPath", "scale.statusReplicasPath", ".status."),
    ] {
        let found = rules::text(&scale[field]);
        let at = path.child(place);
        match json_path(found, &at) {
            _ if found.is_empty() => errors.push(FieldError::required(&at, "")),
            Some(fault) => errors.push(fault),
            None if !found.starts_with(below) => {
                let detail = format!("should be a json path under {}", below.trim_end_matches('.'));
                errors.push(FieldError::invalid(&at, found, detail));
            }
            None => {}
        }
    }
    let selector = rules::text(&scale["labelSelectorPath"]);
    let at = path.child("scale.labelSelectorPath");
    match json_path(selector, &at) {
        _ if selector.is_empty() => {}
        Some(fault) => errors.push(fault),
        None if ![".spec.", ".status."].iter().any(|below| selector.starts_with(below)) => {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(&at, selector, detail));
        }
        None => {}
    }
    errors
}

fn columns(version: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    for (i, column) in rules::list(&version["additionalPrinterColumns"]).iter().enumerate() {
        let at = path.index(i);
        if rules::text(&column["name"]).is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        let one_of = |list: &[&str]| format!("must be one of {}", list.join(","));
        match rules::text(&column["type"]) {
            "" => errors.push(FieldError::required(&at.child("type"), one_of(&COLUMN_TYPES))),
            kind if COLUMN_TYPES.contains(&kind) => {}
            kind => errors.push(FieldError::invalid(&at.child("type"), kind, one_of(&COLUMN_TYPES))),
        }
        let format = rules::text(&column["format"]);
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            errors.push(FieldError::invalid(&at.child("format"), format, one_of(&COLUMN_FORMATS)));
        }
        let place = at.child("JSONPath");
        match rules::text(&column["jsonPath"]) {
            "" => errors.push(FieldError::required(&place, "")),
            found => errors.extend(json_path(found, &place)),
        }
    }
    errors
}

fn selectable(version: &Value, path: &Path<'_>) -> Faults {
    let fields: Vec<&str> = rules::list(&version["selectableFields"])
        .iter()
        .map(|field| rules::text(&field["jsonPath"]))
        .collect();
    let mut errors = Vec::new();
    for (i, found) in fields.iter().enumerate() {
        let at = path.index(i);
        let at = at.child("jsonPath");
        if found.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let names: Vec<&str> = found.split('.').skip(1).collect();
        let root = &version["schema"]["openAPIV3Schema"];
        let schema = names.iter().try_fold(root, |schema, name| schema.get("properties")?.get(name));
        let Some(schema) = schema.filter(|_| found.starts_with('.') && !names.is_empty()) else {
            if names.first() != Some(&"metadata") {
                let detail = "is an invalid path: does not refer to a valid field";
                errors.push(FieldError::invalid(&at, *found, detail));
            } else {
                let detail = "must not point to fields in metadata";
                errors.push(FieldError::invalid(&at, *found, detail));
            }
            continue;
        };
        if !["string", "boolean", "integer"].contains(&rules::text(&schema["type"])) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(&at, *found, detail));
        }
        if fields[..i].contains(found) {
            errors.push(FieldError::duplicate(&at, *found));
        }
    }
    errors
}

fn conversion(spec: &Value, path: &Path<'_>) -> Faults {
    let conversion = &spec["conversion"];
    let (config, versions) =
        (&conversion["webhook"]["clientConfig"], &conversion["webhook"]["conversionReviewVersions"]);
    let (config_path, versions_path) =
        (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let mut errors = Vec::new();
    match rules::text(&conversion["strategy"]) {
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        "Webhook" => {
            match config.is_null() {
                true => {
                    let detail = "required when strategy is set to Webhook";
                    errors.push(FieldError::required(&config_path, detail));
                }
                false => errors.extend(validate_client(config, &config_path)),
            }
            errors.extend(review_versions(versions, &versions_path));
            if errors.is_empty() && rules::list(&spec["versions"]).len() > 1 {
                // Differs: nothing here calls such a webhook; objects would be shown wrongly.
                let detail = "conversion webhooks are not called by this server";
                errors.push(FieldError::forbidden(&path.child("strategy"), detail));
            }
            return errors;
        }
        _ => {
            let at = path.child("strategy");
            errors.extend(rules::one_of(&conversion["strategy"], &["None", "Webhook"], &at));
        }
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if rules::is_set(config) {
        errors.push(FieldError::forbidden(&config_path, detail));
    }
    if !rules::list(versions).is_empty() {
        errors.push(FieldError::forbidden(&versions_path, detail));
    }
    errors
}

fn review_versions(versions: &Value, path: &Path<'_>) -> Faults {
    let list: Vec<&str> = rules::list(versions).iter().map(rules::text).collect();
    if list.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    for (i, version) in list.iter().enumerate() {
        if list[..i].contains(version) {
            errors.push(FieldError::invalid(&path.index(i), *version, "duplicate version"));
            continue;
        }
        errors.extend(rules::faults(names::is_label_1035(version), version, &path.index(i)));
    }
    if !list.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.clone(), detail));
    }
    errors
}

fn frozen(spec: &Value, old: &Value, path: &Path<'_>) -> Faults {
    let names_path = path.child("names");
    let mut errors = Vec::new();
    let old_spec = &old["spec"];
    let kind = |spec: &Value| spec["names"]["kind"].clone();
    if rules::has_condition(old, "Established") {
        errors.extend(rules::immutable(&spec["scope"], &old_spec["scope"], &path.child("scope")));
        errors.extend(rules::immutable(&kind(spec), &kind(old_spec), &names_path.child("kind")));
    }
    errors.extend(rules::immutable(&spec["group"], &old_spec["group"], &path.child("group")));
    let plural = |spec: &Value| spec["names"]["plural"].clone();
    errors.extend(rules::immutable(&plural(spec), &plural(old_spec), &names_path.child("plural")));
    errors
}

fn stored_versions(definition: &Value) -> Faults {
    let status = Path::root("status");
    let path = status.child("storedVersions");
    let stored = rules::list(&definition["status"]["storedVersions"]);
    if stored.is_empty() {
        return vec![FieldError::invalid(&path, Value::Null, "must have at least one stored version")];
    }
    let versions = rules::list(&definition["spec"]["versions"]);
    let mut errors = Vec::new();
    for version in versions.iter().filter(|version| version["storage"] == true) {
        if !stored.contains(&version["name"]) {
            let detail = format!("must have the storage version {}", rules::text(&version["name"]));
            errors.push(FieldError::invalid(&path, stored.to_vec(), detail));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if versions.iter().any(|version| &version["name"] == name) {
            continue;
        }
        let name = rules::text(name);
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(&path.index(i), name, detail));
    }
    errors
}

/// Groups of the Kubernetes community ask for a sign that the community knows.
fn approval(definition: &Value, old: Option<&Value>) -> Option<FieldError> {
    let group = rules::text(&definition["spec"]["group"]);
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !is_protected {
        return None;
    }
    #[derive(PartialEq)]
    enum Approval {
        Missing,
        Given,
        Wrong,
    }
    let state = |definition: &Value| {
        let text = rules::text(&definition["metadata"]["annotations"][APPROVED]).to_owned();
        let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && rest.split('/').next().is_some_and(|host| !host.is_empty())
        });
        let approval = match text.as_str() {
            "" => Approval::Missing,
            text if text.starts_with("unapproved") || is_url => Approval::Given,
            _ => Approval::Wrong,
        };
        (approval, text)
    };
    let (approval, text) = state(definition);
    if old.is_some_and(|old| state(old).0 == approval) {
        return None;
    }
    let metadata = Path::root("metadata");
    let annotations = metadata.child("annotations");
    let path = annotations.key(APPROVED);
    let name = quote(APPROVED);
    match approval {
        Approval::Given => None,
        Approval::Missing => Some(FieldError::required(
            &path,
            format!("protected groups must have approval annotation {name}, {ABOUT_APPROVAL}"),
        )),
        Approval::Wrong => Some(FieldError::invalid(
            &path,
            text,
            format!(
                "protected groups must have approval annotation {name} with either a URL or a reason starting with \
                 \"unapproved\", {ABOUT_APPROVAL}"
            ),
        )),
    }
}
