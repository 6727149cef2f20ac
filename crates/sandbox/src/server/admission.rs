//! Admission webhooks: who is asked about a write, and what becomes of the answers.
//!
//! `client` carries a review over HTTPS; here stand the rules: which webhooks match, in which order
//! they change an object, what a failure means.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use koord_api::selector::{Labels, Selector};
use serde_json::{Value, json};

use super::api::{Api, WriteOptions};
use super::delete::DeleteOptions;
use crate::kinds::{Cluster, FieldError, Kind, Operation, Path, meta, quote};
use crate::patch;
use crate::status::ApiError;

mod client;

use client::Client;

/// One write that webhooks may be asked about.
pub(super) struct Review<'a> {
    pub(super) kind: &'a Arc<Kind>,
    pub(super) operation: Operation,
    pub(super) subresource: &'a str,
    pub(super) old: Option<&'a Value>,
    pub(super) options: &'a WriteOptions,
    /// Of a delete.
    pub(super) delete: Option<&'a DeleteOptions>,
}

/// The webhooks configured now, read again after every change of a configuration.
#[derive(Default)]
pub(super) struct Webhooks {
    /// None: not read since the last change.
    known: RwLock<Option<Arc<Known>>>,
    client: Client,
}

#[derive(Default)]
struct Known {
    mutating: Vec<Webhook>,
    validating: Vec<Webhook>,
}

struct Webhook {
    name: String,
    rules: Vec<Rule>,
    /// None where the configuration has a selector nobody can read: then nothing matches.
    namespaces: Option<Selector>,
    objects: Option<Selector>,
    fails_closed: bool,
    has_side_effects: bool,
    is_reinvoked: bool,
    timeout_seconds: u64,
    endpoint: client::Endpoint,
}

struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Webhooks {
    pub(super) fn forget(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn read(&self, api: &Api) -> Arc<Known> {
        if let Some(known) = &*self.known.read().unwrap_or_else(PoisonError::into_inner) {
            return known.clone();
        }
        let mut slot = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::new(Known {
            mutating: read_table(api, "mutatingwebhookconfigurations"),
            validating: read_table(api, "validatingwebhookconfigurations"),
        });
        *slot = Some(known.clone());
        known
    }
}

/// In order of the configurations' names, as Kubernetes calls them.
fn read_table(api: &Api, plural: &str) -> Vec<Webhook> {
    let configurations = Cluster::list(api, "admissionregistration.k8s.io", plural, "");
    let webhooks = configurations.iter().flat_map(|c| c["webhooks"].as_array().into_iter().flatten());
    webhooks.map(Webhook::read).collect()
}

impl Webhook {
    fn read(raw: &Value) -> Webhook {
        let selector = |field: &str| -> Option<Selector> {
            match raw.get(field).filter(|s| !s.is_null()) {
                None => Some(Selector::everything()),
                Some(selector) => {
                    let selector = serde_json::from_value(selector.clone()).ok()?;
                    Selector::new(Some(&selector)).ok()
                }
            }
        };
        let rules = raw["rules"].as_array().into_iter().flatten().map(Rule::read);
        Webhook {
            name: raw["name"].as_str().unwrap_or_default().to_owned(),
            rules: rules.collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            fails_closed: raw["failurePolicy"] != "Ignore",
            has_side_effects: !["None", "NoneOnDryRun"].contains(&raw["sideEffects"].as_str().unwrap_or("")),
            is_reinvoked: raw["reinvocationPolicy"] == "IfNeeded",
            timeout_seconds: raw["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30),
            endpoint: client::Endpoint::read(&raw["clientConfig"]),
        }
    }

    fn matches(&self, api: &Api, review: &Review<'_>, object: &Value) -> bool {
        self.rules.iter().any(|rule| rule.matches(review))
            && self.matches_object(object, review.old)
            && self.matches_namespace(api, review, object)
    }

    fn matches_object(&self, object: &Value, old: Option<&Value>) -> bool {
        let Some(selector) = &self.objects else { return false };
        if selector.is_everything() {
            return true;
        }
        let is = !object.is_null() && selector.matches(&TreeLabels(object));
        is || old.is_some_and(|old| selector.matches(&TreeLabels(old)))
    }

    fn matches_namespace(&self, api: &Api, review: &Review<'_>, object: &Value) -> bool {
        let Some(selector) = &self.namespaces else { return false };
        if selector.is_everything() {
            return true;
        }
        let subject = if object.is_null() { review.old.unwrap_or(object) } else { object };
        if review.kind.group.is_empty() && review.kind.plural == "namespaces" {
            return selector.matches(&TreeLabels(subject));
        }
        if !review.kind.namespaced {
            return true;
        }
        let namespace = api.store.table("", "namespaces").get(meta::namespace(subject));
        namespace.is_some_and(|namespace| selector.matches(&*namespace))
    }
}

impl Rule {
    fn read(raw: &Value) -> Rule {
        let list = |field: &str| {
            let items = raw[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        Rule {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: raw["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn matches(&self, review: &Review<'_>) -> bool {
        let kind = review.kind;
        let any = |list: &[String], value: &str| list.iter().any(|item| item == "*" || item == value);
        let scope = match self.scope.as_str() {
            "Namespaced" => kind.namespaced,
            "Cluster" => !kind.namespaced,
            _ => true,
        };
        scope
            && any(&self.operations, review.operation.text())
            && any(&self.groups, &kind.group)
            && any(&self.versions, &kind.version)
            && self.resources.iter().any(|r| matches_resource(r, &kind.plural, review.subresource))
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
fn matches_resource(rule: &str, plural: &str, subresource: &str) -> bool {
    let (resource, part) = rule.split_once('/').unwrap_or((rule, ""));
    (resource == "*" || resource == plural) && (part == "*" || part == subresource)
}

struct TreeLabels<'a>(&'a Value);

impl Labels for TreeLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        meta::of(self.0)?.get("labels")?.get(key)?.as_str()
    }
}

/// Asks the mutating webhooks one after another: the changed object, if one changed it.
pub(super) async fn mutate(
    api: &Api,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, ApiError> {
    if is_exempt(review) {
        return Ok(None);
    }
    let known = api.webhooks.read(api);
    if known.mutating.is_empty() {
        return Ok(None);
    }
    let mut current = object.clone();
    let mut asked: Vec<(&Webhook, Value)> = Vec::new();
    for webhook in &known.mutating {
        if webhook.matches(api, review, &current) {
            call_mutating(api, webhook, review, &mut current, warnings).await?;
            asked.push((webhook, current.clone()));
        }
    }
    // A webhook that asked for it sees once more what others changed after it.
    for (webhook, left) in asked.iter().filter(|(webhook, _)| webhook.is_reinvoked) {
        if *left != current && webhook.matches(api, review, &current) {
            call_mutating(api, webhook, review, &mut current, warnings).await?;
        }
    }
    Ok((current != *object).then_some(current))
}

async fn call_mutating(
    api: &Api,
    webhook: &Webhook,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let Some(answer) = call(api, webhook, review, object, warnings).await? else { return Ok(()) };
    let Some(patch) = answer["patch"].as_str().filter(|p| !p.is_empty()) else { return Ok(()) };
    let patch =
        STANDARD.decode(patch).map_err(|e| ApiError::internal(format!("the patch is not base64: {e}")))?;
    *object = patch::json::apply(object.take(), &patch).map_err(ApiError::internal)?;
    Ok(())
}

/// Asks all validating webhooks at once; the first refusal, in their order, decides.
pub(super) async fn validate(
    api: &Api,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    check_configuration(review, object)?;
    if is_exempt(review) {
        return Ok(());
    }
    let known = api.webhooks.read(api);
    if known.validating.is_empty() {
        return Ok(());
    }
    let matching = known.validating.iter().filter(|webhook| webhook.matches(api, review, object));
    let calls = matching.map(|webhook| async move {
        let mut warnings = Vec::new();
        let result = call(api, webhook, review, object, &mut warnings).await;
        (result, warnings)
    });
    let mut refusal = None;
    for (result, said) in join_all(calls).await {
        warnings.extend(said);
        if let (Err(error), None) = (result, &refusal) {
            refusal = Some(error);
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// Webhook configurations are beyond the reach of webhooks, lest one lock itself in.
fn is_exempt(review: &Review<'_>) -> bool {
    review.kind.group == "admissionregistration.k8s.io"
}

/// Differs: matchConditions are written in CEL, which nothing here can run; taking them silently
/// would call webhooks for what they asked to be spared.
fn check_configuration(review: &Review<'_>, object: &Value) -> Result<(), ApiError> {
    if !review.kind.plural.ends_with("webhookconfigurations") {
        return Ok(());
    }
    let list = Path::root("webhooks");
    let webhooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |webhook: &Value| webhook["matchConditions"].as_array().is_some_and(|c| !c.is_empty());
    let errors = webhooks.iter().enumerate().filter(|(_, webhook)| has(webhook)).map(|(i, _)| {
        let detail = "match conditions are CEL expressions, which this server cannot evaluate";
        FieldError::forbidden(&list.index(i).child("matchConditions"), detail)
    });
    let errors: Vec<FieldError> = errors.collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(review.kind.invalid(meta::name(object), &errors)),
    }
}

/// One webhook's answer; None when it failed and may.
async fn call(
    api: &Api,
    webhook: &Webhook,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, ApiError> {
    if review.options.dry_run && webhook.has_side_effects {
        let message = format!("admission webhook {} does not support dry run", quote(&webhook.name));
        return Err(ApiError::bad_request(message));
    }
    let uid = api.ids().uid();
    let body = request(review, object, &uid);
    let answer = api.webhooks.client.post(&webhook.endpoint, &body, webhook.timeout_seconds).await;
    let answer = answer.map_err(|why| format!("failed to call webhook: {why}"));
    let checked = answer.and_then(|answer| {
        check_answer(answer, &uid).map_err(|why| format!("received invalid webhook response: {why}"))
    });
    let answer = match checked {
        Ok(answer) => answer,
        Err(why) if webhook.fails_closed => {
            let name = quote(&webhook.name);
            return Err(ApiError::internal(format!("failed calling webhook {name}: {why}")));
        }
        Err(why) => {
            tracing::warn!(webhook = %webhook.name, error = %why, "webhook failed, failing open");
            return Ok(None);
        }
    };
    let said = answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    warnings.extend(said.map(str::to_owned));
    match answer["allowed"] == true {
        true => Ok(Some(answer)),
        false => Err(denial(&webhook.name, &answer["status"])),
    }
}

fn request(review: &Review<'_>, object: &Value, uid: &str) -> Value {
    let kind = review.kind;
    let subject = if object.is_null() { review.old.unwrap_or(object) } else { object };
    let type_ = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let resource = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    let user = &review.options.user;
    let options_kind = match review.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({"kind": options_kind, "apiVersion": "meta.k8s.io/v1"});
    if !review.options.manager.is_empty() && review.operation != Operation::Delete {
        options["fieldManager"] = json!(review.options.manager);
    }
    if review.options.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    if let Some(delete) = review.delete {
        delete.describe(&mut options);
    }
    let mut request = json!({
        "uid": uid, "kind": type_, "resource": resource, "requestKind": type_, "requestResource": resource,
        "name": meta::name(subject), "operation": review.operation.text(),
        "userInfo": {"username": user.name, "groups": user.groups},
        "object": object, "oldObject": review.old, "dryRun": review.options.dry_run, "options": options,
    });
    if review.delete.is_some_and(|delete| delete.is_collection)
        && let Some(fields) = request.as_object_mut()
    {
        // Whoever deletes a collection names none of its objects.
        fields.remove("name");
    }
    if kind.namespaced {
        request["namespace"] = json!(meta::namespace(subject));
    }
    if !review.subresource.is_empty() {
        request["subResource"] = json!(review.subresource);
        request["requestSubResource"] = json!(review.subresource);
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

fn check_answer(mut answer: Value, uid: &str) -> Result<Value, String> {
    let is_review = answer["kind"] == "AdmissionReview" && answer["apiVersion"] == "admission.k8s.io/v1";
    if !is_review {
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
            answer["apiVersion"].as_str().unwrap_or(""),
            answer["kind"].as_str().unwrap_or("")
        ));
    }
    let response = answer["response"].take();
    if response.is_null() {
        return Err("webhook response was absent".to_owned());
    }
    if response["uid"] != uid {
        return Err(format!(
            "expected response.uid={}, got {}",
            quote(uid),
            quote(response["uid"].as_str().unwrap_or(""))
        ));
    }
    let has_patch = response["patch"].as_str().is_some_and(|patch| !patch.is_empty());
    match (has_patch, response["patchType"].as_str()) {
        (true, None | Some("")) => {
            Err("webhook returned response.patch but not response.patchType".to_owned())
        }
        (true, Some(other)) if other != "JSONPatch" => {
            Err(format!("webhook returned invalid response.patchType of {}", quote(other)))
        }
        _ => Ok(response),
    }
}

fn denial(webhook: &str, status: &Value) -> ApiError {
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let text = |field: &str| status[field].as_str().unwrap_or("");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).filter(|c| (400..600).contains(c));
    ApiError::new(code.unwrap_or(400), text("reason").to_owned(), message)
}
