//! Whether the engine knows the nodes and pods that the API has, for SIGUSR2. Spec: scheduler-core 8.2.
//!
//! What changes while both are asked may differ for a moment; what differs twice is a fault.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use koord_kit::log::chain;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::brain::View;
use crate::driver::Desk;
use crate::watches::UNFINISHED;

/// Objects asked for at once.
const PAGE: u32 = 500;

/// Identities, and how people know them.
type Known = BTreeMap<String, String>;

/// What one side has and the other has not, by the names people know.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// The API has it, the engine has not.
    pub(crate) missed: Vec<String>,
    pub(crate) redundant: Vec<String>,
}

/// Compares, and tells the log.
pub(crate) async fn compare(client: &kube::Client, desk: &Desk) {
    tracing::info!("Cache comparer started");
    let Ok(Some(census)) = desk.ask(View::Census).await else { return };
    if census["sumsAreRight"] == Value::Bool(false) {
        tracing::error!("the sums of nodes are not those of their pods");
    }
    let nodes = list::<Node>(client, ListParams::default(), |_| None).await;
    tell("Nodes", &known(&census["nodes"]), nodes);
    let pods = list::<Pod>(client, ListParams::default().fields(UNFINISHED), Some).await;
    tell("Pods", &known(&census["pods"]), pods);
    tracing::info!("Cache comparer finished");
}

fn tell(kind: &str, ours: &Known, theirs: Result<Known, kube::Error>) {
    match theirs {
        Err(error) => tracing::warn!(error = chain(&error), "{kind} cannot be listed for comparison"),
        Ok(theirs) => {
            let Differences { missed, redundant } = differences(ours, &theirs);
            if !missed.is_empty() || !redundant.is_empty() {
                tracing::info!(?missed, ?redundant, "Cache mismatch: {kind}");
            }
        }
    }
}

/// From a view: identity by identity.
fn known(view: &Value) -> Known {
    let entries = view.as_object().into_iter().flatten();
    entries.map(|(id, name)| (id.clone(), name.as_str().unwrap_or_default().to_owned())).collect()
}

pub(crate) fn differences(ours: &Known, theirs: &Known) -> Differences {
    let only = |some: &Known, others: &Known| {
        some.iter().filter(|(id, _)| !others.contains_key(*id)).map(|(_, name)| name.clone()).collect()
    };
    Differences { missed: only(theirs, ours), redundant: only(ours, theirs) }
}

/// All objects of a kind; `id` makes an identity of a UID where a name is not enough.
async fn list<K>(
    client: &kube::Client,
    mut params: ListParams,
    id: fn(String) -> Option<String>,
) -> Result<Known, kube::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    params = params.limit(PAGE);
    let mut known = Known::new();
    loop {
        let page = api.list_metadata(&params).await?;
        for PartialObjectMeta { metadata, .. } in page.items {
            let name = metadata.name.unwrap_or_default();
            let named = match metadata.namespace {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            };
            known.insert(id(metadata.uid.unwrap_or_default()).unwrap_or_else(|| named.clone()), named);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_side_has_is_named() {
        let of = |pairs: &[(&str, &str)]| -> Known {
            pairs.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect()
        };
        let ours = of(&[("u1", "d/a"), ("u2", "d/b")]);
        // The same name again, but another pod.
        let theirs = of(&[("u1", "d/a"), ("u3", "d/b")]);
        let want = Differences { missed: vec!["d/b".to_owned()], redundant: vec!["d/b".to_owned()] };
        assert_eq!(differences(&ours, &theirs), want);
        assert_eq!(differences(&ours, &ours), Differences::default());
    }
}
