//! Keeps the facts of admission up to date, and tells owners of profiles when theirs do harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::rewrite::profile::Profiles;
use koord_kit::cache::{Cache, Deltas};
use koord_kit::events::{EventType, Note, Recorder, reference};
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::facts::{Board, Facts, QuotaTrees, Texts, priority_class_facts};
use super::review::Complaint;
use super::server::{Complain, FindNamespace};
use crate::world::{ConfigData, World};

/// Reason of the events on profiles.
const REASON: &str = "ProfileUnusable";

/// Changes that may wait in each queue.
const DELTAS_MAX: usize = 256;

/// What the facts are made of.
#[derive(Clone)]
pub struct Sources {
    pub profiles: Cache<ClusterColocationProfile>,
    pub namespaces: Cache<Namespace>,
    pub priority_classes: Cache<PriorityClass>,
    pub quotas: Cache<ElasticQuota>,
    pub quota_profiles: Cache<ElasticQuotaProfile>,
    /// slo-controller-config, or nothing.
    pub config: Cache<ConfigData>,
}

impl Sources {
    pub fn of(world: &World) -> Sources {
        Sources {
            profiles: world.profiles.clone(),
            namespaces: world.namespaces.clone(),
            priority_classes: world.priority_classes.clone(),
            quotas: world.quotas.clone(),
            quota_profiles: world.quota_profiles.clone(),
            config: world.config.clone(),
        }
    }

    /// What the caches know of profiles and whom they select, for those who ask where no board is kept.
    pub fn about_profiles(&self) -> Facts {
        let mut facts = Facts::default();
        for part in [Part::Profiles, Part::Namespaces, Part::PriorityClasses] {
            renew(&mut facts, part, self);
        }
        facts
    }

    /// Waits until all objects are known, and puts them on the board: a pod that comes before would miss its profiles.
    pub async fn first(&self, board: &Board) {
        tokio::join!(
            self.profiles.synced(),
            self.namespaces.synced(),
            self.priority_classes.synced(),
            self.quotas.synced(),
            self.quota_profiles.synced(),
            self.config.synced(),
        );
        board.change(|facts| Part::ALL.into_iter().for_each(|part| renew(facts, part, self)));
    }
}

/// A part of the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Profiles,
    Namespaces,
    PriorityClasses,
    QuotaTrees,
    Config,
}

impl Part {
    const ALL: [Part; 5] =
        [Part::Profiles, Part::Namespaces, Part::PriorityClasses, Part::QuotaTrees, Part::Config];
}

/// Follows all sources until `stop` is cancelled.
pub async fn follow(board: Arc<Board>, sources: Sources, recorder: Recorder, stop: CancellationToken) {
    // Before all is known, a profile could seem to name what does not exist.
    tokio::select! {
        () = sources.first(&board) => {}
        () = stop.cancelled() => return,
    }
    let mut profiles = sources.profiles.subscribe(DELTAS_MAX);
    let mut namespaces = sources.namespaces.subscribe(DELTAS_MAX);
    let mut classes = sources.priority_classes.subscribe(DELTAS_MAX);
    let mut quotas = sources.quotas.subscribe(DELTAS_MAX);
    let mut quota_profiles = sources.quota_profiles.subscribe(DELTAS_MAX);
    let mut config = sources.config.subscribe(DELTAS_MAX);
    let mut told = Told::default();
    loop {
        let part = tokio::select! {
            () = stop.cancelled() => return,
            true = batch(&mut profiles) => Part::Profiles,
            true = batch(&mut namespaces) => Part::Namespaces,
            true = batch(&mut classes) => Part::PriorityClasses,
            true = batch(&mut quotas) => Part::QuotaTrees,
            true = batch(&mut quota_profiles) => Part::QuotaTrees,
            true = batch(&mut config) => Part::Config,
            else => return,
        };
        board.change(|facts| renew(facts, part, &sources));
        if matches!(part, Part::Profiles | Part::PriorityClasses) {
            for (name, text) in told.news(&board.now()) {
                complain(&sources.profiles, &recorder, &name, text);
            }
        }
    }
}

/// Waits for a change, and takes all others that are there too. False when the cache is at its end.
async fn batch<V>(deltas: &mut Deltas<V>) -> bool {
    let first = deltas.next().await.is_some();
    while deltas.try_next().is_some() {}
    first
}

