//! What a webhook configuration must look like.

use serde_json::Value;

use super::super::rules::{self, Faults};
use super::super::{FieldError, Path, names};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const MATCH_CONDITIONS_MAX: i64 = 64;
const URL_FORM: &str = "; desired format: https://host[/path]";

pub(super) fn configuration(configuration: &Value, old: Option<&Value>) -> Faults {
    let path = Path::root("webhooks");
    let hooks = rules::list(&configuration["webhooks"]);
    let before = old.map(|old| rules::list(&old["webhooks"]).to_vec()).unwrap_or_default();
    let was_unique = before
        .iter()
        .enumerate()
        .all(|(i, hook)| before[..i].iter().all(|other| other["name"] != hook["name"]));
    let mut errors = Vec::new();
    for (i, found) in hooks.iter().enumerate() {
        let at = path.index(i);
        errors.extend(hook(found, &before, &at));
        let versions = &found["admissionReviewVersions"];
        errors.extend(review_versions(versions, &before, &at.child("admissionReviewVersions")));
        let name = rules::text(&found["name"]);
        let is_repeated = hooks[..i].iter().any(|other| other["name"] == name);
        if was_unique && !name.is_empty() && is_repeated {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
    }
    errors
}

fn hook(hook: &Value, before: &[Value], path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    errors.extend(rules::fully_qualified_name(rules::text(&hook["name"]), &path.child("name")));
    let rules = path.child("rules");
    for (i, found) in rules::list(&hook["rules"]).iter().enumerate() {
        errors.extend(rule(found, &rules.index(i)));
    }
    let failure = ["Fail", "Ignore"];
    errors.extend(rules::one_of(&hook["failurePolicy"], &failure, &path.child("failurePolicy")));
    let matching = ["Equivalent", "Exact"];
    errors.extend(rules::one_of(&hook["matchPolicy"], &matching, &path.child("matchPolicy")));
    errors.extend(side_effects(&hook["sideEffects"], before, &path.child("sideEffects")));
    let timeout = hook["timeoutSeconds"].as_i64();
    if let Some(seconds) = timeout.filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, detail));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let may_keep = before.iter().any(|hook| rules::has_bad_values(&hook[field]));
        errors.extend(rules::label_selector_with(&hook[field], may_keep, &path.child(field)));
    }
    let again = &hook["reinvocationPolicy"];
    if rules::is_set(again) {
        errors.extend(rules::one_of(again, &["IfNeeded", "Never"], &path.child("reinvocationPolicy")));
    }
    errors.extend(client(&hook["clientConfig"], &path.child("clientConfig")));
    errors.extend(match_conditions(&hook["matchConditions"], &path.child("matchConditions")));
    errors
}

/// Webhooks that ran before this rule may keep what they say.
fn side_effects(value: &Value, before: &[Value], path: &Path<'_>) -> Option<FieldError> {
    let had_others = before.iter().any(|hook| !SIDE_EFFECTS.contains(&rules::text(&hook["sideEffects"])));
    let all = ["None", "NoneOnDryRun", "Some", "Unknown"];
    let allowed: &[&str] = if had_others { &all } else { &SIDE_EFFECTS };
    match value.is_null() {
        true => Some(FieldError::required(path, format!("must specify one of {}", allowed.join(", ")))),
        false => rules::one_of(value, allowed, path),
    }
}

pub(in super::super) fn client(config: &Value, path: &Path<'_>) -> Faults {
    let (address, service) = (&config["url"], &config["service"]);
    match (address.as_str(), service.is_null()) {
        (Some(address), true) => url(address, &path.child("url")),
        (None, false) => service_faults(service, &path.child("service")),
        _ => vec![FieldError::required(path, "exactly one of url or service is required")],
    }
}

