//! The state of slo-controller-config: the last good strategies of every key. Spec: api 7.2.
//!
//! Fed with the ConfigMap's data, it keeps what was good, and says what to tell people about the
//! rest. Picking strategies for a node is in `render`.

use std::collections::BTreeMap;

use super::colocation::ColocationStrategy;
use super::cpu::{CpuNormalizationStrategy, ResourceAmplificationStrategy};
use super::document::Document;
use super::extension::ExtensionRules;
use super::rules::Rules;
use super::strategy::{HostApplications, Strategy};
use crate::crd::node_slo::{
    CpuBurstStrategy, ResourceQosStrategy, ResourceThresholdStrategy, SystemStrategy,
};

/// The strategies of all keys.
#[derive(Clone, Debug, Default)]
pub struct SloConfig {
    pub colocation: Slot<ColocationStrategy>,
    pub threshold: Slot<ResourceThresholdStrategy>,
    pub qos: Slot<ResourceQosStrategy>,
    pub burst: Slot<CpuBurstStrategy>,
    pub system: Slot<SystemStrategy>,
    pub host_applications: Slot<HostApplications>,
    pub cpu_normalization: Slot<CpuNormalizationStrategy>,
    pub amplification: Slot<ResourceAmplificationStrategy>,
    /// Keys of third parties that are registered, by name.
    pub(super) extensions: BTreeMap<String, ExtensionRules>,
    config_map: ConfigMap,
}

/// What is known of the ConfigMap itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConfigMap {
    #[default]
    Unknown,
    Absent,
    Present,
}

/// The last good strategies of one key.
#[derive(Clone, Debug)]
pub struct Slot<S: Strategy> {
    rules: Option<Rules<S>>,
    failed: bool,
}

/// What a load did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys whose strategies are not what they were.
    pub changed: Vec<String>,
    /// To be recorded as Warning on the ConfigMap.
    pub events: Vec<ConfigEvent>,
}

/// A Warning event on the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEvent {
    pub reason: &'static str,
    pub message: String,
}

impl SloConfig {
    /// A state that also carries the keys of third parties. Nothing is available before a load.
    pub fn with_extensions(names: impl IntoIterator<Item = String>) -> SloConfig {
        let extensions = names.into_iter().map(|name| (name, ExtensionRules::default())).collect();
        SloConfig { extensions, ..SloConfig::default() }
    }

    /// Whether anything is known yet. Before that, controllers do nothing.
    pub fn is_loaded(&self) -> bool {
        self.config_map != ConfigMap::Unknown
    }

    /// Takes in the ConfigMap's data, or its absence. Each key stands alone: a broken one keeps
    /// its last good strategies, the others are updated.
    ///
    /// Differs: a deleted ConfigMap gives the defaults at once, and an event; upstream keeps the
    /// old content until it is restarted (api 11, item 19).
    pub fn load(&mut self, data: Option<&BTreeMap<String, String>>) -> Loaded {
        let mut loaded = Loaded::default();
        if data.is_none() && self.config_map == ConfigMap::Present {
            let message = "the ConfigMap was deleted, built-in defaults apply".to_owned();
            loaded.events.push(ConfigEvent { reason: "SLOCfgDeleted", message });
        }
        self.config_map = if data.is_some() { ConfigMap::Present } else { ConfigMap::Absent };
        let absent = BTreeMap::new();
        let texts = data.unwrap_or(&absent);
        self.colocation.load(texts, &mut loaded);
        // Only here an absent ConfigMap counts as an error: existing NodeMetrics stay as they are.
        self.colocation.failed |= data.is_none();
        self.threshold.load(texts, &mut loaded);
        self.qos.load(texts, &mut loaded);
        self.burst.load(texts, &mut loaded);
        self.system.load(texts, &mut loaded);
        self.host_applications.load(texts, &mut loaded);
        self.cpu_normalization.load(texts, &mut loaded);
        self.amplification.load(texts, &mut loaded);
        self.load_extensions(texts, &mut loaded);
        loaded
    }

