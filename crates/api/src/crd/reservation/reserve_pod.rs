//! The pod that stands for a reservation while it is scheduled. It is never created. Spec: crds 1.4.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use super::{Reservation, ReservationPhase};
use crate::keys;
use crate::pod;
use crate::quantity::ResourceList;

/// Holds what a reservation holds when that is no longer what its template asks for.
pub const FAKE_CONTAINER: &str = "__internal_fake_container__";

const DEFAULT_NAMESPACE: &str = "default";
const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Above all pods, so that a reservation is not preempted.
const DEFAULT_PRIORITY: i32 = i32::MAX;

impl Reservation {
    /// The pod that stands for this reservation.
    pub fn reserve_pod(&self) -> Pod {
        let template = self.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
        let mut metadata = template.metadata.unwrap_or_default();
        let mut spec = template.spec.unwrap_or_default();

        metadata.name = self.metadata.uid.clone();
        metadata.uid = self.metadata.uid.clone();
        if metadata.namespace.as_deref().is_none_or(str::is_empty) {
            metadata.namespace = Some(DEFAULT_NAMESPACE.to_owned());
        }
        overlay(&mut metadata.labels, &self.metadata.labels);
        overlay(&mut metadata.annotations, &self.metadata.annotations);
        let pinned = spec.node_name.take().filter(|name| !name.is_empty());
        self.annotate(metadata.annotations.get_or_insert_default(), pinned);

        spec.node_name = self.node_name().map(str::to_owned);
        spec.priority = spec.priority.or_else(|| self.label_priority()).or(Some(DEFAULT_PRIORITY));
        if spec.scheduler_name.as_deref().is_none_or(str::is_empty) {
            spec.scheduler_name = Some(DEFAULT_SCHEDULER.to_owned());
        }
        let mut pod = Pod { metadata, spec: Some(spec), status: self.pod_status() };
        self.hold_allocatable(&mut pod);
        pod
    }

    fn annotate(&self, annotations: &mut BTreeMap<String, String>, pinned: Option<String>) {
        use keys::pod::annotation::{IS_PRE_ALLOCATION, RESERVATION_NAME, RESERVATION_NODE, RESERVE_POD};
        let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
        set(RESERVE_POD, "true".to_owned());
        set(RESERVATION_NAME, self.metadata.name.clone().unwrap_or_default());
        if self.spec.as_ref().and_then(|spec| spec.pre_allocation).unwrap_or_default() {
            set(IS_PRE_ALLOCATION, "true".to_owned());
        }
        if let Some(node) = pinned {
            set(RESERVATION_NODE, node);
        }
    }

    /// A label that is no decimal number counts as absent.
    fn label_priority(&self) -> Option<i32> {
        self.metadata.labels.as_ref()?.get(keys::reservation::label::PRIORITY)?.parse().ok()
    }

    fn pod_status(&self) -> Option<PodStatus> {
        let phase = self.phase();
        matches!(phase, ReservationPhase::Succeeded | ReservationPhase::Failed)
            .then(|| PodStatus { phase: Some(phase.to_string()), ..Default::default() })
    }

    /// What an available reservation holds may differ from its template, after a resize.
    fn hold_allocatable(&self, pod: &mut Pod) {
        let Some(status) = self.status.as_ref().filter(|_| self.is_available()) else { return };
        let mut requests = pod::requests(pod);
        if requests == status.allocatable {
            return;
        }
        requests.extend(status.allocatable.iter().map(|(name, amount)| (name.clone(), *amount)));
        if let Some(spec) = &mut pod.spec {
            hold(spec, &requests);
        }
    }
}

/// Makes the pod ask for exactly this much.
fn hold(spec: &mut PodSpec, amounts: &ResourceList) {
    spec.overhead = None;
    spec.resources = None;
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        container.resources = None;
    }
    let amounts: BTreeMap<String, WireQuantity> =
        amounts.iter().map(|(name, amount)| (name.clone(), WireQuantity::from(*amount))).collect();
    spec.containers.push(Container {
        name: FAKE_CONTAINER.to_owned(),
        resources: Some(ResourceRequirements {
            requests: Some(amounts.clone()),
            limits: Some(amounts),
            ..Default::default()
        }),
        ..Default::default()
    });
}

