//! Who may bind pods to nodes (gate BindingAdmissionWebhook). Spec: manager 22.
//!
//! Pure. The pod is looked at last, and only when its binding would otherwise be refused: [`BindingRules::on_request`]
//! first, then [`BindingRules::with_pod`].

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::denial::Denial;
use super::review::{Operation, Request};
use crate::flags::BindingAdmissionOptions;

/// `--binding-admission-*`, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingRules {
    users: Vec<String>,
    scope: Scope,
    excluded: BTreeSet<String>,
    bypass_labels: BTreeSet<String>,
    bypass_annotations: BTreeSet<String>,
    is_dry_run: bool,
}

/// In which namespaces bindings are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    Nowhere,
    Everywhere,
    In(BTreeSet<String>),
}

/// What becomes of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody asked for a check.
    Unchecked,
    AllowedUserName,
    ExcludedNamespace,
    OutOfScope,
    /// The pod cannot be read; the binding passes rather than hang on that.
    PodUnknown,
    BypassLabel,
    BypassAnnotation,
    /// It would be refused.
    DryRun,
    Denied,
}

impl Decision {
    /// Label value of the counter; none where nothing is counted.
    pub fn metric(self) -> Option<&'static str> {
        match self {
            Decision::Unchecked | Decision::PodUnknown => None,
            Decision::AllowedUserName => Some("allowed_username"),
            Decision::ExcludedNamespace => Some("excluded_ns"),
            Decision::OutOfScope => Some("out_of_scope"),
            Decision::BypassLabel => Some("bypass_label"),
            Decision::BypassAnnotation => Some("bypass_annotation"),
            Decision::DryRun => Some("dry_run"),
            Decision::Denied => Some("denied"),
        }
    }

    pub fn answer(self) -> Result<(), Denial> {
        match self {
            Decision::Denied => Err(Denial::forbidden("binding denied: username is not in the allowed list")),
            _ => Ok(()),
        }
    }
}

impl BindingRules {
    pub fn new(options: &BindingAdmissionOptions) -> BindingRules {
        let set = |list: &[String]| list.iter().cloned().collect();
        let users = options.user_name.split(',').map(str::trim).filter(|user| !user.is_empty());
        BindingRules {
            users: users.map(str::to_owned).collect(),
            scope: match options.namespaces.as_slice() {
                [] => Scope::Nowhere,
                [all] if all == "*" => Scope::Everywhere,
                some => Scope::In(set(some)),
            },
            excluded: set(&options.exclude_namespaces),
            bypass_labels: set(&options.bypass_labels),
            bypass_annotations: set(&options.bypass_annotations),
            is_dry_run: options.dry_run,
        }
    }

    /// The decision on a request where the pod need not be known.
    pub fn on_request(&self, is_gate_on: bool, request: &Request) -> Option<Decision> {
        let is_binding = request.resource.resource == "pods"
            && request.sub_resource == "binding"
            && request.operation == Operation::Create;
        if !is_binding {
            return Some(Decision::Unchecked);
        }
        self.without_pod(is_gate_on, &request.user.username, &request.namespace)
    }

    /// The decision where the pod need not be known. A name is allowed when it contains one of the listed texts.
    fn without_pod(&self, is_gate_on: bool, user: &str, namespace: &str) -> Option<Decision> {
        if !is_gate_on || self.users.is_empty() {
            return Some(Decision::Unchecked);
        }
        if self.users.iter().any(|allowed| user.contains(allowed.as_str())) {
            return Some(Decision::AllowedUserName);
        }
        if self.excluded.contains(namespace) {
            return Some(Decision::ExcludedNamespace);
        }
        match &self.scope {
            Scope::Nowhere => Some(Decision::Unchecked),
            Scope::In(namespaces) if !namespaces.contains(namespace) => Some(Decision::OutOfScope),
            Scope::In(_) | Scope::Everywhere => None,
        }
    }

    /// The decision when `without_pod` gave none.
    pub fn with_pod(&self, pod: Option<&ObjectMeta>) -> Decision {
        let Some(pod) = pod else { return Decision::PodUnknown };
        let has = |texts: &Option<std::collections::BTreeMap<String, String>>, keys: &BTreeSet<String>| {
            texts.as_ref().is_some_and(|texts| keys.iter().any(|key| texts.contains_key(key)))
        };
        if has(&pod.labels, &self.bypass_labels) {
            Decision::BypassLabel
        } else if has(&pod.annotations, &self.bypass_annotations) {
            Decision::BypassAnnotation
        } else if self.is_dry_run {
            Decision::DryRun
        } else {
            Decision::Denied
        }
    }
}

