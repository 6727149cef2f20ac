//! How the fields of a Pod merge: Kubernetes' own table, for those who patch pods without the whole schema.

use super::Shape;

/// A pod, to patch it with [`super::apply_fields`].
pub static POD: PodShape =
    object(&[("metadata", object(METADATA)), ("spec", object(SPEC)), ("status", object(STATUS))]);

/// A Reservation, whose template holds a pod.
pub static RESERVATION: PodShape =
    object(&[("metadata", object(METADATA)), ("spec", object(RESERVATION_SPEC))]);

const RESERVATION_SPEC: Fields =
    &[("template", object(&[("metadata", object(METADATA)), ("spec", object(SPEC))]))];

/// A field of a pod. What is not in the table merges if it is an object, and is replaced if it is a list.
pub struct PodShape {
    fields: &'static [(&'static str, PodShape)],
    items: Option<&'static PodShape>,
    merges: bool,
    key: &'static str,
}

impl Shape for PodShape {
    fn field(&self, name: &str) -> Option<&PodShape> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape)
    }

    fn items(&self) -> Option<&PodShape> {
        self.items
    }

    fn merges(&self) -> bool {
        self.merges
    }

    fn replaces(&self) -> bool {
        false
    }

    fn merge_key(&self) -> &str {
        self.key
    }
}

type Fields = &'static [(&'static str, PodShape)];

const fn object(fields: Fields) -> PodShape {
    PodShape { fields, items: None, merges: false, key: "" }
}

/// A list whose elements have a key.
const fn keyed(key: &'static str, items: &'static PodShape) -> PodShape {
    PodShape { fields: &[], items: Some(items), merges: true, key }
}

/// A list that is replaced as a whole.
const fn list(items: &'static PodShape) -> PodShape {
    PodShape { fields: &[], items: Some(items), merges: false, key: "" }
}

/// A list of plain values, each there once.
const SET: PodShape = PodShape { fields: &[], items: None, merges: true, key: "" };

static PLAIN: PodShape = object(&[]);

const METADATA: Fields = &[("ownerReferences", keyed("uid", &PLAIN)), ("finalizers", SET)];

const SPEC: Fields = &[
    ("containers", keyed("name", &CONTAINER)),
    ("initContainers", keyed("name", &CONTAINER)),
    ("ephemeralContainers", keyed("name", &CONTAINER)),
    ("volumes", keyed("name", &VOLUME)),
    ("imagePullSecrets", keyed("name", &PLAIN)),
    ("hostAliases", keyed("ip", &PLAIN)),
    ("topologySpreadConstraints", keyed("topologyKey", &PLAIN)),
    ("schedulingGates", keyed("name", &PLAIN)),
    ("resourceClaims", keyed("name", &PLAIN)),
];

static CONTAINER: PodShape = object(&[
    ("ports", keyed("containerPort", &PLAIN)),
    ("env", keyed("name", &PLAIN)),
    ("volumeMounts", keyed("mountPath", &PLAIN)),
    ("volumeDevices", keyed("devicePath", &PLAIN)),
]);

static VOLUME: PodShape =
    object(&[("ephemeral", object(&[("volumeClaimTemplate", object(&[("metadata", object(METADATA))]))]))]);

const STATUS: Fields = &[
    ("conditions", keyed("type", &PLAIN)),
    ("hostIPs", keyed("ip", &PLAIN)),
    ("podIPs", keyed("ip", &PLAIN)),
    ("resourceClaimStatuses", keyed("name", &PLAIN)),
    ("containerStatuses", list(&CONTAINER_STATUS)),
    ("initContainerStatuses", list(&CONTAINER_STATUS)),
    ("ephemeralContainerStatuses", list(&CONTAINER_STATUS)),
];

static CONTAINER_STATUS: PodShape = object(&[
    ("allocatedResourcesStatus", keyed("name", &PLAIN)),
    ("volumeMounts", keyed("mountPath", &PLAIN)),
]);