fn overlay(under: &mut Option<BTreeMap<String, String>>, over: &Option<BTreeMap<String, String>>) {
    if let Some(over) = over {
        under.get_or_insert_default().extend(over.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::crd::decode_object;

    /// Adds uid and name to what a case gives, and derives the pod as JSON.
    fn derive(mut object: Value) -> Value {
        object["metadata"]["name"] = json!("r1");
        object["metadata"]["uid"] = json!("u-1");
        let reservation: Reservation = decode_object(&object).unwrap();
        serde_json::to_value(reservation.reserve_pod()).unwrap()
    }

    fn container(resources: Value) -> Value {
        json!({ "name": "c", "resources": resources })
    }

    #[test]
    fn everything_comes_from_template_and_reservation() {
        let pod = derive(json!({
            "metadata": { "labels": { "a": "r", "koordinator.sh/priority": "0x10" }, "annotations": { "k": "r" } },
            "spec": {
                "preAllocation": true,
                "template": {
                    "metadata": { "labels": { "a": "t", "b": "t" }, "annotations": { "k": "t" } },
                    "spec": { "nodeName": "n9", "containers": [container(json!({ "requests": { "cpu": 2 } }))] },
                },
            },
        }));
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "u-1",
                    "uid": "u-1",
                    "namespace": "default",
                    "labels": { "a": "r", "b": "t", "koordinator.sh/priority": "0x10" },
                    "annotations": {
                        "k": "r",
                        "scheduling.koordinator.sh/reserve-pod": "true",
                        "scheduling.koordinator.sh/reservation-name": "r1",
                        "scheduling.koordinator.sh/reservation-node": "n9",
                        "scheduling.koordinator.sh/is-pre-allocation": "true",
                    },
                },
                "spec": {
                    "priority": 2147483647,
                    "schedulerName": "default-scheduler",
                    "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }],
                },
            }),
            "crds#1.4.R1"
        );
    }

    #[test]
    fn a_resized_one_holds_its_allocatable() {
        let pod = derive(json!({
            "metadata": { "labels": { "koordinator.sh/priority": "77" } },
            "spec": { "template": {
                "metadata": { "namespace": "shop" },
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "overhead": { "cpu": "1" },
                    "initContainers": [{ "name": "i", "resources": { "requests": { "cpu": "9" } } }],
                    "containers": [container(json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "3" } }))],
                },
            } },
            "status": { "phase": "Available", "nodeName": "n1", "allocatable": { "cpu": "4", "memory": "1Gi" } },
        }));
        assert_eq!(pod["metadata"]["namespace"], "shop");
        let amounts = json!({ "cpu": "4", "memory": "1Gi" });
        assert_eq!(
            pod["spec"],
            json!({
                "nodeName": "n1",
                "priority": 77,
                "schedulerName": "koord-scheduler",
                "initContainers": [{ "name": "i" }],
                "containers": [
                    { "name": "c" },
                    { "name": "__internal_fake_container__", "resources": { "requests": amounts, "limits": amounts } },
                ],
            }),
            "crds#1.4.R2"
        );
    }

    #[test]
    fn an_equal_amount_leaves_the_containers_alone() {
        let resources = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "3" } });
        let with_status = |status: Value| {
            derive(json!({
                "spec": { "template": { "spec": { "containers": [container(resources.clone())] } } },
                "status": status,
            }))
        };
        let equal =
            with_status(json!({ "phase": "Available", "nodeName": "n1", "allocatable": { "cpu": "2000m" } }));
        assert_eq!(equal["spec"]["containers"], json!([container(resources.clone())]), "crds#1.4.R3");
        let nowhere = with_status(json!({ "phase": "Available", "allocatable": { "cpu": "4" } }));
        assert_eq!(nowhere["spec"]["containers"], json!([container(resources.clone())]), "without a node");
    }

    #[test]
    fn worked_examples() {
        let requests = json!({ "requests": { "cpu": "4", "memory": "8Gi" } });
        let first = |over: Value| {
            let mut object = json!({
                "metadata": { "labels": { "a": "r", "koordinator.sh/priority": "9500" } },
                "spec": { "template": {
                    "metadata": { "name": "t", "namespace": "ns1", "labels": { "a": "t", "b": "t" } },
                    "spec": { "nodeName": "nx", "containers": [container(requests.clone())] },
                } },
            });
            for (path, value) in over.as_object().unwrap() {
                *object.pointer_mut(path).unwrap() = value.clone();
            }
            object
        };
        let key = "scheduler-reservation-loadaware#A3.P1";
        let pod = derive(first(json!({})));
        let metadata = &pod["metadata"];
        assert_eq!((&metadata["namespace"], &metadata["name"]), (&json!("ns1"), &json!("u-1")), "{key}");
        assert_eq!(
            metadata["labels"],
            json!({ "a": "r", "b": "t", "koordinator.sh/priority": "9500" }),
            "{key}"
        );
        assert_eq!(
            metadata["annotations"],
            json!({
                "scheduling.koordinator.sh/reserve-pod": "true",
                "scheduling.koordinator.sh/reservation-name": "r1",
                "scheduling.koordinator.sh/reservation-node": "nx",
            }),
            "{key}"
        );
        let spec = &pod["spec"];
        assert_eq!((&spec["priority"], spec.get("nodeName")), (&json!(9500), None), "{key}");
        assert_eq!(spec["schedulerName"], "default-scheduler", "{key}");
        assert_eq!(spec["containers"], json!([container(requests.clone())]), "{key}");

        let key = "scheduler-reservation-loadaware#A3.P2";
        let amounts = json!({ "cpu": "6", "memory": "8Gi", "nvidia.com/gpu": "1" });
        let mut object = first(json!({ "/metadata/labels/koordinator.sh~1priority": "abc" }));
        object["spec"]["template"]["spec"]["overhead"] = json!({ "cpu": "1" });
        object["status"] = json!({ "phase": "Available", "nodeName": "n1", "allocatable": amounts });
        let pod = derive(object);
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeName"], &spec["priority"]), (&json!("n1"), &json!(i32::MAX)), "{key}");
        assert_eq!(spec.get("overhead"), None, "{key}");
        let held = json!({ "name": FAKE_CONTAINER, "resources": { "requests": amounts, "limits": amounts } });
        assert_eq!(spec["containers"], json!([{ "name": "c" }, held]), "{key}");

        let key = "scheduler-reservation-loadaware#A3.P3";
        let template = json!({ "metadata": { "labels": { "koordinator.sh/priority": "7000" } } });
        let pod = derive(json!({ "spec": { "template": template },
            "status": { "phase": "Waiting", "nodeName": "n1" } }));
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeName"], &spec["priority"]), (&json!("n1"), &json!(i32::MAX)), "{key}");
        assert_eq!(pod.get("status"), None, "{key}");

        let key = "scheduler-reservation-loadaware#A3.P4";
        assert_eq!(derive(json!({ "status": { "phase": "Failed" } }))["status"]["phase"], "Failed", "{key}");
    }

    #[test]
    fn phase_and_priority() {
        for (key, phase, node) in [("crds#1.4.R4", "Failed", "n1"), ("crds#1.4.R4", "Succeeded", "")] {
            let pod = derive(json!({ "status": { "phase": phase, "nodeName": node } }));
            assert_eq!(pod["status"], json!({ "phase": phase }), "{key}");
        }
        assert_eq!(derive(json!({ "status": { "phase": "Expired" } }))["status"]["phase"], "Failed");
        assert_eq!(derive(json!({ "status": { "phase": "Available" } })).get("status"), None);

        let pod = derive(json!({
            "metadata": { "labels": { "koordinator.sh/priority": "77" } },
            "spec": { "template": { "spec": { "priority": 5 } } },
        }));
        assert_eq!(pod["spec"]["priority"], 5, "crds#1.4.R5");
    }
}
