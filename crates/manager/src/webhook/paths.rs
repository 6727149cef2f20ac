//! Everything that is served: paths, what the API server sends there, and the gates that switch it. Spec: manager 14.1.
//!
//! One table, read by the server, by the keeper of the webhook configurations and by whoever installs them.

use koord_api::gate::Gates;
use koord_api::keys;
use serde_json::{Value, json};

/// Which of the two webhook configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Mutating,
    Validating,
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Mutating, Side::Validating];

    /// Kind of the configuration object.
    pub fn kind(self) -> &'static str {
        match self {
            Side::Mutating => "MutatingWebhookConfiguration",
            Side::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// How metrics call it.
    pub fn metric(self) -> &'static str {
        match self {
            Side::Mutating => "mutate",
            Side::Validating => "validate",
        }
    }
}

/// What the API server does when nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    Ignore,
    Fail,
}

/// Which objects an entry is about, beyond its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    All,
    /// With this label.
    Labelled(&'static str, &'static str),
}

/// One entry of a webhook configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: &'static str,
    pub path: &'static str,
    pub side: Side,
    pub operations: &'static [&'static str],
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    /// Namespaces labelled `control-plane` are left out.
    pub spares_control_plane: bool,
    pub objects: Objects,
    pub failure_policy: FailurePolicy,
    /// All of them must be on.
    pub gates: &'static [&'static str],
    /// How metrics call the objects.
    pub metric: &'static str,
}

pub const MUTATE_POD: &str = "/mutate-pod";
pub const MUTATE_QUOTA: &str = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota";
pub const MUTATE_NODE_STATUS: &str = "/mutate-node-status";
pub const MUTATE_RESERVATION: &str = "/mutate-reservation";
pub const VALIDATE_POD: &str = "/validate-pod";
pub const VALIDATE_BINDING: &str = "/validate-pod-binding";
pub const VALIDATE_QUOTA: &str = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota";
pub const VALIDATE_NODE: &str = "/validate-node";
pub const VALIDATE_CONFIG_MAP: &str = "/validate-configmap";

/// An entry about pods; the others differ from it.
const PODS: Entry = Entry {
    name: "mpod-create.koordinator.sh",
    path: MUTATE_POD,
    side: Side::Mutating,
    operations: &["CREATE"],
    group: "",
    version: "v1",
    resource: "pods",
    spares_control_plane: true,
    objects: Objects::All,
    failure_policy: FailurePolicy::Ignore,
    gates: &["PodMutatingWebhook"],
    metric: "pod",
};

const QUOTAS: Entry = Entry {
    group: "scheduling.sigs.k8s.io",
    version: "v1alpha1",
    resource: "elasticquotas",
    metric: "elasticquota",
    ..PODS
};

const NODES: Entry = Entry { spares_control_plane: false, resource: "nodes", metric: "node", ..PODS };

/// All entries, in the order of the configurations. Failure policies are the chart's.
pub const ENTRIES: [Entry; 10] = [
    PODS,
    Entry {
        name: "mpod-update.koordinator.sh",
        operations: &["UPDATE"],
        objects: Objects::Labelled(keys::pod::label::MUTATING_UPDATE, "true"),
        ..PODS
    },
    Entry {
        name: "melasticquota.koordinator.sh",
        path: MUTATE_QUOTA,
        gates: &["ElasticMutatingWebhook"],
        ..QUOTAS
    },
    Entry {
        name: "mnode-status.koordinator.sh",
        path: MUTATE_NODE_STATUS,
        operations: &["CREATE", "UPDATE"],
        resource: "nodes/status",
        gates: &["NodeMutatingWebhook"],
        ..NODES
    },
    Entry {
        name: "mreservation-create.koordinator.sh",
        path: MUTATE_RESERVATION,
        group: "scheduling.koordinator.sh",
        version: "v1alpha1",
        resource: "reservations",
        spares_control_plane: false,
        gates: &["ReservationMutatingWebhook"],
        metric: "reservation",
        ..PODS
    },
    Entry {
        name: "vpod.koordinator.sh",
        path: VALIDATE_POD,
        side: Side::Validating,
        operations: &["CREATE", "UPDATE"],
        gates: &["PodValidatingWebhook"],
        ..PODS
    },
    Entry {
        name: "vpodbinding.koordinator.sh",
        path: VALIDATE_BINDING,
        side: Side::Validating,
        resource: "pods/binding",
        spares_control_plane: false,
        gates: &["PodValidatingWebhook", "BindingAdmissionWebhook"],
        ..PODS
    },
    Entry {
        name: "velasticquota.koordinator.sh",
        path: VALIDATE_QUOTA,
        side: Side::Validating,
        operations: &["CREATE", "UPDATE", "DELETE"],
        gates: &["ElasticValidatingWebhook"],
        ..QUOTAS
    },
    Entry {
        name: "vnode.koordinator.sh",
        path: VALIDATE_NODE,
        side: Side::Validating,
        operations: &["CREATE", "UPDATE"],
        gates: &["NodeValidatingWebhook"],
        ..NODES
    },
    Entry {
        name: "vconfigmap.koordinator.sh",
        path: VALIDATE_CONFIG_MAP,
        side: Side::Validating,
        operations: &["CREATE", "UPDATE", "DELETE"],
        resource: "configmaps",
        spares_control_plane: false,
        objects: Objects::Labelled(keys::config_map::label::TYPE, "slo-controller-config"),
        failure_policy: FailurePolicy::Fail,
        gates: &["ConfigMapValidatingWebhook"],
        metric: "configmap",
        ..PODS
    },
];

