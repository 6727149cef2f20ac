//! Storage, assumptions and pods in any order: what is counted equals a recount.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::Cluster;
use crate::engine::input::Storage as Object;

#[derive(Clone, Debug)]
enum Step {
    Volume {
        at: usize,
        version: Version,
        look: Look,
    },
    VolumeGone(usize),
    Claim {
        at: usize,
        version: Version,
        node: Option<usize>,
    },
    ClaimGone(usize),
    /// With the volume as it is now, or as it was some steps ago.
    AssumeClaim {
        volume: usize,
        claim: usize,
        is_stale: bool,
    },
    RevertClaim {
        volume: usize,
        claim: usize,
        is_stale: bool,
    },
    AssumeNode {
        claim: usize,
        node: usize,
        is_stale: bool,
    },
    RevertNode {
        claim: usize,
        is_stale: bool,
    },
    Pod {
        at: usize,
        node: usize,
        claims: Vec<usize>,
    },
    PodGone(usize),
    Node(usize),
    NodeGone(usize),
}

#[derive(Clone, Copy, Debug)]
enum Version {
    New,
    /// The same object once more.
    Same,
    /// An object that does not tell.
    None,
}

#[derive(Clone, Debug)]
struct Look {
    size: i64,
    class: usize,
    hosts: Option<Vec<usize>>,
    /// And whether it has the UID.
    claim: Option<(usize, bool)>,
    is_available: bool,
    is_deleting: bool,
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![4 => Just(Version::New), 1 => Just(Version::Same), 1 => Just(Version::None)]
}

