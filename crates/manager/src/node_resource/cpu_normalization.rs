//! CPU normalization: how much stronger a node's CPUs are than the cluster's baseline. Spec: manager 8.
//!
//! The ratio goes into an annotation; this round's text multiplies batch CPU.

use koord_api::annotation::node::{BoolLabelError, cpu_normalization_enabled};
use koord_api::annotation::node_topology::CpuBasicInfo;
use koord_api::annotation::ratio::{CpuNormalizationRatio, Ratio};
use koord_api::annotation::{Annotation, AnnotationError, Annotations, read, read_text};
use koord_api::slo::cpu::RatioError;

use super::{Input, Item, NodeMemory, NodeResource, NodeView, Plugin, PluginError};

const KEY: &str = CpuNormalizationRatio::KEY;

pub struct CpuNormalization;

impl Plugin for CpuNormalization {
    fn name(&self) -> &'static str {
        "CPUNormalization"
    }

    fn calculate(&self, input: &Input<'_>, _: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        let ratio = ratio(input).map_err(|error| PluginError(error.to_string()))?;
        let annotations = [(KEY.to_owned(), CpuNormalizationRatio(ratio).text())].into();
        Ok(vec![Item { name: self.name(), annotations, ..Item::default() }])
    }

    /// The annotation stays as it is.
    fn reset(&self) -> Vec<Item> {
        Vec::new()
    }

    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        if let Some(text) = resource.annotations.get(KEY) {
            node.annotations.insert(KEY.to_owned(), text.clone());
        }
        Ok(())
    }

    fn needs_meta(&self, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(differs(&old.annotations, &new.annotations))
    }
}

/// Why a node keeps the ratio it has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum NoRatio {
    #[error("the config of CPU normalization is not available")]
    NoConfig,
    #[error(transparent)]
    Label(#[from] BoolLabelError),
    #[error("there is no NodeResourceTopology that describes the node's CPUs")]
    NoCpuInfo,
    #[error(transparent)]
    BadCpuInfo(#[from] AnnotationError),
    #[error(transparent)]
    Model(#[from] RatioError),
}

/// The ratio of a node: its label decides whether there is one but 1, else its strategy.
fn ratio(input: &Input<'_>) -> Result<Ratio, NoRatio> {
    let strategy = input.config.cpu_normalization_strategy(input.node.facts()).ok_or(NoRatio::NoConfig)?;
    let is_enabled = cpu_normalization_enabled(Some(&input.node.labels))?.or(strategy.enable) == Some(true);
    let (model, ratio) = if is_enabled {
        let text = input.topology.and_then(|topology| topology.cpu_basic_info.as_deref());
        let cpu: Option<CpuBasicInfo> = read_text(CpuBasicInfo::KEY, text.ok_or(NoRatio::NoCpuInfo)?)?;
        let cpu = cpu.ok_or(NoRatio::NoCpuInfo)?;
        let ratio = strategy.model_ratio(&cpu.cpu_model, cpu.hyper_thread_enabled, cpu.turbo_enabled)?;
        (cpu.cpu_model, ratio)
    } else {
        (String::new(), 1.0)
    };
    Ratio::new(ratio).ok_or(NoRatio::Model(RatioError::OutOfRange { model, ratio }))
}

/// Whether a ratio is worth a write of its own; one that is close to the old is not.
fn differs(old: &Annotations, new: &Annotations) -> bool {
    let Ok(old) = read::<CpuNormalizationRatio>(old) else { return true };
    let Ok(new) = read::<CpuNormalizationRatio>(new) else { return false };
    match (old, new) {
        (Some(old), Some(new)) => old.0.differs(new.0),
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
mod tests;
