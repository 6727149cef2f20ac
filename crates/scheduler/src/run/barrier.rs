//! A new leader's proof that it knows what the last one did: it marks a pod and waits until it sees its own mark.
//!
//! All pods come by one watch, in order; so whoever sees the mark has seen everything that was written before it, the
//! last leader's bindings too. Spec: scheduler-core 8.1.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use koord_api::keys::pod::annotation::SYNC_BARRIER_PREFIX;
use koord_kit::log::chain;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::brain::View;
use crate::driver::Desk;
use crate::flags::SyncBarrier;

/// How often we look for the mark.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How it went; the leader goes on in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Seen,
    /// There is no such pod, or it cannot be marked.
    NoPod,
    TooLong,
    Stopped,
}

/// Marks the pod and waits for the mark.
pub(super) async fn wait(
    client: &kube::Client,
    desk: &Desk,
    flags: &SyncBarrier,
    lease: &str,
    stop: &CancellationToken,
) -> Waited {
    let waited = tokio::select! {
        waited = tokio::time::timeout(flags.hard_timeout, mark_and_look(client, desk, flags, lease)) => {
            waited.unwrap_or(Waited::TooLong)
        }
        () = stop.cancelled() => Waited::Stopped,
    };
    let pod = format!("{}/{}", flags.pod_namespace, flags.pod_name);
    tracing::info!(pod, ?waited, "the sync barrier is passed");
    waited
}

async fn mark_and_look(client: &kube::Client, desk: &Desk, flags: &SyncBarrier, lease: &str) -> Waited {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &flags.pod_namespace);
    let key = format!("{SYNC_BARRIER_PREFIX}{lease}");
    let annotations: BTreeMap<String, String> = [(key, jiff::Timestamp::now().to_string())].into();
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let marked = match pods.patch_metadata(&flags.pod_name, &PatchParams::default(), &patch).await {
        Ok(marked) => marked.metadata.resource_version.unwrap_or_default(),
        Err(error) => {
            tracing::info!(error = chain(&error), "the pod of the sync barrier cannot be marked");
            return Waited::NoPod;
        }
    };
    let question = View::Revision { namespace: flags.pod_namespace.clone(), name: flags.pod_name.clone() };
    loop {
        match desk.ask(question.clone()).await {
            Ok(Some(Value::String(known))) if is_as_new(&known, &marked) => return Waited::Seen,
            Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
            Err(_) => return Waited::Stopped,
        }
    }
}

/// Versions are numbers of one counter; anything else is only equal to itself.
fn is_as_new(known: &str, wanted: &str) -> bool {
    match (known.parse::<u64>(), wanted.parse::<u64>()) {
        (Ok(known), Ok(wanted)) => known >= wanted,
        _ => known == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeApi, FakeBrain, Reply, desk};

    fn flags(hard_timeout: Duration) -> SyncBarrier {
        SyncBarrier { pod_namespace: "kube-system".to_owned(), pod_name: "b".to_owned(), hard_timeout }
    }

    #[tokio::test]
    async fn a_leader_goes_on_when_it_sees_its_own_mark() {
        let (patient, hasty) = (Duration::from_secs(600), Duration::from_millis(1));
        for (name, answer, revision, timeout, want) in [
            ("seen", 200, Some("12"), patient, Waited::Seen),
            ("newer", 200, Some("100"), patient, Waited::Seen),
            ("older", 200, Some("9"), hasty, Waited::TooLong),
            ("unknown", 200, None, hasty, Waited::TooLong),
            ("no such pod", 404, Some("12"), patient, Waited::NoPod),
        ] {
            let api = FakeApi::new(move |_| match answer {
                200 => Reply::Answer(200, json!({"metadata": {"resourceVersion": "12"}}).to_string()),
                code => Reply::refused(code, "not found"),
            });
            let (brain, stop) = (FakeBrain::default(), CancellationToken::new());
            brain.with(|state| state.revision = revision.map(str::to_owned));
            let desk = desk(brain, &stop);
            let waited = wait(&api.client(), &desk, &flags(timeout), "koord", &stop).await;
            assert_eq!(waited, want, "{name}");
            let asked = &api.seen()[0];
            assert!(asked.line.starts_with("PATCH /api/v1/namespaces/kube-system/pods/b?"), "{}", asked.line);
            let mark = &asked.body["metadata"]["annotations"][format!("{SYNC_BARRIER_PREFIX}koord")];
            assert!(mark.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{mark}");
            stop.cancel();
        }
    }
}