    fn load_extensions(&mut self, texts: &BTreeMap<String, String>, loaded: &mut Loaded) {
        for (name, rules) in &mut self.extensions {
            match texts.get(name).map(|text| ExtensionRules::parse(text)).transpose() {
                Ok(read) => {
                    let read = read.unwrap_or_default();
                    if *rules != read {
                        *rules = read;
                        loaded.changed.push(name.clone());
                    }
                }
                Err(error) => {
                    let message = format!("failed to unmarshal {name}, err: {error}");
                    loaded.events.push(ConfigEvent { reason: "SLOCfgUnmarshalFailed", message });
                }
            }
        }
    }
}

impl<S: Strategy> Slot<S> {
    /// The last good strategies; none until the key has been read once without error.
    pub fn rules(&self) -> Option<&Rules<S>> {
        self.rules.as_ref()
    }

    /// Whether the last load of this key failed.
    pub fn has_error(&self) -> bool {
        self.failed
    }

    fn load(&mut self, texts: &BTreeMap<String, String>, loaded: &mut Loaded) {
        let text = texts.get(S::KEY).filter(|text| !(S::EMPTY_IS_DEFAULT && text.is_empty()));
        let rules = match text {
            None => Ok(Rules::built_in()),
            Some(text) => read(text),
        };
        self.failed = rules.is_err();
        match rules {
            Ok(rules) => {
                loaded.events.extend(rules.nodes.iter().enumerate().filter_map(|(index, rule)| {
                    let problems = rule.problems.join("; ");
                    let message = format!("{} node item {index} {:?}: {problems}", S::KEY, rule.name);
                    (!problems.is_empty()).then_some(ConfigEvent { reason: "SLOCfgInvalid", message })
                }));
                if !self.rules.as_ref().is_some_and(|old| old.same_as(&rules)) {
                    loaded.changed.push(S::KEY.to_owned());
                }
                self.rules = Some(rules);
            }
            Err(event) => loaded.events.push(event),
        }
    }
}

/// A document that cannot be read, and one that says something impossible, are both told.
///
/// Differs: upstream is silent about the second (api 7.2).
fn read<S: Strategy>(text: &str) -> Result<Rules<S>, ConfigEvent> {
    let document = Document::parse(text, S::SHAPE).map_err(|error| {
        let (reason, subject) = S::UNREADABLE;
        ConfigEvent { reason, message: format!("failed to unmarshal {subject}, err: {error}") }
    })?;
    Rules::new(document).map_err(|problems| ConfigEvent {
        reason: "SLOCfgInvalid",
        message: format!("{} is not used: {}", S::KEY, problems.join("; ")),
    })
}

impl<S: Strategy> Default for Slot<S> {
    fn default() -> Slot<S> {
        Slot { rules: None, failed: false }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slo::key;

    const DOCUMENTS: [&str; 5] = [
        r#"{"clusterStrategy":{"enable":true}}"#,
        r#"{"clusterStrategy":{"cpuSuppressThresholdPercent":1},"nodeStrategies":[{"nodeSelector":{}}]}"#,
        "null",
        "{",
        r#"{"clusterStrategy":{"enable":1}}"#,
    ];

    proptest! {
        /// After any history a key holds what its last readable document says, alone.
        #[test]
        fn the_last_readable_document_holds(history in prop::collection::vec(0..=DOCUMENTS.len(), 1..12)) {
            let mut config = SloConfig::default();
            prop_assert!(!config.is_loaded());
            let mut last_good = None;
            for step in history {
                // One past the end stands for an absent key.
                let text = DOCUMENTS.get(step).map(|text| (*text).to_owned());
                let data: BTreeMap<_, _> =
                    text.into_iter().map(|text| (key::RESOURCE_THRESHOLD.to_owned(), text)).collect();
                let loaded = config.load(Some(&data));
                let alone = {
                    let mut fresh = SloConfig::default();
                    fresh.load(Some(&data));
                    fresh.threshold
                };
                prop_assert_eq!(loaded.events.is_empty(), !alone.has_error());
                prop_assert_eq!(config.threshold.has_error(), alone.has_error());
                last_good = alone.rules.map(|rules| (rules.cluster, rules.nodes.len())).or(last_good);
                let held = config.threshold.rules().map(|rules| (rules.cluster.clone(), rules.nodes.len()));
                prop_assert_eq!(held, last_good.clone());
                prop_assert!(config.is_loaded());
                prop_assert!(config.load(Some(&data)).changed.is_empty());
            }
        }
    }
}
