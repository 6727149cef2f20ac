//! What profiles make of a new Reservation: the fields of a pod, where a Reservation has them. Spec: manager 21.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::profile::{PriorityClassFacts, Profile, ProfileError, ProfileFault, Profiles, set_priority};
use super::tree::{Object, child};
use crate::crd::reservation::Reservation;
use crate::patch::PatchError;
use crate::patch::strategic::{self, pod::RESERVATION};
use crate::preserve::carry_unknown;

/// Applies all profiles whose selector matches the Reservation's labels, in order of name; their selectors of namespaces
/// say nothing here. Amounts stay what they are. Gives the names of the profiles that were applied.
///
/// `dice` gives a number from 0 to 99. On an error the Reservation may be half changed.
pub fn apply(
    reservation: &mut Value,
    profiles: &Profiles,
    priority_classes: &BTreeMap<String, PriorityClassFacts>,
    mut dice: impl FnMut() -> i64,
) -> Result<Vec<String>, ProfileError> {
    let matched: Vec<&Profile> = profiles.iter().filter(|profile| profile.selects(reservation)).collect();
    let mut applied = Vec::new();
    for profile in matched {
        if profile.chance()?.decide(&mut dice) {
            apply_one(profile, reservation, priority_classes)?;
            applied.push(profile.name().to_owned());
        }
    }
    Ok(applied)
}

fn apply_one(
    profile: &Profile,
    reservation: &mut Value,
    priority_classes: &BTreeMap<String, PriorityClassFacts>,
) -> Result<(), ProfileError> {
    profile.set_texts(reservation);
    profile.append_suffixes(reservation, |_, _| true);
    let spec = profile.spec();
    if !spec.scheduler_name.is_empty()
        && let Some(pod) = pod_spec(reservation)
    {
        pod.insert("schedulerName".to_owned(), json!(spec.scheduler_name));
    }
    profile.set_qos(reservation);
    if !spec.priority_class_name.is_empty()
        && let Some(pod) = pod_spec(reservation)
    {
        let name = &spec.priority_class_name;
        let class = priority_classes
            .get(name)
            .ok_or_else(|| profile.error(ProfileFault::NoPriorityClass { name: name.clone() }))?;
        set_priority(pod, name, class);
    }
    profile.set_sub_priority(reservation);
    patch(profile, reservation)
}

/// The pod's spec in the template; none without a template.
fn pod_spec(reservation: &mut Value) -> Option<&mut Object> {
    let template = reservation.get_mut("spec")?.get_mut("template")?.as_object_mut()?;
    Some(child(template, "spec"))
}