/// Makes one part of the facts anew from all objects of its kind.
fn renew(facts: &mut Facts, part: Part, sources: &Sources) {
    match part {
        Part::Profiles => {
            let all = sources.profiles.snapshot();
            facts.profiles = Profiles::new(all.iter().map(|(_, profile)| &**profile)).into();
        }
        Part::Namespaces => {
            let labels =
                |namespace: &Namespace| Arc::new(namespace.metadata.labels.clone().unwrap_or_default());
            let all = sources.namespaces.snapshot().into_iter();
            let all = all.map(|(key, namespace)| (key.name.to_string(), labels(&namespace)));
            facts.namespaces = Arc::new(all.collect());
        }
        Part::PriorityClasses => {
            let all = sources.priority_classes.snapshot().into_iter();
            let all = all.map(|(key, class)| (key.name.to_string(), priority_class_facts(&class)));
            facts.priority_classes = Arc::new(all.collect());
        }
        Part::QuotaTrees => {
            let (quotas, profiles) = (sources.quotas.snapshot(), sources.quota_profiles.snapshot());
            let trees = QuotaTrees::new(
                quotas.iter().map(|(_, quota)| &**quota),
                profiles.iter().map(|(_, profile)| &**profile),
            );
            facts.quota_trees = trees.into();
        }
        Part::Config => {
            let found = sources.config.snapshot().into_iter().next();
            facts.config = found.map(|(_, config)| Arc::new(config.data.clone()));
        }
    }
}

/// Faults of profiles that were told.
#[derive(Default)]
struct Told(BTreeMap<String, BTreeSet<String>>);

impl Told {
    /// Faults that nobody has heard of, by profile. One that was mended is told again when it comes back.
    fn news(&mut self, facts: &Facts) -> Vec<(String, String)> {
        let mut now = BTreeMap::new();
        let mut news = Vec::new();
        for profile in facts.profiles.iter() {
            let faults: BTreeSet<String> = profile.faults(&facts.priority_classes).into_iter().collect();
            let known = self.0.remove(profile.name()).unwrap_or_default();
            news.extend(faults.difference(&known).map(|fault| (profile.name().to_owned(), fault.clone())));
            if !faults.is_empty() {
                now.insert(profile.name().to_owned(), faults);
            }
        }
        self.0 = now;
        news
    }
}

/// What the server tells owners of profiles by.
pub fn complainer(profiles: Cache<ClusterColocationProfile>, recorder: Recorder) -> Complain {
    Arc::new(move |complaint: &Complaint| {
        complain(&profiles, &recorder, &complaint.profile, complaint.text.clone())
    })
}

fn complain(profiles: &Cache<ClusterColocationProfile>, recorder: &Recorder, name: &str, text: String) {
    tracing::warn!(profile = name, reason = text, "a ClusterColocationProfile cannot be used");
    let regarding = match profiles.get("", name) {
        Some(profile) => reference(&*profile),
        None => ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
    };
    recorder.event(Note {
        regarding,
        related: None,
        kind: EventType::Warning,
        reason: REASON.to_owned(),
        action: "Admission".to_owned(),
        text,
    });
}

/// Reads the labels of a namespace from the API server.
pub fn find_namespace(client: kube::Client) -> FindNamespace {
    Arc::new(move |name| -> BoxFuture<'static, Option<Texts>> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        Box::pin(async move {
            let found = namespaces.get_opt(&name).await.ok().flatten();
            found.map(|namespace| namespace.metadata.labels.unwrap_or_default())
        })
    })
}

#[cfg(test)]
mod tests {
    use koord_api::rewrite::profile::PriorityClassFacts;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_is_told_once() {
        let profile = |name: &str, class: &str| -> ClusterColocationProfile {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"priorityClassName": class}}))
                .unwrap()
        };
        let profiles = Profiles::new(&[profile("a", "nope"), profile("b", "")]);
        let mut facts = Facts { profiles: profiles.into(), ..Facts::default() };
        let mut told = Told::default();
        let text = "pods it selects are denied: PriorityClass.scheduling.k8s.io \"nope\" not found";
        assert_eq!(told.news(&facts), [("a".to_owned(), text.to_owned())]);
        assert!(told.news(&facts).is_empty());
        let known = Arc::new([("nope".to_owned(), PriorityClassFacts::default())].into());
        let unknown = std::mem::replace(&mut facts.priority_classes, known);
        assert!(told.news(&facts).is_empty(), "mended");
        facts.priority_classes = unknown;
        assert_eq!(told.news(&facts).len(), 1, "and broken again");
        facts.profiles = Arc::default();
        assert!(told.news(&facts).is_empty() && told.0.is_empty());
    }
}
