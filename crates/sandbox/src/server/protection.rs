//! Claims and volumes under deletion stay while something uses them, and go when nothing does.
//!
//! In Kubernetes a controller does this; here it happens right after the write that changes it.

use serde_json::Value;

use super::api::{Api, draft, load};
use crate::kinds::{Kind, meta};
use crate::store::{Query, Stored, key};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

impl Api {
    /// Looks at what a write to a claim, a volume or a pod may have freed.
    pub(super) fn release_unused(&self, kind: &Kind, old: Option<&Stored>, new: Option<&Stored>) {
        match (kind.plural.as_ref(), old, new) {
            ("persistentvolumeclaims", _, Some(claim)) => {
                self.release_object("persistentvolumeclaims", CLAIM, claim.namespace(), claim.name());
            }
            ("persistentvolumes", _, Some(volume)) => {
                self.release_object("persistentvolumes", VOLUME, "", volume.name())
            }
            ("pods", Some(pod), None) => {
                for claim in claims_of(&pod.value()) {
                    self.release_object("persistentvolumeclaims", CLAIM, pod.namespace(), &claim);
                }
            }
            _ => {}
        }
    }

    fn release_object(&self, plural: &str, finalizer: &str, namespace: &str, name: &str) {
        let Ok(kind) = self.kind("", plural) else { return };
        let table = self.table(&kind);
        let key = key(namespace, name);
        while let Some(stored) = table.get(&key) {
            let mut object = load(&kind, &stored);
            let is_held = meta::finalizers(&object).contains(&finalizer);
            if !meta::is_deleting(&object) || !is_held || self.is_used(&kind, &object) {
                return;
            }
            let rest: Vec<Value> =
                meta::finalizers(&object).into_iter().filter(|f| *f != finalizer).map(Value::from).collect();
            let committed = match rest.is_empty() {
                true => table.remove(&key, stored.revision()),
                false => {
                    meta::set(&mut object, "finalizers", Some(Value::Array(rest)));
                    table.replace(draft(&kind, object), stored.revision())
                }
            };
            if committed.is_ok() {
                return;
            }
        }
    }

    /// A claim is used by pods on nodes, a volume by the claim it is bound to.
    fn is_used(&self, kind: &Kind, object: &Value) -> bool {
        if kind.plural == "persistentvolumes" {
            return object["status"]["phase"] == "Bound";
        }
        let query = Query { namespace: Some(meta::namespace(object)), ..Query::default() };
        let name = meta::name(object);
        let uses = |pod: &Stored| {
            !pod.field("spec.nodeName").is_empty()
                && claims_of(&pod.value()).iter().any(|claim| claim == name)
        };
        let pods = self.store.table("", "pods").page(query, &uses);
        pods.is_ok_and(|page| !page.items.is_empty())
    }
}

/// Names of the claims a pod mounts, those made for it included.
fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |volume: &Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => Some(name.to_owned()),
        None if volume["ephemeral"].is_object() => {
            Some(format!("{}-{}", meta::name(pod), volume["name"].as_str().unwrap_or_default()))
        }
        None => None,
    };
    volumes.filter_map(claim).collect()
}
