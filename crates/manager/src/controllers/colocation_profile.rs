//! Lets pods that wait for a node follow the ClusterColocationProfiles that came after them. Spec: manager 12.
//!
//! Waiting pods are few and their whole JSON is needed, so they are listed for each round rather than kept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::rewrite::profile::{Chance, Profile};
use koord_api::selector::Selector;
use koord_kit::cache::Uid;
use koord_kit::log::chain;
use kube::Resource;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Controller, Crew, Failure, Feeds, Ground, Key, Next};
use crate::colocation_profile::{Journal, Pace, Turn, draw, is_followed, is_waiting, patch, pods_of};
use crate::flags::ProfileOptions;
use crate::world::World;

/// Pods in one page of a list.
const PAGE: u32 = 500;

/// All that can follow a profile: a pod that has a node, or has ended, cannot.
const WAITING: &str = "spec.nodeName=,status.phase=Pending";

pub(super) struct ColocationProfiles {
    client: kube::Client,
    world: Arc<World>,
    options: ProfileOptions,
    start: Instant,
    /// Locked for single entries.
    journal: Mutex<Journal>,
}

/// Runs the controller if its gate is on.
pub(super) fn start(crew: &mut Crew<'_>) {
    if crew.ground().options.gates.is_on("ColocationProfileController") {
        crew.hire(ColocationProfiles::new(crew.ground()));
    }
}

impl ColocationProfiles {
    fn new(ground: &Ground) -> ColocationProfiles {
        let options = ground.options.profiles.clone();
        let pace = Pace {
            force_update_after: options.force_update_after,
            qps: options.update_qps.max(0.0),
            burst: f64::from(options.update_burst),
        };
        ColocationProfiles {
            client: ground.client.clone(),
            world: ground.world.clone(),
            start: Instant::now(),
            journal: Mutex::new(Journal::new(pace, Duration::ZERO)),
            options,
        }
    }
}

impl Controller for ColocationProfiles {
    const NAME: &'static str = "colocationprofile";

    fn listen(&self, feeds: &Feeds) {
        feeds.on_object(&self.world.profiles, |_, _| true);
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(profile) = self.world.profiles.get("", &key.name) else { return Ok(Next::Done) };
        if !is_followed(&profile, self.options.reconcile_by_default) {
            return Ok(Next::Done);
        }
        let selector = pods_of(&profile)?;
        if !selector.is_nothing() {
            let round = Round::new(self, &profile)?;
            round.run(&selector).await?;
        }
        Ok(Next::After(self.options.reconcile_interval))
    }
}

/// One profile, applied to all pods that wait now.
struct Round<'a> {
    controller: &'a ColocationProfiles,
    profile: Profile,
    chance: Chance,
    uid: Uid,
    version: String,
}

/// What became of the pods of a round.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    changed: usize,
    unchanged: usize,
    limited: usize,
    failed: usize,
}

/// A page of pods as they came.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl<'a> Round<'a> {
    fn new(
        controller: &'a ColocationProfiles,
        object: &ClusterColocationProfile,
    ) -> Result<Round<'a>, Failure> {
        let profile = Profile::new(object);
        Ok(Round {
            controller,
            chance: profile.chance()?,
            profile,
            uid: Uid::of(object.metadata.uid.as_deref().unwrap_or_default()),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
        })
    }

    async fn run(&self, selector: &Selector) -> Result<(), Failure> {
        let mut summary = Summary::default();
        let mut params = ListParams::default().labels(&selector.to_string()).fields(WAITING).limit(PAGE);
        loop {
            let request = Request::new(Pod::url_path(&(), None)).list(&params)?;
            let page: Page = self.controller.client.request(request).await?;
            for pod in &page.items {
                self.take(pod, &mut summary).await;
            }
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => break,
            }
        }
        self.controller.journal().expire(self.controller.start.elapsed());
        tracing::debug!(profile = self.profile.name(), ?summary, "waiting pods follow the profile");
        Ok(())
    }

    /// One pod. A failure is the pod's own; the next round tries again.
    async fn take(&self, pod: &Value, summary: &mut Summary) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name, uid) =
            (text("/metadata/namespace"), text("/metadata/name"), text("/metadata/uid"));
        let pod_uid = Uid::of(uid);
        if !self.is_meant(pod, namespace, pod_uid) {
            return;
        }
        let now = self.controller.start.elapsed();
        match self.controller.journal().turn(&self.version, pod_uid, now) {
            Turn::Now => {}
            Turn::Seen => return,
            Turn::Limited => {
                summary.limited += 1;
                return;
            }
        }
        let done = match patch(&self.profile, pod) {
            Ok(None) => Ok(false),
            Ok(Some(patch)) => {
                self.send(namespace, name, uid, patch).await.map(|()| true).map_err(|error| chain(&error))
            }
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(is_changed) => {
                *(if is_changed { &mut summary.changed } else { &mut summary.unchanged }) += 1;
                self.controller.journal().note(&self.version, pod_uid, now);
                if is_changed {
                    tracing::info!(pod = %format_args!("{namespace}/{name}"), profile = self.profile.name(), "waiting pod follows a profile");
                }
            }
            Err(error) => {
                summary.failed += 1;
                tracing::warn!(pod = %format_args!("{namespace}/{name}"), profile = self.profile.name(), error, "waiting pod cannot follow a profile");
            }
        }
    }

    fn is_meant(&self, pod: &Value, namespace: &str, pod_uid: Uid) -> bool {
        let namespace = self.controller.world.namespaces.get("", namespace);
        let none = std::collections::BTreeMap::new();
        let labels = namespace.as_ref().map(|namespace| namespace.metadata.labels.as_ref().unwrap_or(&none));
        is_waiting(pod)
            && self.profile.matches(pod, labels)
            && self.chance.decide(&mut || draw(self.uid, pod_uid))
    }

    /// The uid keeps the patch from a pod that took the name in the meantime.
    async fn send(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        mut patch: Value,
    ) -> Result<(), kube::Error> {
        patch["metadata"]["uid"] = json!(uid);
        let request = Request::new(Pod::url_path(&(), Some(namespace)));
        let request = request.patch(name, &PatchParams::default(), &Patch::Merge(patch));
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.controller.client.request::<IgnoredAny>(request).await.map(drop)
    }
}

