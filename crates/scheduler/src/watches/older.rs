//! Kinds as older clusters serve them: v1beta1 with the fields of v1.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A kind under v1beta1.
#[derive(Clone, Debug)]
pub(super) struct Beta<K>(pub(super) K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Beta<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Beta<K>, D::Error> {
        // k8s-openapi insists on its own version where an object names one.
        let mut value = serde_json::Value::deserialize(deserializer)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        serde_json::from_value(value).map(Beta).map_err(serde::de::Error::custom)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Beta<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;

    #[test]
    fn an_older_budget_is_read() {
        let text = r#"{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"b"},
            "spec":{"maxUnavailable":1},"status":{"disruptionsAllowed":2}}"#;
        let budget: Beta<PodDisruptionBudget> = serde_json::from_str(text).unwrap();
        assert_eq!(budget.meta().name.as_deref(), Some("b"));
        assert_eq!(budget.0.status.map(|status| status.disruptions_allowed), Some(2));
        assert_eq!(
            Beta::<PodDisruptionBudget>::url_path(&(), None),
            "/apis/policy/v1beta1/poddisruptionbudgets"
        );
    }
}