impl Entry {
    pub fn is_on(&self, gates: &Gates) -> bool {
        self.gates.iter().all(|gate| gates.is_on(gate))
    }

    /// The entry as it stands in a configuration that nobody has kept yet.
    pub fn wire(&self, service_namespace: &str, service_name: &str) -> Value {
        let mut entry = json!({
            "name": self.name,
            "admissionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": {
                "caBundle": "Cg==",
                "service": {"namespace": service_namespace, "name": service_name, "path": self.path},
            },
            "failurePolicy": match self.failure_policy {
                FailurePolicy::Ignore => "Ignore",
                FailurePolicy::Fail => "Fail",
            },
            "rules": [{
                "apiGroups": [self.group],
                "apiVersions": [self.version],
                "operations": self.operations,
                "resources": [self.resource],
            }],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        });
        if self.spares_control_plane {
            entry["namespaceSelector"] =
                json!({"matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]});
        }
        if let Objects::Labelled(key, value) = self.objects {
            entry["objectSelector"] =
                json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
        }
        entry
    }
}

/// Whether a path is served at all under these gates.
pub fn is_served(path: &str, gates: &Gates) -> bool {
    ENTRIES.iter().any(|entry| entry.path == path && entry.is_on(gates))
}

/// A configuration as it is installed: all entries of its side, not yet kept by anyone.
pub fn installed(side: Side, name: &str, service_namespace: &str, service_name: &str) -> Value {
    let entries = ENTRIES.iter().filter(|entry| entry.side == side);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": side.kind(),
        "metadata": {"name": name, "annotations": {"template": ""}},
        "webhooks": entries.map(|entry| entry.wire(service_namespace, service_name)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use koord_api::gate::Component;

    use super::*;

    #[test]
    fn the_table_holds_together() {
        let names: BTreeSet<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), ENTRIES.len());
        let known: BTreeSet<&str> = Component::Manager.gates().map(|gate| gate.name).collect();
        for entry in ENTRIES {
            assert!(entry.gates.iter().all(|gate| known.contains(gate)), "{}", entry.name);
            assert_eq!(entry.path.starts_with("/mutate"), entry.side == Side::Mutating, "{}", entry.name);
        }
    }

    #[test]
    fn gates_switch_paths() {
        let gates = |text: &str| Gates::parse(Component::Manager, text).unwrap();
        let on = |gates: &Gates| {
            let paths: BTreeSet<&str> =
                ENTRIES.iter().map(|entry| entry.path).filter(|path| is_served(path, gates)).collect();
            paths.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(on(&gates("")), [MUTATE_POD, MUTATE_QUOTA, VALIDATE_POD, VALIDATE_QUOTA]);
        let all = gates(
            "NodeMutatingWebhook=true,NodeValidatingWebhook=true,ConfigMapValidatingWebhook=true,\
             ReservationMutatingWebhook=true,BindingAdmissionWebhook=true",
        );
        assert_eq!(on(&all).len(), 9);
        let no_pods = gates("PodValidatingWebhook=false,BindingAdmissionWebhook=true");
        assert!(!is_served(VALIDATE_BINDING, &no_pods), "a binding needs both gates");
        assert!(!is_served("/nothing", &all));
    }

    #[test]
    fn entries_as_installed() {
        let mutating = installed(Side::Mutating, "m", "ns", "svc");
        assert_eq!(mutating["webhooks"].as_array().unwrap().len(), 5);
        let update = &mutating["webhooks"][1];
        assert_eq!(
            update["objectSelector"]["matchExpressions"][0]["key"],
            json!("pod.koordinator.sh/mutating-update")
        );
        assert_eq!(
            update["clientConfig"]["service"],
            json!({"namespace": "ns", "name": "svc", "path": "/mutate-pod"})
        );
        let validating = installed(Side::Validating, "v", "ns", "svc");
        for webhook in validating["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["admissionReviewVersions"], json!(["v1", "v1beta1"]));
            let fails = webhook["failurePolicy"] == json!("Fail");
            assert_eq!(
                fails,
                webhook["name"] == json!("vconfigmap.koordinator.sh"),
                "nothing else can lock out"
            );
        }
        let spared = json!({"matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]});
        let all = [&mutating, &validating].map(|side| side["webhooks"].as_array().unwrap());
        let about_pods =
            all.into_iter().flatten().filter(|webhook| webhook["rules"][0]["resources"] == json!(["pods"]));
        let found: Vec<_> =
            about_pods.map(|webhook| (&webhook["name"], &webhook["namespaceSelector"])).collect();
        let names =
            ["mpod-create", "mpod-update", "vpod"].map(|name| json!(format!("{name}.koordinator.sh")));
        let want: Vec<_> = names.iter().map(|name| (name, &spared)).collect();
        assert_eq!(found, want, "manager#15.2.P13");
    }
}