fn patch(profile: &Profile, reservation: &mut Value) -> Result<(), ProfileError> {
    let name = || profile.name().to_owned();
    let patch = match &profile.spec().patch {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(patch)) => patch.clone(),
        Some(_) => {
            let source = PatchError::Malformed("the patch is not an object".to_owned());
            return Err(profile.error(ProfileFault::Patch { profile: name(), source }));
        }
    };
    let typed = |tree: &Value| {
        let read = Reservation::deserialize(tree).and_then(serde_json::to_value);
        read.map_err(|error| {
            profile.error(ProfileFault::NoReservation { profile: name(), reason: error.to_string() })
        })
    };
    let before = typed(reservation)?;
    let patched = strategic::apply_fields(reservation.clone(), patch, &RESERVATION)
        .map_err(|source| profile.error(ProfileFault::Patch { profile: name(), source }))?;
    // Most patches are written for pods: what a Reservation has no place for is left out.
    *reservation = carry_unknown(reservation, &before, &typed(&patched)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::cluster_colocation_profile::ClusterColocationProfile;
    use crate::keys::pod::label::{PRIORITY, QOS_CLASS};

    fn profile(name: &str, spec: Value) -> ClusterColocationProfile {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        ClusterColocationProfile::deserialize(&object).expect("a profile")
    }

    fn classes() -> BTreeMap<String, PriorityClassFacts> {
        let preemption_policy = Some("PreemptLowerPriority".to_owned());
        [("koord-batch".to_owned(), PriorityClassFacts { value: 5000, preemption_policy })].into()
    }

    /// The Reservation after these profiles, or why not.
    fn run(reservation: &Value, profiles: &[ClusterColocationProfile]) -> Result<Value, String> {
        let mut reservation = reservation.clone();
        apply(&mut reservation, &Profiles::new(profiles), &classes(), || 50)
            .map(|_| reservation)
            .map_err(|error| error.to_string())
    }

    fn with_template() -> Value {
        json!({
            "metadata": {"name": "r", "labels": {"app": "a"}},
            "spec": {
                "owners": [{"labelSelector": {}, "unknown": 1}],
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            },
        })
    }

    #[test]
    fn fields_go_where_a_reservation_has_them() {
        let all = profile(
            "p",
            json!({
                "namespaceSelector": {"matchLabels": {"no": "such"}},
                "selector": {"matchLabels": {"app": "a"}},
                "labels": {"x": "1"}, "labelKeysMapping": {"x": "y"}, "labelSuffixes": {"y": "-s"},
                "annotations": {"n": "2"}, "annotationKeysMapping": {"gone": "m"},
                "schedulerName": "koord-scheduler", "qosClass": "BE", "priorityClassName": "koord-batch",
                "koordinatorPriority": 7,
                "patch": {
                    "metadata": {"labels": {"app": null}},
                    "spec": {
                        "containers": [{"name": "c"}], "nodeSelector": {"for": "pods"},
                        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                    },
                },
            }),
        );
        let got = run(&with_template(), std::slice::from_ref(&all)).expect("applied");
        let labels = json!({"x": "1", "y": "1-s", QOS_CLASS: "BE", PRIORITY: "7"});
        assert_eq!(got["metadata"]["labels"], labels);
        assert_eq!(got["metadata"]["annotations"], json!({"n": "2", "m": ""}));
        assert_eq!(got["spec"]["owners"], with_template()["spec"]["owners"], "what we do not know stays");
        let fields: Vec<_> = got["spec"].as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["owners", "template"], "a patch for pods adds nothing else");
        let template = json!({
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "schedulerName": "koord-scheduler", "priorityClassName": "koord-batch", "priority": 5000,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        assert_eq!(got["spec"]["template"]["spec"], template, "amounts are not translated");
        let other = json!({"metadata": {"labels": {"app": "b"}}, "spec": {}});
        assert_eq!(run(&other, &[all]), Ok(other.clone()), "not selected");
    }

    #[test]
    fn without_a_template_the_pods_fields_have_no_place() {
        let bare = json!({"metadata": {"name": "r"}, "spec": {}});
        let spec = json!({"schedulerName": "s", "priorityClassName": "ghost", "qosClass": "LS"});
        let got = run(&bare, &[profile("p", spec.clone())]).expect("the class is not looked up");
        assert_eq!(got["spec"], json!({}));
        assert_eq!(got["metadata"]["labels"][QOS_CLASS], "LS");
        let refused = run(&with_template(), &[profile("p", spec)]);
        assert_eq!(refused.unwrap_err(), "PriorityClass.scheduling.k8s.io \"ghost\" not found");
    }

    #[test]
    fn order_chance_and_faults() {
        let set = |name: &str, value: &str, more: Value| {
            let mut spec = json!({"labels": {"x": value}});
            spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            profile(name, spec)
        };
        let x = |profiles: &[ClusterColocationProfile]| {
            run(&with_template(), profiles).map(|got| got["metadata"]["labels"]["x"].clone())
        };
        let [a, b] = [set("a", "1", json!({})), set("b", "2", json!({}))];
        assert_eq!(x(&[b.clone(), a.clone()]), Ok(json!("2")), "by name");
        assert_eq!(
            x(&[a.clone(), set("b", "2", json!({"probability": 50}))]),
            Ok(json!("1")),
            "50 of 100 is not lucky"
        );
        assert_eq!(x(&[a.clone(), set("b", "2", json!({"probability": 51}))]), Ok(json!("2")));
        let broken = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}});
        assert_eq!(x(&[a.clone(), set("b", "2", broken)]), Ok(json!("1")), "cannot be judged");
        for fault in [
            json!({"probability": "abc"}),
            json!({"patch": {"spec": {"owners": "bad"}}}),
            json!({"patch": [1]}),
        ] {
            assert!(x(&[a.clone(), set("b", "2", fault.clone())]).is_err(), "{fault}");
        }
    }
}
