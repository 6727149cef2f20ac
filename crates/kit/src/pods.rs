//! A pod as a cache keeps it: small, because pods of one template share nearly everything.
//!
//! A [`PodEntry`] holds a pod's identity and what is its own; labels, annotations, owner, conditions and the spec are
//! shared with every pod that has the same. For that, what differs between pods of a template is taken out of the
//! spec and kept beside it: the node, the hostname, the claims of a StatefulSet's volumes. The random name of the
//! service account's token volume is made the same for all, for nothing depends on it.
//!
//! Not kept: managed fields, container statuses, and annotations that only other programs read (see
//! [`PodProjection::new`]). Use it as the projection of a cache:
//!
//! ```no_run
//! # use koord_kit::{cache::CacheBuilder, pods::PodProjection};
//! # fn example(client: kube::Client) {
//! let projection = PodProjection::new();
//! let (pods, worker) = CacheBuilder::of(client, move |key, pod| projection.project(key, pod)).build();
//! # }
//! ```

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::cache::{ObjectKey, Pool, Uid};

/// Volumes with a service account's token are named by this and five random letters.
const TOKEN_VOLUME: &str = "kube-api-access";

/// Annotations for other readers, often large and different for each pod.
const FOREIGN_ANNOTATIONS: [&str; 7] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "cni.projectcalico.org/",
    "k8s.v1.cni.cncf.io/",
    "k8s.ovn.org/",
    "kubernetes.io/config.seen",
    "prometheus.io/",
    "sidecar.istio.io/status",
];

/// Sorted pairs of text, such as labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pairs(Box<[(Arc<str>, Arc<str>)]>);

impl Pairs {
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodPhase {
    pub fn of(text: Option<&str>) -> PodPhase {
        match text {
            None | Some("" | "Pending") => PodPhase::Pending,
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some(_) => PodPhase::Unknown,
        }
    }

    /// Whether the pod has ended and uses nothing any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, PodPhase::Succeeded | PodPhase::Failed)
    }
}

/// The controller that made a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConditionView {
    pub kind: Arc<str>,
    pub status: Arc<str>,
    pub reason: Arc<str>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEntry {
    pub key: ObjectKey,
    pub uid: Uid,
    /// Seconds since 1970.
    pub created: i64,
    /// When its deletion was asked for, in seconds since 1970.
    pub deletion: Option<i64>,
    /// When the kubelet took it in, in seconds since 1970.
    pub started: Option<i64>,
    pub labels: Arc<Pairs>,
    pub annotations: Arc<Pairs>,
    pub owner: Option<Arc<Owner>>,
    pub node: Option<Arc<str>>,
    pub nominated_node: Option<Arc<str>>,
    pub phase: PodPhase,
    pub conditions: Arc<Vec<ConditionView>>,
    /// Without the parts that are the pod's own; see [`PodEntry::full_spec`].
    pub spec: Arc<PodSpec>,
    own: Option<Box<Own>>,
}

/// What a spec holds for this pod alone, beyond its node.
#[derive(Clone, Debug, Default, PartialEq)]
struct Own {
    hostname: Option<Box<str>>,
    /// Volume names and their claims.
    claims: Box<[(Arc<str>, Box<str>)]>,
}

impl PodEntry {
    pub fn hostname(&self) -> Option<&str> {
        self.own.as_ref()?.hostname.as_deref()
    }

    /// The persistent volume claims that the pod's volumes name, as `(volume, claim)`.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &str)> {
        let claims = self.own.as_ref().map(|own| &*own.claims).unwrap_or_default();
        claims.iter().map(|(volume, claim)| (&**volume, &**claim))
    }

    /// The spec with the pod's own parts put back, as the server has it but for the token volume's name.
    pub fn full_spec(&self) -> PodSpec {
        let mut spec = (*self.spec).clone();
        spec.node_name = self.node.as_deref().map(str::to_owned);
        spec.hostname = self.hostname().map(str::to_owned);
        for volume in spec.volumes.iter_mut().flatten() {
            let claim =
                self.claims().find(|(name, _)| *name == volume.name).map(|(_, claim)| claim.to_owned());
            if let (Some(source), Some(claim)) = (&mut volume.persistent_volume_claim, claim) {
                source.claim_name = claim;
            }
        }
        spec
    }
}

/// Makes entries, sharing what is equal among all that it made.
pub struct PodProjection {
    texts: Pool<str>,
    pairs: Pool<Pairs>,
    owners: Pool<Owner>,
    conditions: Pool<Vec<ConditionView>>,
    specs: Pool<PodSpec>,
    keeps_annotation: fn(&str) -> bool,
}

