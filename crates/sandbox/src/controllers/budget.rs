//! PodDisruptionBudgets: how many pods may be evicted now.
//!
//! Pure but for `sync` and the question how large a controller wants to be.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pod::Pod;
use super::recorder::about;
use super::shell::{Next, Shell, key_of, split, time};
use super::view::{self, IntOrPercent, Meta, Owner, PodSelector};
use crate::kinds::{Subresource, quote};
use crate::server::Part;
use crate::status::qualified;

const COMPONENT: &str = "controllermanager";
/// An evicted pod that is still there after this was not evicted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Budget {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    selector: PodSelector,
    min_available: Option<IntOrPercent>,
    max_unavailable: Option<IntOrPercent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    disrupted_pods: BTreeMap<String, Timestamp>,
    observed_generation: i64,
}

/// A pod, as far as a budget cares.
#[derive(Debug)]
struct Guarded {
    name: Box<str>,
    uid: Box<str>,
    owner: Option<Owner>,
    is_deleting: bool,
    is_ready: bool,
}

impl Guarded {
    fn of(pod: &Pod) -> Guarded {
        Guarded {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            owner: pod.owner.as_deref().cloned(),
            is_deleting: pod.deleting.is_some(),
            is_ready: pod.is_ready(),
        }
    }
}

/// Counts that make a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    expected: i64,
    desired: i64,
    healthy: i64,
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("policy", "poddisruptionbudgets", key) else { return Ok(None) };
    let Some(budget) = view::read::<Budget>(&stored) else { return Ok(None) };
    let now = shell.api.now();
    let pods: Vec<Guarded> = shell.look(|world| {
        let pods = world.pods.in_namespace(&budget.metadata.namespace);
        pods.filter(|pod| budget.spec.selector.0.matches(&pod.labels)).map(Guarded::of).collect()
    });
    let about = about("policy/v1", "PodDisruptionBudget", &budget.metadata);
    if pods.is_empty() {
        shell.tell(COMPONENT, &about, "NoPods", "No matching pods found".to_owned()).await;
    }
    let object = stored.value();
    let (disrupted, late, next) = disrupted(&budget.status.disrupted_pods, &pods, now);
    for pod in late {
        let meta = Meta {
            name: pod.name.clone(),
            namespace: budget.metadata.namespace.clone(),
            uid: pod.uid.clone(),
            ..Meta::default()
        };
        let namespace = &budget.metadata.namespace;
        let text = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        shell.warn(COMPONENT, &super::recorder::about("v1", "Pod", &meta), "NotDeleted", text).await;
    }
    let status = match count(shell, &budget, &pods) {
        Ok((counts, unmanaged)) => {
            if unmanaged {
                let text = unmanaged_text(&object["spec"]["selector"]);
                shell.warn(COMPONENT, &about, "UnmanagedPods", text).await;
            }
            let counts = Counts { healthy: healthy(&pods, &disrupted), ..counts };
            status(&object, &counts, &disrupted, now)
        }
        Err(why) => {
            let text = format!("Failed to calculate the number of expected pods: {why}");
            shell.warn(COMPONENT, &about, "CalculateExpectedPodCountFailed", text).await;
            fail_safe(&object["status"], budget.status.observed_generation, &why, now)
        }
    };
    if status != object["status"] {
        write(shell, key, stored.revision(), &status).await?;
    }
    Ok(next)
}

/// Evictions write the same status: only the version that was read may be replaced.
async fn write(
    shell: &Shell,
    key: &str,
    revision: u64,
    status: &Value,
) -> Result<(), crate::status::ApiError> {
    let kind = shell.api.kind("policy", "poddisruptionbudgets")?;
    let seen = revision.to_string();
    let change = |object: &mut Value| {
        if crate::kinds::meta::text(object, "resourceVersion") != seen {
            return Err(kind.conflict(split(key).1, "the object has been modified"));
        }
        object["status"] = status.clone();
        Ok(true)
    };
    match shell.api.edit(&kind, split(key), Part::Status, &shell.write, &change).await {
        Err(error) if error.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Expected and desired pods, and whether some pods have no controller to ask.
fn count(shell: &Shell, budget: &Budget, pods: &[Guarded]) -> Result<(Counts, bool), String> {
    let total = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let bad = |value: &IntOrPercent| format!("invalid value for IntOrString: {value:?}");
    match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(max), _) => {
            let (expected, unmanaged) = expected_scale(shell, &budget.metadata.namespace, pods)?;
            let max = max.of(expected, true).ok_or_else(|| bad(max))?;
            Ok((Counts { expected, desired: (expected - max).max(0), healthy: 0 }, unmanaged))
        }
        (None, Some(IntOrPercent::Int(min))) => {
            Ok((Counts { expected: total, desired: *min, healthy: 0 }, false))
        }
        (None, Some(min)) => {
            let (expected, unmanaged) = expected_scale(shell, &budget.metadata.namespace, pods)?;
            let desired = min.of(expected, true).ok_or_else(|| bad(min))?;
            Ok((Counts { expected, desired, healthy: 0 }, unmanaged))
        }
        (None, None) => Ok((Counts::default(), false)),
    }
}