/// Differs: of the ways a URL can be malformed, those of its scheme, host and escapes are told.
fn url(text: &str, path: &Path<'_>) -> Faults {
    let bad = |why: String| {
        vec![FieldError::required(
            path,
            format!("url must be a valid URL: parse {}: {why}{URL_FORM}", quoted(text)),
        )]
    };
    if let Some(escape) = bad_escape(text) {
        return bad(format!("invalid URL escape {}", quoted(escape)));
    }
    if text.starts_with(':') {
        return bad("missing protocol scheme".to_owned());
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
    if let Some(port) = port.filter(|port| !port.bytes().all(|b| b.is_ascii_digit())) {
        return bad(format!("invalid port {} after host", quoted(&format!(":{port}"))));
    }
    let mut errors = Vec::new();
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.push(FieldError::invalid(path, scheme, detail));
    }
    if host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{URL_FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
    errors
}

fn quoted(text: &str) -> String {
    super::super::quote(text)
}

/// A percent sign that two hexadecimal digits do not follow.
fn bad_escape(text: &str) -> Option<&str> {
    text.match_indices('%').find_map(|(at, _)| {
        let escape = text.get(at..text.len().min(at + 3)).unwrap_or(&text[at..]);
        let digits = escape.bytes().skip(1).filter(u8::is_ascii_hexdigit).count();
        (digits != 2).then_some(escape)
    })
}

fn service_faults(service: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        // Kubernetes takes the two for each other here; as each is only asked to be there, the
        // places in the messages are swapped and nothing else.
        if rules::text(&service[field]).is_empty() {
            errors.push(FieldError::required(&path.child(shown), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(0);
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    if let Some(found) = service["path"].as_str() {
        errors.extend(url_path(found, &path.child("path")));
    }
    errors
}

fn url_path(found: &str, path: &Path<'_>) -> Faults {
    match found {
        "" | "/" => return Vec::new(),
        "//" => return vec![FieldError::invalid(path, found, "segment[0] may not be empty")],
        _ => {}
    }
    let mut errors = Vec::new();
    if !found.starts_with('/') {
        errors.push(FieldError::invalid(path, found, "must start with a '/'"));
    }
    let mut rest = found.chars();
    rest.next();
    let rest = rest.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (i, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            errors.push(FieldError::invalid(path, found, format!("segment[{i}] may not be empty")));
            continue;
        }
        let faults = names::is_subdomain(step).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid(path, found, format!("segment[{i}]: {fault}"))));
    }
    errors
}

fn match_conditions(conditions: &Value, path: &Path<'_>) -> Faults {
    let conditions = rules::list(conditions);
    let mut errors = Vec::new();
    let count = i64::try_from(conditions.len()).unwrap_or(i64::MAX);
    if count > MATCH_CONDITIONS_MAX {
        errors.push(FieldError::too_many(path, count, MATCH_CONDITIONS_MAX));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let at = path.index(i);
        if rules::text(&condition["expression"]).trim().is_empty() {
            errors.push(FieldError::required(&at.child("expression"), ""));
        }
        let name = rules::text(&condition["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
            continue;
        }
        errors.extend(rules::faults(names::is_qualified_name(name), name, &at.child("name")));
        if conditions[..i].iter().any(|other| other["name"] == name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
    }
    errors
}

fn review_versions(versions: &Value, before: &[Value], path: &Path<'_>) -> Faults {
    let list: Vec<&str> = rules::list(versions).iter().map(rules::text).collect();
    if list.is_empty() {
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        return vec![FieldError::required(path, detail)];
    }
    let mut errors = Vec::new();
    for (i, version) in list.iter().enumerate() {
        if list[..i].contains(version) {
            errors.push(FieldError::invalid(&path.index(i), *version, "duplicate version"));
            continue;
        }
        errors.extend(rules::faults(names::is_label_1035(version), version, &path.index(i)));
    }
    let knows = |list: &[&str]| list.iter().any(|version| REVIEW_VERSIONS.contains(version));
    let had_unknown = before.iter().any(|hook| {
        let list: Vec<&str> = rules::list(&hook["admissionReviewVersions"]).iter().map(rules::text).collect();
        !list.is_empty() && !knows(&list)
    });
    if !had_unknown && !knows(&list) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.clone(), detail));
    }
    errors
}

fn rule(rule: &Value, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let operations = path.child("operations");
    errors.extend(wildcard_list(&rule["operations"], "operations", &operations));
    for (i, operation) in rules::list(&rule["operations"]).iter().enumerate() {
        errors.extend(rules::one_of(operation, &OPERATIONS, &operations.index(i)));
    }
    errors.extend(wildcard_list(&rule["apiGroups"], "API groups", &path.child("apiGroups")));
    let versions = path.child("apiVersions");
    errors.extend(wildcard_list(&rule["apiVersions"], "API versions", &versions));
    for (i, version) in rules::list(&rule["apiVersions"]).iter().enumerate() {
        if rules::text(version).is_empty() {
            errors.push(FieldError::required(&versions.index(i), ""));
        }
    }
    errors.extend(resources(&rule["resources"], &path.child("resources")));
    if rules::is_set(&rule["scope"]) {
        errors.extend(rules::one_of(&rule["scope"], &["*", "Cluster", "Namespaced"], &path.child("scope")));
    }
    errors
}

/// A list that is not empty and where `*` stands alone.
fn wildcard_list(values: &Value, what: &str, path: &Path<'_>) -> Option<FieldError> {
    let list = rules::list(values);
    if list.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let detail = format!("if '*' is present, must not specify other {what}");
    let is_mixed = list.len() > 1 && list.iter().any(|value| value == "*");
    is_mixed.then(|| FieldError::invalid(path, values.clone(), detail))
}

fn resources(values: &Value, path: &Path<'_>) -> Faults {
    let list: Vec<&str> = rules::list(values).iter().map(rules::text).collect();
    let mut errors = Vec::new();
    if list.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut all_of, mut in_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut has_plain = false;
    for (i, found) in list.iter().enumerate() {
        let at = path.index(i);
        if found.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let Some((resource, part)) = found.split_once('/') else {
            has_plain = *found != "*";
            continue;
        };
        if all_of.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {found}");
            errors.push(FieldError::invalid(&at, *found, detail));
        }
        if in_all.contains(&part) {
            let detail = format!("if '*/{part}' is present, must not specify {found}");
            errors.push(FieldError::invalid(&at, *found, detail));
        }
        if part == "*" {
            all_of.push(resource);
        }
        if resource == "*" {
            in_all.push(part);
        }
    }
    if list.len() > 1 && list.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, values.clone(), detail));
    }
    if list.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, values.clone(), detail));
    }
    errors
}