fn look() -> impl Strategy<Value = Look> {
    let hosts = proptest::option::of(proptest::collection::vec(0..3usize, 0..3));
    let claim = proptest::option::weighted(0.3, (0..3usize, any::<bool>()));
    let flags = (proptest::bool::weighted(0.8), proptest::bool::weighted(0.1));
    (1..4i64, 0..2usize, hosts, claim, flags).prop_map(|(size, class, hosts, claim, flags)| Look {
        size,
        class,
        hosts,
        claim,
        is_available: flags.0,
        is_deleting: flags.1,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let stale = || proptest::bool::weighted(0.2);
    prop_oneof![
        4 => (0..4usize, version(), look()).prop_map(|(at, version, look)| Step::Volume { at, version, look }),
        1 => (0..4usize).prop_map(Step::VolumeGone),
        3 => (0..3usize, version(), proptest::option::of(0..3usize))
            .prop_map(|(at, version, node)| Step::Claim { at, version, node }),
        1 => (0..3usize).prop_map(Step::ClaimGone),
        4 => (0..4usize, 0..3usize, stale())
            .prop_map(|(volume, claim, is_stale)| Step::AssumeClaim { volume, claim, is_stale }),
        2 => (0..4usize, 0..3usize, stale())
            .prop_map(|(volume, claim, is_stale)| Step::RevertClaim { volume, claim, is_stale }),
        3 => (0..3usize, 0..3usize, stale())
            .prop_map(|(claim, node, is_stale)| Step::AssumeNode { claim, node, is_stale }),
        1 => (0..3usize, stale()).prop_map(|(claim, is_stale)| Step::RevertNode { claim, is_stale }),
        3 => (0..4usize, 0..3usize, proptest::collection::vec(0..3usize, 0..3))
            .prop_map(|(at, node, claims)| Step::Pod { at, node, claims }),
        2 => (0..4usize).prop_map(Step::PodGone),
        1 => (0..3usize).prop_map(Step::Node),
        1 => (0..3usize).prop_map(Step::NodeGone),
    ]
}

/// The cluster, and what it should say of assumptions.
#[derive(Default)]
struct World {
    cluster: Cluster,
    revision: u64,
    /// Records as they were when they were last replaced.
    old_volumes: HashMap<usize, Arc<Volume>>,
    old_claims: HashMap<usize, Arc<Claim>>,
    assumed_claims: BTreeMap<String, ClaimRef>,
    assumed_nodes: BTreeMap<String, String>,
}

fn volume_name(at: usize) -> String {
    format!("v{at}")
}

fn claim_name(at: usize) -> String {
    format!("c{at}")
}

fn node_name(at: usize) -> String {
    format!("n{at}")
}

impl World {
    fn volume(&self, at: usize) -> Option<Arc<Volume>> {
        self.cluster.storage().volume(&volume_name(at)).cloned()
    }

    fn claim(&self, at: usize) -> Option<Arc<Claim>> {
        self.cluster.storage().claim("d", &claim_name(at)).cloned()
    }

    fn revision(&mut self, version: Version, known: Option<&str>) -> String {
        self.revision += 1;
        match version {
            Version::New => self.revision.to_string(),
            Version::Same => known.unwrap_or_default().to_owned(),
            Version::None => String::new(),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Volume { at, version, look } => self.set_volume(*at, *version, look),
            Step::VolumeGone(at) => {
                let known = self.volume(*at);
                let kind = StorageKind::PersistentVolume;
                let change = self.cluster.remove_storage(kind, "", &volume_name(*at));
                assert_eq!(change.is_some(), known.is_some());
                self.old_volumes.extend(known.map(|known| (*at, known)));
                self.assumed_claims.remove(&volume_name(*at));
            }
            Step::Claim { at, version, node } => self.set_claim(*at, *version, *node),
            Step::ClaimGone(at) => {
                let known = self.claim(*at);
                let kind = StorageKind::PersistentVolumeClaim;
                let change = self.cluster.remove_storage(kind, "d", &claim_name(*at));
                assert_eq!(change.is_some(), known.is_some());
                self.old_claims.extend(known.map(|known| (*at, known)));
                self.assumed_nodes.remove(&claim_name(*at));
            }
            Step::AssumeClaim { .. } | Step::RevertClaim { .. } => self.assume_or_revert_claim(step),
            Step::AssumeNode { .. } | Step::RevertNode { .. } => self.assume_or_revert_node(step),
            Step::Pod { at, node, claims } => {
                let claims: Vec<String> = claims.iter().map(|claim| claim_name(*claim)).collect();
                let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
                let object = json!({"metadata": {"name": format!("p{at}"), "namespace": "d", "uid": at.to_string()},
                    "spec": {"nodeName": node_name(*node), "containers": [],
                        "volumes": crate::plugins::volume_world::mounts(&claims)}});
                let pod = Arc::new(self.cluster.compile(&serde_json::from_value(object).unwrap()));
                self.cluster.confirm(pod);
            }
            Step::PodGone(at) => drop(self.cluster.release(&at.to_string())),
            Step::Node(at) => {
                let object =
                    json!({"metadata": {"name": node_name(*at), "labels": {"host": node_name(*at)}}});
                self.cluster.set_node(&serde_json::from_value(object).unwrap());
            }
            Step::NodeGone(at) => drop(self.cluster.remove_node(&node_name(*at))),
        }
    }

    fn set_volume(&mut self, at: usize, version: Version, look: &Look) {
        let known = self.volume(at);
        let revision = self.revision(version, known.as_ref().map(|known| &*known.revision));
        let hosts = look.hosts.as_ref().map(|hosts| {
            let hosts: Vec<String> = hosts.iter().map(|host| node_name(*host)).collect();
            json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "host", "operator": "In", "values": hosts}]}]}})
        });
        let claim = look.claim.map(|(claim, has_uid)| {
            let uid = has_uid.then(|| format!("uid-{claim}"));
            json!({"namespace": "d", "name": claim_name(claim), "uid": uid})
        });
        let deleted = look.is_deleting.then_some("2026-01-01T00:00:00Z");
        let object = json!({
            "metadata": {"name": volume_name(at), "resourceVersion": revision, "deletionTimestamp": deleted},
            "spec": {"capacity": {"storage": look.size.to_string()}, "storageClassName": look.class.to_string(),
                "nodeAffinity": hosts, "claimRef": claim},
            "status": {"phase": if look.is_available { "Available" } else { "Released" }}});
        let object = Object::PersistentVolume(Box::new(serde_json::from_value(object).unwrap()));
        let is_news = self.cluster.set_storage(&object).is_some();
        let is_known =
            known.as_ref().is_some_and(|known| !revision.is_empty() && *known.revision == *revision);
        assert_eq!(is_news, !is_known);
        if is_news {
            self.old_volumes.extend(known.map(|known| (at, known)));
            self.assumed_claims.remove(&volume_name(at));
        }
    }

    fn set_claim(&mut self, at: usize, version: Version, node: Option<usize>) {
        let known = self.claim(at);
        let revision = self.revision(version, known.as_ref().map(|known| &*known.revision));
        let node = node.map(node_name);
        let object = json!({"metadata": {"namespace": "d", "name": claim_name(at), "uid": format!("uid-{at}"),
            "resourceVersion": revision, "annotations": node.map(|node| json!({claim::SELECTED_NODE: node}))}});
        let object = Object::PersistentVolumeClaim(Box::new(serde_json::from_value(object).unwrap()));
        let is_news = self.cluster.set_storage(&object).is_some();
        if is_news {
            self.old_claims.extend(known.map(|known| (at, known)));
            self.assumed_nodes.remove(&claim_name(at));
        }
    }

    fn assume_or_revert_claim(&mut self, step: &Step) {
        let (Step::AssumeClaim { volume, claim, is_stale } | Step::RevertClaim { volume, claim, is_stale }) =
            step
        else {
            return;
        };
        let now = self.volume(*volume);
        let seen = if *is_stale { self.old_volumes.get(volume).cloned() } else { now.clone() };
        let (Some(seen), Some(claim)) = (seen, self.claim(*claim)) else { return };
        let is_current = now.is_some_and(|now| now.revision == seen.revision);
        let name = volume_name(*volume);
        let reference = ClaimRef::to(&claim);
        if matches!(step, Step::AssumeClaim { .. }) {
            assert_eq!(self.cluster.storage_mut().assume_claim(&seen, &claim).is_ok(), is_current);
            if is_current {
                self.assumed_claims.insert(name, reference);
            }
        } else {
            self.cluster.storage_mut().revert_claim(&seen, &claim);
            if is_current && self.assumed_claims.get(&name) == Some(&reference) {
                self.assumed_claims.remove(&name);
            }
        }
    }

    fn assume_or_revert_node(&mut self, step: &Step) {
        let (Step::AssumeNode { claim, is_stale, .. } | Step::RevertNode { claim, is_stale }) = step else {
            return;
        };
        let now = self.claim(*claim);
        let seen = if *is_stale { self.old_claims.get(claim).cloned() } else { now.clone() };
        let Some(seen) = seen else { return };
        let is_current = now.is_some_and(|now| now.revision == seen.revision);
        if let Step::AssumeNode { node, .. } = step {
            let assumed = self.cluster.storage_mut().assume_node(&seen, &node_name(*node));
            assert_eq!(assumed.is_ok(), is_current);
            if is_current {
                self.assumed_nodes.insert(claim_name(*claim), node_name(*node));
            }
        } else {
            self.cluster.storage_mut().revert_node(&seen);
            if is_current {
                self.assumed_nodes.remove(&claim_name(*claim));
            }
        }
    }

    /// Everything that is kept up step by step, against the same from scratch.
    fn check(&self) {
        let storage = self.cluster.storage();
        let mut shelves: HashMap<Arc<str>, Shelf> = HashMap::new();
        for volume in storage.volumes.values() {
            let assumed = self.assumed_claims.get(&*volume.name);
            assert_eq!(storage.claim_of(volume), assumed.or(volume.claim.as_ref()));
            let shelf = shelves.entry(volume.class.clone()).or_default();
            shelf.put(volume, assumed.or(volume.claim.as_ref()));
        }
        shelves.retain(|_, shelf| !shelf.is_empty());
        assert_eq!(storage.shelves, shelves);
        for (_, name, claim) in storage.claims.iter() {
            let assumed = self.assumed_nodes.get(&**name).map(String::as_str);
            assert_eq!(storage.selected_node(claim), assumed.or(claim.selected_node.as_deref()));
        }
        self.check_uses();
        self.check_smallest();
    }

    fn check_uses(&self) {
        let mut uses: BTreeMap<(Arc<str>, Row), u32> = BTreeMap::new();
        for held in self.cluster.all_held() {
            for claim in held.pod.class.claims() {
                *uses.entry((claim.into(), held.row)).or_default() += 1;
            }
        }
        let counted = self.cluster.storage().uses.iter();
        let counted = counted
            .flat_map(|(_, name, rows)| rows.iter().map(|(row, count)| ((name.clone(), *row), *count)));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), uses);
    }

    /// The index finds what a look at all volumes would.
    fn check_smallest(&self) {
        let storage = self.cluster.storage();
        for (class, host, size) in
            (0..2).flat_map(|c| (0..3).flat_map(move |h| (1..4).map(move |s| (c, h, s))))
        {
            let (class, labels) = (class.to_string(), BTreeMap::from([("host".to_owned(), node_name(host))]));
            let at_least = Size::from(size) * 1_000_000_000;
            let is_fit = |volume: &Volume| volume.reaches(&labels).is_ok();
            let is_free = |volume: &Volume| {
                storage.claim_of(volume).is_none() && volume.is_available && !volume.is_deleting
            };
            let all = storage.volumes.values();
            let want = all
                .filter(|v| *v.class == *class && v.size >= at_least && is_free(v) && is_fit(v))
                .min_by_key(|volume| (volume.size, &volume.name));
            let found = storage.smallest_free(&class, &labels, at_least, is_fit);
            assert_eq!(found.map(|volume| &volume.name), want.map(|volume| &volume.name));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_kept_equals_a_recount(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::default();
        for step in &steps {
            world.apply(step);
            world.check();
        }
    }
}

#[test]
fn objects_that_are_done_with_are_not_kept_whole() {
    let mut cluster = Cluster::default();
    let mut volume = |claim: serde_json::Value| {
        let object = json!({"metadata": {"name": "v"}, "spec": {"claimRef": claim}});
        cluster.set_storage(&Object::PersistentVolume(Box::new(serde_json::from_value(object).unwrap())));
        cluster.storage().volume("v").unwrap().object.is_some()
    };
    assert!(volume(json!(null)));
    assert!(volume(json!({"namespace": "d", "name": "c"})), "the UID is still to be written");
    assert!(!volume(json!({"namespace": "d", "name": "c", "uid": "u"})));
    let mut claim = |volume: &str| {
        let object = json!({"metadata": {"namespace": "d", "name": "c"}, "spec": {"volumeName": volume}});
        cluster
            .set_storage(&Object::PersistentVolumeClaim(Box::new(serde_json::from_value(object).unwrap())));
        cluster.storage().claim("d", "c").unwrap().object.is_some()
    };
    assert!(claim(""));
    assert!(!claim("v"));
}