impl Default for PodProjection {
    fn default() -> PodProjection {
        PodProjection::new()
    }
}

impl PodProjection {
    /// Keeps all annotations but those that `kubectl`, network plugins and the like write for themselves.
    pub fn new() -> PodProjection {
        PodProjection {
            texts: Pool::default(),
            pairs: Pool::default(),
            owners: Pool::default(),
            conditions: Pool::default(),
            specs: Pool::default(),
            keeps_annotation: |key| !FOREIGN_ANNOTATIONS.iter().any(|foreign| key.starts_with(foreign)),
        }
    }

    /// Keeps only the annotations that the caller wants.
    pub fn with_annotations(keeps_annotation: fn(&str) -> bool) -> PodProjection {
        PodProjection { keeps_annotation, ..PodProjection::new() }
    }

    /// What is kept of a pod.
    pub fn project(&self, key: &ObjectKey, pod: Pod) -> PodEntry {
        let Pod { metadata, spec, status } = pod;
        let mut spec = spec.unwrap_or_default();
        let status = status.unwrap_or_default();
        let node = spec.node_name.take().filter(|node| !node.is_empty()).map(|node| self.texts.text(&node));
        let own = self.take_own(&mut spec);
        // Deprecated twin of serviceAccountName, always equal to it.
        spec.service_account = None;
        let keeps = self.keeps_annotation;
        PodEntry {
            key: key.clone(),
            uid: Uid::of(metadata.uid.as_deref().unwrap_or_default()),
            created: seconds(metadata.creation_timestamp.as_ref()).unwrap_or(0),
            deletion: seconds(metadata.deletion_timestamp.as_ref()),
            started: seconds(status.start_time.as_ref()),
            owner: self.owner(&metadata),
            labels: self.share_pairs(metadata.labels.unwrap_or_default().into_iter()),
            annotations: self.share_pairs(
                metadata.annotations.unwrap_or_default().into_iter().filter(|(key, _)| keeps(key)),
            ),
            node,
            nominated_node: status
                .nominated_node_name
                .as_deref()
                .filter(|node| !node.is_empty())
                .map(|node| self.texts.text(node)),
            phase: PodPhase::of(status.phase.as_deref()),
            conditions: self.conditions.share(self.conditions_of(&status)),
            spec: self.specs.share_hashed(hash_of(&spec), spec),
            own,
        }
    }

    /// How many different specs there are.
    pub fn specs(&self) -> usize {
        self.specs.len()
    }

    fn share_pairs(&self, pairs: impl Iterator<Item = (String, String)>) -> Arc<Pairs> {
        // The map was sorted, so the pairs are.
        let pairs = pairs.map(|(key, value)| (self.texts.text(&key), self.texts.text(&value))).collect();
        self.pairs.share(Pairs(pairs))
    }

    fn owner(&self, metadata: &ObjectMeta) -> Option<Arc<Owner>> {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        Some(self.owners.share(Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: Uid::of(&owner.uid),
        }))
    }

    fn conditions_of(&self, status: &PodStatus) -> Vec<ConditionView> {
        let conditions = status.conditions.as_deref().unwrap_or_default().iter();
        conditions
            .map(|condition| ConditionView {
                kind: self.texts.text(&condition.type_),
                status: self.texts.text(&condition.status),
                reason: self.texts.text(condition.reason.as_deref().unwrap_or_default()),
            })
            .collect()
    }

    /// Takes out of a spec what is this pod's alone, and evens out the token volume's name.
    fn take_own(&self, spec: &mut PodSpec) -> Option<Box<Own>> {
        let hostname = spec.hostname.take().map(String::into_boxed_str);
        let mut claims = Vec::new();
        for volume in spec.volumes.iter_mut().flatten() {
            if let Some(source) = &mut volume.persistent_volume_claim {
                let claim = std::mem::take(&mut source.claim_name);
                claims.push((self.texts.text(&volume.name), claim.into_boxed_str()));
            }
        }
        even_token_volume(spec);
        let is_empty = hostname.is_none() && claims.is_empty();
        (!is_empty).then(|| Box::new(Own { hostname, claims: claims.into_boxed_slice() }))
    }
}

