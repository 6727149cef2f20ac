//! Writes to Reservations, and the marks on pods that use them. Spec: scheduler-reservation-loadaware A4.5, A7.8, A9.
//!
//! A status is changed on the object as it is at that moment, read anew for every try, so that nothing of another
//! writer is lost and one that has ended stays so.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use koord_api::annotation;
use koord_api::annotation::reservation::ResizeAllocatable;
use koord_api::crd::reservation::{Reservation, ReservationConditionType, ReservationPhase};
use koord_api::crd::{ConditionStatus, decode_object};
use koord_api::preserve::carry_unknown;
use koord_api::time::Time;
use koord_engine::engine::command::{Binding, ReservationChange, ReservationWrite, Subject, Unmark};
use kube::Resource as _;
use serde_json::{Map, Value, json};

use super::Shared;
use super::api::{Failure, JSON, MERGE, patiently, pod_path};

/// What stands in place of a server's answer where we ourselves refuse: nothing to try again.
const REFUSED: u16 = 422;

/// The path of a Reservation, or of a part of it.
pub(super) fn path(name: &str, part: &str) -> String {
    format!("{}/{name}{part}", Reservation::url_path(&(), None))
}

/// Binds a Reservation: it is on its node from now on. The error is the whole text.
pub(super) async fn bind(shared: &Shared, binding: &Binding, name: &str) -> Result<(), String> {
    shared.check_lead()?;
    let uid = &binding.pod.uid;
    let placed = edit(shared, name, uid, |object| place(object, &binding.node, binding.waits_for_room)).await;
    placed.map_err(|failure| failure.to_string())
}

fn place(object: &mut Reservation, node: &str, waits_for_room: bool) -> Result<(), String> {
    // Differs: upstream places one that was consumed a second time.
    if object.is_finished() {
        return Err("reservation is not active".to_owned());
    }
    match object.node_name() {
        // Our own write, whose answer was lost.
        Some(known) if known == node && object.is_active() => return Ok(()),
        Some(known) => return Err(format!("reservation is on node {known} already")),
        None => {}
    }
    let annotations = object.metadata.annotations.as_ref();
    let resize = annotation::read::<ResizeAllocatable>(annotations).map_err(|error| error.to_string())?;
    match waits_for_room {
        true => object.set_waiting(node, resize.as_ref(), now()),
        false => object.set_available(node, resize.as_ref(), now()),
    }
    Ok(())
}

/// Makes a change of a status; the error is the whole text.
pub(super) async fn write(shared: &Shared, write: &ReservationWrite) -> Result<(), String> {
    shared.check_lead()?;
    let written = edit(shared, &write.name, &write.uid, |object| {
        change(object, &write.change);
        Ok(())
    });
    match written.await {
        Err(failure) if failure.is_gone() => Ok(()),
        result => result.map_err(|failure| failure.to_string()),
    }
}

fn change(object: &mut Reservation, change: &ReservationChange) {
    if object.is_finished() {
        return;
    }
    match change {
        ReservationChange::Unschedulable { message } => {
            // One that was placed meanwhile keeps its conditions but for the time.
            let scheduled = object
                .status
                .as_ref()
                .and_then(|status| status.condition(&ReservationConditionType::Scheduled));
            let is_told = scheduled.is_some_and(|scheduled| scheduled.status == ConditionStatus::True);
            if !object.is_active() || is_told {
                object.set_unschedulable(message, now());
            }
        }
        ReservationChange::Available => {
            if object.phase() == ReservationPhase::Waiting {
                object.end_waiting(now());
            }
        }
        ReservationChange::Expired => object.set_expired(now()),
        ReservationChange::Owners { owners, allocated, is_consumed } => {
            let status = object.status.get_or_insert_default();
            status.current_owners = owners.iter().map(owner).collect();
            status.allocated.clone_from(allocated);
            if *is_consumed {
                object.set_succeeded(now());
            }
        }
    }
}