#[cfg(test)]
mod tests {
    use koord_api::keys::pod::label::BINDING_ADMISSION_BYPASS;

    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn flags() -> BindingAdmissionOptions {
        BindingAdmissionOptions {
            user_name: "koord-scheduler, custom".into(),
            namespaces: list(&["*"]),
            exclude_namespaces: list(&["kube-system"]),
            bypass_labels: list(&[BINDING_ADMISSION_BYPASS]),
            bypass_annotations: list(&["vk/pod"]),
            dry_run: false,
        }
    }

    fn plain() -> ObjectMeta {
        ObjectMeta::default()
    }

    fn marked(label: Option<&str>, annotation: Option<&str>) -> ObjectMeta {
        let map = |key: Option<&str>| key.map(|key| [(key.to_owned(), String::new())].into());
        ObjectMeta { labels: map(label), annotations: map(annotation), ..ObjectMeta::default() }
    }

    #[test]
    fn decisions() {
        const STRANGER: &str = "system:serviceaccount:x:other";
        let only_a = BindingAdmissionOptions { namespaces: list(&["a", "b"]), ..flags() };
        let nowhere = BindingAdmissionOptions { namespaces: list(&[]), ..flags() };
        let no_users = BindingAdmissionOptions { user_name: " ,".into(), ..flags() };
        let dry = BindingAdmissionOptions { dry_run: true, ..flags() };
        for (name, flags, user, namespace, pod, want) in [
            ("no users", no_users, STRANGER, "a", Some(plain()), Decision::Unchecked),
            (
                "part of the name",
                flags(),
                "system:serviceaccount:koordinator-system:koord-scheduler",
                "a",
                Some(plain()),
                Decision::AllowedUserName,
            ),
            ("excluded", flags(), STRANGER, "kube-system", Some(plain()), Decision::ExcludedNamespace),
            ("no namespaces", nowhere, STRANGER, "a", Some(plain()), Decision::Unchecked),
            ("other namespace", only_a.clone(), STRANGER, "c", Some(plain()), Decision::OutOfScope),
            ("listed namespace", only_a, STRANGER, "b", Some(plain()), Decision::Denied),
            ("pod unknown", flags(), STRANGER, "a", None, Decision::PodUnknown),
            (
                "label",
                flags(),
                STRANGER,
                "a",
                Some(marked(Some(BINDING_ADMISSION_BYPASS), Some("vk/pod"))),
                Decision::BypassLabel,
            ),
            (
                "annotation",
                flags(),
                STRANGER,
                "a",
                Some(marked(None, Some("vk/pod"))),
                Decision::BypassAnnotation,
            ),
            ("dry run", dry, STRANGER, "a", Some(plain()), Decision::DryRun),
            ("refused", flags(), STRANGER, "a", Some(plain()), Decision::Denied),
        ] {
            let rules = BindingRules::new(&flags);
            let got =
                rules.without_pod(true, user, namespace).unwrap_or_else(|| rules.with_pod(pod.as_ref()));
            assert_eq!(got, want, "{name}");
            assert_eq!(got.answer().is_err(), got == Decision::Denied, "{name}");
            assert_eq!(
                rules.without_pod(false, user, namespace),
                Some(Decision::Unchecked),
                "{name}: gate off"
            );
        }
        let denial = Decision::Denied.answer().unwrap_err();
        assert_eq!(
            (denial.code, denial.message.as_str()),
            (403, "binding denied: username is not in the allowed list")
        );
    }

    #[test]
    fn only_bindings_are_looked_at() {
        let rules = BindingRules::new(&flags());
        let mut request =
            Request { sub_resource: "binding".into(), namespace: "a".into(), ..Request::default() };
        request.resource.resource = "pods".into();
        assert_eq!(rules.on_request(true, &request), None);
        assert_eq!(rules.on_request(false, &request), Some(Decision::Unchecked));
        let eviction = Request { sub_resource: "eviction".into(), ..request.clone() };
        assert_eq!(rules.on_request(true, &eviction), Some(Decision::Unchecked));
        let update = Request { operation: Operation::Update, ..request };
        assert_eq!(rules.on_request(true, &update), Some(Decision::Unchecked));
    }

    #[test]
    fn what_is_counted() {
        use Decision::*;
        let all =
            [AllowedUserName, ExcludedNamespace, OutOfScope, BypassLabel, BypassAnnotation, DryRun, Denied];
        let labels: BTreeSet<_> = all.iter().filter_map(|decision| decision.metric()).collect();
        assert_eq!(labels.len(), all.len());
        assert_eq!((Unchecked.metric(), PodUnknown.metric()), (None, None));
    }
}
