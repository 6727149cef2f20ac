//! Keeps the root quota of every ElasticQuotaProfile as large as its nodes. Spec: manager 13.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::{ElasticQuotaProfile, ElasticQuotaProfileSpec};
use koord_api::keys::quota::label::TREE_ID;
use koord_kit::events::{EventType, Note, Recorder, reference};
use koord_kit::log::chain;
use koord_kit::write::{Part, Place, WriteError, update_with};
use kube::Api;
use kube::api::PostParams;

use super::{Controller, Failure, Feeds, Ground, Key, Next, patch_fresh};
use crate::quota_profile::{Pool, labelled_tree_id, shape, tree_id};
use crate::world::World;

/// Nodes come, go and change; their sum is taken anew this often.
const AGAIN: Duration = Duration::from_secs(10);
/// After a quota could not be written.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(2);

pub(super) struct QuotaProfiles {
    client: kube::Client,
    world: Arc<World>,
    recorder: Recorder,
}

impl QuotaProfiles {
    pub(super) fn new(ground: &Ground) -> QuotaProfiles {
        QuotaProfiles {
            client: ground.client.clone(),
            world: ground.world.clone(),
            recorder: ground.recorder("quotaprofile-controller"),
        }
    }
}

impl Controller for QuotaProfiles {
    const NAME: &'static str = "quotaprofile";

    fn listen(&self, feeds: &Feeds) {
        feeds.on_object(&self.world.quota_profiles, |old, new| old.spec != new.spec);
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(profile) = self.world.quota_profiles.get(&key.namespace, &key.name) else {
            return Ok(Next::Done);
        };
        let Some(spec) = &profile.spec else { return Ok(Next::Done) };
        let tree = tree_of(&self.client, &profile, key).await?;
        let nodes: Vec<Arc<Node>> = self.world.nodes.snapshot().into_iter().map(|(_, node)| node).collect();
        let pool = Pool::new(spec, nodes.iter().map(|node| &**node))?;
        let present = self.world.quotas.get(&key.namespace, &spec.quota_name);
        let root = Root { profile: &profile, spec, tree: &tree, pool: &pool };
        match root.settle(&self.client, &key.namespace, present.as_deref()).await {
            Ok(()) => Ok(Next::After(AGAIN)),
            Err(fault) => {
                tracing::warn!(profile = %key, quota = spec.quota_name, "{}", fault.text);
                self.recorder.event(fault.note(&profile));
                Ok(Next::After(AGAIN_AFTER_FAILURE))
            }
        }
    }
}

/// The profile's tree id; written to it when it has none.
async fn tree_of(
    client: &kube::Client,
    profile: &ElasticQuotaProfile,
    key: &Key,
) -> Result<String, WriteError> {
    if let Some(id) = labelled_tree_id(profile) {
        return Ok(id.to_owned());
    }
    let id = tree_id(&key.namespace, &key.name);
    let place = Place { namespace: Some(&key.namespace), name: &key.name };
    let written = update_with(client, place, Part::Object, |profile: &mut ElasticQuotaProfile| {
        if labelled_tree_id(profile).is_none() {
            profile.metadata.labels.get_or_insert_default().insert(TREE_ID.to_owned(), id.clone());
        }
    });
    // Somebody may have chosen one in the meantime.
    Ok(labelled_tree_id(&written.await?.into_inner()).unwrap_or(&id).to_owned())
}

/// The root quota as it should be.
struct Root<'a> {
    profile: &'a ElasticQuotaProfile,
    spec: &'a ElasticQuotaProfileSpec,
    tree: &'a str,
    pool: &'a Pool,
}

