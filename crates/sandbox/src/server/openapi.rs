//! OpenAPI v3 on the wire: documents made once for the kinds served, and made anew when they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::discovery;
use crate::kinds::{Registry, Version};
use crate::schema::openapi::{self, Resource, Subresource};

/// The documents of the kinds served now.
#[derive(Default)]
pub(super) struct Documents {
    /// With the kinds they were made from.
    made: Mutex<Option<(Arc<Registry>, Arc<Made>)>>,
}

struct Made {
    index: Bytes,
    by_path: BTreeMap<String, Bytes>,
}

impl Documents {
    /// `/openapi/v3` (an empty path: the list of documents) or one of them.
    pub(super) fn get(&self, registry: &Arc<Registry>, path: &str) -> Option<Bytes> {
        let made = self.made(registry);
        match path {
            "" => Some(made.index.clone()),
            path => made.by_path.get(path).cloned(),
        }
    }

    fn made(&self, registry: &Arc<Registry>) -> Arc<Made> {
        let mut slot = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some((from, made)) if Arc::ptr_eq(from, registry) => made.clone(),
            _ => {
                let made = Arc::new(make(registry));
                *slot = Some((registry.clone(), made.clone()));
                made
            }
        }
    }
}

fn make(registry: &Registry) -> Made {
    let mut by_path = BTreeMap::new();
    for (group, found) in registry.groups() {
        for version in &found.versions {
            let path = openapi::path_of(group, &version.name);
            by_path.insert(path, document(group, version));
        }
    }
    let hashes: Vec<(&String, String)> =
        by_path.iter().map(|(path, document)| (path, openapi::hash(document))).collect();
    let index = openapi::index(hashes.iter().map(|(path, hash)| (path.as_str(), hash.as_str())));
    Made { index: Bytes::from(index.to_string()), by_path }
}

fn document(group: &str, version: &Version) -> Bytes {
    let parts: Vec<Vec<Subresource<'_>>> = version
        .kinds
        .values()
        .map(|kind| {
            let part = |part: &_| {
                let (group, version, kind_name) = discovery::response_kind(kind, part);
                let verbs = discovery::verbs(part);
                Subresource { name: part.name(), group, version, kind: kind_name, verbs }
            };
            kind.subresources.iter().map(part).collect()
        })
        .collect();
    let resources: Vec<Resource<'_>> = version
        .kinds
        .values()
        .zip(&parts)
        .map(|(kind, subresources)| Resource {
            kind: &kind.kind,
            plural: &kind.plural,
            namespaced: kind.namespaced,
            verbs: kind.verbs,
            subresources,
            custom: kind.custom.as_deref().map(|custom| &custom.openapi),
        })
        .collect();
    Bytes::from(openapi::document(group, &version.name, &resources).to_string())
}
