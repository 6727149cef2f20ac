//! The admissionregistration.k8s.io group: which webhooks are asked.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Hooks, Kind, cell, rules};

mod validate;

pub(super) use validate::client as validate_client;

pub(super) fn kinds() -> Vec<Kind> {
    let webhook = |kind, plural, default: fn(&mut Value)| {
        let hooks = Hooks { default, validate: validate::configuration, row, ..Hooks::default() };
        let mut kind = Kind::builtin("admissionregistration.k8s.io/v1", kind, plural)
            .cluster_scoped()
            .category("api-extensions")
            .generation()
            .columns(columns())
            .hooks(hooks);
        kind.unconditional_update = false;
        kind
    };
    vec![
        webhook("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", |configuration| {
            default_webhooks(configuration);
            for hook in rules::each(configuration, "webhooks") {
                rules::default(hook, "reinvocationPolicy", "Never");
            }
        }),
        webhook("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", default_webhooks),
    ]
}

fn default_webhooks(configuration: &mut Value) {
    for hook in rules::each(configuration, "webhooks") {
        rules::default(hook, "failurePolicy", "Fail");
        rules::default(hook, "matchPolicy", "Equivalent");
        rules::default(hook, "namespaceSelector", json!({}));
        rules::default(hook, "objectSelector", json!({}));
        rules::default(hook, "timeoutSeconds", 10);
        for rule in rules::each(hook, "rules") {
            rules::default(rule, "scope", "*");
        }
        if hook["clientConfig"]["service"].is_object() {
            rules::default(&mut hook["clientConfig"]["service"], "port", 443);
        }
    }
}

fn columns() -> Vec<Column> {
    let webhooks = "Webhooks indicates the number of webhooks registered in this configuration";
    vec![cell::name_column(), Column::new("Webhooks", "integer", 0, webhooks), cell::age_column()]
}

fn row(configuration: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(configuration), cell::length(&configuration["webhooks"]), cell::age(configuration, now)]
}
