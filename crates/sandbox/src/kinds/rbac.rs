//! The rbac.authorization.k8s.io group. Only data here: everyone who is let in may do everything.

use jiff::Timestamp;
use serde_json::Value;

use super::rules::{self, Faults};
use super::{Column, FieldError, Hooks, Kind, Path, cell, internal, names};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |kind, plural, hooks: Hooks| {
        let mut kind = Kind::builtin("rbac.authorization.k8s.io/v1", kind, plural).hooks(hooks);
        kind.create_on_update = true;
        kind
    };
    let hooks = Hooks { name: names::path_segment, ..Hooks::default() };
    let binding = Hooks { default: default_binding, row: binding_row, ..hooks };
    vec![
        kind(
            "ClusterRoleBinding",
            "clusterrolebindings",
            Hooks { validate: |new, old| validate_binding(new, old, &["ClusterRole"]), ..binding },
        )
        .cluster_scoped()
        .columns(binding_columns(CLUSTER_ROLE_REF, CLUSTER_SUBJECTS)),
        kind("ClusterRole", "clusterroles", Hooks { validate: validate_cluster_role, ..hooks })
            .cluster_scoped(),
        kind(
            "RoleBinding",
            "rolebindings",
            Hooks { validate: |new, old| validate_binding(new, old, &["Role", "ClusterRole"]), ..binding },
        )
        .columns(binding_columns(ROLE_REF, SUBJECTS)),
        kind("Role", "roles", Hooks { validate: |role, _| policy_rules(role, true), ..hooks }),
    ]
}

fn default_binding(binding: &mut Value) {
    rules::default_text(&mut binding["roleRef"], "apiGroup", GROUP);
    for subject in rules::each(binding, "subjects") {
        if ["User", "Group"].contains(&rules::text(&subject["kind"])) {
            rules::default_text(subject, "apiGroup", GROUP);
        }
    }
}

fn policy_rules(role: &Value, is_namespaced: bool) -> Faults {
    let path = Path::root("rules");
    let rules = rules::list(&role["rules"]).iter().enumerate();
    rules.flat_map(|(i, found)| rule(found, is_namespaced, &path.index(i))).collect()
}

fn rule(rule: &Value, is_namespaced: bool, path: &Path<'_>) -> Faults {
    let is_empty = |field: &str| rules::list(&rule[field]).is_empty();
    let mut errors = Vec::new();
    let mut required = |field: &'static str, detail: &str| {
        if is_empty(field) {
            errors.push(FieldError::required(&path.child(field), detail));
        }
    };
    required("verbs", "verbs must contain at least one value");
    if is_empty("nonResourceURLs") {
        required("apiGroups", "resource rules must supply at least one api group");
        required("resources", "resource rules must supply at least one resource");
        return errors;
    }
    let urls = |detail: &str| {
        FieldError::invalid(&path.child("nonResourceURLs"), rule["nonResourceURLs"].clone(), detail)
    };
    if is_namespaced {
        errors.push(urls("namespaced rules cannot apply to non-resource URLs"));
    }
    if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
        errors.push(urls("rules cannot apply to both regular resources and non-resource URLs"));
    }
    errors
}

fn validate_cluster_role(role: &Value, old: Option<&Value>) -> Faults {
    let mut errors = policy_rules(role, false);
    if role["aggregationRule"].is_null() {
        return errors;
    }
    let aggregation = Path::root("aggregationRule");
    let path = aggregation.child("clusterRoleSelectors");
    let selectors = |role: &Value| rules::list(&role["aggregationRule"]["clusterRoleSelectors"]).to_vec();
    let found = selectors(role);
    if found.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(&path, detail));
    }
    let may_keep = old.is_some_and(|old| selectors(old).iter().any(rules::has_bad_values));
    for (i, selector) in found.iter().enumerate() {
        errors.extend(rules::label_selector_with(selector, may_keep, &path.index(i)));
        if rules::selector(selector).is_err() {
            errors.push(FieldError::invalid(&path.index(i), Value::Null, "invalid label selector."));
        }
    }
    errors
}

fn validate_binding(binding: &Value, old: Option<&Value>, kinds: &[&str]) -> Faults {
    let path = Path::root("roleRef");
    let role = &binding["roleRef"];
    let mut errors = Vec::new();
    errors.extend(rules::one_of(&role["apiGroup"], &[GROUP], &path.child("apiGroup")));
    errors.extend(rules::one_of(&role["kind"], kinds, &path.child("kind")));
    match rules::text(&role["name"]) {
        "" => errors.push(FieldError::required(&path.child("name"), "")),
        name => errors.extend(rules::faults(names::path_segment(name, false), name, &path.child("name"))),
    }
    let subjects = Path::root("subjects");
    for (i, found) in rules::list(&binding["subjects"]).iter().enumerate() {
        errors.extend(subject(found, kinds.len() > 1, &subjects.index(i)));
    }
    if old.is_some_and(|old| !rules::same(&old["roleRef"], role)) {
        errors.push(rules::invalid_as(&path, &internal::compact("RoleRef", role), "cannot change roleRef"));
    }
    errors
}

fn subject(subject: &Value, is_namespaced: bool, path: &Path<'_>) -> Faults {
    let mut errors = Vec::new();
    let name = rules::text(&subject["name"]);
    let group = path.child("apiGroup");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    match rules::text(&subject["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(rules::faults(names::is_subdomain(name), name, &path.child("name")));
            }
            if !rules::text(&subject["apiGroup"]).is_empty() {
                errors.extend(rules::one_of(&subject["apiGroup"], &[""], &group));
            }
            if !is_namespaced && rules::text(&subject["namespace"]).is_empty() {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => errors.extend(rules::one_of(&subject["apiGroup"], &[GROUP], &group)),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(&path.child("kind"), other, kinds));
        }
    }
    errors
}

/// Columns describe these fields as the version of old did that the Tables were made for.
const ROLE_REF: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global \
    namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
const CLUSTER_ROLE_REF: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef \
    cannot be resolved, the Authorizer must return an error.";
const SUBJECTS: [&str; 3] =
    ["Users in the roleBinding", "Groups in the roleBinding", "ServiceAccounts in the roleBinding"];
const CLUSTER_SUBJECTS: [&str; 3] = [
    "Users in the clusterRoleBinding",
    "Groups in the clusterRoleBinding",
    "ServiceAccounts in the clusterRoleBinding",
];

fn binding_columns(role: &'static str, [users, groups, accounts]: [&'static str; 3]) -> Vec<Column> {
    vec![
        cell::name_column(),
        Column::new("Role", "string", 0, role),
        cell::age_column(),
        Column::new("Users", "string", 1, users),
        Column::new("Groups", "string", 1, groups),
        Column::new("ServiceAccounts", "string", 1, accounts),
    ]
}

fn binding_row(binding: &Value, now: Timestamp) -> Vec<Value> {
    let role = &binding["roleRef"];
    let subjects = |kind: &str| {
        let found = rules::list(&binding["subjects"]).iter().filter(|subject| subject["kind"] == kind);
        let names = found.map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", rules::text(&subject["namespace"]), rules::text(&subject["name"]))
            }
            _ => rules::text(&subject["name"]).to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        cell::name(binding),
        Value::from(format!("{}/{}", rules::text(&role["kind"]), rules::text(&role["name"]))),
        cell::age(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