impl ColocationProfiles {
    fn journal(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use koord_api::keys::profile::label::CONTROLLER_MANAGED;
    use koord_kit::metrics::KitMetrics;

    use super::*;
    use crate::fake::{FakeApi, Seen, refused};
    use crate::world::Scope;

    fn controller(client: kube::Client, burst: f64) -> ColocationProfiles {
        let scope = Scope {
            config_namespace: "koordinator-system".to_owned(),
            config_name: "slo-controller-config".to_owned(),
            namespace: None,
        };
        let (world, _) = World::new(&client, &scope, &KitMetrics::unregistered());
        let pace = Pace { force_update_after: Duration::from_secs(300), qps: 0.0, burst };
        ColocationProfiles {
            client,
            world,
            options: ProfileOptions {
                reconcile_by_default: false,
                reconcile_interval: Duration::from_secs(30),
                force_update_after: Duration::from_secs(300),
                update_qps: 10.0,
                update_burst: 100,
            },
            start: Instant::now(),
            journal: Mutex::new(Journal::new(pace, Duration::ZERO)),
        }
    }

    fn profile(spec: Value) -> ClusterColocationProfile {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p", "uid": "p", "resourceVersion": "1", "labels": {(CONTROLLER_MANAGED): "true"},
            },
            "spec": spec,
        }))
        .unwrap()
    }

    fn pod(name: &str, labels: Value) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "labels": labels},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        })
    }

    /// Two pages of pods, and every patch is taken.
    fn cluster(seen: &Seen) -> (u16, Value) {
        match &seen.line {
            line if line.contains("continue=more") => {
                (200, json!({"items": [pod("c", json!({"app": "x"}))]}))
            }
            line if line.starts_with("GET") => {
                let pods = [pod("a", json!({"app": "x"})), pod("b", json!({"app": "x", "new": "1"}))];
                (200, json!({"metadata": {"continue": "more"}, "items": pods}))
            }
            _ => (200, seen.body.clone()),
        }
    }

    async fn round(controller: &ColocationProfiles, profile: &ClusterColocationProfile) {
        let round = Round::new(controller, profile).unwrap();
        round.run(&pods_of(profile).unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn waiting_pods_are_listed_and_patched_once() {
        let api = FakeApi::default();
        let controller = controller(api.client(cluster), 100.0);
        let profile = profile(json!({"selector": {"matchLabels": {"app": "x"}}, "labels": {"new": "1"}}));
        round(&controller, &profile).await;
        let seen = api.seen();
        let list = "GET /api/v1/pods?&fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending&labelSelector=app%3Dx&limit=500";
        assert_eq!(seen[0].line, list);
        let patches: Vec<(&str, &Value)> = seen
            .iter()
            .filter(|seen| seen.line.starts_with("PATCH"))
            .map(|s| (s.line.as_str(), &s.body))
            .collect();
        let patch = |uid: &str| json!({"metadata": {"uid": uid, "labels": {"new": "1"}}});
        let want = [
            ("PATCH /api/v1/namespaces/ns/pods/a?", &patch("a")),
            ("PATCH /api/v1/namespaces/ns/pods/c?", &patch("c")),
        ];
        assert_eq!(patches, want, "b has all of it already");

        round(&controller, &profile).await;
        assert_eq!(
            api.lines().iter().filter(|line| line.starts_with("PATCH")).count(),
            0,
            "left alone for a while"
        );
    }

    #[tokio::test]
    async fn many_pods_take_several_rounds_and_a_failed_one_is_tried_again() {
        let api = FakeApi::default();
        let limited = controller(api.client(cluster), 1.0);
        let all = profile(json!({"selector": {}, "labels": {"new": "2"}}));
        round(&limited, &all).await;
        assert_eq!(api.lines().iter().filter(|line| line.starts_with("PATCH")).count(), 1);

        let refusing = controller(
            api.client(
                |seen| if seen.line.starts_with("GET") { cluster(seen) } else { refused(409, "changed") },
            ),
            100.0,
        );
        for _ in 0..2 {
            round(&refusing, &all).await;
            assert_eq!(api.lines().iter().filter(|line| line.starts_with("PATCH")).count(), 3);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_listed_or_read_is_a_failure() {
        let api = FakeApi::default();
        let controller = controller(api.client(|_| refused(500, "no")), 100.0);
        let fine = profile(json!({"selector": {}}));
        let round = Round::new(&controller, &fine).unwrap();
        assert!(round.run(&Selector::everything()).await.is_err());
        assert!(Round::new(&controller, &profile(json!({"probability": "abc"}))).is_err());
    }
}