/// The sum of what the pods' controllers want.
fn expected_scale(shell: &Shell, namespace: &str, pods: &[Guarded]) -> Result<(i64, bool), String> {
    let mut scales: BTreeMap<Box<str>, i64> = BTreeMap::new();
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    let mut has_unmanaged = false;
    for pod in pods {
        let Some(owner) = &pod.owner else {
            has_unmanaged = true;
            continue;
        };
        if seen.insert(&owner.uid, ()).is_some() {
            continue;
        }
        match scale_of(shell, namespace, owner)? {
            Some((uid, scale)) => scales.insert(uid, scale),
            None => return Err(format!("found no controllers for pod {}", quote(&pod.name))),
        };
    }
    Ok((scales.values().sum(), has_unmanaged))
}

/// The controller above all, and the size it wants.
fn scale_of(shell: &Shell, namespace: &str, owner: &Owner) -> Result<Option<(Box<str>, i64)>, String> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let registry = shell.api.registry();
    let kind = registry.find_kind(group, version, &owner.kind).ok_or_else(|| {
        let (kind, api) = (quote(&owner.kind), quote(&owner.api_version));
        format!("no matches for kind {kind} in version {api}")
    })?;
    let resource = qualified(&kind.group, &kind.plural);
    let paths = match kind.find_subresource("scale") {
        Some(Subresource::Scale(paths)) => paths,
        _ => return Err(format!("{resource} does not implement the scale subresource")),
    };
    let Some(stored) = shell.get(&kind.group, &kind.plural, &key_of(namespace, &owner.name)) else {
        return Ok(None);
    };
    if stored.uid() != &*owner.uid {
        return Ok(None);
    }
    let meta = view::read_meta(&stored);
    if &*owner.kind == "ReplicaSet"
        && let Some(above) = meta.controller().filter(|above| &*above.kind == "Deployment")
    {
        return scale_of(shell, namespace, above);
    }
    let object = stored.value();
    let replicas = paths.spec_replicas.split('.').try_fold(&object, |value, field| value.get(field));
    Ok(Some((owner.uid.clone(), replicas.and_then(Value::as_i64).unwrap_or(0))))
}

/// Evicted pods that are still to go, those that did not in time, and when to look again.
fn disrupted<'a>(
    noted: &BTreeMap<String, Timestamp>,
    pods: &'a [Guarded],
    now: Timestamp,
) -> (BTreeMap<String, Timestamp>, Vec<&'a Guarded>, Option<Timestamp>) {
    let (mut kept, mut late, mut next) = (BTreeMap::new(), Vec::new(), None);
    for pod in pods.iter().filter(|pod| !pod.is_deleting) {
        let Some(at) = noted.get(&*pod.name) else { continue };
        let due = at.checked_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX);
        if due < now {
            late.push(pod);
        } else {
            next = next.into_iter().chain([due]).min();
            kept.insert(pod.name.to_string(), *at);
        }
    }
    (kept, late, next)
}

fn healthy(pods: &[Guarded], disrupted: &BTreeMap<String, Timestamp>) -> i64 {
    let is_healthy = |pod: &&Guarded| !pod.is_deleting && pod.is_ready && !disrupted.contains_key(&*pod.name);
    i64::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i64::MAX)
}