impl Root<'_> {
    /// Creates or changes the quota. Nothing is sent when it is as it should be.
    async fn settle(
        &self,
        client: &kube::Client,
        namespace: &str,
        present: Option<&ElasticQuota>,
    ) -> Result<(), Fault> {
        match present {
            None => self.create(client, namespace).await,
            Some(present) => {
                let mut wanted = present.clone();
                self.shape(&mut wanted);
                if wanted == *present { Ok(()) } else { self.change(client, namespace).await }
            }
        }
    }

    async fn create(&self, client: &kube::Client, namespace: &str) -> Result<(), Fault> {
        let mut quota = ElasticQuota::default();
        quota.metadata.namespace = Some(namespace.to_owned());
        quota.metadata.name = Some(self.spec.quota_name.clone());
        self.shape(&mut quota);
        let api: Api<ElasticQuota> = Api::namespaced(client.clone(), namespace);
        match api.create(&PostParams::default(), &quota).await {
            Ok(_) => Ok(()),
            // The cache had not heard of it yet.
            Err(kube::Error::Api(status)) if status.code == 409 => self.change(client, namespace).await,
            Err(error) => Err(Fault::new("CreateQuotaFailed", "create", &reason(&error))),
        }
    }

    async fn change(&self, client: &kube::Client, namespace: &str) -> Result<(), Fault> {
        let place = Place { namespace: Some(namespace), name: &self.spec.quota_name };
        let written =
            patch_fresh(client, place, Part::Object, |quota: &mut ElasticQuota| self.shape(quota)).await;
        let text = |error: &WriteError| match error {
            WriteError::Api { source, .. } => reason(source),
            other => chain(other),
        };
        written.map_err(|error| Fault::new("UpdateQuotaFailed", "update", &text(&error)))
    }

    fn shape(&self, quota: &mut ElasticQuota) {
        shape(quota, self.profile, self.tree, self.pool, |error| {
            tracing::warn!(profile = self.profile.metadata.name, "{error}, cpu and memory are counted");
        });
    }
}

/// What the server said, or why it said nothing.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => chain(other),
    }
}

/// A quota that could not be written.
#[derive(Debug, PartialEq)]
struct Fault {
    reason: &'static str,
    text: String,
}

impl Fault {
    fn new(reason: &'static str, verb: &str, error: &str) -> Fault {
        Fault { reason, text: format!("failed to {verb} quota, err: {error}") }
    }