fn owner(pod: &Subject) -> ObjectReference {
    ObjectReference {
        namespace: Some(pod.key.namespace.to_string()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Deletes a Reservation that has ended long ago. What fails is tried again with the next collection.
pub(super) async fn delete(shared: &Shared, name: &str, uid: &str) {
    if shared.check_lead().is_err() {
        return;
    }
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
    let (path, body) = (path(name, ""), body.to_string().into_bytes());
    let deleted =
        patiently(Failure::is_passing, || shared.api.send(Method::DELETE, &path, JSON, body.clone())).await;
    match deleted {
        Ok(()) => tracing::info!(reservation = name, "reservation collected, for it ended long ago"),
        Err(failure) if failure.is_gone() || failure.is_conflict() => {}
        Err(failure) => {
            tracing::warn!(reservation = name, error = %failure, "reservation could not be deleted");
        }
    }
}

/// Patches annotations of a Reservation before it is bound.
pub(super) async fn annotate(
    shared: &Shared,
    name: &str,
    uid: &str,
    annotations: &std::collections::BTreeMap<String, Option<String>>,
) -> Result<(), Failure> {
    let body = json!({"metadata": {"uid": uid, "annotations": annotations}}).to_string().into_bytes();
    let path = path(name, "");
    let passing = Failure::is_passing_for_patch;
    patiently(passing, || shared.api.send(Method::PATCH, &path, MERGE, body.clone())).await
}

/// Takes the mark of a reservation off a pod whose bind failed. Spec: A7.8, table U.
pub(super) async fn unmark(shared: &Shared, mark: &Unmark) {
    if shared.check_lead().is_err() {
        return;
    }
    let done = patiently(Failure::is_passing_for_patch, || try_unmark(shared, mark)).await;
    if let Err(failure) = done
        && !failure.is_gone()
    {
        tracing::warn!(pod = %mark.pod.key, error = %failure, "the mark of a reservation could not be removed");
    }
}

async fn try_unmark(shared: &Shared, mark: &Unmark) -> Result<(), Failure> {
    let path = pod_path(&mark.pod.key, "");
    let raw: Value = shared.api.fetch(Method::GET, &path, JSON, Vec::new()).await?;
    let is_another = raw["metadata"]["uid"] != *mark.pod.uid;
    let node = raw["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
    let is_there = node.is_some_and(|node| node == &*mark.node);
    let annotations = &raw["metadata"]["annotations"];
    let left: Map<String, Value> = mark
        .annotations
        .iter()
        .filter(|key| !annotations[key.as_str()].is_null())
        .map(|key| (key.clone(), Value::Null))
        .collect();
    if is_another || is_there || left.is_empty() {
        return Ok(());
    }
    // At the version that was looked at: a mark that is written meanwhile is another one.
    let body = json!({"metadata": {
        "uid": mark.pod.uid, "resourceVersion": raw["metadata"]["resourceVersion"], "annotations": left,
    }});
    shared.api.send(Method::PATCH, &path, MERGE, body.to_string().into_bytes()).await
}

/// Reads, changes and writes the status of exactly this Reservation, again while others write too.
async fn edit(
    shared: &Shared,
    name: &str,
    uid: &str,
    change: impl Fn(&mut Reservation) -> Result<(), String>,
) -> Result<(), Failure> {
    let refused = |message: String| Failure::Refused { code: REFUSED, message };
    let attempt = || async {
        let raw: Value = shared.api.fetch(Method::GET, &path(name, ""), JSON, Vec::new()).await?;
        if raw["metadata"]["uid"] != *uid {
            let message = format!("reservations.scheduling.koordinator.sh \"{name}\" not found");
            return Err(Failure::Refused { code: 404, message });
        }
        let mut object: Reservation = decode_object(&raw).map_err(|error| refused(error.to_string()))?;
        let to_value =
            |object: &Reservation| serde_json::to_value(object).map_err(|error| refused(error.to_string()));
        let before = to_value(&object)?;
        change(&mut object).map_err(refused)?;
        let after = to_value(&object)?;
        if before == after {
            return Ok(());
        }
        let body = carry_unknown(&raw, &before, &after).to_string().into_bytes();
        shared.api.send(Method::PUT, &path(name, "/status"), JSON, body).await
    };
    patiently(Failure::is_passing_for_patch, attempt).await
}

fn now() -> Time {
    Time(Timestamp::now())
}