fn status(object: &Value, counts: &Counts, disrupted: &BTreeMap<String, Timestamp>, now: Timestamp) -> Value {
    let spare = counts.healthy - counts.desired;
    let allowed = if counts.expected <= 0 || spare <= 0 { 0 } else { spare };
    let generation = crate::kinds::meta::generation(object);
    let mut status = json!({
        "currentHealthy": counts.healthy, "desiredHealthy": counts.desired,
        "expectedPods": counts.expected, "disruptionsAllowed": allowed,
        "observedGeneration": generation,
    });
    if !disrupted.is_empty() {
        let map: BTreeMap<&String, Value> = disrupted.iter().map(|(name, at)| (name, time(*at))).collect();
        status["disruptedPods"] = json!(map);
    }
    if let Some(conditions) = object["status"].get("conditions") {
        status["conditions"] = conditions.clone();
    }
    let (is, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set(&mut status, (is, reason, ""), generation, now);
    status
}

/// Nothing may be evicted while the numbers are not known.
fn fail_safe(old: &Value, generation: i64, why: &str, now: Timestamp) -> Value {
    let mut status = old.clone();
    for field in ["currentHealthy", "desiredHealthy", "expectedPods"] {
        if status.get(field).is_none() {
            status[field] = json!(0);
        }
    }
    status["disruptionsAllowed"] = json!(0);
    set(&mut status, ("False", "SyncFailed", why), generation, now);
    status
}

/// The one condition of a budget, in place.
fn set(status: &mut Value, (is, reason, message): (&str, &str, &str), generation: i64, now: Timestamp) {
    let mut new = json!({"type": "DisruptionAllowed", "status": is, "reason": reason, "message": message,
        "lastTransitionTime": time(now)});
    if generation > 0 {
        new["observedGeneration"] = json!(generation);
    }
    if let Some(old) = view::find_condition(status, "DisruptionAllowed")
        && old["status"] == new["status"]
    {
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    let others = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut list: Vec<Value> = others.into_iter().filter(|c| c["type"] != "DisruptionAllowed").collect();
    list.push(new);
    status["conditions"] = Value::Array(list);
}

fn unmanaged_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {}", value.as_str().unwrap_or_default())).collect();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{},}},\
         MatchExpressions:[]LabelSelectorRequirement{{}},}}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
         please set \".spec.minAvailable\" field of the PDB to an integer value.",
        labels.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, is_ready: bool, is_deleting: bool) -> Guarded {
        Guarded { name: name.into(), uid: name.into(), owner: None, is_ready, is_deleting }
    }

    #[test]
    fn evicted_pods_do_not_count_until_they_are_late() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let pods =
            [pod("a", true, false), pod("b", true, false), pod("c", true, true), pod("d", false, false)];
        let noted = BTreeMap::from([
            ("a".to_owned(), at(0)),
            ("b".to_owned(), at(100)),
            ("c".to_owned(), at(100)),
            ("gone".to_owned(), at(100)),
        ]);
        let (kept, late, next) = disrupted(&noted, &pods, at(150));
        assert_eq!(kept, BTreeMap::from([("b".to_owned(), at(100))]));
        assert_eq!(late.iter().map(|p| &*p.name).collect::<Vec<_>>(), ["a"]);
        assert_eq!(next, Some(at(220)));
        assert_eq!(healthy(&pods, &kept), 1);
    }

    #[test]
    fn what_may_go_is_what_is_healthy_beyond_the_wish() {
        let now = Timestamp::UNIX_EPOCH;
        let object = json!({"metadata": {"generation": 3}});
        for (counts, allowed, reason) in [
            (Counts { expected: 5, desired: 3, healthy: 5 }, 2, "SufficientPods"),
            (Counts { expected: 5, desired: 3, healthy: 3 }, 0, "InsufficientPods"),
            (Counts { expected: 5, desired: 3, healthy: 1 }, 0, "InsufficientPods"),
            (Counts { expected: 0, desired: 0, healthy: 1 }, 0, "InsufficientPods"),
        ] {
            let status = status(&object, &counts, &BTreeMap::new(), now);
            assert_eq!(status["disruptionsAllowed"], allowed, "{counts:?}");
            assert_eq!(status["conditions"][0]["reason"], reason, "{counts:?}");
            assert_eq!(status["observedGeneration"], 3);
        }
        let failed = fail_safe(&json!({"disruptionsAllowed": 2}), 3, "no luck", now);
        assert_eq!(failed["disruptionsAllowed"], 0);
        assert_eq!(failed["conditions"][0]["message"], "no luck");
    }
}