fn even_token_volume(spec: &mut PodSpec) {
    let is_token = |volume: &&mut Volume| volume.projected.is_some() && is_token_name(&volume.name);
    let Some(volume) = spec.volumes.iter_mut().flatten().find(is_token) else { return };
    let given = std::mem::replace(&mut volume.name, TOKEN_VOLUME.to_owned());
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    let mounts = containers.flat_map(|container| container.volume_mounts.iter_mut().flatten());
    let ephemeral = spec.ephemeral_containers.iter_mut().flatten();
    let ephemeral = ephemeral.flat_map(|container| container.volume_mounts.iter_mut().flatten());
    for mount in mounts.chain(ephemeral).filter(|mount| mount.name == given) {
        mount.name = TOKEN_VOLUME.to_owned();
    }
}

fn is_token_name(name: &str) -> bool {
    name.strip_prefix(TOKEN_VOLUME)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|rest| rest.len() == 5)
}

fn seconds(time: Option<&Time>) -> Option<i64> {
    time.map(|time| time.0.as_second())
}

/// Equal specs have equal JSON, so that is what is hashed; nothing is written anywhere.
fn hash_of(spec: &PodSpec) -> u64 {
    struct HashWriter(DefaultHasher);
    impl io::Write for HashWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = HashWriter(DefaultHasher::new());
    // A spec that came as JSON can be written as JSON; were it not so, all such specs would share one hash and
    // still be told apart by comparison.
    let _ = serde_json::to_writer(&mut writer, spec);
    writer.0.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, number: u32) -> Pod {
        let token = format!("kube-api-access-ab{number:03}");
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": format!("00000000-0000-4000-8000-{number:012}"),
                "creationTimestamp": "2024-01-01T00:00:00Z",
                "labels": {"app": "web", "tier": "front"},
                "annotations": {
                    "scheduling.koordinator.sh/resource-status": "{}",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                    "cni.projectcalico.org/podIP": format!("10.0.0.{number}/32")},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u1", "controller": true}]
            },
            "spec": {
                "nodeName": format!("node-{number}"), "hostname": name, "serviceAccount": "default", "serviceAccountName": "default",
                "containers": [{"name": "main", "image": "web:1", "volumeMounts": [
                    {"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                    {"name": "data", "mountPath": "/data"}]}],
                "volumes": [
                    {"name": token, "projected": {"sources": []}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}}]
            },
            "status": {"phase": "Running", "startTime": "2024-01-01T00:00:05Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:06Z"}]}
        }))
        .unwrap()
    }

    fn project(projection: &PodProjection, name: &str, number: u32) -> PodEntry {
        let key = ObjectKey { namespace: "shop".into(), name: name.into() };
        projection.project(&key, pod(name, number))
    }

    #[test]
    fn pods_of_a_template_share_all_but_their_own() {
        let projection = PodProjection::new();
        let (one, two) = (project(&projection, "web-0", 1), project(&projection, "web-1", 2));
        assert!(Arc::ptr_eq(&one.spec, &two.spec));
        assert!(Arc::ptr_eq(&one.labels, &two.labels));
        assert!(Arc::ptr_eq(&one.annotations, &two.annotations));
        assert!(Arc::ptr_eq(one.owner.as_ref().unwrap(), two.owner.as_ref().unwrap()));
        assert!(Arc::ptr_eq(&one.conditions, &two.conditions));
        assert_eq!(projection.specs(), 1);
        assert_eq!(one.node.as_deref(), Some("node-1"));
        assert_eq!(two.hostname(), Some("web-1"));
        assert_eq!(two.claims().collect::<Vec<_>>(), [("data", "data-web-1")]);
        assert_eq!(one.labels.get("app"), Some("web"));
        assert_eq!(one.labels.get("none"), None);
        assert_eq!(
            one.annotations.iter().collect::<Vec<_>>(),
            [("scheduling.koordinator.sh/resource-status", "{}")]
        );
        assert_eq!(
            (one.phase, one.created, one.started),
            (PodPhase::Running, 1_704_067_200, Some(1_704_067_205))
        );
        assert!(std::mem::size_of::<PodEntry>() <= 256, "{}", std::mem::size_of::<PodEntry>());
    }

    #[test]
    fn the_full_spec_is_the_servers() {
        let projection = PodProjection::new();
        let entry = project(&projection, "web-0", 7);
        let mut want = pod("web-0", 7).spec.unwrap();
        even_token_volume(&mut want);
        want.service_account = None;
        assert_eq!(entry.full_spec(), want);
    }

    #[test]
    fn a_different_template_is_not_shared() {
        let projection = PodProjection::new();
        let one = project(&projection, "web-0", 1);
        let mut other = pod("web-1", 2);
        other.spec.as_mut().unwrap().containers[0].image = Some("web:2".to_owned());
        let other = projection.project(&one.key, other);
        assert!(!Arc::ptr_eq(&one.spec, &other.spec));
        assert_eq!(projection.specs(), 2);
    }
}