    fn note(&self, profile: &ElasticQuotaProfile) -> Note {
        Note {
            regarding: reference(profile),
            related: None,
            kind: EventType::Warning,
            reason: self.reason.to_owned(),
            action: String::new(),
            text: self.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use koord_api::keys::quota::label::{IS_ROOT, PROFILE};
    use serde_json::json;

    use super::*;
    use crate::fake::{FakeApi, refused};

    fn profile() -> ElasticQuotaProfile {
        let mut profile = ElasticQuotaProfile::default();
        profile.metadata.namespace = Some("default".to_owned());
        profile.metadata.name = Some("profile1".to_owned());
        profile.spec = Some(ElasticQuotaProfileSpec {
            quota_name: "root".to_owned(),
            node_selector: Some(LabelSelector::default()),
            ..ElasticQuotaProfileSpec::default()
        });
        profile
    }

    /// A root of no nodes in tree 7, settled by a server that answers so.
    async fn settled(
        present: Option<&ElasticQuota>,
        script: fn(&crate::fake::Seen) -> (u16, serde_json::Value),
    ) -> (Result<(), Fault>, Vec<crate::fake::Seen>) {
        let api = FakeApi::default();
        let (profile, pool) = (profile(), Pool::default());
        let root = Root { profile: &profile, spec: profile.spec.as_ref().unwrap(), tree: "7", pool: &pool };
        let result = root.settle(&api.client(script), "default", present).await;
        (result, api.seen())
    }

    fn shaped() -> ElasticQuota {
        let mut quota = ElasticQuota::default();
        quota.metadata.name = Some("root".to_owned());
        shape(&mut quota, &profile(), "7", &Pool::default(), |_| ());
        quota
    }

    #[tokio::test]
    async fn a_missing_root_is_created() {
        let (result, seen) = settled(None, |seen| (201, seen.body.clone())).await;
        assert_eq!(result, Ok(()));
        let [created] = &seen[..] else { panic!("{seen:?}") };
        let path = "POST /apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas?";
        assert_eq!(created.line, path);
        let labels = json!({(PROFILE): "profile1", (TREE_ID): "7", (IS_ROOT): "true"});
        assert_eq!(created.body["metadata"]["labels"], labels);
        assert_eq!(created.body["metadata"]["name"], json!("root"));
    }

    #[tokio::test]
    async fn a_root_that_is_right_costs_nothing() {
        let (result, seen) = settled(Some(&shaped()), |_| refused(500, "no")).await;
        assert_eq!((result, seen), (Ok(()), vec![]));
    }

    #[tokio::test]
    async fn a_root_that_is_wrong_is_changed_and_keeps_what_we_do_not_know() {
        let mut old = shaped();
        old.metadata.labels.as_mut().unwrap().insert(IS_ROOT.to_owned(), "false".to_owned());
        let stored = |seen: &crate::fake::Seen| match &seen.line {
            line if line.starts_with("GET") => {
                let metadata = json!({"name": "root", "resourceVersion": "3", "labels": {"keep": "1"}});
                (200, json!({"metadata": metadata, "spec": {"min": {}, "unknown": 1}}))
            }
            _ => (200, seen.body.clone()),
        };
        let (result, seen) = settled(Some(&old), stored).await;
        assert_eq!(result, Ok(()));
        let [_, written] = &seen[..] else { panic!("{seen:?}") };
        assert!(written.line.starts_with("PATCH "), "{}", written.line);
        assert!(written.body["spec"].get("unknown").is_none(), "what is not ours is not sent");
        assert!(written.body["metadata"]["labels"].get("keep").is_none(), "what is not ours is not sent");
        assert_eq!(written.body["metadata"]["labels"][IS_ROOT], json!("true"));
        assert!(written.body["metadata"].get("resourceVersion").is_none(), "others may write meanwhile");
    }

    #[tokio::test]
    async fn failures_are_told_on_the_profile() {
        let (result, _) = settled(None, |_| refused(403, "not here")).await;
        let fault = result.unwrap_err();
        assert_eq!(
            (fault.reason, fault.text.as_str()),
            ("CreateQuotaFailed", "failed to create quota, err: not here")
        );
        let note = fault.note(&profile());
        assert_eq!(note.regarding.name.as_deref(), Some("profile1"));
        assert_eq!((note.kind, note.reason.as_str()), (EventType::Warning, "CreateQuotaFailed"));

        let old = ElasticQuota::default();
        let (result, _) = settled(Some(&old), |_| refused(403, "not here")).await;
        let fault = result.unwrap_err();
        assert_eq!(
            (fault.reason, fault.text.as_str()),
            ("UpdateQuotaFailed", "failed to update quota, err: not here")
        );

        // One that appeared in the meantime is changed instead.
        let race = |seen: &crate::fake::Seen| match &seen.line {
            line if line.starts_with("POST") => refused(409, "already exists"),
            line if line.starts_with("GET") => (200, json!({"metadata": {"name": "root"}})),
            _ => (200, seen.body.clone()),
        };
        let (result, seen) = settled(None, race).await;
        assert_eq!((result, seen.len()), (Ok(()), 3));
    }

    #[tokio::test]
    async fn a_profile_without_a_tree_gets_one() {
        let key = Key { namespace: "default".into(), name: "profile1".into() };
        let stored = |seen: &crate::fake::Seen| match &seen.line {
            line if line.starts_with("GET") => (200, serde_json::to_value(profile()).unwrap()),
            _ => (200, seen.body.clone()),
        };
        let api = FakeApi::default();
        let id = tree_of(&api.client(stored), &profile(), &key).await.unwrap();
        assert_eq!(id, "3288849408605801223");
        let seen = api.seen();
        assert_eq!(seen[1].body["metadata"]["labels"][TREE_ID], json!(id));

        let mut chosen = profile();
        chosen.metadata.labels = Some([(TREE_ID.to_owned(), "mine".to_owned())].into());
        let id = tree_of(&api.client(|_| refused(500, "no")), &chosen, &key).await.unwrap();
        assert_eq!((id.as_str(), api.seen().len()), ("mine", 0));
        assert!(
            tree_of(&api.client(|_| refused(403, "no")), &profile(), &key).await.is_err(),
            "tried again later"
        );
    }
}
