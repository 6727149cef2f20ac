//! Steps from their raw form: names resolved, selectors compiled, defaults filled, all mistakes collected.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use koord_api::duration::GoDuration;
use koord_api::quantity::Quantity;
use koord_api::selector::{Selector, syntax};
use koord_kit::config::Problems;
use koord_sandbox::dump::Dump;
use regex::Regex;
use serde_json::Value;

use super::super::scenario::{
    Action, Count, Expectation, Labelled, Nodes, ObjectRef, PatchKind, PodState, Pods, Step, Which,
};
use super::raw;

/// Long enough for a rollout on a busy cluster.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// Kinds that need no `apiVersion`.
const WELL_KNOWN: &[(&str, &[&str])] = &[
    (
        "v1",
        &["Pod", "Service", "ConfigMap", "PersistentVolumeClaim", "ReplicationController", "ResourceQuota"],
    ),
    ("apps/v1", &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"]),
    ("batch/v1", &["Job", "CronJob"]),
    ("policy/v1", &["PodDisruptionBudget"]),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
];

/// Collects steps and what is wrong with them.
pub(super) struct Checker<'d, 'n, F> {
    problems: Problems<'d>,
    namespaces: &'n [String],
    read_file: F,
    /// The apiVersion of each kind that the file applies.
    applied: BTreeMap<String, String>,
}

impl<'d, 'n, F: Fn(&Path) -> Result<String>> Checker<'d, 'n, F> {
    pub(super) fn new(problems: Problems<'d>, namespaces: &'n [String], read_file: F) -> Checker<'d, 'n, F> {
        Checker { problems, namespaces, read_file, applied: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Problems<'d> {
        self.problems
    }

    pub(super) fn steps(&mut self, raw: Vec<raw::Step>) -> Vec<Step> {
        raw.into_iter().enumerate().map(|(i, step)| self.step(&format!("steps[{i}]"), step)).collect()
    }

    fn step(&mut self, at: &str, raw: raw::Step) -> Step {
        let mut actions = Vec::new();
        for (i, action) in raw.actions.into_iter().enumerate() {
            self.action(&format!("{at}.do[{i}]"), action, &mut actions);
        }
        let mut expectations = Vec::new();
        for (i, expectation) in raw.expect.into_iter().enumerate() {
            expectations.extend(self.expectation(&format!("{at}.expect[{i}]"), expectation));
        }
        let timeout = raw.timeout.map(|text| self.timeout(at, &text)).unwrap_or(TIMEOUT_DEFAULT);
        let (title, text, explains, explains_node) = (raw.title, raw.text, raw.explain, raw.explain_node);
        Step { title, text, actions, expectations, timeout, explains, explains_node }
    }

    fn timeout(&mut self, at: &str, text: &str) -> Duration {
        let parsed = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
        parsed.filter(|timeout| !timeout.is_zero()).unwrap_or_else(|| {
            self.problems.refuse(&format!("{at}.timeout"), text, "a duration such as 90s or 2m");
            TIMEOUT_DEFAULT
        })
    }

    fn action(&mut self, at: &str, raw: raw::Action, actions: &mut Vec<Action>) {
        match raw {
            raw::Action::Apply(manifests) => {
                for (i, manifest) in manifests.into_iter().enumerate() {
                    actions.extend(self.manifest(&format!("{at}.apply[{i}]"), manifest));
                }
            }
            raw::Action::ApplyFile(file) => {
                let at = format!("{at}.applyFile");
                match (self.read_file)(&file).and_then(|text| manifests(&text)) {
                    Ok(list) => {
                        for manifest in list {
                            actions.extend(self.manifest(&at, manifest));
                        }
                    }
                    Err(error) => self.problems.message(&at, format!("{}: {error:#}", file.display())),
                }
            }
            raw::Action::Delete(object) => {
                actions.extend(self.object(&format!("{at}.delete"), object).map(Action::Delete));
            }
            raw::Action::Scale(mut scale) => {
                let at = format!("{at}.scale");
                if scale.replicas < 0 {
                    self.problems.refuse(&format!("{at}.replicas"), scale.replicas, "a number from 0");
                }
                let replicas = scale.replicas;
                let object = self.object(&at, scale.take());
                actions.extend(object.map(|object| Action::Scale { object, replicas }));
            }
            raw::Action::Patch(raw) => actions.extend(self.patch(&format!("{at}.patch"), raw)),
            raw::Action::Cordon(nodes) => {
                actions.extend(self.nodes(&format!("{at}.cordon"), nodes).map(Action::Cordon));
            }
            raw::Action::Uncordon(nodes) => {
                actions.extend(self.nodes(&format!("{at}.uncordon"), nodes).map(Action::Uncordon));
            }
        }
    }

    fn patch(&mut self, at: &str, mut raw: raw::Patch) -> Option<Action> {
        let object = self.object(at, raw.take())?;
        let patch = raw.patch;
        let how = match raw.how {
            raw::PatchKind::Strategic => PatchKind::Strategic,
            raw::PatchKind::Merge => PatchKind::Merge,
            raw::PatchKind::Json => PatchKind::Json,
        };
        match (object.name.is_empty(), raw.selector) {
            (false, None) => Some(Action::Patch { object, patch, how }),
            (true, Some(text)) => {
                let selector = self.labelled(&format!("{at}.selector"), text)?;
                Some(Action::PatchAll { objects: object, selector, patch, how })
            }
            _ => {
                self.problems.message(at, "exactly one of name and selector is needed");
                None
            }
        }
    }

    /// An object to apply: complete, and in a namespace of the scenario's own.
    fn manifest(&mut self, at: &str, mut manifest: Value) -> Option<Action> {
        let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let missing = ["apiVersion", "kind", "metadata.name"]
            .into_iter()
            .find(|field| text(&format!("/{}", field.replace('.', "/"))).is_none_or(|text| text.is_empty()));
        if let Some(field) = missing {
            self.problems.message(&format!("{at}.{field}"), "an object to apply needs this as a text");
            return None;
        }
        let (api_version, kind, name) = (text("/apiVersion")?, text("/kind")?, text("/metadata/name")?);
        if kind == "Namespace" {
            self.problems.message(&format!("{at}.kind"), "namespaces are listed under `namespaces`");
            return None;
        }
        let namespace = text("/metadata/namespace");
        let namespace = self.namespace(&format!("{at}.metadata.namespace"), namespace)?;
        self.applied.insert(kind.clone(), api_version.clone());
        manifest["metadata"]["namespace"] = namespace.clone().into();
        let object = ObjectRef { api_version, kind, namespace, name };
        Some(Action::Apply { object, manifest })
    }

    fn object(&mut self, at: &str, raw: raw::Object) -> Option<ObjectRef> {
        let namespace = self.namespace(&format!("{at}.namespace"), raw.namespace);
        let well_known = WELL_KNOWN.iter().find(|(_, kinds)| kinds.contains(&raw.kind.as_str()));
        let api_version = raw
            .api_version
            .or_else(|| self.applied.get(&raw.kind).cloned())
            .or_else(|| well_known.map(|(version, _)| (*version).to_owned()));
        let Some(api_version) = api_version else {
            let message = format!("needed for {}, which is neither well known nor applied before", raw.kind);
            self.problems.message(&format!("{at}.apiVersion"), message);
            return None;
        };
        Some(ObjectRef { api_version, kind: raw.kind, namespace: namespace?, name: raw.name })
    }

    fn namespace(&mut self, at: &str, given: Option<String>) -> Option<String> {
        match given {
            None => self.namespaces.first().cloned(),
            Some(namespace) if self.namespaces.contains(&namespace) => Some(namespace),
            Some(namespace) => {
                let wanted = format!("one of the scenario's own: {}", self.namespaces.join(", "));
                self.problems.refuse(at, namespace, &wanted);
                None
            }
        }
    }

    fn nodes(&mut self, at: &str, raw: raw::Nodes) -> Option<Nodes> {
        match (raw.name, raw.selector, raw.hosting) {
            (Some(name), None, None) => Some(Nodes::Named(name)),
            (None, Some(text), None) => self.labelled(&format!("{at}.selector"), text).map(Nodes::Selected),
            (None, None, Some(pods)) => self.pods(&format!("{at}.hosting"), pods).map(Nodes::Hosting),
            _ => {
                self.problems.message(at, "exactly one of name, selector and hosting is needed");
                None
            }
        }
    }

    fn pods(&mut self, at: &str, raw: raw::Pods) -> Option<Pods> {
        let namespace = self.namespace(&format!("{at}.namespace"), raw.namespace);
        let which = match (raw.pod, raw.selector) {
            (Some(name), None) => Which::Named(name),
            (None, Some(text)) => Which::Selected(self.labelled(&format!("{at}.selector"), text)?),
            _ => {
                self.problems.message(at, "exactly one of pod and selector is needed");
                return None;
            }
        };
        Some(Pods { namespace: namespace?, which })
    }

    fn labelled(&mut self, at: &str, text: String) -> Option<Labelled> {
        match text.parse::<Selector>() {
            Ok(selector) => Some(Labelled { text, selector }),
            Err(error) => {
                self.problems.message(at, format!("{text:?} is not a label selector: {error}"));
                None
            }
        }
    }

    fn count(&mut self, at: &str, count: Option<usize>, at_least: Option<usize>) -> Count {
        match (count, at_least) {
            (None, None) => Count::All,
            (Some(count), None) => Count::Exactly(count),
            (None, Some(count)) => Count::AtLeast(count),
            (Some(_), Some(_)) => {
                self.problems.message(&format!("{at}.atLeast"), "count and atLeast exclude each other");
                Count::All
            }
        }
    }

    fn expectation(&mut self, at: &str, raw: raw::Expectation) -> Option<Expectation> {
        match raw {
            raw::Expectation::Ready(mut raw) => {
                let object = self.object(&format!("{at}.ready"), raw.take())?;
                Some(Expectation::Ready { object, count: raw.count })
            }
            raw::Expectation::Pods(mut raw) => {
                let at = format!("{at}.pods");
                let count = self.count(&at, raw.count, raw.at_least);
                let pods = self.pods(&at, raw.take())?;
                Some(Expectation::Pods { pods, state: state(raw.are), count, matches: raw.matches })
            }
            raw::Expectation::Spread(raw) => self.spread(&format!("{at}.spread"), raw),
            raw::Expectation::OnNodes(mut raw) => {
                let at = format!("{at}.onNodes");
                let nodes = self.labelled(&format!("{at}.nodes"), std::mem::take(&mut raw.nodes));
                let pods = self.pods(&at, raw.take())?;
                Some(Expectation::OnNodes { pods, nodes: nodes? })
            }
            raw::Expectation::Unschedulable(raw) => self.unschedulable(&format!("{at}.unschedulable"), raw),
            raw::Expectation::Preempted(mut raw) => {
                let at = format!("{at}.preempted");
                let count = match self.count(&at, raw.count, raw.at_least) {
                    // Who had to go is known only afterwards, so there is no "all".
                    Count::All => Count::AtLeast(1),
                    count => count,
                };
                let by = match raw.by.take() {
                    Some(by) => Some(self.pods(&format!("{at}.by"), by)?),
                    None => None,
                };
                let pods = self.pods(&at, raw.take())?;
                Some(Expectation::Preempted { pods, count, by })
            }
            raw::Expectation::Gone(raw) => {
                let pods = self.pods(&format!("{at}.gone"), raw)?;
                Some(Expectation::Gone { pods })
            }
            raw::Expectation::Allocatable(raw) => self.allocatable(&format!("{at}.allocatable"), raw),
            raw::Expectation::Usage(raw) => self.usage(&format!("{at}.usage"), raw),
            raw::Expectation::Object(mut raw) => {
                let object = self.object(&format!("{at}.object"), raw.take())?;
                Some(Expectation::Object { object, matches: raw.matches })
            }
        }
    }

    fn allocatable(&mut self, at: &str, raw: raw::Allocatable) -> Option<Expectation> {
        let nodes = match raw.nodes {
            Some(text) => Some(self.labelled(&format!("{at}.nodes"), text)?),
            None => None,
        };
        if raw.at_least.is_none() && raw.at_most.is_none() {
            self.problems.message(at, "atLeast, atMost or both are needed");
        }
        let least = self.amount(&format!("{at}.atLeast"), raw.at_least);
        let most = self.amount(&format!("{at}.atMost"), raw.at_most);
        Some(Expectation::Allocatable { resource: raw.resource, nodes, least, most })
    }

    fn usage(&mut self, at: &str, mut raw: raw::Usage) -> Option<Expectation> {
        if !["cpu", "memory"].contains(&raw.resource.as_str()) {
            self.problems.refuse(&format!("{at}.resource"), &raw.resource, "cpu or memory");
        }
        if raw.at_least.is_none() && raw.at_most.is_none() {
            self.problems.message(at, "atLeast, atMost or both are needed");
        }
        let least = self.amount(&format!("{at}.atLeast"), raw.at_least.take());
        let most = self.amount(&format!("{at}.atMost"), raw.at_most.take());
        let pods = self.pods(at, raw.take())?;
        Some(Expectation::Usage { pods, resource: raw.resource, least, most })
    }

    fn amount(&mut self, at: &str, raw: Option<raw::Amount>) -> Option<Quantity> {
        let text = match raw? {
            raw::Amount::Text(text) => text,
            raw::Amount::Number(number) => number.to_string(),
        };
        let amount = text.parse().ok();
        if amount.is_none() {
            self.problems.refuse(at, text, "an amount such as 12, 500m, 20k or 4Gi");
        }
        amount
    }

    fn spread(&mut self, at: &str, mut raw: raw::Spread) -> Option<Expectation> {
        let faults = syntax::check_key(&raw.over);
        if !faults.is_empty() {
            self.problems.message(&format!("{at}.over"), faults.join("; "));
        }
        let pods = self.pods(at, raw.take())?;
        let (max_skew, domains_min) = (raw.max_skew, raw.domains_at_least);
        Some(Expectation::Spread { pods, over: raw.over, max_skew, domains_min })
    }

    fn unschedulable(&mut self, at: &str, mut raw: raw::Unschedulable) -> Option<Expectation> {
        let count = self.count(at, raw.count, raw.at_least);
        let pattern = match raw.pattern.take().map(|text| Regex::new(&text)) {
            None => None,
            Some(Ok(pattern)) => Some(pattern),
            Some(Err(error)) => {
                self.problems.message(&format!("{at}.pattern"), format!("not a pattern: {error}"));
                return None;
            }
        };
        let pods = self.pods(at, raw.take())?;
        Some(Expectation::Unschedulable { pods, count, message: raw.message, pattern })
    }
}

fn state(raw: raw::PodState) -> PodState {
    match raw {
        raw::PodState::Scheduled => PodState::Scheduled,
        raw::PodState::Pending => PodState::Pending,
        raw::PodState::Running => PodState::Running,
        raw::PodState::Ready => PodState::Ready,
        raw::PodState::Succeeded => PodState::Succeeded,
        raw::PodState::Failed => PodState::Failed,
    }
}

/// The objects of a manifest file.
fn manifests(text: &str) -> Result<Vec<Value>> {
    let dump = Dump::parse(text.as_bytes().to_vec())?;
    let items = dump.items()?;
    items.iter().map(|item| Ok(serde_json::from_str(item.json)?)).collect()
}
