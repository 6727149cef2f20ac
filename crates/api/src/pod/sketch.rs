//! Short pods for tests: what is not mentioned does not matter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub(crate) type Amounts<'a> = &'a [(&'a str, &'a str)];

pub(crate) fn pod() -> Pod {
    Pod { spec: Some(PodSpec::default()), ..Pod::default() }
}

pub(crate) fn amounts(list: Amounts<'_>) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))).collect()
}

/// One container; an empty list of amounts is an absent one.
pub(crate) fn container(name: &str, requests: Amounts<'_>, limits: Amounts<'_>) -> Container {
    let some = |list: Amounts<'_>| (!list.is_empty()).then(|| amounts(list));
    Container {
        name: name.to_string(),
        resources: Some(ResourceRequirements {
            requests: some(requests),
            limits: some(limits),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

pub(crate) trait Sketch: Sized {
    fn edit(self, f: impl FnOnce(&mut PodSpec)) -> Self;
    fn named(self, namespace: &str, name: &str) -> Self;
    fn label(self, key: &str, value: &str) -> Self;
    fn annotation(self, key: &str, value: &str) -> Self;
    fn kube_qos(self, text: &str) -> Self;

    fn qos(self, text: &str) -> Self {
        self.label(crate::keys::pod::label::QOS_CLASS, text)
    }
    fn priority(self, value: i32) -> Self {
        self.edit(|spec| spec.priority = Some(value))
    }
    /// Containers are named c1, c2, …
    fn container(self, requests: Amounts<'_>, limits: Amounts<'_>) -> Self {
        self.edit(|spec| {
            let name = format!("c{}", spec.containers.len() + 1);
            spec.containers.push(container(&name, requests, limits));
        })
    }
    fn init(self, requests: Amounts<'_>, limits: Amounts<'_>) -> Self {
        self.edit(|spec| {
            spec.init_containers.get_or_insert_default().push(container("init", requests, limits));
        })
    }
    fn sidecar(self, requests: Amounts<'_>, limits: Amounts<'_>) -> Self {
        self.init(requests, limits).edit(|spec| {
            let last = spec.init_containers.as_mut().and_then(|list| list.last_mut());
            last.expect("just pushed").restart_policy = Some("Always".to_string());
        })
    }
    fn overhead(self, list: Amounts<'_>) -> Self {
        self.edit(|spec| spec.overhead = Some(amounts(list)))
    }
    fn pod_level(self, requests: Amounts<'_>, limits: Amounts<'_>) -> Self {
        self.edit(|spec| spec.resources = container("", requests, limits).resources)
    }
}

impl Sketch for Pod {
    fn edit(mut self, f: impl FnOnce(&mut PodSpec)) -> Self {
        f(self.spec.get_or_insert_default());
        self
    }
    fn named(mut self, namespace: &str, name: &str) -> Self {
        self.metadata.namespace = Some(namespace.to_string());
        self.metadata.name = Some(name.to_string());
        self
    }
    fn label(mut self, key: &str, value: &str) -> Self {
        self.metadata.labels.get_or_insert_default().insert(key.to_string(), value.to_string());
        self
    }
    fn annotation(mut self, key: &str, value: &str) -> Self {
        self.metadata.annotations.get_or_insert_default().insert(key.to_string(), value.to_string());
        self
    }
    fn kube_qos(mut self, text: &str) -> Self {
        self.status = Some(PodStatus { qos_class: Some(text.to_string()), ..PodStatus::default() });
        self
    }
}
